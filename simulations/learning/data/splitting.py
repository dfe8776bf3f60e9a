"""One way to set test examples aside where a data set comes without a test split.

May use numpy and scikit-learn; must not know files or data sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPLIT_SEED = 20_200_817
"""Seed of the default split, so that accuracies of different runs are comparable."""

TEST_FRACTION = 0.2
"""Default share of the examples that is set aside."""


def check_fraction(test_fraction: float) -> None:
    """Refuse shares that leave one side without examples."""
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"test_fraction must lie in (0, 1), got {test_fraction}")


def split_stratified(
    labels: NDArray[np.int64], test_fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose train and test positions so that every label keeps its share in both.

    Args:
        labels: int64[m].
        test_fraction: share of the test split, in (0, 1).

    Int64[a] and int64[b] with a + b = m, disjoint, in shuffled order.
    """
    from sklearn.model_selection import train_test_split  # slow to import, see `digits`

    check_fraction(test_fraction)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=test_fraction, random_state=seed, stratify=labels
    )
    return train, test
