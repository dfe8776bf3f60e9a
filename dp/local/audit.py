"""Exact audits of local randomisers: every input, every message, the worst ratio.

The promise of a local randomiser is about single probabilities, so where inputs and messages can
be listed the promise can be read off. Laws come as rows, one for each input: probabilities or
densities as floats, their logarithms where they would underflow, or integers and fractions, for
which nothing is rounded at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class AuditedRatio:
    """What a randomiser promises, and what its law says.

    Attributes:
        epsilon_claimed: the promise.
        epsilon_found: logarithm of the worst ratio; ``inf`` where a message gives inputs away.
    """

    epsilon_claimed: float
    epsilon_found: float

    @property
    def margin(self) -> float:
        """Return what the promise leaves unused; negative if it is broken."""
        return self.epsilon_claimed - self.epsilon_found

    @property
    def holds(self) -> bool:
        """Say whether the promise is kept."""
        return self.epsilon_found <= self.epsilon_claimed

    def __str__(self) -> str:
        """Return the three figures, to print."""
        return (
            f"claimed {self.epsilon_claimed:.6g}, found {self.epsilon_found:.6g}, "
            f"margin {self.margin:.3g}"
        )


def worst_ratio(laws: ArrayLike) -> float:
    """Return the largest ratio of two inputs' probabilities of one message.

    Args:
        laws: float64[inputs, messages], probabilities or densities, finite and not negative. A
            message that no input can give is passed over.

    Returns:
        at least 1; ``inf`` if a message is possible for one input and impossible for another.
    """
    rows = _matrix(laws, "laws")
    if not (np.isfinite(rows).all() and (rows >= 0.0).all()):
        raise ValueError("laws must be finite and not negative")
    high, low = rows.max(axis=0), rows.min(axis=0)
    high, low = high[high > 0.0], low[high > 0.0]
    if high.size == 0:
        raise ValueError("laws must give some message a positive probability")
    with np.errstate(divide="ignore", over="ignore"):
        return float((high / low).max())


def worst_log_ratio(log_laws: ArrayLike) -> float:
    """Return the logarithm of the worst ratio, from logarithms of probabilities.

    Args:
        log_laws: float64[inputs, messages], below +inf; -inf stands for probability 0.
    """
    rows = _matrix(log_laws, "log_laws")
    if not (rows < math.inf).all():  # false for NaN
        raise ValueError("log_laws must be below infinity, and not NaN")
    high, low = rows.max(axis=0), rows.min(axis=0)
    possible = high > -math.inf
    if not possible.any():
        raise ValueError("log_laws must give some message a positive probability")
    return float((high[possible] - low[possible]).max())


def worst_exact_ratio(laws: Sequence[Sequence[int | Fraction]]) -> Fraction | None:
    """Return the worst ratio of laws in integers or fractions, without any rounding.

    Returns:
        at least 1; None if a message is possible for one input and impossible for another.
    """
    if not laws or len({len(row) for row in laws}) != 1:
        raise ValueError("laws must be one or more rows of equal length")
    if len({sum(map(Fraction, row)) for row in laws}) != 1 or sum(laws[0]) == 0:
        raise ValueError("laws must add up to the same positive total in every row")
    worst = Fraction(1)
    for column in zip(*laws, strict=True):
        high, low = max(column), min(column)
        if low < 0:
            raise ValueError(f"laws must not be negative, got {low}")
        if high > 0 and low == 0:
            return None
        if high > 0:
            worst = max(worst, Fraction(high) / Fraction(low))
    return worst


def audit_laws(laws: ArrayLike, epsilon: float) -> AuditedRatio:
    """Compare the promise with the worst ratio of float laws, as ``worst_ratio``."""
    return AuditedRatio(epsilon, math.log(worst_ratio(laws)))


def _matrix(rows: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return the rows as float64[inputs, messages]."""
    matrix = np.asarray(rows, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} must be a matrix of inputs by messages, got {matrix.shape}")
    return matrix
