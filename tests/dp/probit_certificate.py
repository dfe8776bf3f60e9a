"""Certifies, by interval arithmetic, the inequality behind the Gaussian form of returned noise.

With phi the density of N(0, 4) and G(s) the sum over j >= 0 of -phi'(s + j), for all s >= 1/2

    0 < -(ln G)''(s) < 1 / (4 - 1/10),

and sqrt(2 pi) G(1/2) / (2 A(1/2)) < 1 / sqrt(4 - 1/10), A(s) being the sum over j >= 0 of
phi(s + j). Everything else in docs/correlated-noise.md, "The Gaussian form", is proved there.

    python tests/dp/probit_certificate.py

prints the number of intervals and how close the inequality is. An interval is halved until it is
decided; every operation is rounded outwards (mpmath.iv), so the result depends on no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from mpmath import iv

VARIANCE: Final = 4
LOST: Final = Fraction(1, 10)
"""c_0: by so much the variance of the Gaussian is smaller."""
END: Final = Fraction(25, 2)
"""From here on the inequality is proved by hand: s^2 >= 4 (4 - c_0) / c_0 = 156."""
TERMS: Final = 20
REST: Final = 1e-14
"""More than all terms from j = 20 on: each is at most (s + j)^4 e^(-j^2/8), and s <= 12.5."""
NARROWEST: Final = Fraction(1, 1 << 20)


@dataclass(frozen=True)
class Certificate:
    """What was proved.

    Attributes:
        intervals: so many cover 1/2 .. 25/2.
        lowest, highest: between these -(ln G)'' lies on all of them.
        limit: the largest double below 1 / (4 - c_0), or it.
        slope: bound of the derivative of the probit at 1/2, squared.
    """

    intervals: int
    lowest: float
    highest: float
    limit: float
    slope: float

    @property
    def holds(self) -> bool:
        """Whether the inequalities are proved."""
        return 0.0 < self.lowest and self.highest < self.limit and self.slope < self.limit


def interval(low: Fraction, high: Fraction) -> Any:
    """An interval that holds both."""
    left = iv.mpf(low.numerator) / low.denominator
    right = iv.mpf(high.numerator) / high.denominator
    return iv.mpf([left.a, right.b])


def sums(s: Any) -> list[Any]:
    """Of phi, -phi' and so on up to minus the fourth derivative at s, s + 1, .., over phi(s)."""
    totals = [iv.mpf([-REST, REST])] * 5
    for j in range(TERMS):
        x = s + j
        square = x * x / VARIANCE
        weight = iv.exp(-j * (2 * s + j) / (2 * VARIANCE))
        terms = (
            1,
            x / VARIANCE,
            (1 - square) / VARIANCE,
            x * (square - 3) / VARIANCE**2,
            (square * (6 - square) - 3) / VARIANCE**2,
        )
        totals = [total + term * weight for total, term in zip(totals, terms, strict=True)]
    return totals


def curvature(low: Fraction, high: Fraction) -> tuple[float, float]:
    """Bounds of -(ln G)'' on an interval: its value in the middle, and its slope anywhere."""
    middle = (low + high) / 2
    _, first, second, third, _ = sums(interval(middle, middle))
    value = (second / first) ** 2 - third / first
    _, first, second, third, fourth = sums(interval(low, high))
    one, two, three = second / first, third / first, fourth / first
    slope = 3 * one * two - 2 * one**3 - three
    value += slope * interval(low - middle, high - middle)
    return float(value.a), float(value.b)


def certify() -> Certificate:
    """Cover 1/2 .. 25/2 with intervals on which the inequality holds."""
    limit = float((1 / (VARIANCE - interval(LOST, LOST))).a)
    waiting = [(Fraction(1, 2) + Fraction(i, 8), Fraction(5 + i, 8)) for i in range(96)]
    assert waiting[-1][1] == END
    intervals, lowest, highest = 0, float("inf"), 0.0
    while waiting:
        low, high = waiting.pop()
        least, most = curvature(low, high)
        if 0.0 < least and most < limit:
            intervals, lowest, highest = intervals + 1, min(lowest, least), max(highest, most)
            continue
        if high - low < NARROWEST:
            raise ArithmeticError(f"not proved between {low} and {high}: {least} .. {most}")
        middle = (low + high) / 2
        waiting += [(low, middle), (middle, high)]
    half = interval(Fraction(1, 2), Fraction(1, 2))
    total, first, *_ = sums(half)
    slope = 2 * iv.pi * (first / (2 * total)) ** 2
    return Certificate(intervals, lowest, highest, limit, float(slope.b))


if __name__ == "__main__":
    found = certify()
    print(f"{found}\n{'proved' if found.holds else 'NOT proved'}")
