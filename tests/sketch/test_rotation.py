"""The rotation: orthogonality, inverse, flatness, for every length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sketch_kit import SEED, assert_mean, seed_of

from sketch import CountMeanSketch, PublicSeed, Rotation, flat_bound
from sketch._hadamard_kernels import walsh_hadamard
from sketch.hashing import Usage, signs
from sketch.rotation import block_length

EVERY_LENGTH = range(1, 71)
ODD_LENGTHS = [4095, 4097, 7600, 8191, 12345, 65537, 100003]


def normal(number: int, size: int) -> NDArray[np.float64]:
    """Fixed normal vector number `number`."""
    return np.random.default_rng(number).normal(size=size)


def dense(length: int, seed: PublicSeed) -> NDArray[np.float64]:
    """The rotation as a matrix, straight from its definition."""
    block = block_length(length)
    transform = hadamard(block) / np.sqrt(block)
    first, last = np.eye(length), np.eye(length)
    first[:block, :block] = transform
    last[length - block :, length - block :] = transform
    whole = first @ np.diag(signs(seed, 0, 0, length, Usage.ROTATION_FIRST))
    if block < length:
        whole = last @ np.diag(signs(seed, 0, 0, length, Usage.ROTATION_LAST)) @ whole
    return whole


class TestTransform:
    @pytest.mark.parametrize("power", range(1, 12))
    def test_equals_the_matrix(self, power: int) -> None:
        size = 2**power
        x = normal(power, size)
        expected = hadamard(size) @ x
        walsh_hadamard(x, 1.0)
        np.testing.assert_allclose(x, expected, atol=1e-9)

    @pytest.mark.parametrize("power", [12, 13, 14, 15, 17, 18, 19, 21, 22])
    def test_above_one_block(self, power: int) -> None:
        # H is (x) of 2 x 2 matrices: transforming along each axis of a binary cube is the same.
        cube = normal(power, 2**power).reshape((2,) * power)
        x = cube.ravel().copy()
        for axis in range(power):
            low, high = np.take(cube, 0, axis), np.take(cube, 1, axis)
            cube = np.stack([low + high, low - high], axis)
        walsh_hadamard(x, 1.0)
        np.testing.assert_allclose(x, cube.ravel(), atol=1e-8)

    @pytest.mark.parametrize("power", range(1, 23))
    def test_the_factor_comes_last(self, power: int) -> None:
        plain, scaled = normal(power, 2**power), normal(power, 2**power)
        walsh_hadamard(plain, 1.0)
        walsh_hadamard(scaled, 0.3)
        np.testing.assert_array_equal(scaled, 0.3 * plain)


class TestBlockLength:
    @given(st.integers(1, 2**60))
    def test_is_the_largest_power_of_two(self, length: int) -> None:
        block = block_length(length)
        assert block & (block - 1) == 0
        assert block <= length < 2 * block


class TestOrthogonal:
    @pytest.mark.parametrize("length", EVERY_LENGTH)
    def test_equals_the_matrix(self, length: int) -> None:
        rotation = Rotation(length, SEED)
        whole = dense(length, SEED)
        columns = np.array([rotation.forward(unit) for unit in np.eye(length)]).T
        back = np.array([rotation.inverse(unit) for unit in np.eye(length)]).T
        np.testing.assert_allclose(columns, whole, atol=1e-12)
        np.testing.assert_allclose(back, whole.T, atol=1e-12)
        np.testing.assert_allclose(columns @ columns.T, np.eye(length), atol=1e-12)

    @pytest.mark.parametrize("length", ODD_LENGTHS)
    def test_large_lengths(self, length: int) -> None:
        rotation = Rotation(length, SEED)
        x, y = normal(1, length), normal(2, length)
        turned = rotation.forward(x)
        assert turned.shape == (length,)
        np.testing.assert_allclose(rotation.inverse(turned), x, atol=1e-10)
        assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(x), rel=1e-12)
        assert turned @ rotation.forward(y) == pytest.approx(x @ y, abs=1e-8)

    @settings(max_examples=50)
    @given(st.integers(1, 3000), st.binary(min_size=32, max_size=32))
    def test_inverse(self, length: int, key: bytes) -> None:
        rotation = Rotation(length, PublicSeed(key))
        x = normal(length, length)
        np.testing.assert_allclose(rotation.inverse(rotation.forward(x)), x, atol=1e-11)
        np.testing.assert_allclose(rotation.forward(rotation.inverse(x)), x, atol=1e-11)

    def test_inputs_are_left_alone(self) -> None:
        x = normal(0, 77)
        kept = x.copy()
        Rotation(77, SEED).forward(x)
        Rotation(77, SEED).inverse(x)
        np.testing.assert_array_equal(x, kept)


class TestFlat:
    @pytest.mark.parametrize("length", [*EVERY_LENGTH, *ODD_LENGTHS])
    def test_a_spike_is_spread(self, length: int) -> None:
        """A spike that passes one transform only leaves entries of 1/sqrt(K), no larger.

        That is every spike beyond the first block, and every spike if there is one block. The
        others enter the second block already spread out, and the flat bound holds for them.
        """
        block = block_length(length)
        bound = flat_bound(1.0, length, 1e-6)
        for where in {0, length // 2, length - block, block - 1, length - 1}:
            spike = np.zeros(length)
            spike[where] = 1.0
            turned = Rotation(length, SEED).forward(spike)
            limit = 1.0 / np.sqrt(block) if where >= block or block == length else bound
            assert np.abs(turned).max() <= limit * (1 + 1e-12)

    @pytest.mark.statistical
    @pytest.mark.parametrize("length", [64, 100, 127, 1000])
    def test_bound_holds_as_often_as_it_says(self, length: int) -> None:
        """Exceedances at failure probability 0.05: at most binomial(200, 0.05).

        28 or more has probability 1e-6 at most (scipy.stats.binom.isf(1e-6, 200, 0.05) = 27).
        """
        vectors = {
            "spike": np.eye(1, length, 0).ravel(),
            "even": np.full(length, length**-0.5),
            "tail": np.where(np.arange(length) >= length // 2, 1.0, 0.0),
            "decay": 0.9 ** np.arange(length),
        }
        for x in vectors.values():
            bound = flat_bound(float(np.linalg.norm(x)), length, 0.05)
            tops = [np.abs(Rotation(length, seed_of(i)).forward(x)).max() for i in range(200)]
            assert sum(top > bound * (1 + 1e-12) for top in tops) < 28

    @pytest.mark.statistical
    def test_second_moments(self) -> None:
        """E y_i^2 <= |x|^2 / K in every coordinate, the claim behind the flat bound."""
        length = 11
        x = np.array([0.0] * 3 + [1.0] * 8)
        squares = np.array([Rotation(length, seed_of(i)).forward(x) ** 2 for i in range(3000)])
        # Block one holds 5 of 8 units of energy and spreads them over 8 coordinates; 5 of these
        # and the 3 units beyond make the energy of block two.
        first, last = 5 / 8, (5 * 5 / 8 + 3) / 8
        assert_mean(squares, [first] * 3 + [last] * 8)
        assert max(first, last) <= 8 / 8

    @pytest.mark.statistical
    @pytest.mark.parametrize("length", [15, 16, 17])
    def test_a_sketch_is_spread_evenly_at_every_length(self, length: int) -> None:
        """E y_i^2 = |x|^2 / L in every coordinate, just below a power of two as well.

        The same vector without a sketch is not: all of it is in the last entry.
        """
        x = np.eye(1, 40, 39).ravel() * 3.0
        sketched, plain = [], []
        for i in range(3000):
            turn = Rotation(length, seed_of(i)).forward
            sketched.append(turn(CountMeanSketch(x.size, 1, length, seed_of(i)).encode(x)) ** 2)
            plain.append(turn(x[-length:]) ** 2)
        assert_mean(np.array(sketched), np.full(length, x @ x / length))
        if length == 15:
            with pytest.raises(AssertionError, match="mean off"):
                assert_mean(np.array(plain), np.full(length, x @ x / length))

    def test_seeds_differ(self) -> None:
        x = normal(0, 33)
        first, second = (Rotation(33, seed_of(i)).forward(x) for i in range(2))
        assert not np.allclose(first, second)

    def test_the_two_sign_streams_differ(self) -> None:
        first, last = (
            signs(SEED, 0, 0, 512, usage) for usage in (Usage.ROTATION_FIRST, Usage.ROTATION_LAST)
        )
        assert abs(int(np.sum(first * last))) < 150

    def test_bound_is_never_above_the_norm(self) -> None:
        assert flat_bound(3.0, 1, 0.5) == 3.0
        assert flat_bound(0.0, 100, 0.5) == 0.0

    @given(st.floats(0.01, 100), st.integers(1, 10**7), st.floats(1e-12, 1.0))
    def test_bound_formula(self, l2: float, length: int, failure: float) -> None:
        plain = l2 * np.sqrt(2 * np.log(2 * length / failure) / block_length(length))
        assert flat_bound(l2, length, failure) == pytest.approx(min(l2, plain))


class TestArguments:
    @pytest.mark.parametrize("method", ["forward", "inverse"])
    def test_vectors(self, method: str) -> None:
        apply = getattr(Rotation(5, SEED), method)
        with pytest.raises(ValueError, match=r"must have shape \(5,\), not \(4,\)"):
            apply(np.zeros(4))
        with pytest.raises(TypeError, match="must have dtype float64, not float32"):
            apply(np.zeros(5, dtype=np.float32))
        with pytest.raises(ValueError, match="must be finite"):
            apply(np.array([0.0, 1.0, np.nan, 0.0, 0.0]))

    def test_repr(self) -> None:
        rotation = Rotation(5, SEED)
        assert repr(rotation).startswith("Rotation(length=5, seed=PublicSeed(")
        assert (rotation.length, rotation.block) == (5, 4)
