"""How well a mean of a few independent runs is known: Student's law."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

CONFIDENCE = 0.95


def half_width(
    values: Sequence[float] | NDArray[np.float64], confidence: float = CONFIDENCE
) -> float | None:
    """Of the interval that holds the mean if values are normal; None for a single value."""
    if len(values) < 2:
        return None
    quantile = float(student.ppf(0.5 + confidence / 2.0, len(values) - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
