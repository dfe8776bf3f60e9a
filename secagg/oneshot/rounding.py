"""Exact square roots, so that every machine computes the same parameters."""

from __future__ import annotations

from math import isqrt


def ceil_sqrt(numerator: int, denominator: int = 1) -> int:
    """The smallest integer whose square is at least numerator / denominator, both positive."""
    least = -(-numerator // denominator)
    return isqrt(least - 1) + 1
