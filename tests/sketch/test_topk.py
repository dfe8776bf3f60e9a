"""The largest entries of a vector: which are kept, ties, arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch import top_k
from sketch.topk import top_k_indices

# Few different magnitudes, so that ties at the border are common.
VALUES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e9, 1e9)), min_size=1, max_size=60
)


@given(VALUES, st.data())
def test_the_definition(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))
    expected = [x if i in order[:k] else 0.0 for i, x in enumerate(values)]
    assert top_k(np.array(values), k).tolist() == expected


def test_ties_keep_the_lowest_index() -> None:
    assert top_k(np.array([1.0, -2.0, 2.0, 2.0, -1.0]), 2).tolist() == [0.0, -2.0, 2.0, 0.0, 0.0]
    assert top_k(np.zeros(4), 1).tolist() == [0.0] * 4


def test_single_precision_and_strides() -> None:
    kept = top_k(np.array([3.0, 9.0, -4.0, 9.0], dtype=np.float32)[::2], 1)
    assert kept.dtype == np.float64
    assert kept.tolist() == [0.0, -4.0]


def test_input_is_left_alone() -> None:
    values = np.array([1.0, 2.0, 3.0])
    top_k(values, 1)
    assert values.tolist() == [1.0, 2.0, 3.0]


LONG = 1 << 17


def reference(values: np.ndarray, k: int) -> list[int]:
    """The definition, by a stable sort."""
    return sorted(np.argsort(-np.abs(values), kind="stable")[:k].tolist())


def many_values(name: str) -> np.ndarray:
    """Vectors long enough for the guess from a sample, kind and unkind to it."""
    rng = np.random.default_rng(1)
    draws: dict[str, np.ndarray] = {
        "normal": rng.normal(size=LONG),
        "heavy": rng.standard_cauchy(LONG) ** 3,
        "tied": rng.integers(-3, 4, size=LONG).astype(np.float64),
        "constant": np.ones(LONG),
        "zeros": np.zeros(LONG),
        "few": np.where(np.arange(LONG) % 5000 == 7, 1.0, 0.0),
        # Where the sample looks, everything is large, or nothing is.
        "sampled large": np.where(np.arange(LONG) % 32 == 0, 5.0, rng.normal(size=LONG)),
        "sampled small": np.where(np.arange(LONG) % 32 == 0, 0.0, rng.normal(size=LONG)),
        "tiny": rng.normal(size=LONG) * 1e-310,
    }
    return draws[name]


@pytest.mark.parametrize("k", [1, 40, LONG // 16, LONG // 2, LONG - 1, LONG])
@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "heavy",
        "tied",
        "constant",
        "zeros",
        "few",
        "sampled large",
        "sampled small",
        "tiny",
    ],
)
def test_long_vectors(name: str, k: int) -> None:
    values = many_values(name)
    indices = top_k_indices(values, k)
    assert indices.dtype == np.int64
    assert indices.tolist() == reference(values, k)
    kept = np.zeros(LONG)
    kept[indices] = values[indices]
    assert top_k(values, k).tobytes() == kept.tobytes()


@pytest.mark.parametrize("k", [1, 300, LONG // 16])
def test_long_vectors_of_single_precision(k: int) -> None:
    values = many_values("normal").astype(np.float32)
    assert top_k_indices(values, k).tolist() == reference(values, k)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "k"), [(9, 2), (9, 9), (LONG, 40), (LONG, LONG)])
def test_every_place_is_looked_at(bad: float, dtype: type, size: int, k: int) -> None:
    for where in {0, 5, size // 2 + 1, size - 1}:
        values = np.ones(size, dtype)
        values[where] = bad
        with pytest.raises(ValueError, match="values must be finite in every coordinate"):
            top_k_indices(values, k)


def test_the_largest_numbers_are_finite() -> None:
    for dtype in (np.float32, np.float64):
        values = np.full(3, np.finfo(dtype).max, dtype)
        assert top_k_indices(values, 2).tolist() == [0, 1]


def test_the_sign_of_zero_is_kept() -> None:
    assert np.signbit(top_k(np.array([-0.0, -0.0, -0.0]), 2)).tolist() == [True, True, False]
