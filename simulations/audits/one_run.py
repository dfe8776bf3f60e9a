"""One run: many canaries at once, each in or out by a fair coin, and a guess for some of them.

Let m canaries be included by independent fair coins, r guesses be made in advance of knowing the
coins, and v of them be right. If the mechanism is (epsilon, delta)-private for each canary,

    P[V >= v] <= P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i,

with B ~ Bin(r, q), q = e^epsilon / (1 + e^epsilon). The right side is a p-value of the claim, for
any mechanism and any scores. The bound of epsilon is the first that is not refuted.

Source: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846), Theorem 5.2 and Appendix D. That
paper is about adding and removing an example; here "out" is the zero vector, so the epsilon is
that of zero-out adjacency, as everywhere in this system.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dp.search import bracketed
from protocol.checks import FRACTION
from secagg import ParameterError
from secagg.checks import require_int
from simulations.audits.base import Figures, Floats

LARGEST_EPSILON: Final = 40.0
"""Where the search ends: at 40, q is 1 to the last digit of a double."""

_GRID: Final = 400
_TOLERANCE: Final = 1e-13


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound of the chance of so many right guesses under (epsilon, delta).

    Args:
        canaries: m.
        guesses: r <= m.
        right: v <= r.
        epsilon: claimed, >= 0.
        delta: claimed, in [0, 1).

    Raises:
        ParameterError: the numbers are not 0 <= v <= r <= m with m >= 1, or a figure is out of
            range.
    """
    _require_numbers(canaries, guesses, right)
    if not 0.0 <= epsilon <= LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"in 0 .. {LARGEST_EPSILON:g}")
    if not 0.0 <= delta < 1.0:
        raise ParameterError("delta", delta, "at least 0 and below 1")
    q = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(stats.binom.sf(right - 1, guesses, q))
    if delta == 0.0 or right == 0:
        return min(1.0, tail)
    below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    steepest = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2.0 * canaries * delta * steepest)


@lru_cache(maxsize=1024)
def epsilon_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> float:
    """Return the largest epsilon below which all claims are refuted; 0 if none is.

    A grid finds the first claim that stands, bisection the point before it. So the bound is valid
    even where the p-value should not rise with epsilon.

    Args and Raises: as for ``p_value``; ``confidence`` in (0, 1).
    """
    FRACTION.require("confidence", confidence)
    alpha = 1.0 - confidence
    grid = np.linspace(0.0, LARGEST_EPSILON, _GRID)
    low: float | None = None
    for high in grid.tolist():
        if p_value(canaries, guesses, right, high, delta) > alpha:
            break
        low = high
    if low is None:
        return 0.0
    return bracketed(
        lambda epsilon: p_value(canaries, guesses, right, epsilon, delta) > alpha,
        low,
        high,
        _TOLERANCE,
    )[0]


def _require_numbers(canaries: int, guesses: int, right: int) -> None:
    """Raise unless 0 <= v <= r <= m and m >= 1."""
    require_int("canaries", canaries, 1)
    require_int("guesses", guesses, 0)
    require_int("right", right, 0)
    if not right <= guesses <= canaries:
        raise ParameterError(
            "right, guesses, canaries", (right, guesses, canaries), "right <= guesses <= canaries"
        )


@dataclass(frozen=True, slots=True)
class OneRunBound:
    """What one run certifies."""

    canaries: int  # m
    guesses: int  # r
    right: int  # v
    delta: float  # of the claim
    confidence: float  # with which the bound holds
    epsilon: float  # the bound
    ceiling: float  # the bound if all guesses had been right

    def figures(self, claimed: float) -> Figures:
        """Return the figures for a check of a claimed epsilon at the same delta."""
        return {
            "canaries": self.canaries,
            "guesses": self.guesses,
            "right": self.right,
            "confidence": self.confidence,
            "claimed_epsilon": claimed,
            "epsilon_at_least": self.epsilon,
            "epsilon_ceiling": self.ceiling,
            "rejected": self.epsilon > claimed,
        }


def one_run(
    included: NDArray[np.bool_],
    scores: Floats,  # float64[m], larger for canaries that look included
    guesses: int,  # r, fixed beforehand, 2 <= r <= m
    delta: float,  # of the claim, in [0, 1)
    confidence: float = 0.95,  # of the bound, in (0, 1)
) -> OneRunBound:
    """Guess from scores which canaries were included, and bound epsilon.

    The lowest half of the guesses says "out", the highest "in"; the others are not guessed. That
    uses the scores alone, never ``included``.

    Args:
        included: bool[m], the coins: fair, independent, and unknown to whoever made the scores.

    Raises:
        ParameterError: shapes differ, a score is not finite, or a figure is out of range.
    """
    if included.ndim != 1 or scores.shape != included.shape:
        raise ParameterError("scores", f"shape {scores.shape}", f"shape {included.shape}, [m]")
    if included.dtype != np.bool_:
        raise ParameterError("included", included.dtype, "bool")
    if not np.all(np.isfinite(scores)):
        raise ParameterError("scores", "a NaN or an infinity", "finite")
    require_int("guesses", guesses, 2)
    canaries = int(scores.size)
    _require_numbers(canaries, guesses, 0)
    order: NDArray[Any] = np.argsort(scores, kind="stable")
    said_out, said_in = order[: guesses // 2], order[canaries - (guesses - guesses // 2) :]
    right = int(np.count_nonzero(included[said_in]) + np.count_nonzero(~included[said_out]))
    return OneRunBound(
        canaries=canaries,
        guesses=guesses,
        right=right,
        delta=delta,
        confidence=confidence,
        epsilon=epsilon_bound(canaries, guesses, right, delta, confidence),
        ceiling=epsilon_bound(canaries, guesses, guesses, delta, confidence),
    )
