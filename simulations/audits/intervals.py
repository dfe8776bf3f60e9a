"""Clopper-Pearson bounds of a probability: exact, whatever the probability is.

Source: Clopper and Pearson, Biometrika 26 (1934), in the form with quantiles of beta laws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from simulations.audits.base import Floats


def upper_bound(successes: ArrayLike, trials: int, alpha: float) -> Floats:
    """Return p with P[Bin(trials, p) <= successes] = alpha; 1 if all trials were successes."""
    k = np.asarray(successes, np.float64)
    inside = np.asarray(stats.beta.isf(alpha, k + 1.0, np.maximum(trials - k, 1e-9)))
    return np.where(k < trials, inside, 1.0)


def lower_bound(successes: ArrayLike, trials: int, alpha: float) -> Floats:
    """Return p with P[Bin(trials, p) >= successes] = alpha; 0 if no trial was a success."""
    return 1.0 - upper_bound(trials - np.asarray(successes), trials, alpha)
