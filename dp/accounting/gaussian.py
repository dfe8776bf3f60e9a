"""The trade-off of two unit Gaussians, in closed form and rounded to the safe side.

    delta(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)

Source: Balle and Wang 2018 (arXiv 1805.06530), Theorem 8.

dp-accounting offers the same function; the tests compare with it. The formula is kept here
because importing that package costs about a second, and because it returns "no loss at all"
where its subtraction cancels. Here cancellation is bounded and added to delta.
"""

from __future__ import annotations

import math
from typing import Final

import scipy

from dp.checks import require_between_0_and_1, require_in
from dp.search import bracketed

_ROUNDING: Final = 1e-15
_SMALLEST: Final = 1e-307
LARGEST_EPSILON: Final = 1e6
"""No target is this large, and no epsilon from here on is told apart from infinity."""
_MU_RANGE: Final = (1e-12, 1e4)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return an upper bound, tight to rounding, of the hockey-stick divergence.

    Args:
        mu: distance of the means in standard deviations, >= 0 (``inf`` allowed).
    """
    if mu == 0.0:
        return 0.0
    if not mu < math.inf:
        return 1.0
    log_first = float(scipy.special.log_ndtr(mu / 2.0 - epsilon / mu))
    log_second = epsilon + float(scipy.special.log_ndtr(-mu / 2.0 - epsilon / mu))
    # Each logarithm is off by a few units in its last place; the arguments of log_ndtr are off
    # likewise, which its derivative, at most |argument| + 1, magnifies.
    argument = mu / 2.0 + epsilon / mu
    error = _ROUNDING * (1.0 + argument * (argument + 1.0) + epsilon + abs(log_first))
    gap = -math.expm1(min(log_second - log_first, 0.0)) + 8.0 * error
    # The floor covers a divergence too small for a double, which is not the same as none.
    return min(1.0, max(_SMALLEST, math.exp(log_first) * gap * (1.0 + 8.0 * error)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon with ``gaussian_delta(epsilon, mu) <= delta``: the upper end of a bisection.

    Returns ``inf`` if no epsilon up to 1e6 is enough, or if delta is not positive.
    """
    if not delta > 0.0 or math.isnan(mu) or gaussian_delta(LARGEST_EPSILON, mu) > delta:
        return math.inf
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2.0
    low = 0.0 if high == 1.0 else high / 2.0
    return bracketed(lambda epsilon: gaussian_delta(epsilon, mu) <= delta, low, high)[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu (to a relative 1e-12) with ``gaussian_delta(epsilon, mu) <= delta``."""
    require_in("epsilon", epsilon, 0.0, LARGEST_EPSILON, "[)")
    require_between_0_and_1("delta", delta)
    low, high = _MU_RANGE
    if gaussian_delta(epsilon, low) > delta:
        raise ValueError(
            f"epsilon {epsilon!r} and delta {delta!r} are too small: no Gaussian noise reaches them"
        )
    return bracketed(
        lambda mu: gaussian_delta(epsilon, mu) > delta, low, high, 1e-12, geometric=True
    )[0]
