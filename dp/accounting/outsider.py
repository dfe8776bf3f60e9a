"""The outsider: an adversary who sees released models only, and for whom sampling hides.

Which formula holds follows from the sampling scheme (docs/accounting.md, "The outsider"):

* ``PoissonSampled``: zero-out makes the pair P_0 against (1 - q) P_0 + q P_v, the subsampled
  Gaussian of the literature. dp-accounting evaluates it, at delta less the open failures.
* ``FixedSizeSampled``: **not** that pair. When the client is left out, another takes its place, so
  the base of the mixture is shifted too. Proved here is a profile from pairwise divergences,

      H(e') <= min( q ((1 - b) H_2(e) + b H_1(e)),  q H_1(e') ),
      e = ln(1 + (e^e' - 1)/q),  b = e^(e' - e),

  H_1 and H_2 those of shifts within (D2, Dinf) and within twice that. For Gaussian noise the
  replace-one Renyi bound of dp-accounting at sensitivity 2 D2 is computed as well.
* ``Allocated``: one round of each block, by a secret coin. The ratio of a block is a mean of
  lognormal variables; dp/accounting/allocation.py computes it. All rounds of a block may fail.
* anything unsampled counts in full, and so does everything if that is smaller.

dp-accounting is imported when an epsilon is asked for: it takes seconds to load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import numpy as np

from dp.accounting.accountant import DominationAccountant, mu_squared
from dp.accounting.allocation import allocated_ratio
from dp.accounting.base import EventCounter, Release, is_tabulated, law_of
from dp.accounting.domination import MAX_DELTA0, effective_sigma
from dp.accounting.gaussian import gaussian_delta
from dp.accounting.laws import FloatArray
from dp.event_kinds import Event, IntegerRelease, NoisyRelease
from dp.events import (
    Allocated,
    FixedSizeSampled,
    GaussianRelease,
    NonPrivateRelease,
    PoissonSampled,
)

INTERVAL: Final = 1e-4
"""Grid of privacy losses, nats; dp-accounting rounds against us."""

_FAILURE_SHARE: Final = 5
"""2^-5 of delta is set aside for open failures."""

SMALLEST_PLD_DELTA: Final = 1e-11
"""Below it the Fourier transforms of dp-accounting are not trusted; Renyi bounds remain."""

COMPOSING: Final = 1e-15
"""Set aside of delta for each release: composing by Fourier transforms is off by a tenth of it."""

_LARGEST_LOSS: Final = 40.0
_LARGEST_ONE_LOSS: Final = 200.0
_NEGLIGIBLE: Final = 1e-18
_ROUNDING: Final = 1e-9

_ORDERS: Final = (*range(2, 65), 80, 96, 128, 192, 256)
"""Integer orders: at fractions the library's series may not converge, and it says so at length."""


