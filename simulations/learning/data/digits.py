"""The embedded data set: scikit-learn's bundled handwritten digits.

1,797 real images of 8x8 pixels, shipped inside the scikit-learn wheel, so nothing is
downloaded. Pixels are scaled to [0, 1] by their known range, never by statistics of the data:
clients of a private protocol could not share those for free.

May use numpy and scikit-learn; must not know torch, clients or the protocol.

Source: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository;
scikit-learn's ``load_digits`` bundles its test part.
"""

from __future__ import annotations

import numpy as np

from simulations.learning.data.base import DataKind, Dataset, Split
from simulations.learning.data.splitting import SPLIT_SEED, TEST_FRACTION, split_stratified

MAX_PIXEL = 16.0
"""Largest pixel of the bundled images: a count of set bits in a 4x4 block."""


def load_digits_dataset(*, test_fraction: float = TEST_FRACTION, seed: int = SPLIT_SEED) -> Dataset:
    """Load the bundled digits with a stratified split that depends on the seed alone.

    Args:
        test_fraction: share of the examples kept for the test split, in (0, 1).
        seed: of the shuffle, in [0, 2**32).

    Post: ``len(train) + len(test) == 1797``, every class keeps its share in both, and inputs
    are float32[m, 64] in [0, 1].

    Raises:
        ValueError: test_fraction is not in (0, 1), or leaves a split without some class.
    """
    # It takes half a second, which other data sets need not wait for.
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    images = (pixels / MAX_PIXEL).astype(np.float32)
    labels = digits.astype(np.int64)
    train, test = split_stratified(labels, test_fraction, seed)
    return Dataset(
        name="digits",
        kind=DataKind.IMAGE,
        classes=10,
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
    )
