"""The embedded data set: scikit-learn's bundled handwritten digits.

1,797 real images of 8x8 pixels, shipped inside the scikit-learn wheel, so nothing is
downloaded. Pixels are scaled to [0, 1] by their known range, never by statistics of the data:
clients of a private protocol could not share those for free.

May use numpy and scikit-learn; must not know torch, clients or the protocol.

Source: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository;
scikit-learn's ``load_digits`` bundles its test part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

MAX_PIXEL = 16.0
"""Largest pixel of the bundled images: a count of set bits in a 4x4 block."""

SPLIT_SEED = 20_200_817
"""Seed of the default split, so that accuracies of different runs are comparable."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Labelled examples; both arrays are read-only.

    Args:
        images: float32[m, features], each value in [0, 1].
        labels: int64[m], each in [0, classes).

    Raises:
        TypeError: a dtype is not the one above.
        ValueError: shapes disagree, or there is no example.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Check shapes and dtypes, then forbid writing."""
        if self.images.dtype != np.float32 or self.labels.dtype != np.int64:
            raise TypeError(
                f"images must be float32 and labels int64, "
                f"got {self.images.dtype} and {self.labels.dtype}"
            )
        if self.images.ndim != 2 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"images must be [m, features] and labels [m], "
                f"got {self.images.shape} and {self.labels.shape}"
            )
        if len(self.labels) == 0:
            raise ValueError("a split needs at least one example")
        self.images.setflags(write=False)
        self.labels.setflags(write=False)

    def __len__(self) -> int:
        """Return the number of examples m."""
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test examples of one classification problem.

    Args:
        name: what reports call it.
        classes: number of labels.
        train: what clients share out among themselves.
        test: what the server measures accuracy on; no client holds any of it.

    Raises:
        ValueError: fewer than two classes, a label out of range, or different feature counts.
    """

    name: str
    classes: int
    train: Split
    test: Split

    def __post_init__(self) -> None:
        """Check that the splits describe the same problem."""
        if self.classes < 2:
            raise ValueError(f"classes must be at least 2, got {self.classes}")
        for split in (self.train, self.test):
            if split.labels.min() < 0 or split.labels.max() >= self.classes:
                raise ValueError(f"labels must lie in [0, {self.classes})")
        if self.train.images.shape[1] != self.test.images.shape[1]:
            raise ValueError("train and test images differ in their number of features")

    @property
    def features(self) -> int:
        """Return the number of values per image."""
        return int(self.train.images.shape[1])


def load_digits_dataset(*, test_fraction: float = 0.2, seed: int = SPLIT_SEED) -> Dataset:
    """Load the bundled digits with a stratified split that depends on the seed alone.

    Args:
        test_fraction: share of the examples kept for the test split, in (0, 1).
        seed: of the shuffle, in [0, 2**32).

    Post: ``len(train) + len(test) == 1797`` and every class keeps its share in both.

    Raises:
        ValueError: test_fraction is not in (0, 1), or leaves a split without some class.
    """
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"test_fraction must lie in (0, 1), got {test_fraction}")
    pixels, digits = load_digits(return_X_y=True)
    images = (pixels / MAX_PIXEL).astype(np.float32)
    labels = digits.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=test_fraction, random_state=seed, stratify=labels
    )
    return Dataset(
        name="digits",
        classes=10,
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
    )
