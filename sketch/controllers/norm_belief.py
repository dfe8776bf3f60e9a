"""What is believed of |mu|^2 after several releases, and how surely.

Every release gives an estimate y of |mu_t|^2 with a known variance R, but |mu_t|^2 itself moves
from round to round. The belief, a mean m and a variance P, is that of a Kalman filter for a number
that changes in a round by q times what an estimate shows, in root mean square:

    P' = P + q^2 (m^2 + P + R),   K = P' / (P' + R),   m += K (y - m),   P = (1 - K) P'.

So sure estimates are followed at once and noisy ones are averaged, over up to 1 / q rounds. Of an
estimate that is further from m than both explain, what is beyond three standard deviations is no
chance: m follows it whole, and the rest as ever. The gap to the estimate that stays is put into P,
so that the next estimate decides.

Source: Kalman 1960, "A new approach to linear filtering and prediction problems", for one number;
docs/sketching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sketch.controllers.base import ReleasedStats
from sketch.error import norm_estimate_variance

DRIFT = 0.1
"""q, the change of |mu|^2 from one round to the next that is taken for normal, as a share."""

SURPRISE = 3.0
"""Standard deviations beyond which an estimate is no chance."""


@dataclass(frozen=True, slots=True)
class NormBelief:
    """Mean and variance of |mu|^2, in units of mu squared and of its square."""

    squared: float
    variance: float

    @classmethod
    def of(cls, memory: tuple[float, ...]) -> NormBelief | None:
        """The belief that a controller remembers; None before the first release."""
        return cls(*memory) if memory else None

    @property
    def memory(self) -> tuple[float, ...]:
        """The belief as a controller remembers it."""
        return self.squared, self.variance

    @property
    def likely(self) -> float:
        """Of what a norm can be the likeliest: m, but no less than 0."""
        return max(self.squared, 0.0)

    @property
    def std(self) -> float:
        """Standard deviation of |mu|^2, the square root of P."""
        return math.sqrt(self.variance)

    def upper(self, caution: float) -> float:
        """The upper end of the interval: so many standard deviations above the likeliest norm.

        Not above m: a first estimate far below 0 would say that there surely is no norm at all.
        """
        return self.likely + caution * self.std

    def numbers(self) -> dict[str, float]:
        """Its figures for a rationale."""
        return {"norm_squared": self.likely, "norm_squared_std": self.std}


def believed(before: NormBelief | None, estimate: float, variance: float) -> NormBelief:
    """The belief after one more estimate.

    Args:
        before: None if there was none.
    """
    if before is None:
        return NormBelief(estimate, variance)
    shown = before.squared**2 + before.variance + variance
    expected = before.variance + DRIFT**2 * shown
    news, spread = estimate - before.squared, expected + variance
    gain, limit = expected / spread, SURPRISE * math.sqrt(spread)
    # To follow all of a far estimate would be to trust it for being far off.
    beyond = math.copysign(max(abs(news) - limit, 0.0), news)
    after = before.squared + gain * (news - beyond) + beyond
    doubt = (estimate - after) ** 2 if beyond else 0.0
    return NormBelief(after, max((1.0 - gain) * expected, doubt))


def norm_estimate(released: ReleasedStats) -> float:
    """|nu|^2 - L sigma^2: an estimate of |mu|^2 without bias, which may be negative."""
    return released.sketch_norm_squared - released.size * released.noise_variance


def believed_after(before: NormBelief | None, released: ReleasedStats) -> NormBelief:
    """The belief after one more release, by its own norm (Mode B)."""
    estimate = norm_estimate(released)
    return believed_measured(before, estimate, released.size, float(released.noise_variance))


def believed_measured(
    before: NormBelief | None, estimate: float, size: int, noise_variance: float
) -> NormBelief:
    """The belief after one more estimate from a noisy sketch.

    Args:
        before: None if there was none.
        estimate: squared norm of the sketch less that of its noise.
        noise_variance: per coordinate of the sketch.
    """
    # The variance at what was expected: at the estimate itself it would be small where the
    # estimate happens to be, and a mean weighted by it would be too low.
    norm = max(estimate if before is None else before.squared, 0.0)
    variance = norm_estimate_variance(size, norm, 0.0, noise_variance)
    return believed(before, estimate, variance)
