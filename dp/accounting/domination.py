"""The Gaussian that dominates integer noise: one number per release, no dimension in it.

The noise is any symmetric log-concave law on the integers: binomial, Skellam, sums of discrete
Gaussians.

For each integer shift k the pair (Z, Z + k) is compared with a pair that fails openly with
probability delta_k and otherwise shows N(0, 1) against N(mu_k, 1). The smallest mu_k for which
the second pair is at least as easy to tell apart is

    mu_k(delta) = max over integers j of  zq(U(j + k) / (1 - delta)) + zq((1 - U(j)) / (1 - delta))

over those j where both arguments are below one; U(j) = P[Z >= j], zq(q) = -Phi^{-1}(q). With
delta_k = delta0 k^2 / D2^2, the noise is at least as good as a Gaussian of standard deviation

    sigma_eff = min over k = 1..Dinf of k / mu_k(delta_k)

except with probability delta0. The theorem and its proof are in docs/accounting.md.

How it stays on the safe side. Every simplification below makes mu larger: lower tails in the
first term and upper tails in the second; zq(U) for zq(U / (1 - delta)); blocks of shifts above
``DENSE_SHIFTS`` judged by their largest shift, smallest failure and smallest divisor.

How it stays fast. Phi^{-1} is concave below one half, hence under its tangent:

    Phi^{-1}(U - h) <= Phi^{-1}(U) - h / phi(Phi^{-1}(U))

This costs one multiplication where the real thing costs an inverse normal. The tangent bound is
computed for every vertex; the inverse only where the bound could still change the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dp.accounting._kernels import largest_bounds
from dp.accounting.laws import FloatArray, NoiseLaw, law_of_coins
from dp.accounting.tails import tails_of
from dp.checks import require_at_least

DENSE_SHIFTS: Final = 512
"""Shifts up to here are examined one by one; above, blocks of relative width 1/512."""

MAX_DELTA0: Final = 0.5
"""A mechanism that fails openly more often than not is of no interest to anybody."""

_MU_SLACK: Final = 1e-9
_MU_ROUNDING: Final = 1e-13
"""Relative and absolute widening of mu, against errors of a few units in the last place of the
inverse normal, whose values here are below 40."""

_LARGEST_EXPONENT: Final = 700.0

_FARTHEST: Final = 1 << 26
"""Longest table that is made: half a gigabyte."""

_LARGEST_ERROR: Final = 1.0
"""A table off by more than a factor e is of no use to anybody."""

_FAILURE_SLACK: Final = 1e-12
"""Relative reduction of each delta_k, so that their floating-point sum cannot pass delta0."""


@dataclass(frozen=True, slots=True, eq=False)
class _Vertices:
    """Tables over the vertices j = offset .. offset + size - 1 (entry i is j = i + offset).

    Attributes:
        offset: the first j; not positive.
        upper_zq: at least zq(U(j)); infinite beyond the support. Longer than the others by the
            largest shift.
        tail: at least U(j).
        base: at least Phi^{-1}(U(j)).
        slope: ``base - delta * slope`` is at least Phi^{-1}((U(j) - delta) / (1 - delta)).
    """

    offset: int
    upper_zq: FloatArray
    tail: FloatArray
    base: FloatArray
    slope: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Shifts:
    """Blocks of shifts: all of ``smallest[i]..largest[i]`` are covered by row i."""

    smallest: NDArray[np.int64]
    largest: NDArray[np.int64]
    failures: FloatArray


def _reach(law: NoiseLaw, shift: int, failure: float) -> int:
    """Return how far out the tables must go, at most to the end of the support.

    No j beyond ``last_likely`` has U(j) > failure. Five more standard deviations make the
    truncated rest of the far tail negligible.
    """
    last = law.last_likely(math.log(failure))
    wanted = last + shift + math.ceil(5.0 * math.sqrt(law.variance)) + 8
    return int(min(law.support, wanted))


def _vertices(law: NoiseLaw, shift: int, failure: float) -> _Vertices | None:
    """Tabulate the vertices that matter for shifts up to ``shift`` and the least failure.

    Returns None if the law cannot be tabulated that far.
    """
    reach = _reach(law, shift, failure)
    if reach > _FARTHEST:
        return None
    masses = law.log_masses(reach)
    if not masses.error <= _LARGEST_ERROR:
        return None
    tails = tails_of(law, masses)
    below = shift // 2 + 1
    zq_high = -scipy.special.ndtri_exp(tails.lower)
    zq_low = -scipy.special.ndtri_exp(tails.upper)
    # For j <= 0 symmetry gives U(j) = 1 - U(1 - j), which swaps the two bounds.
    mirrored = slice(below - 1, None, -1)
    base = np.concatenate([zq_high[mirrored], -zq_low])
    tail = np.concatenate([-np.expm1(tails.lower[mirrored]), np.exp(tails.upper)])
    # h = delta (1 - U)/(1 - delta) >= delta (1 - U), times 1/phi. Phi^{-1} is convex above one
    # half, where the tangent would be on the wrong side: there no correction is made.
    # The cap keeps far vertices, which no failure probability reaches, from overflowing.
    growth = np.exp(np.minimum(0.5 * base * base, _LARGEST_EXPONENT))
    slope = (1.0 - tail) * math.sqrt(2.0 * math.pi) * growth
    slope[:below] = 0.0
    beyond = np.full(shift + 1, math.inf)
    upper_zq = np.concatenate([-zq_low[mirrored], zq_high, beyond])
    return _Vertices(1 - below, upper_zq, tail, base, slope)


def _shift_blocks(shift: int, l2_sensitivity: float, delta0: float) -> _Shifts:
    """Split 1..shift into blocks and give each the failure of its smallest member."""
    starts = list(range(1, min(shift, DENSE_SHIFTS) + 1))
    k = DENSE_SHIFTS + 1
    while k <= shift:
        starts.append(k)
        k += max(1, k // DENSE_SHIFTS)
    smallest = np.array(starts, dtype=np.int64)
    largest = np.append(smallest[1:] - 1, shift)
    failures = (1.0 - _FAILURE_SLACK) * delta0 * (smallest / l2_sensitivity) ** 2
    return _Shifts(smallest, largest, failures)


def _cheap_bounds(table: _Vertices, vertices: slice, shift: int, failure: float) -> FloatArray:
    """Return the tangent bound of mu at each vertex of a range."""
    shifted = slice(vertices.start + shift, vertices.stop + shift)
    return table.upper_zq[shifted] + table.base[vertices] - failure * table.slope[vertices]


def _exact_bounds(table: _Vertices, rows: NDArray[np.int64], shift: int, failure: float) -> float:
    """Return the largest mu over the given vertices, through the inverse normal."""
    inside = (table.tail[rows] - failure) / (1.0 - failure)
    return float(np.max(table.upper_zq[rows + shift] + scipy.special.ndtri(inside)))


def _mu_above(
    table: _Vertices, vertices: slice, shift: int, failure: float, threshold: float
) -> float:
    """Return the largest mu over a range if it is above ``threshold``, else some smaller one.

    The vertex with the largest cheap bound comes first; it raises the threshold for the rest.
    """
    cheap = _cheap_bounds(table, vertices, shift, failure)
    top = np.array([np.argmax(cheap)]) + vertices.start
    best = _exact_bounds(table, top, shift, failure)
    rest = np.flatnonzero(cheap > max(best, threshold)) + vertices.start
    return max(best, _exact_bounds(table, rest, shift, failure)) if rest.size else best


def _largest_ratio(table: _Vertices, shifts: _Shifts) -> float:
    """Return an upper bound of mu_k(delta_k) / k over all shifts (infinite if any is)."""
    # Vertices with j < (1 - k)/2 mirror those above: (U(x), L(x-k)) is symmetric.
    first = -((shifts.largest - 1) // 2) - table.offset
    last = np.searchsorted(-table.tail, -shifts.failures, side="left").astype(np.int64)
    bounds = np.empty(shifts.smallest.size)
    arrays = (table.upper_zq, table.base, table.slope)
    largest_bounds(*arrays, shifts.largest, shifts.failures, first, last, bounds)
    ratio = -math.inf
    for row in np.argsort(-bounds / shifts.smallest):
        divisor = int(shifts.smallest[row])
        if bounds[row] <= ratio * divisor:
            break  # sorted: no later row can raise the ratio either
        vertices = slice(int(first[row]), int(last[row]))
        failure = float(shifts.failures[row])
        mu = _mu_above(table, vertices, int(shifts.largest[row]), failure, ratio * divisor)
        ratio = max(ratio, mu / divisor)
    return ratio


def _require(l2_sensitivity: float, linf_sensitivity: int, delta0: float) -> None:
    """Raise ``ValueError`` naming the argument that is out of range."""
    if not 0.0 <= l2_sensitivity < math.inf:
        raise ValueError(f"l2_sensitivity must be finite and >= 0, got {l2_sensitivity!r}")
    require_at_least("linf_sensitivity", linf_sensitivity, 1)
    if not 0.0 < delta0 < MAX_DELTA0:
        raise ValueError(f"delta0 must lie strictly between 0 and {MAX_DELTA0}, got {delta0!r}")


@lru_cache(maxsize=65536)
def effective_sigma(
    noise: NoiseLaw | int, l2_sensitivity: float, linf_sensitivity: int, delta0: float
) -> float:
    """Return the standard deviation of a Gaussian that the noise is at least as good as.

    An odd number of coins is treated as one coin fewer: adding the last coin is a
    post-processing of the release without it, so the bound stays valid.

    Args:
        noise: the law of one coordinate's noise, or N, the honest surviving coins per
            coordinate, meaning Bin(N, 1/2) - N/2.
        l2_sensitivity: D2, integer units.
        linf_sensitivity: Dinf, integer units, >= 1.
        delta0: probability of open failure that the caller sets aside.

    Returns:
        sigma_eff in integer units: never above the true one; 0.0 where nothing can be
        promised, ``inf`` where no non-zero integer vector fits the sensitivity.

    Source: docs/accounting.md, "Gaussian domination".
    """
    _require(l2_sensitivity, linf_sensitivity, delta0)
    law = law_of_coins(noise) if isinstance(noise, int) else noise
    shift = min(linf_sensitivity, int(l2_sensitivity))
    if shift == 0:
        return math.inf
    if law is None or shift >= 2 * law.support:
        return 0.0
    shifts = _shift_blocks(shift, l2_sensitivity, delta0)
    smallest_failure = float(shifts.failures[0])
    if smallest_failure <= 0.0:
        return 0.0
    table = _vertices(law, shift, smallest_failure)
    if table is None:
        return 0.0
    ratio = _largest_ratio(table, shifts) * (1.0 + _MU_SLACK) + _MU_ROUNDING
    # NaN and infinity both mean that nothing is promised.
    return 1.0 / ratio if 0.0 < ratio < math.inf else 0.0
