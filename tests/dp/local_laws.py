"""Laws of local randomisers in fractions, and the exact comparison with e^epsilon."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

from mpmath import iv

from dp.local.windows import WindowLaw

INPUTS = [Fraction(i, 12) for i in range(-12, 13)]
"""Inputs of an audit; between two shifts laws are mixtures, so that more would add nothing."""


def is_within(ratio: Fraction | None, epsilon: float) -> bool:
    """Say whether ratio <= e^epsilon, proved in interval arithmetic."""
    if ratio is None:
        return False
    iv.prec = 400
    bound = iv.exp(iv.mpf(epsilon)) - iv.mpf(ratio.numerator) / iv.mpf(ratio.denominator)
    return bool(bound.a >= 0)


def exact_law(law: WindowLaw, value: Fraction) -> list[Fraction]:
    """The law of an input that is first rounded to a shift at random."""
    position = (value + 1) * law.highest / 2
    lower = min(math.floor(position), law.highest - 1)
    up = position - lower
    below, above = (
        [Fraction(int(weight), law.total) for weight in law.weights(shift)]
        for shift in (lower, lower + 1)
    )
    return [(1 - up) * a + up * b for a, b in zip(below, above, strict=True)]


def exact_mean(law: WindowLaw, probabilities: list[Fraction]) -> Fraction:
    """The mean estimate, in units of c."""
    centre = Fraction(law.points - 1, 2)
    return sum((p * (j - centre) for j, p in enumerate(probabilities)), Fraction(0))


def product_law(*parts: list[Fraction]) -> list[Fraction]:
    """The law of independent messages, in one fixed order."""
    return [math.prod(each, start=Fraction(1)) for each in product(*parts)]


def continuous_piecewise_variance(epsilon: float, value: float) -> float:
    """The variance of the continuous Piecewise Mechanism.

        t^2/(E - 1) + (E + 3)/(3 (E - 1)^2),    E = e^{epsilon/2}

    Source: Wang et al. 2019 (arXiv 1907.00782), Lemma 1.
    """
    gap = math.expm1(epsilon / 2.0)
    return value * value / gap + (gap + 4.0) / (3.0 * gap) / gap
