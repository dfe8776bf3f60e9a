"""Low-rank factors as linear maps: linear, never longer, and a power iteration when summed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sketch_kit import SEED

from sketch import LayerShapes, PublicSeed
from sketch.factors import Factors, FactorShapes, multiply, orthonormal
from sketch.power_factors import LeftFactorMap, RightFactorMap

LAYERS = LayerShapes(
    (("bias", (7,)), ("dense", (20, 30)), ("small", (3, 3)), ("conv", (12, 4, 3, 3)), ("one", ()))
)
RANK = 3
SHAPES = FactorShapes(LAYERS, RANK)
D = LAYERS.dimension
RNG = np.random.default_rng(3)


def low_rank(rank: int, seed: int) -> np.ndarray:
    """A vector whose factored layers have a rank, and whose other layers are anything."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.normal(size=size)
        if shape is None
        else (rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))).ravel()
        for size, shape in zip(LAYERS.sizes, SHAPES.factored, strict=True)
    ]
    return np.concatenate(parts)


def one_round(
    updates: list[np.ndarray], right: Factors
) -> tuple[np.ndarray, Factors, RightFactorMap]:
    """Both sums of a round, the vector they stand for, and the next round's bases."""
    first_map = LeftFactorMap(SHAPES, right)
    first = first_map.encode_many(updates).sum(axis=0)
    second_map = RightFactorMap(SHAPES, first_map.left(first))
    second = second_map.encode_many(updates).sum(axis=0)
    return second_map.reconstruct(first, second), second_map.right(second), second_map


def maps() -> list[LeftFactorMap | RightFactorMap]:
    first_map = LeftFactorMap(SHAPES, SHAPES.initial_right(SEED))
    left = first_map.left(first_map.encode(RNG.normal(size=D)))
    return [first_map, RightFactorMap(SHAPES, left)]


every_map = pytest.mark.parametrize("built", maps(), ids=lambda built: type(built).__name__)


def test_which_layers_are_factored() -> None:
    assert SHAPES.factored == (None, (20, 30), None, (12, 36), None)
    assert SHAPES.first_size == 7 + 20 * 3 + 9 + 12 * 3 + 1
    assert SHAPES.second_size == (30 + 36) * 3
    # At rank 12 twice 50 columns are as large as 20 x 30.
    assert FactorShapes(LAYERS, 12).factored[1] is None
    assert FactorShapes(LAYERS, 11).factored[1] == (20, 30)


@every_map
class TestMaps:
    def test_decode_is_the_transpose(self, built: LeftFactorMap | RightFactorMap) -> None:
        x, y = RNG.normal(size=D), RNG.normal(size=built.size)
        assert built.encode(x) @ y == pytest.approx(x @ built.decode(y))

    def test_no_vector_grows(self, built: LeftFactorMap | RightFactorMap) -> None:
        """The largest singular value of the whole map, from its matrix."""
        matrix = built.encode_many(np.eye(D))
        assert np.linalg.norm(matrix, 2) <= 1.0 + 1e-12

    def test_many_at_once(self, built: LeftFactorMap | RightFactorMap) -> None:
        updates = RNG.normal(size=(4, D))
        expected = np.array([built.encode(update) for update in updates])
        assert built.encode_many(updates).tobytes() == expected.tobytes()

    def test_repr(self, built: LeftFactorMap | RightFactorMap) -> None:
        assert repr(built) == f"{type(built).__name__}(dimension={D}, size={built.size})"


def test_a_longer_basis_would_let_vectors_grow() -> None:
    """What the check of bases is for: columns that are not orthonormal lengthen some vector."""
    basis = SHAPES.initial_right(SEED).bases[0]
    update = RNG.normal(size=(20, 30))
    assert np.linalg.norm(update @ (2.0 * basis)) > np.linalg.norm(update @ basis)
    for wrong in (2.0 * basis, basis[:, [0, 0, 1]], basis + 1e-6, np.full((30, 3), np.nan)):
        with pytest.raises(ValueError, match=r"bases\[0\] must have orthonormal columns"):
            Factors((wrong,))