class OutsiderAccountant(EventCounter):
    """Epsilon against somebody who sees released models and nothing else."""

    name: ClassVar[str] = "outsider"

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept sampled releases and, in full, plain ones."""
        inner = leaf.released if isinstance(leaf, Event) else leaf
        if isinstance(inner, IntegerRelease):
            return is_tabulated(inner)
        return isinstance(inner, GaussianRelease | NonPrivateRelease)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Return the smallest of three bounds of the whole run."""
        return min(self._unamplified(delta), self._by_losses(delta), self._by_renyi(delta))

    def _inner(self) -> Iterator[tuple[Release, NoisyRelease, int]]:
        """Yield (event, what a cohort releases, count), without events that change nothing."""
        for event, count in self._counts.items():
            inner = event.released
            if isinstance(inner, NoisyRelease) and inner.l2_sensitivity > 0.0:
                yield event, inner, count

    def _unamplified(self, delta: float) -> float:
        """Return the bound that the cohort gives even if it were known."""
        accountant = DominationAccountant()
        for _, inner, count in self._inner():
            accountant.compose(inner, count)
        return accountant.epsilon(delta)

    def _delta0(self, delta: float) -> float:
        """Return the failure probability of each integer release."""
        failing = sum(n * _failing_rounds(event) for event, _, n in self._inner())
        share = math.floor(math.log2(delta / max(failing, 1))) - _FAILURE_SHARE
        return min(2.0**share, MAX_DELTA0 / 2.0)

    def _remaining(self, delta: float, delta0: float) -> float:
        """Return delta less the failures that are not inside a fixed-size profile."""
        failing = sum(
            n * _failing_rounds(event)
            for event, _, n in self._inner()
            if not isinstance(event, FixedSizeSampled)
        )
        return delta - failing * delta0

    def _by_losses(self, delta: float) -> float:
        """Compose privacy loss distributions; ``inf`` where they are not to be trusted."""
        delta0 = self._delta0(delta)
        composed = sum(count for _, _, count in self._inner())
        remaining = self._remaining(delta, delta0) - COMPOSING * composed
        if not remaining >= SMALLEST_PLD_DELTA:
            return math.inf
        whole: Any = None
        for event, inner, count in self._inner():
            part = _loss_distribution(event, inner, delta0)
            if part is None:
                return math.inf
            part = part.self_compose(count) if count > 1 else part
            whole = part if whole is None else whole.compose(part)
        return 0.0 if whole is None else float(whole.get_epsilon_for_delta(remaining))

    def _by_renyi(self, delta: float) -> float:
        """Compose Renyi divergences; ``inf`` if a part has none."""
        from dp_accounting import rdp

        delta0 = self._delta0(delta)
        remaining = self._remaining(delta, delta0)
        total: Any = 0.0
        for event, inner, count in self._inner():
            part = _renyi(event, inner, count, delta0)
            if part is None or not remaining > 0.0:
                return math.inf
            total = total + part
        if np.ndim(total) == 0:
            return 0.0
        return float(rdp.compute_epsilon(_ORDERS, total, remaining)[0])


def _failing_rounds(event: Release) -> int:
    """Return how many rounds of one event may fail openly: those with integer noise."""
    if not isinstance(event.released, IntegerRelease):
        return 0
    return event.rounds if isinstance(event, Allocated) else 1


def _multiplier(inner: NoisyRelease, delta0: float) -> float:
    """Return sigma_eff / D2, or 0 if nothing can be promised."""
    squared = mu_squared(inner, delta0)
    if squared == 0.0:
        return math.inf
    return 1.0 / math.sqrt(squared) if squared < math.inf else 0.0


def _loss_distribution(event: Release, inner: NoisyRelease, delta0: float) -> Any | None:
    """Return dp-accounting's privacy loss distribution of one release, or None for no promise."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    multiplier = _multiplier(inner, delta0)
    # The library's grid has about 1/multiplier^2 points per interval: too weak noise is no use.
    if multiplier < 1.0 / math.sqrt(2.0 * _LARGEST_ONE_LOSS):
        return None
    if math.isinf(multiplier):
        return losses.identity(value_discretization_interval=INTERVAL)
    if isinstance(event, FixedSizeSampled):
        return _fixed_size_losses(event, delta0)
    if isinstance(event, Allocated):
        return allocated_ratio(1.0 / multiplier, event.rounds).to_pld()
    rate = event.rate if isinstance(event, PoissonSampled) else 1.0
    return losses.from_gaussian_mechanism(
        multiplier, value_discretization_interval=INTERVAL, sampling_prob=rate
    )


def _fixed_size_losses(event: FixedSizeSampled, delta0: float) -> Any:
    """Return the distribution that belongs to the profile of a fixed-size sample."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as losses

    half = fixed_size_profile(event, delta0)
    index = np.arange(half.size)
    # Below zero from the other direction: H(-e) = 1 - e^-e + e^-e H'(e), and both obey ``half``.
    decay = np.exp(-INTERVAL * index)
    mirrored = (-np.expm1(-INTERVAL * index) + decay * half)[:0:-1]
    top = half.size - 1
    hull = _convex_minorant(np.exp(INTERVAL * np.arange(-top, top + 1)), [*mirrored, *half])
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(INTERVAL, -top, top, hull)
    return losses.PrivacyLossDistribution(pmf)


