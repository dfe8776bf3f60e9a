"""The largest entries of a vector: which are kept, ties, arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch import top_k

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


@pytest.mark.parametrize("k", [0, -1, 4])
def test_k_is_in_range(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be from 1 to 3, not {k}"):
        top_k(np.ones(3), k)


def test_k_is_an_integer() -> None:
    with pytest.raises(TypeError, match="k must be an integer, not float"):
        top_k(np.ones(3), 1.0)  # type: ignore[arg-type]


def test_values() -> None:
    with pytest.raises(TypeError, match="values must be a NumPy array, not list"):
        top_k([1.0], 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="values must have dtype float64 or float32, not int64"):
        top_k(np.ones(3, dtype=np.int64), 1)
    with pytest.raises(ValueError, match=r"values must have shape \(6,\), not \(2, 3\)"):
        top_k(np.ones((2, 3)), 1)
    with pytest.raises(ValueError, match="k must be from 1 to 0"):
        top_k(np.ones(0), 1)
    with pytest.raises(ValueError, match="values must be finite"):
        top_k(np.array([1.0, np.nan]), 1)
