"""A second reader of privacy ledgers, and a second way to their epsilon.

Nothing of the running system is used where it could be wrong in the same way. `dp.ledger_reader`
parses the file, checks its hash chain and decodes its events by code of its own. This module then
accounts by a route of its own: every release becomes one mu, computed by evaluating the
*definition* at every vertex and every shift, from tails that SciPy computes; the mus are added up
release by release. No tables, counters, blocks or shortcuts of dp/accounting/ take part; only the
last step, Gaussian trade-off to epsilon, is shared.

It is slower than the accountant and rounds to the nearest, not upwards: its answer is a check, to
a few parts in 10^6, not a bound of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.accounting.gaussian import gaussian_epsilon
from dp.correlated.replay import TAG, replayed_run
from dp.errors import LedgerError, UnsupportedEventError
from dp.ledger_reader import INTEGER_TAGS, NARROWEST, flattened

_WHOLE: Final = {"coins": 0, "contributors": 0, "linf_sensitivity": 1, "dimension": 1}
"""Whole fields and the least value of each; all other fields are sizes."""

_VECTOR: Final = {"l2_sensitivity", "linf_sensitivity", "dimension"}
_EVENTS: Final = {
    "binomial": {"coins", *_VECTOR},
    "skellam": {"variance", *_VECTOR},
    "discrete-gaussian": {"local_variance", "contributors", *_VECTOR},
    "gaussian": {"sigma", "l2_sensitivity"},
}
_MOST_VERTICES: Final = 1 << 27

FloatArray = NDArray[np.float64]


def replayed_epsilon(events: Iterable[Mapping[str, Any]], delta: float) -> float:
    """Return epsilon of written events against the server, with the best delta0.

    Args:
        delta: of the whole run, in (0, 1).
    """
    simple = [leaf for event in events for leaf in flattened(event)]
    if simple and all(leaf["tag"] == TAG for leaf in simple):
        return replayed_run(simple, delta)
    failure, mu = replayed_gaussian(simple, delta)
    return gaussian_epsilon(mu, delta - failure) if mu > 0.0 else 0.0


def replayed_gaussian(events: Iterable[Mapping[str, Any]], delta: float) -> tuple[float, float]:
    """Return (failure, mu) of the open failure, else Gaussian, that dominates written events.

    Args and Raises: as for ``replayed_epsilon``; delta0 is the best for this delta. ``mu`` is
    infinite where something was released without noise.
    """
    simple = [leaf for event in events for leaf in flattened(event)]
    failing = sum(leaf["tag"] in INTEGER_TAGS for leaf in simple)
    if not failing or any(leaf["tag"] == "non-private" for leaf in simple):
        return 0.0, composed_mu(simple, delta)
    top = math.floor(-math.log2(delta / failing)) + 1
    grid = [2.0**-bits for bits in range(top, top + 14)]
    best = min(grid, key=lambda each: _composed(simple, each, delta - failing * each))
    return failing * best, composed_mu(simple, best)


def composed_mu(events: Iterable[Mapping[str, Any]], delta0: float) -> float:
    """Return the mu of written events together, with this delta0 for each of them."""
    simple = [leaf for event in events for leaf in flattened(event)]
    if any(leaf["tag"] == "non-private" for leaf in simple):
        return math.inf
    return math.sqrt(math.fsum(release_mu(leaf, delta0) ** 2 for leaf in simple))


def replaced(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a written event with the sensitivities of replace-one adjacency: twice its own."""
    twice = [
        {
            name: 2 * value
            if name in ("l2_sensitivity", "linf_sensitivity") and isinstance(value, int | float)
            else value
            for name, value in leaf.items()
        }
        for leaf in flattened(event)
    ]
    return twice[0] if len(twice) == 1 else {"tag": "composition", "parts": twice}


def composed_epsilon(
    events: Iterable[Mapping[str, Any]],
    delta: float,
    delta0: float,
    releases: int,
    aggregation: float = 0.0,
) -> float:
    """Return epsilon with delta0 fixed beforehand for ``releases`` releases, all of it spent.

    ``aggregation``, the probability that secure aggregation fails in one of them, is spent as well.
    """
    simple = [leaf for event in events for leaf in flattened(event)]
    if len(simple) > releases or any(leaf["tag"] == "non-private" for leaf in simple):
        return math.inf
    remaining = delta - releases * (delta0 + aggregation)
    return _composed(simple, delta0, remaining) if simple else 0.0


