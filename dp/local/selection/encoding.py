"""PE: randomised response on who is among the k largest, then a uniform one of the ones.

Every coordinate's bit, 1 for the k largest, is kept with probability p and flipped with q = 1 - p;
of the coordinates whose bit is then 1 a uniform one is chosen, or nothing if there is none.

The published p = e^epsilon/(1 + e^epsilon) does not give epsilon: the proof of Lemma 2 takes the
random number of ones for a constant. With N ~ Bin(k - 1, p) + Bin(d - k - 1, q), the ones among
all coordinates but one of the k largest and one of the others, and
delta = 1 - E[1/(2 + N)]/E[1/(1 + N)] in (0, 1/2], the worst ratio is exactly

    (p/q) (1 - q delta)/(1 - p delta),

more than p/q. Here p is solved for so that this is e^epsilon. The law is drawn in its reduced form
(docs/local-dp-fedsel.md): a uniform index of the k largest, of the others, or nothing, with the
probabilities that all d flips would give, from one word in place of d.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 3; the ratio is this project's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dp.checks import require_in
from dp.local.selection.base import RankSelector
from dp.local.selection.law import (
    MAX_WORDS,
    ratio_below,
    require_selection_epsilon,
    require_top,
    two_groups,
)

_PANELS: Final = 64
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(20)
_LONGEST: Final = 60.0
"""Beyond it an integrand is below e^-60 of its first value."""

MAX_LOG_ODDS: Final = 700.0
"""Of p against q: e^700 is still a double."""


@dataclass(frozen=True, slots=True)
class EncodingLaw:
    """What d flips with one p come to.

    Attributes:
        log_odds: ln(p/q).
        large: probability of each index among the k largest.
        small: probability of each other index.
        nothing: probability of choosing nothing.
        epsilon: ln(large/small), the exact worst case over two inputs.
    """

    log_odds: float
    large: float
    small: float
    nothing: float
    epsilon: float


def encoding_law(dimension: int, top: int, log_odds: float) -> EncodingLaw:
    """Return the exact law of PE for a given p."""
    require_top(top, dimension)
    require_in("log_odds", log_odds, 0.0, MAX_LOG_ODDS)
    kept, flipped = 1.0 / (1.0 + math.exp(-log_odds)), 1.0 / (1.0 + math.exp(log_odds))
    inverse, weighted = _inverse_moments(top - 1, kept, dimension - top - 1, flipped)
    # E[1/(1 + N)] = inverse and E[1/(2 + N)] = inverse - weighted.
    delta = weighted / inverse
    log_nothing = top * math.log(flipped) + (dimension - top) * math.log(kept)
    return EncodingLaw(
        log_odds=log_odds,
        large=kept * (inverse - flipped * weighted),
        small=flipped * (inverse - kept * weighted),
        nothing=math.exp(log_nothing),
        epsilon=log_odds + math.log1p(-flipped * delta) - math.log1p(-kept * delta),
    )


def _inverse_moments(m: int, kept: float, n: int, flipped: float) -> tuple[float, float]:
    """Return E[1/(1 + N)] and E[1/((1 + N)(2 + N))] for N ~ Bin(m, kept) + Bin(n, flipped).

    1/(1 + N) is the integral of t^N over [0, 1], and 1/(2 + N) that of t^(N + 1). With u = 1 - t,
    E[t^N] = (1 - kept u)^m (1 - flipped u)^n, a falling function below exp(-E[N] u): no sum over
    d terms, and nothing cancels.
    """
    mean = m * kept + n * flipped
    longest = min(1.0, _LONGEST / mean) if mean > 0.0 else 1.0
    width = longest / _PANELS
    starts = width * np.arange(_PANELS)[:, None]
    u: NDArray[np.float64] = starts + 0.5 * width * (_NODES + 1.0)
    values = np.exp(m * np.log1p(-kept * u) + n * np.log1p(-flipped * u)) * _NODE_WEIGHTS
    return 0.5 * width * float(values.sum()), 0.5 * width * float((u * values).sum())


def calibrated_law(dimension: int, top: int, epsilon: float) -> EncodingLaw:
    """Return PE whose exact worst ratio is e^epsilon.

    The second factor of the ratio lies between 1 and p/q, so the root lies between epsilon/2 and
    epsilon.
    """
    require_top(top, dimension)
    require_selection_epsilon(epsilon)
    wanted = min(epsilon, MAX_LOG_ODDS)
    if wanted == 0.0:
        return encoding_law(dimension, top, 0.0)

    def excess(log_odds: float) -> float:
        return encoding_law(dimension, top, log_odds).epsilon - wanted

    # Doubles may miss the sign at an end that is nearly the root.
    low, high = 0.5 * wanted, wanted
    root = high if excess(high) <= 0.0 else brentq(excess, low, high, xtol=1e-15, rtol=1e-14)
    return encoding_law(dimension, top, float(root))


@lru_cache(maxsize=256, typed=True)
def perturbed_encoding(dimension: int, top: int, epsilon: float) -> RankSelector:
    """Return PE with p solved for, so that its promise is true.

    Args:
        dimension: d, in ``2..2^31``.
        top: k, in ``1..d - 1``.
        epsilon: of one choice, >= 0.
    """
    law = calibrated_law(dimension, top, epsilon)
    return _selector(dimension, top, epsilon, law, promised=True)


@lru_cache(maxsize=256, typed=True)
def printed_perturbed_encoding(dimension: int, top: int, epsilon: float) -> RankSelector:
    """Return PE as published: a control that breaks its promise and fails the exact audit.

    Its ``claimed`` is the epsilon given, its ``epsilon`` the larger one that it really has. For
    comparisons only.
    """
    require_top(top, dimension)
    require_selection_epsilon(epsilon)
    law = encoding_law(dimension, top, epsilon)
    return _selector(dimension, top, epsilon, law, promised=False)


def _selector(
    dimension: int, top: int, epsilon: float, law: EncodingLaw, *, promised: bool
) -> RankSelector:
    """Turn probabilities into words of 2^62; a promise is kept in words, whatever doubles do."""
    # Room for what is rounded up, and for the error of the doubles' sum.
    room = math.floor((MAX_WORDS - 2 * dimension) * (1.0 - 1e-9))
    small = max(1, math.floor(law.small * room))
    large = min(math.floor(law.large * room), (room - (dimension - top) * small) // top)
    if promised:
        large = min(large, math.floor(small * ratio_below(epsilon)))
    nothing = round(law.nothing * room)
    return RankSelector(epsilon, two_groups(dimension, top, max(large, small), small, nothing))