def fixed_size_profile(event: FixedSizeSampled, delta0: float) -> FloatArray:
    """Return upper bounds of H at 0, INTERVAL, 2 INTERVAL, .. for one fixed-size release.

    Both directions obey them. The list ends where the bound is negligible, or at 40 nats.
    """
    q = event.rate
    single, double = _shift_mu(event.event, 1, delta0), _shift_mu(event.event, 2, delta0)
    profile = []
    for i in range(math.ceil(_LARGEST_LOSS / INTERVAL) + 1):
        outer = i * INTERVAL
        inner = math.log1p(math.expm1(outer) / q)
        weight = math.exp(outer - inner)
        mixed = (1.0 - weight) * _failing_delta(inner, double) + weight * _failing_delta(
            inner, single
        )
        known = _failing_delta(outer, single)
        profile.append(q * min(mixed, known))
        if profile[-1] - q * max(single[1], double[1]) < _NEGLIGIBLE:
            break
    result: FloatArray = np.minimum(np.array(profile) * (1.0 + _ROUNDING), 1.0)
    return result


def _failing_delta(epsilon: float, pair: tuple[float, float]) -> float:
    """Return H of "open failure, else two Gaussians": delta0 + (1 - delta0) delta_Gauss."""
    mu, delta0 = pair
    return delta0 + (1.0 - delta0) * gaussian_delta(epsilon, mu)


def _shift_mu(inner: NoisyRelease, factor: int, delta0: float) -> tuple[float, float]:
    """Return (mu, failure probability) for shifts within ``factor`` times the sensitivities."""
    if not isinstance(inner, IntegerRelease):
        return factor * math.sqrt(mu_squared(inner, delta0)), 0.0
    law = law_of(inner)
    l2, linf = factor * inner.l2_sensitivity, factor * inner.linf_sensitivity
    sigma = effective_sigma(0 if law is None else law, l2, linf, delta0)
    return (l2 / sigma if sigma > 0.0 else math.inf), delta0


def _convex_minorant(x: FloatArray, y: list[float]) -> FloatArray:
    """Return the largest convex function below the points, at the same x (lower hull)."""
    hull: list[int] = []
    for i in range(len(y)):
        while len(hull) > 1 and _is_above(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    lower = np.interp(x, x[hull], np.array(y)[hull])
    result: FloatArray = np.clip(np.minimum.accumulate(lower), 0.0, 1.0)
    return result


def _is_above(x: FloatArray, y: list[float], first: int, middle: int, last: int) -> bool:
    """Say whether the middle point lies on or above the line through its neighbours."""
    left = (y[middle] - y[first]) * (x[last] - x[middle])
    right = (y[last] - y[middle]) * (x[middle] - x[first])
    return bool(left >= right)


def _renyi(event: Release, inner: NoisyRelease, count: int, delta0: float) -> Any | None:
    """Return Renyi divergences at the library's default orders, or None if none is proved."""
    import dp_accounting
    from dp_accounting import rdp

    multiplier = _multiplier(inner, delta0)
    if multiplier == 0.0:
        return None
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    if math.isinf(multiplier):
        return np.zeros(len(_ORDERS))
    if isinstance(event, PoissonSampled):
        sampled = dp_accounting.PoissonSampledDpEvent(event.rate, gaussian)
        return rdp.RdpAccountant(_ORDERS).compose(sampled, count).rdp
    if isinstance(event, FixedSizeSampled):
        return _fixed_size_renyi(event, count) if isinstance(inner, GaussianRelease) else None
    return rdp.RdpAccountant(_ORDERS).compose(gaussian, count).rdp


def _fixed_size_renyi(event: FixedSizeSampled, count: int) -> Any:
    """Return the replace-one bound for Gaussian noise.

    Zero-out is a replacement, by the zero vector. Two vectors within D2 are 2 D2 apart.
    Source: Wang, Balle, Kasiviswanathan 2019 (arXiv 1808.00087), Theorem 27.
    """
    import dp_accounting
    from dp_accounting import rdp

    half = dp_accounting.GaussianDpEvent(0.5 / math.sqrt(mu_squared(event.event, MAX_DELTA0)))
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(event.population, event.size, half)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(_ORDERS, relation)
    return accountant.compose(sampled, count).rdp
