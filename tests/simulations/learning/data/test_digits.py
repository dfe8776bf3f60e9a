"""The embedded digits: shapes, ranges, a stratified split from one seed, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.learning.data import DataKind, load_digits_dataset


def test_digits_have_the_documented_shape_and_range() -> None:
    data = load_digits_dataset()
    assert (data.name, data.classes, data.shape) == ("digits", 10, (64,))
    assert data.kind is DataKind.IMAGE and data.train.owners is None
    assert len(data.train) + len(data.test) == 1797
    assert len(data.test) == 360
    for split in (data.train, data.test):
        assert split.inputs.dtype == np.float32 and split.labels.dtype == np.int64
        assert split.inputs.shape == (len(split), 64)
        assert split.inputs.min() == 0.0 and split.inputs.max() == 1.0


def test_split_keeps_every_example_exactly_once() -> None:
    data, other = load_digits_dataset(), load_digits_dataset(seed=1)
    everything = np.concatenate([data.train.inputs, data.test.inputs])
    again = np.concatenate([other.train.inputs, other.test.inputs])
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
    assert np.array_equal(first.train.inputs, second.train.inputs)
    assert np.array_equal(first.test.labels, second.test.labels)
    assert np.array_equal(state, np.random.get_state()[1])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_bad_test_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="test_fraction"):
        load_digits_dataset(test_fraction=fraction)


def test_fraction_too_small_for_every_class_is_refused() -> None:
    with pytest.raises(ValueError, match="classes"):
        load_digits_dataset(test_fraction=0.001)
