"""Transforms and products in the ring, against sums and products written out."""

from __future__ import annotations

import galois
import numpy as np
import pytest

from secagg import ParameterError
from secagg.oneshot.ring import MAX_DEGREE, MAX_LIMBS, Ring, bit_reversal, shoup_quotients

DEGREES = [2, 4, 8, 16, 32, 64, 128, 256, 1024, 8192, MAX_DEGREE]


def schoolbook(a: list[int], b: list[int], modulus: int) -> list[int]:
    """Product modulo x^N + 1, term by term."""
    n = len(a)
    result = [0] * n
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            sign = 1 if i + j < n else -1
            result[(i + j) % n] += sign * x * y
    return [each % modulus for each in result]


@pytest.mark.parametrize("degree", [2, 8, 1024, 4096, 8192])
def test_primes_are_the_largest_ones(degree: int) -> None:
    ring = Ring(degree, MAX_LIMBS)
    between = range(ring.primes[-1], 1 << 27, 2 * degree)
    found = [p for p in between if galois.is_prime(p)]
    assert ring.primes == tuple(reversed(found))
    assert np.prod([int(p) for p in ring.primes], dtype=object) == ring.modulus


@pytest.mark.parametrize("degree", [2, 16, 8192])
def test_roots_come_from_smallest_primitive_roots(degree: int) -> None:
    ring = Ring(degree, 3)
    for p, psi in zip(ring.primes, ring.roots, strict=True):
        assert psi == pow(int(galois.primitive_root(p)), (p - 1) // (2 * degree), p)
        assert pow(psi, degree, p) == p - 1


@pytest.mark.parametrize("degree", DEGREES)
def test_values_are_those_at_odd_powers_in_bit_reversed_order(degree: int) -> None:
    ring = Ring(degree, 2)
    rng = np.random.default_rng(degree)
    coefficients = rng.integers(-(10**6), 10**6, degree)
    values = ring.forward(ring.reduce(coefficients))
    bits = degree.bit_length() - 1
    places = range(degree) if degree <= 32 else rng.integers(0, degree, 5).tolist()
    for i, (p, psi) in enumerate(zip(ring.primes, ring.roots, strict=True)):
        for j in places:
            point = pow(psi, 2 * int(f"{j:0{bits}b}"[::-1], 2) + 1, p)
            expected = 0
            for each in reversed(coefficients.tolist()):
                expected = (expected * point + each) % p
            assert values[i, j] == expected


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("kind", ["largest", "alternating", "zero", "random"])
def test_inverse_undoes_forward_at_the_extremes(degree: int, kind: str) -> None:
    """With all values p - 1 the lazy sums grow as far as they can."""
    ring = Ring(degree, 2)
    top = np.array(ring.primes, np.uint32)[:, None] - np.ones((2, degree), np.uint32)
    rows = {
        "largest": top,
        "alternating": top * (np.arange(degree, dtype=np.uint32) % 2),
        "zero": np.zeros_like(top),
        "random": ring.reduce(np.random.default_rng(degree).integers(-(2**62), 2**62, degree)),
    }
    values = np.stack([rows[kind]] * 3)
    before = values.copy()
    for there, back in ((ring.forward, ring.inverse), (ring.inverse, ring.forward)):
        moved = there(values)
        assert (moved < np.array(ring.primes)[:, None]).all()
        assert np.array_equal(back(moved), values)
    assert np.array_equal(values, before)


@pytest.mark.parametrize(("degree", "limbs"), [(2, 1), (4, 7), (8, 2), (16, 1), (64, 3)])
def test_products_equal_schoolbook(degree: int, limbs: int) -> None:
    ring = Ring(degree, limbs)
    rng = np.random.default_rng([degree, limbs])
    a, b = rng.integers(-(2**40), 2**40, (2, degree))
    product = ring.inverse(
        ring.multiply(ring.forward(ring.reduce(a)), ring.forward(ring.reduce(b)))
    )
    for i, p in enumerate(ring.primes):
        assert product[i].tolist() == schoolbook(a.tolist(), b.tolist(), p)


def test_a_product_of_full_size_equals_its_definition() -> None:
    """x^(N - 1) times x is -1: products wrap around with the other sign."""
    ring = Ring(8192, 7)
    rng = np.random.default_rng(0)
    a = rng.integers(-84, 85, 8192)
    shift = np.zeros(8192, np.int64)
    shift[5] = 1
    product = ring.inverse(
        ring.multiply(ring.forward(ring.reduce(a)), ring.forward(ring.reduce(shift)))
    )
    turned = np.concatenate([-a[-5:], a[:-5]])
    assert np.array_equal(product, ring.reduce(turned))


def test_several_elements_at_once() -> None:
    ring = Ring(16, 3)
    values = np.random.default_rng(1).integers(0, 2**26, (2, 5, 3, 16)).astype(np.uint32)
    moved = ring.forward(values)
    for i in np.ndindex(2, 5):
        assert np.array_equal(moved[i], ring.forward(values[i]))
    # A view that is not contiguous means the same.
    assert np.array_equal(ring.forward(values[:, ::2]), moved[:, ::2])
    assert np.array_equal(ring.reduce(np.arange(32).reshape(2, 16))[1, 2], np.arange(16, 32))


def test_bit_reversal_is_its_own_inverse() -> None:
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    order = bit_reversal(1024)
    assert np.array_equal(order[order], np.arange(1024))


def test_quotients_are_exact() -> None:
    primes = np.array(Ring(2, 7).primes + Ring(MAX_DEGREE, 7).primes, np.uint32)
    edges = np.arange(3, dtype=np.uint32)
    middle = primes[:, None] // np.array([2, 3, 5, 7], np.uint32)
    constants = np.concatenate(
        [np.tile(edges, (14, 1)), primes[:, None] - 1 - edges, middle, middle + 1], axis=1
    )
    exact = [
        [(int(w) << 32) // int(p) for w in row] for row, p in zip(constants, primes, strict=True)
    ]
    assert shoup_quotients(constants, primes).tolist() == exact


def test_lazy_sums_fit_for_every_prime_of_every_ring() -> None:
    """The kernels count on 11 words of 2^27 being below 12 p, and on 32 p < 2^32."""
    smallest = Ring(MAX_DEGREE, MAX_LIMBS).primes[-1]
    assert 11 << 27 < 12 * smallest
    assert 32 * Ring(2, 1).primes[0] < 1 << 32


@pytest.mark.parametrize("degree", [0, 1, 3, 6, -8, 2 * MAX_DEGREE, 8.0])
def test_other_degrees_are_refused(degree: int) -> None:
    with pytest.raises(ParameterError, match="degree"):
        Ring(degree, 1)


@pytest.mark.parametrize("limbs", [0, -1, MAX_LIMBS + 1, 1.0])
def test_other_numbers_of_primes_are_refused(limbs: int) -> None:
    with pytest.raises(ParameterError, match="limbs"):
        Ring(8, limbs)


def test_bad_arrays_are_refused() -> None:
    ring = Ring(8, 2)
    good = np.zeros((2, 8), np.uint32)
    for bad in (good.astype(np.uint64), good[:1], good[:, :4], good[0]):
        for call in (ring.forward, ring.inverse, lambda x: ring.multiply(x, good)):
            with pytest.raises(ParameterError, match="values"):
                call(bad)
        with pytest.raises(ParameterError, match="by"):
            ring.multiply(good, bad)
    with pytest.raises(ParameterError, match="values"):
        ring.reduce(np.zeros(7, np.int64))
    with pytest.raises(ParameterError, match="values"):
        ring.reduce(np.array(1))
