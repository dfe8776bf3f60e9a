"""What a split and a data set promise: dtypes, shapes, ranges, read-only arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from simulations.learning.data import DataKind, Dataset, Split


def split(count: int = 3, features: int = 2) -> Split:
    """Return a legal split with labels 0, 1, 0, 1, ..."""
    inputs = np.zeros((count, features), dtype=np.float32)
    return Split(inputs, np.arange(count, dtype=np.int64) % 2)


def tokens(*rows: list[int]) -> Split:
    """Return a legal split of texts."""
    return Split(np.array(rows, dtype=np.int64), np.zeros(len(rows), dtype=np.int64))


def toy(**changes: object) -> Dataset:
    """Return a legal data set with some attributes changed."""
    legal = Dataset(name="toy", kind=DataKind.TABULAR, classes=2, train=split(), test=split())
    return replace(legal, **changes)


def test_arrays_are_read_only() -> None:
    owned = Split(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert len(owned) == 1
    for array in (owned.inputs, owned.labels, owned.owners):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("inputs", "labels", "owners", "name"),
    [
        (np.float64, np.int64, np.int64, "inputs"),
        (np.uint8, np.int64, np.int64, "inputs"),
        (np.float32, np.int32, np.int64, "labels"),
        (np.float32, np.int64, np.int32, "owners"),
    ],
)
def test_other_dtypes_are_refused(inputs: type, labels: type, owners: type, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be"):
        Split(np.zeros((1, 2), inputs), np.zeros(1, labels), np.zeros(1, owners))


def values(*numbers: float) -> Split:
    """Return a split of one example with these values."""
    return replace(split(1), inputs=np.array([numbers], dtype=np.float32))


def zeros(inputs: tuple[int, ...], labels: tuple[int, ...], kind: type = np.float32) -> Split:
    """Return a split of these shapes."""
    return Split(np.zeros(inputs, kind), np.zeros(labels, np.int64))


def words(vocabulary: int | None) -> Dataset:
    """Return a data set of texts with tokens up to 4."""
    text = tokens([0, 4], [1, 2])
    return toy(kind=DataKind.TEXT, train=text, test=text, vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: zeros((2, 3), (3,)), "inputs must be"),
        (lambda: zeros((6,), (6,)), "inputs must be"),
        (lambda: zeros((2, 3), (2, 1, 1)), "inputs must be"),
        (lambda: replace(split(3), owners=np.zeros(2, np.int64)), "owners must be"),
        (lambda: zeros((1, 2, 3), (1,), np.int64), "tokens must be"),
        (lambda: tokens([0, -2]), "negative, got -2"),
        (lambda: split(0), "at least one example"),
        (lambda: split(2, 0), "at least one example"),
        (lambda: values(0.0, np.nan), "finite"),
        (lambda: values(0.0, np.inf), "finite"),
        (lambda: values(0.0, -np.inf), "finite"),
        (lambda: toy(test=split(features=3)), "features"),
        (lambda: toy(classes=1), "at least 2"),
        (lambda: toy(test=replace(split(1), labels=np.array([-1]))), "labels must lie"),
        (lambda: toy(test=replace(split(1), labels=np.array([2]))), "labels must lie"),
        (lambda: toy(kind=DataKind.IMAGE, test=values(0.0, -0.001)), "pixels"),
        (lambda: toy(kind=DataKind.IMAGE, test=values(0.0, 1.001)), "pixels"),
        (lambda: words(4), r"tokens must lie in \[0, 4\)"),
        (lambda: words(None), "given for text, and only for text"),
        (lambda: toy(vocabulary=5), "vocabulary must be given for text"),
        (lambda: toy(kind=DataKind.TEXT, vocabulary=5), "text inputs cannot be float32"),
        (lambda: toy(test=tokens([0, 1])), "tabular inputs cannot be int64"),
        (
            lambda: toy(train=zeros((1, 2, 2), (1,)), test=zeros((1, 2, 2), (1,))),
            r"tabular inputs must be \[m, features\]",
        ),
    ],
)
def test_what_is_not_in_order_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_the_largest_numbers_are_finite() -> None:
    assert len(values(0.0, np.finfo(np.float32).max)) == 1


def test_shape_and_features_are_those_of_one_example() -> None:
    images = Split(np.ones((5, 4, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    data = toy(kind=DataKind.IMAGE, train=images, test=images)
    assert data.shape == (4, 3) and data.features == 12
    assert words(5).shape == (2,)