def _composed(simple: Sequence[Mapping[str, Any]], delta0: float, remaining: float) -> float:
    """Add up the mus of all releases and convert once."""
    if not remaining > 0.0:
        return math.inf
    return gaussian_epsilon(composed_mu(simple, delta0), remaining)


def composed_moments(
    events: Iterable[Mapping[str, Any]],
    delta: float,
    cut: float,
    releases: int,
    aggregation: float = 0.0,
    *,
    order: float,
) -> float:
    """Return epsilon by truncated moments of one order, fixed beforehand like ``cut``.

    Args:
        delta: of the whole run, in (0, 1).
        aggregation: probability that secure aggregation fails in one of them; spent as well.
    """
    simple = [leaf for event in events for leaf in flattened(event)]
    remaining = delta - releases * (cut + aggregation)
    if len(simple) > releases or any(leaf["tag"] == "non-private" for leaf in simple):
        return math.inf
    if not simple:
        return 0.0
    tau = math.fsum(release_moment(leaf, cut, order) for leaf in simple)
    if not (remaining > 0.0 and tau < math.inf):
        return math.inf
    return max(0.0, tau + math.log1p(-1.0 / order) - math.log(order * remaining) / (order - 1.0))


def release_moment(event: Mapping[str, Any], cut: float, order: float) -> float:
    """Return tau_a of one written release, by its definition at every shift."""
    try:
        return _moment(json.dumps(event, sort_keys=True), cut, order)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the ledger holds a malformed event: {dict(event)!r}") from error


@lru_cache(maxsize=4096)
def _moment(written: str, cut: float, order: float) -> float:
    """Return tau_a of the event that ``written`` is the JSON of."""
    event = _known(written)
    l2 = float(event["l2_sensitivity"])
    if event["tag"] == "gaussian":
        return 0.5 * order * _gaussian_mu(event) ** 2
    largest = min(int(event["linf_sensitivity"]), int(l2))
    if largest == 0:
        return 0.0
    upper = _tails(event, 2 * largest)
    if upper is None:
        return math.inf
    reach = upper.size // 2 - 1  # upper[i] = P[Z >= i - reach]
    # Both halves from the smaller tail, which has no cancellation.
    masses = upper[:-1] - upper[1:]
    masses[:reach] = masses[:reach:-1]
    with np.errstate(divide="ignore"):
        log_mass = np.log(masses)
    worst = 0.0
    for k in range(1, largest + 1):
        # The least z with P[Z > z] <= cut k^2 / D2^2, as an index.
        small = np.flatnonzero(upper[1:] <= cut * (k / l2) ** 2)
        last = int(small[0]) if small.size else masses.size
        if last + k >= masses.size or not np.isfinite(log_mass[last + k]):
            return math.inf
        z = np.flatnonzero(masses[: last + 1])
        moment = special.logsumexp(order * log_mass[z] + (1.0 - order) * log_mass[z + k])
        worst = max(worst, float(moment) / ((order - 1.0) * k * k))
    return l2 * l2 * worst


def release_mu(event: Mapping[str, Any], delta0: float) -> float:
    """Return D2 / sigma_eff of one written release, by the definition of sigma_eff."""
    try:
        return _mu(json.dumps(event, sort_keys=True), delta0)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the ledger holds a malformed event: {dict(event)!r}") from error


@lru_cache(maxsize=4096)
def _mu(written: str, delta0: float) -> float:
    """Return D2 / sigma_eff of the event that ``written`` is the JSON of."""
    event = _known(written)
    l2 = float(event["l2_sensitivity"])
    if event["tag"] == "gaussian":
        return _gaussian_mu(event)
    largest = min(int(event["linf_sensitivity"]), int(l2))
    if largest == 0:
        return 0.0
    upper = _tails(event, largest)
    if upper is None or not delta0 * (1.0 / l2) ** 2 > 0.0:
        return math.inf
    ratios = (_shift_mu(upper, k, delta0 * (k / l2) ** 2) / k for k in range(1, largest + 1))
    return l2 * max(ratios)


def _known(written: str) -> dict[str, Any]:
    """Return an event from its JSON, if there is a theorem for it and its fields are sound."""
    event: dict[str, Any] = json.loads(written)
    if event["tag"] not in _EVENTS:
        raise UnsupportedEventError(f"the replay knows no theorem for the event {event['tag']!r}")
    _check_fields(event)
    return event


