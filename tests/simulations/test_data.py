"""The embedded digits: shapes, ranges, a stratified split from one seed, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.data import Dataset, Split, load_digits_dataset


def small_split(count: int = 3, features: int = 2) -> Split:
    """Return a legal split with labels 0, 1, 0, 1, ..."""
    images = np.zeros((count, features), dtype=np.float32)
    return Split(images, np.arange(count, dtype=np.int64) % 2)


def test_digits_have_the_documented_shape_and_range() -> None:
    data = load_digits_dataset()
    assert (data.name, data.classes, data.features) == ("digits", 10, 64)
    assert len(data.train) + len(data.test) == 1797
    assert len(data.test) == 360
    for split in (data.train, data.test):
        assert split.images.dtype == np.float32 and split.labels.dtype == np.int64
        assert split.images.shape == (len(split), 64)
        assert split.images.min() == 0.0 and split.images.max() == 1.0


def test_split_keeps_every_example_exactly_once() -> None:
    data, other = load_digits_dataset(), load_digits_dataset(seed=1)
    everything = np.concatenate([data.train.images, data.test.images])
    again = np.concatenate([other.train.images, other.test.images])
    assert np.array_equal(np.sort(everything.sum(1)), np.sort(again.sum(1)))
    assert not np.array_equal(data.test.labels, other.test.labels)


def test_split_is_stratified() -> None:
    data = load_digits_dataset(test_fraction=0.25)
    train = np.bincount(data.train.labels, minlength=10)
    test = np.bincount(data.test.labels, minlength=10)
    # Rounding moves a class by at most one example.
    assert np.abs(test - 0.25 * (train + test)).max() <= 1.0


def test_split_depends_on_the_seed_alone() -> None:
    state = np.random.get_state()[1]
    first, second = load_digits_dataset(seed=7), load_digits_dataset(seed=7)
    assert np.array_equal(first.train.images, second.train.images)
    assert np.array_equal(first.test.labels, second.test.labels)
    assert np.array_equal(state, np.random.get_state()[1])


def test_arrays_are_read_only() -> None:
    train = load_digits_dataset().train
    with pytest.raises(ValueError, match="read-only"):
        train.images[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        train.labels[0] = 1


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_bad_test_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="test_fraction"):
        load_digits_dataset(test_fraction=fraction)


def test_fraction_too_small_for_every_class_is_refused() -> None:
    with pytest.raises(ValueError, match="classes"):
        load_digits_dataset(test_fraction=0.001)


def test_split_refuses_other_dtypes() -> None:
    with pytest.raises(TypeError, match="float64"):
        Split(np.zeros((1, 2)), np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int32"):
        Split(np.zeros((1, 2), np.float32), np.zeros(1, np.int32))  # type: ignore[arg-type]


@pytest.mark.parametrize(("images", "labels"), [((2, 3), (3,)), ((6,), (6,)), ((2, 3), (2, 1))])
def test_split_refuses_shapes_that_disagree(
    images: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="images must be"):
        Split(np.zeros(images, dtype=np.float32), np.zeros(labels, dtype=np.int64))


def test_split_refuses_to_be_empty() -> None:
    with pytest.raises(ValueError, match="at least one example"):
        small_split(0)


def test_dataset_refuses_splits_of_different_problems() -> None:
    with pytest.raises(ValueError, match="features"):
        Dataset("toy", 2, small_split(features=2), small_split(features=3))
    with pytest.raises(ValueError, match="at least 2"):
        Dataset("toy", 1, small_split(), small_split())
    negative = Split(np.zeros((1, 2), dtype=np.float32), np.array([-1]))
    too_large = Split(np.zeros((1, 2), dtype=np.float32), np.array([2]))
    for bad in (negative, too_large):
        with pytest.raises(ValueError, match="labels must lie"):
            Dataset("toy", 2, small_split(), bad)
