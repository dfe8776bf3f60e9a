"""What a split and a data set promise: dtypes, shapes, ranges, read-only arrays."""

from __future__ import annotations

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


@pytest.mark.parametrize(("inputs", "labels"), [((2, 3), (3,)), ((6,), (6,)), ((2, 3), (2, 1, 1))])
def test_shapes_that_disagree_are_refused(inputs: tuple[int, ...], labels: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="inputs must be"):
        Split(np.zeros(inputs, dtype=np.float32), np.zeros(labels, dtype=np.int64))


def test_owners_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="owners must be"):
        replace(split(3), owners=np.zeros(2, dtype=np.int64))


def test_tokens_are_rows_of_numbers_from_zero() -> None:
    with pytest.raises(ValueError, match="tokens must be"):
        Split(np.zeros((1, 2, 3), dtype=np.int64), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="negative, got -2"):
        tokens([0, -2])


@pytest.mark.parametrize(("count", "features"), [(0, 2), (2, 0)])
def test_empty_splits_are_refused(count: int, features: int) -> None:
    with pytest.raises(ValueError, match="at least one example"):
        split(count, features)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    inputs = np.zeros((4, 3), dtype=np.float32)
    inputs[2, 1] = value
    with pytest.raises(ValueError, match="finite"):
        Split(inputs, np.zeros(4, dtype=np.int64))


def test_the_largest_numbers_are_finite() -> None:
    inputs = np.full((4, 3), np.finfo(np.float32).max)
    assert len(Split(inputs, np.zeros(4, dtype=np.int64))) == 4


def test_splits_of_different_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="features"):
        toy(test=split(features=3))
    with pytest.raises(ValueError, match="at least 2"):
        toy(classes=1)
    for label in (-1, 2):
        with pytest.raises(ValueError, match="labels must lie"):
            toy(test=replace(split(1), labels=np.array([label])))


def test_shape_and_features_are_those_of_one_example() -> None:
    images = Split(np.ones((5, 4, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
    data = toy(kind=DataKind.IMAGE, train=images, test=images)
    assert data.shape == (4, 3) and data.features == 12


@pytest.mark.parametrize("pixel", [-0.001, 1.001])
def test_pixels_lie_between_zero_and_one(pixel: float) -> None:
    image = replace(split(1), inputs=np.full((1, 2), pixel, dtype=np.float32))
    with pytest.raises(ValueError, match="pixels"):
        toy(kind=DataKind.IMAGE, test=image)


def test_text_needs_a_vocabulary_that_covers_its_tokens() -> None:
    text = tokens([0, 4], [1, 2])
    data = toy(kind=DataKind.TEXT, train=text, test=text, vocabulary=5)
    assert data.shape == (2,)
    with pytest.raises(ValueError, match=r"tokens must lie in \[0, 4\)"):
        replace(data, vocabulary=4)
    with pytest.raises(ValueError, match="given for text, and only for text"):
        replace(data, vocabulary=None)
    with pytest.raises(ValueError, match="vocabulary must be given for text"):
        toy(vocabulary=5)


def test_inputs_are_of_their_kind() -> None:
    with pytest.raises(ValueError, match="text inputs cannot be float32"):
        toy(kind=DataKind.TEXT, vocabulary=5)
    with pytest.raises(ValueError, match="tabular inputs cannot be int64"):
        toy(test=tokens([0, 1]))
    cube = Split(np.zeros((1, 2, 2), dtype=np.float32), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match=r"tabular inputs must be \[m, features\]"):
        toy(train=cube, test=cube)