def _gaussian_mu(event: Mapping[str, Any]) -> float:
    """Return the shift of a Gaussian release in standard deviations."""
    if event["l2_sensitivity"] == 0.0:
        return 0.0
    return event["l2_sensitivity"] / event["sigma"] if event["sigma"] > 0.0 else math.inf


def _check_fields(event: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless an event has its fields and each has a value it can have."""
    if set(event) != {"tag", *_EVENTS[event["tag"]]}:
        raise ValueError("fields that do not belong to its tag")
    for name in _EVENTS[event["tag"]]:
        value = event[name]
        if name in _WHOLE:
            sound = type(value) is int and value >= _WHOLE[name]
        else:
            sound = type(value) is float and 0.0 <= value < math.inf
        if not sound:
            raise ValueError(f"{name} cannot be {value!r}")


def _shift_mu(upper: FloatArray, k: int, failure: float) -> float:
    """Return mu_k: the largest of zq(U(x)/(1-delta)) + zq(L(x-k)/(1-delta)) over vertices x.

    ``upper`` is U(x) for x = -reach .. reach + 1, so that L(y) = 1 - U(y) = U(1 - y).
    """
    lower = upper[::-1]
    u, below = upper[k:], lower[k:]
    other, above = lower[: lower.size - k], upper[: upper.size - k]
    # U(x) < 1 - delta, from the tail that has no cancellation.
    inside = (below > failure) & (above > failure)
    if not inside.any():
        return 0.0
    first = _far_quantile(u[inside], below[inside], failure)
    second = _far_quantile(other[inside], above[inside], failure)
    return max(0.0, float(np.max(first + second)))


def _far_quantile(tail: FloatArray, rest: FloatArray, failure: float) -> FloatArray:
    """Return the z with P[N(0, 1) >= z] = tail / (1 - failure); ``rest`` is 1 - tail."""
    kept = 1.0 - failure
    found: FloatArray = np.where(
        tail <= rest, -special.ndtri(tail / kept), special.ndtri((rest - failure) / kept)
    )
    return found


def _tails(event: Mapping[str, Any], largest: int) -> FloatArray | None:
    """Return P[Z >= x] for x = -reach .. reach + 1, as SciPy has it; None without noise."""
    variance = _variance(event)
    if variance < 0.25:
        return None
    reach = largest + 2 + math.ceil(12.0 * math.sqrt(variance))
    if event["tag"] == "binomial":
        coins = event["coins"] - event["coins"] % 2
        reach = min(reach, coins // 2 + largest)
        if (2 * reach + 2) * largest > _MOST_VERTICES:
            raise UnsupportedEventError(f"the replay has no room for {dict(event)!r}")
        from scipy import stats  # takes a second to load, and only an audit needs it

        x = np.arange(-reach, reach + 2)
        tails: FloatArray = stats.binom.sf(x - 1 + coins // 2, coins, 0.5)
        return tails
    x = np.arange(1, reach + 2, dtype=np.float64)
    masses = _masses(event, np.arange(0, reach + 2, dtype=np.float64))
    beyond = np.cumsum(masses[:0:-1])[::-1] / (masses[0] + 2.0 * masses[1:].sum())
    return np.concatenate([(1.0 - beyond[: x.size])[::-1], beyond[: x.size]])


def _variance(event: Mapping[str, Any]) -> float:
    """Return the (nominal) variance of a written event's noise."""
    if event["tag"] == "binomial":
        return float(event["coins"]) / 4.0
    if event["tag"] == "skellam":
        return float(event["variance"])
    return float(event["local_variance"]) * int(event["contributors"])


def _masses(event: Mapping[str, Any], j: FloatArray) -> FloatArray:
    """Return numbers proportional to P[Z = j].

    The sum of n discrete Gaussians is taken as one of n times the parameter; where they are
    narrower than `NARROWEST`, this route refuses.
    """
    if event["tag"] == "skellam":
        skellam: FloatArray = special.ive(j, float(event["variance"]))
        return skellam
    if event["local_variance"] < NARROWEST and event["contributors"] > 1:
        raise UnsupportedEventError(
            f"the replay knows no theorem for discrete Gaussians this narrow: {dict(event)!r}"
        )
    gaussian: FloatArray = np.exp(-j * j / (2.0 * _variance(event)))
    return gaussian
