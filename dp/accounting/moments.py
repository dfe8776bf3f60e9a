"""Truncated Renyi moments: the second bound for integer noise, independent of the first.

Binomial noise has no Renyi divergence from its shift: the supports differ. It has one after the
far tail is cut off and charged to delta. For a shift k the far tail is Z > z_k, with z_k the
least integer such that P[Z > z_k] <= delta_c k^2 / D2^2, and

    M_a(k) = sum over z <= z_k of P[z]^a P[z + k]^(1 - a),    tau_a(k) = ln M_a(k) / (a - 1)
    tau_a  = D2^2 max over 1 <= k <= Dinf of max(0, tau_a(k)) / k^2
    delta  <= T delta_c + exp((a - 1)(sum of tau_a - eps)) (1 - 1/a)^(a - 1) / a.

The proof is in docs/accounting.md, "Truncated moments". Every k is evaluated: the ratio is not
monotone. Values are rounded upwards: masses are trusted to ``MASS_SLACK`` nats only.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Final, Self

import numpy as np

from dp.accounting._kernels import log_moments
from dp.accounting.accountant import DominationAccountant, FailureReserve
from dp.accounting.base import EventCounter, Release, law_of, nominal_mu_squared
from dp.accounting.laws import NoiseLaw
from dp.accounting.tails import log_remainder, tails_of
from dp.event_kinds import IntegerRelease, NoisyRelease
from dp.events import GaussianRelease

MASS_SLACK: Final = 1e-10
"""Error in nats allowed for each tabulated ln P[Z = j]: ten times what was measured."""

MAX_TERMS: Final = 1 << 22
"""Most terms summed for one release and one order; beyond it the answer is infinite."""

_ORDERS_PER_OCTAVE: Final = 6
_ORDERS: Final = 7
_EXPONENTS: Final = (2, 5, 9)
"""delta_c is tried at 2^-2, 2^-5 and 2^-9 of delta / T, rounded down to a power of two."""

_LARGEST_ORDER_EXPONENT: Final = 60


def renyi_to_epsilon(order: float, tau: float, delta: float) -> float:
    """Return epsilon with exp((a-1)(tau-eps)) (1-1/a)^(a-1)/a <= delta; at least 0.

    Source: Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), Proposition 12.

    Args:
        tau: Renyi divergence of order a, nats.
    """
    if not (order > 1.0 and tau < math.inf and delta > 0.0):
        return math.inf
    return max(0.0, tau + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1.0))


@lru_cache(maxsize=4096)
def truncated_renyi(
    law: NoiseLaw, l2_sensitivity: float, linf_sensitivity: int, cut: float, order: float
) -> float:
    """Return tau_a, an upper bound of the truncated divergence of order a over all vectors.

    Args:
        l2_sensitivity: D2, integer units.
        linf_sensitivity: Dinf, integer units, >= 1.
        cut: delta_c, the probability that truncation may cost.

    Returns:
        tau_a in nats; ``inf`` where a shift cannot be hidden or the sum would be too long.
    """
    largest = min(linf_sensitivity, int(l2_sensitivity))
    if largest == 0:
        return 0.0
    smallest_cut = cut / l2_sensitivity**2 * (1.0 - 1e-12)
    if largest >= 2 * law.support or not smallest_cut > 0.0:
        return math.inf
    reach = law.last_likely(math.log(smallest_cut)) + 2
    # Far enough on the other side as well, where every term is below the mass itself.
    reach = int(min(law.support, reach + math.ceil(2.0 * math.sqrt(law.variance)) + largest))
    if largest * reach > MAX_TERMS:
        return math.inf
    return l2_sensitivity**2 * _largest_moment(law, largest, reach, smallest_cut, order)


def _largest_moment(law: NoiseLaw, largest: int, reach: int, cut: float, order: float) -> float:
    """Return the largest tau_a(k)/k^2 over 1 <= k <= largest, at least 0; ``cut`` is at k = 1."""
    masses = law.log_masses(reach)
    if not masses.error < 1.0:
        return math.inf
    tail = tails_of(law, masses).upper
    below = math.exp(log_remainder(law, masses))
    slack = (2.0 * order - 1.0) * (MASS_SLACK + masses.error)
    orders, out = np.array([order]), np.empty(1)
    top = 0.0
    for k in range(1, largest + 1):
        # tail[i] bounds P[Z >= i + 1], so the first i that is small enough is z_k.
        last = int(np.searchsorted(-tail, -math.log(cut * k * k) if cut * k * k < 1 else 0.0))
        if last + k > reach or last >= tail.size:
            return math.inf
        log_moments(masses.values, k, -reach, last, orders, out)
        # Below the table every term is at most P[z], as z + k is nearer to zero.
        moment = float(np.logaddexp(out[0] + slack, math.log(below) if below else -math.inf))
        if not moment < math.inf:  # NaN too
            return math.inf
        top = max(top, moment / ((order - 1.0) * k * k))
    return top


def _order(index: int) -> float:
    """Return an order of the fixed grid: 1 + 2^(index/6)."""
    return 1.0 + float(2.0 ** (index / _ORDERS_PER_OCTAVE))


class MomentsAccountant(EventCounter):
    """Truncated Renyi moments: sums of tau_a over all releases, then one conversion.

    The orders and delta_c tried depend on the events and on delta, never on results; each is a
    bound for the whole run, so the smallest is one.

    That is for releases whose parameters do not depend on earlier results. Where they do, pass a
    ``FailureReserve`` with one order: then order, delta_c and the most releases are fixed before
    the first release, and a ``dp.budget.Budget`` checked before every release is a valid stop.
    """

    name: ClassVar[str] = "truncated moments"

    def __init__(self, reserve: FailureReserve | None = None) -> None:
        """Start with no events, and with a fixed reserve if parameters will be adaptive."""
        super().__init__()
        if reserve is not None and reserve.moment_order is None:
            raise ValueError("reserve must name a moment_order, got None")
        self._reserve = reserve

    def copy(self) -> Self:
        """Return an independent accountant with the same events and reserve."""
        twin = super().copy()
        twin._reserve = self._reserve
        return twin

    def best_order(self, delta: float) -> float:
        """Return the order at which the bound for these events is smallest; a choice, no promise.

        Args:
            delta: of the whole run, in (0, 1).
        """
        centre = self._best_index(delta)
        indices = range(centre - _ORDERS // 2, centre + _ORDERS // 2 + 1)
        return _order(min(indices, key=lambda i: self._at(_EXPONENTS[1], range(i, i + 1), delta)))

    def _epsilon_of_releases(self, delta: float) -> float:
        """Use the reserve if there is one; else the smallest bound over a few orders and cuts."""
        if self._reserve is not None:
            return self._reserved(self._reserve, delta)
        if all(isinstance(event, NoisyRelease) and event.is_silent for event in self._counts):
            return 0.0
        centre = self._best_index(delta)
        indices = range(centre - _ORDERS // 2, centre + _ORDERS // 2 + 1)
        return min(self._at(exponent, indices, delta) for exponent in _EXPONENTS)

    def _reserved(self, reserve: FailureReserve, delta: float) -> float:
        """Return the bound at the order and cut that were fixed beforehand."""
        remaining = delta - reserve.total
        order = reserve.moment_order
        if order is None or self.releases > reserve.releases or not remaining > 0.0:
            return math.inf
        return renyi_to_epsilon(order, self._tau(reserve.delta0, order), remaining)

    def _at(self, exponent: int, indices: range, delta: float) -> float:
        """Return the bound with delta_c = 2^-exponent delta / T or a little less."""
        failing = sum(n for e, n in self._counts.items() if isinstance(e, IntegerRelease))
        cut = 2.0 ** (math.floor(math.log2(delta / max(failing, 1))) - exponent)
        remaining = delta - failing * cut
        return min(
            renyi_to_epsilon(_order(i), self._tau(cut, _order(i)), remaining) for i in indices
        )

    def _tau(self, cut: float, order: float) -> float:
        """Return the divergence of order ``order`` of all releases together, rounded up."""
        total = 0.0
        for event, count in self._counts.items():
            total += count * _tau_of(event, cut, order)
            if total == math.inf:
                break
        return total * (1.0 + 1e-12)

    def _best_index(self, delta: float) -> int:
        """Return where the best order would be for Gaussian noise: a = 1 + sqrt(2 ln(1/d))/mu."""
        mu_squared = sum(n * nominal_mu_squared(e) for e, n in self._counts.items())
        if not 0.0 < mu_squared < math.inf:
            return 0
        wanted = math.sqrt(2.0 * math.log(1.0 / delta) / mu_squared)
        index = round(_ORDERS_PER_OCTAVE * math.log2(wanted)) if wanted > 0.0 else 0
        return max(-_LARGEST_ORDER_EXPONENT, min(_LARGEST_ORDER_EXPONENT, index))


def reserved_accountant(reserve: FailureReserve) -> DominationAccountant | MomentsAccountant:
    """Return a fresh accountant by the one bound that a run chose before its first release.

    One bound counts a whole run. Both are valid filters each by itself, but a run that may go on
    while *either* allows it is stopped by no theorem of ours: which bound let it pass would depend
    on its results (docs/accounting.md, "Which bound counts a run").
    """
    if reserve.moment_order is None:
        return DominationAccountant(reserve)
    return MomentsAccountant(reserve)


def _tau_of(event: Release, cut: float, order: float) -> float:
    """Return tau_a of one release; for Gaussian noise a mu^2 / 2."""
    if isinstance(event, IntegerRelease):
        if event.is_silent:
            return 0.0
        law = law_of(event)
        if law is None:
            return math.inf
        return truncated_renyi(law, event.l2_sensitivity, event.linf_sensitivity, cut, order)
    if isinstance(event, GaussianRelease):
        return order * nominal_mu_squared(event) / 2.0
    return math.inf
