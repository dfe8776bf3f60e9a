"""Packing against integers of any size: every kind of base, carries, and what goes over a digit."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import CapacityError, ParameterError
from secagg.oneshot import _packing_kernels
from secagg.oneshot.packing import CHUNK, MAX_MAGNITUDE, Packing, scale_for
from secagg.oneshot.ring import Ring
from secagg.oneshot.rounding import ceil_sqrt

Vector = np.ndarray

# Bases for which a word holds many digits, some, one; and those of which a digit has two words.
CASES = [
    Packing(Ring(2, 1), 5, 3),
    Packing(Ring(4, 1), 1, 1),
    Packing(Ring(8, 2), 100, 1000, 3),
    Packing(Ring(16, 7), 32767, 50),
    Packing(Ring(8, 7), 32768, 50),
    Packing(Ring(8, 7), 1, 7, 5),
    Packing(Ring(8, 7), 2**31 - 1, 7, 5),
    Packing(Ring(8, 7), 2**31, 7, 5),
    Packing(Ring(8, 7), 2**40, 7, 5),
    Packing(Ring(8, 7), MAX_MAGNITUDE, 10**6, 18),
    Packing(Ring(4, 3), MAX_MAGNITUDE, 3),
    Packing(Ring(4, 3), 2**47, 3),
]


def name_of(packing: Packing) -> str:
    return f"{packing.largest}-of-{packing.clients}-in-{packing.ring.limbs}"


every_case = pytest.mark.parametrize("packing", CASES, ids=name_of)


def integers(residues: Vector, packing: Packing) -> list[int]:
    """Centred integers modulo q, by the Chinese remainder theorem."""
    q = packing.ring.modulus
    idempotents = [q // p * pow(q // p, -1, p) for p in packing.ring.primes]
    found = []
    for column in residues.T.tolist():
        x = sum(r * e for r, e in zip(column, idempotents, strict=True)) % q
        found.append(x - q if x > q // 2 else x)
    return found


def residues_of(numbers: list[int], packing: Packing) -> Vector:
    return np.array([[x % p for x in numbers] for p in packing.ring.primes], np.uint32)


def plain_encode(values: Vector, packing: Packing) -> list[int]:
    """Delta sum_j x_j B^j, coefficient by coefficient, and zeros up to 64 of them."""
    starts = range(0, max(len(values), 64 * packing.per), packing.per)
    parts = [values[i : i + packing.per].tolist() for i in starts]
    return [packing.delta * sum(x * packing.base**j for j, x in enumerate(part)) for part in parts]


def plain_decode(sums: list[int], length: int, packing: Packing) -> tuple[list[int], Any]:
    """Nearest multiples of Delta, centred digits from the lowest; the mean square distance."""
    values, squares = [], 0
    half = packing.base // 2
    for x in sums:
        multiple = (x + packing.delta // 2) // packing.delta
        squares += (x - multiple * packing.delta) ** 2
        for _ in range(packing.per):
            digit = (multiple + half) % packing.base - half
            values.append(digit)
            multiple = (multiple - digit) // packing.base
    return values[:length], pytest.approx(squares / len(sums), rel=1e-9)


def lengths(packing: Packing) -> list[int]:
    """One coordinate; a coefficient, the fewest that are sent, and chunks: less, exactly, more."""
    per = packing.per
    around = {max(1, whole * per + d) for whole in (1, 64) for d in (-1, 0, 1)}
    return sorted({1, *around, (2 * CHUNK + 3) * per - 1})


@every_case
def test_the_parameters(packing: Packing) -> None:
    q = packing.ring.modulus
    assert packing.base % 2 == 1 and packing.base >= 2 * packing.largest + 1 > packing.base - 2
    assert packing.delta * packing.base**packing.per < q
    assert packing.delta * packing.base ** (packing.per + 1) >= q
    variance = 6.4**2 + (4**packing.rounding_bits / 12 if packing.rounding_bits else 0)
    wanted = 2 * math.ceil(9 * math.sqrt(packing.clients * variance)) + 1
    assert abs(packing.delta - wanted) <= 2
    for length in lengths(packing):
        assert packing.coefficients(length) == max(math.ceil(length / packing.per), 64)
        degree = packing.ring.degree
        assert packing.blocks(length) == math.ceil(packing.coefficients(length) / degree)


def test_the_scale_is_exact() -> None:
    # 9 * 6.4 * 5 = 288 with nothing left over, which floating-point numbers miss.
    assert scale_for(25) == 2 * 288 + 1
    assert scale_for(50) == 817
    # 81 (40.96 + 4/12) = 3344.76: its root is 57.83.
    assert scale_for(1, 1) == 2 * 58 + 1
    for denominator in (1, 7, 300):
        for numerator in range(1, 400):
            root = ceil_sqrt(numerator, denominator)
            assert root**2 * denominator >= numerator > (root - 1) ** 2 * denominator


@every_case
def test_encode_and_decode_equal_plain_integers(packing: Packing) -> None:
    rng = np.random.default_rng(packing.per)
    half = packing.base // 2
    for length in lengths(packing):
        for values in (
            rng.integers(-half, half, length, endpoint=True),
            np.full(length, half),
            np.full(length, -half),
            np.resize([half, -half], length),
        ):
            encoded = packing.encode(values)
            assert integers(encoded, packing) == plain_encode(values, packing)
            decoded, mean_square = packing.decode(encoded, length)
            assert np.array_equal(decoded, values) and mean_square == 0


@every_case
def test_any_residues_decode_as_plain_integers_do(packing: Packing) -> None:
    """Whatever the sum is, wrapped or not, digits and errors are those of the definition."""
    rng = np.random.default_rng(packing.per)
    length = (CHUNK + 7) * packing.per - 1
    count = packing.coefficients(length)
    q, delta = packing.ring.modulus, packing.delta
    edges = [0, 1, -1, q // 2, -(q // 2), delta // 2, delta // 2 + 1, -(delta // 2), delta, -delta]
    edges += [delta * packing.base**packing.per // 2 + d for d in (-1, 0, 1)]
    sums = np.stack([rng.integers(0, p, count) for p in packing.ring.primes]).astype(np.uint32)
    sums[:, : len(edges)] = residues_of(edges, packing)
    decoded, mean_square = packing.decode(sums, length)
    assert (decoded.tolist(), mean_square) == plain_decode(integers(sums, packing), length, packing)


def test_an_offset_is_added_to_every_coefficient() -> None:
    packing = Packing(Ring(8, 2), 100, 1000, 3)
    sums = residues_of([5 * packing.delta - 40, -3 * packing.delta - 37, *[-38] * 62], packing)
    decoded, mean_square = packing.decode(sums, packing.per + 1, 38)
    assert (decoded[0], decoded[packing.per], 64 * mean_square) == (5, -3, 5)
    assert 64 * packing.decode(sums, packing.per + 1, 38 + packing.ring.modulus)[1] == 5


@settings(max_examples=30)
@given(data=st.data())
def test_sums_of_packed_vectors_are_packed_sums(data: st.DataObject) -> None:
    packing = data.draw(st.sampled_from(CASES))
    clients = data.draw(st.integers(1, min(packing.clients, 5)))
    length = data.draw(st.integers(1, 3 * packing.per))
    most = packing.largest // clients
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    vectors = rng.integers(-most, most, (clients, length), endpoint=True)
    bound = (packing.delta - 1) // 2
    errors = rng.integers(-bound, bound, packing.coefficients(length), endpoint=True).tolist()
    coefficients = [
        sum(each) for each in zip(*(plain_encode(v, packing) for v in vectors), strict=True)
    ]
    noisy = [c + e for c, e in zip(coefficients, errors, strict=True)]
    decoded, mean_square = packing.decode(residues_of(noisy, packing), length)
    assert np.array_equal(decoded, vectors.sum(axis=0))
    assert mean_square == pytest.approx(np.mean(np.square(np.array(errors, np.float64))))


@pytest.mark.parametrize("packing", [case for case in CASES if case.per > 1], ids=name_of)
def test_a_digit_that_wraps_moves_its_upper_neighbour_by_one(packing: Packing) -> None:
    half, base = packing.base // 2, packing.base
    for sign in (1, -1):
        total = [0] * packing.per
        total[0] = sign * (half + 1)
        coefficient = packing.delta * sum(x * base**j for j, x in enumerate(total))
        decoded, _ = packing.decode(residues_of([coefficient] * 64, packing), packing.per)
        assert decoded[:2].tolist() == [-sign * half, sign]
        assert not decoded[2:].any()


def test_an_even_base_reads_the_same_sum_in_two_ways() -> None:
    """Why B is odd: the two vectors differ, lie in range, and have one packed value."""
    even, per = 6, 2
    seen: dict[int, tuple[int, ...]] = {}
    clashes = []
    for digits in product(range(-even // 2, even // 2 + 1), repeat=per):
        packed = sum(x * even**j for j, x in enumerate(digits))
        if packed in seen:
            clashes.append((seen[packed], digits))
        seen[packed] = digits
    assert ((-3, 1), (3, 0)) in clashes
    # With the odd number above it, as this packing has, there are none.
    packing = Packing(Ring(4, 1), 3, 1)
    assert packing.base == 7
    values = np.array(list(product(range(-3, 4), repeat=packing.per)), np.int64)
    coefficients = packing.encode(values.reshape(-1))
    assert np.unique(coefficients[:, : len(values)], axis=1).shape[1] == 7**packing.per


def test_division_is_exact_at_the_edges() -> None:
    """Quotients of doubles are off by one here and there, and corrected."""
    rng = np.random.default_rng(0)
    for divisor in (1, 2, 3, 65535, 2**16 + 1, 2**31 - 1, 2**31 + 1, 2**32 - 1):
        numbers = [0, 1, divisor - 1, divisor, 2**96 - 1, 2**64 - 1, 2**64]
        numbers += [k * divisor + d for k in (2**31, 2**60 - 1) for d in (-1, 0, 1)]
        numbers += [int.from_bytes(rng.bytes(12), "little") for _ in range(500)]
        numbers = [number % 2**96 for number in numbers]
        words = np.array(
            [[(number >> (32 * w)) % 2**32 for number in numbers] for w in range(3)], np.uint32
        )
        rest = np.empty(len(numbers), np.uint32)
        _packing_kernels.divide(words, len(numbers), np.uint64(divisor), rest)
        whole = [sum(int(words[w, t]) << (32 * w) for w in range(3)) for t in range(len(numbers))]
        assert whole == [number // divisor for number in numbers]
        assert rest.tolist() == [number % divisor for number in numbers]


@every_case
def test_sums_of_weighted_limbs_fit_64_bits(packing: Packing) -> None:
    """The largest words, residues below 2^27, an error, a constant, and what is carried."""
    words = np.empty((packing.tables.weights.shape[1], 64), np.uint32)
    packing.group(np.full(64 * packing.per, packing.base // 2), 0, 64, words)
    residue_limbs, word_limbs, constant, modulus, widths, _ = packing.tables.limbs
    most = words[:, 0].astype(object)
    most[most > 2**31] = 2**32 - 1
    carried = 256
    for w, width in enumerate(widths.tolist()):
        total = sum(residue_limbs[w].tolist()) * 2**27 + int(word_limbs[w].astype(object) @ most)
        carried += total + int(constant[w])
        assert carried < 2**64
        carried >>= width
    assert modulus[-1] > 0 == carried


def test_what_does_not_fit_is_refused() -> None:
    ring = Ring(8, 1)
    with pytest.raises(CapacityError) as raised:
        Packing(ring, 2**21, 10)
    assert (raised.value.required_bits, raised.value.bits) == (32, 27)
    largest = (ring.modulus // scale_for(1) - 1) // 2
    assert Packing(ring, largest - 1, 1).per == 1
    with pytest.raises(CapacityError):
        Packing(ring, largest + 1, 1)
    packing = Packing(ring, 5, 2)
    for far in (6, -6, 2**62, -(2**63), 2**63 - 1):
        for place in (0, packing.per, 2 * packing.per):
            values = np.zeros(2 * packing.per + 1, np.int64)
            values[place] = far
            with pytest.raises(ParameterError, match="values"):
                packing.encode(values)


def test_bad_arguments() -> None:
    ring = Ring(8, 7)
    for name, bad in (
        ("largest", 0),
        ("largest", MAX_MAGNITUDE + 1),
        ("largest", 5.0),
        ("clients", 0),
        ("clients", (1 << 31) + 1),
        ("rounding_bits", -1),
        ("rounding_bits", 30),
    ):
        arguments = {"largest": 5, "clients": 2, "rounding_bits": 0, name: bad}
        with pytest.raises(ParameterError, match=name):
            Packing(ring, **arguments)
    with pytest.raises(ParameterError, match=r"rounding_bits.*Delta < 2\^32"):
        Packing(ring, 5, 1000, 29)
    packing = Packing(ring, 5, 2)
    with pytest.raises(ParameterError, match="length"):
        packing.coefficients(0)
    for values in (np.zeros(3, np.int32), np.zeros((1, 3), np.int64), np.zeros(0, np.int64)):
        with pytest.raises(ParameterError, match="values"):
            packing.encode(values)
    sums = np.zeros((7, 65), np.uint32)
    for bad_sums, length in ((sums, packing.per), (sums.astype(np.int64), 65 * packing.per)):
        with pytest.raises(ParameterError, match="sums"):
            packing.decode(bad_sums, length)