def test_the_two_sums_are_a_projection_of_the_sum() -> None:
    updates = [RNG.normal(size=D) for _ in range(5)]
    rebuilt, _, second_map = one_round(updates, SHAPES.initial_right(SEED))
    total = np.sum(updates, axis=0)
    left = second_map._left.bases
    for (start, stop), shape, basis in zip(
        [LAYERS.bounds[1], LAYERS.bounds[3]], [(20, 30), (12, 36)], left, strict=True
    ):
        matrix = total[start:stop].reshape(shape)
        np.testing.assert_allclose(
            rebuilt[start:stop].reshape(shape), basis @ (basis.T @ matrix), atol=1e-12
        )
    for (start, stop), shape in zip(LAYERS.bounds, SHAPES.factored, strict=True):
        if shape is None:
            np.testing.assert_allclose(rebuilt[start:stop], total[start:stop], atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, RANK])
def test_sums_of_low_rank_are_exact_at_once(rank: int) -> None:
    """The sum has the rank, not each update: clients may differ in any way."""
    total = low_rank(rank, 1)
    noise = [RNG.normal(size=D) for _ in range(3)]
    updates = [*noise, total - np.sum(noise, axis=0)]
    rebuilt, _, _ = one_round(updates, SHAPES.initial_right(SEED))
    np.testing.assert_allclose(rebuilt, total, atol=1e-10)


def test_rounds_approach_the_best_approximation() -> None:
    """The warm start is a power iteration: the error falls to that of the singular vectors."""
    update = low_rank(8, 2)
    right = SHAPES.initial_right(SEED)
    errors = []
    for _ in range(60):
        rebuilt, right, _ = one_round([update], right)
        errors.append(float(np.sum((rebuilt - update) ** 2)))
    best = 0.0
    for (start, stop), shape in zip(LAYERS.bounds, SHAPES.factored, strict=True):
        if shape is not None:
            values = np.linalg.svd(update[start:stop].reshape(shape), compute_uv=False)
            best += float(np.sum(values[RANK:] ** 2))
    assert errors[0] > 1.05 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(errors))


def test_zeros_do_not_end_the_iteration() -> None:
    update = low_rank(RANK, 3)
    rebuilt, right, _ = one_round([np.zeros(D)], SHAPES.initial_right(SEED))
    assert not rebuilt.any()
    rebuilt, right, _ = one_round([update], right)
    rebuilt, _, _ = one_round([update], right)
    np.testing.assert_allclose(rebuilt, update, atol=1e-10)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_bases_span_the_columns(rows: int, columns: int, rank: int, seed: int) -> None:
    columns = min(rows, columns)
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
    basis = orthonormal(matrix)
    np.testing.assert_allclose(basis.T @ basis, np.eye(columns), atol=1e-12)
    np.testing.assert_allclose(basis @ (basis.T @ matrix), matrix, atol=1e-9)
    assert not basis.flags.writeable


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1000, 300, 4), (300, 1000, 4), (700, 4, 90)])
def test_products_in_blocks(m: int, k: int, n: int) -> None:
    left, right, out = RNG.normal(size=(m, k)), RNG.normal(size=(k, n)), np.empty((m, n))
    multiply(left, right, out)
    np.testing.assert_allclose(out, left @ right, atol=1e-10)


class TestArguments:
    def test_maps(self) -> None:
        right = SHAPES.initial_right(SEED)
        with pytest.raises(ValueError, match="no layer is large enough to be factored at rank 50"):
            LeftFactorMap(FactorShapes(LAYERS, 50), Factors(()))
        with pytest.raises(ValueError, match=r"left must have bases of shapes \[\(20, 3\), "):
            RightFactorMap(SHAPES, right)
        with pytest.raises(ValueError, match="right must have bases of shapes"):
            LeftFactorMap(SHAPES, Factors(right.bases[:1]))

    def test_sums(self) -> None:
        first_map, second_map = maps()
        assert isinstance(second_map, RightFactorMap)
        with pytest.raises(ValueError, match="first must have shape"):
            second_map.reconstruct(np.zeros(1), np.zeros(second_map.size))
        with pytest.raises(ValueError, match="first must be finite"):
            second_map.reconstruct(np.full(first_map.size, np.nan), np.zeros(second_map.size))

    def test_the_first_bases_follow_from_the_seed(self) -> None:
        ours, again = SHAPES.initial_right(SEED), SHAPES.initial_right(SEED)
        other = SHAPES.initial_right(PublicSeed(bytes(32)))
        assert [basis.tobytes() for basis in ours.bases] == [b.tobytes() for b in again.bases]
        assert not np.allclose(ours.bases[0], other.bases[0])
