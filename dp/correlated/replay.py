"""A second way to the epsilon of a written run with correlated noise.

As in `dp.audit`, nothing of the accountant takes part: the covariance is written down as a matrix,
the worst future is appended to it round by round and the whole is solved densely, the gap is
summed term by term as it stands in docs/correlated-noise.md, and the Gaussian form has a delta of
its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dp.errors import LedgerError, UnsupportedEventError

TAG: Final = "correlated-gaussian"
_SIZES: Final = (
    "fresh_variance",
    "returned_variance",
    "l2_sensitivity",
    "least_fresh",
    "largest_return",
    "smallest_part",
    "least_kept",
)
_WHOLE: Final = ("index", "rounds", "dimension", "most_parts")
_PROMISED: Final = (
    "rounds",
    "dimension",
    "least_fresh",
    "largest_return",
    "smallest_part",
    "most_parts",
    "least_kept",
)
_MOST_ROUNDS: Final = 4096
_MOST_PARTS: Final = 1 << 16

FloatArray = NDArray[np.float64]


def replayed_run(events: Sequence[Mapping[str, Any]], delta: float) -> float:
    """Return epsilon of the written rounds of one run, in order.

    Args:
        delta: of the whole run, in (0, 1).
    """
    for position, event in enumerate(events):
        _check(event, position + 1, events[0])
    for before, event in itertools.pairwise(events):
        most = _returnable(before, before["fresh_variance"])
        if event["returned_variance"] > most + 1e-9 * before["fresh_variance"]:
            raise LedgerError(
                f"entry {event['index']} of a run with correlated noise takes back "
                f"{event['returned_variance']!r}, and of the round before at most {most!r} may"
            )
    first = events[0]
    rounds = first["rounds"]
    if rounds > _MOST_ROUNDS or first["most_parts"] > _MOST_PARTS:
        raise UnsupportedEventError(f"the replay has no room for {rounds} rounds like {first!r}")
    mu_squared = _mu_squared(events, rounds)
    if not mu_squared:
        return 0.0
    gap = _gap(first, rounds)
    if not (mu_squared < math.inf and gap < math.inf):
        return math.inf
    over = rounds * math.log1p(_rest(2.0 * math.pi**2 * first["least_fresh"]))
    best = math.inf
    for exponent in range(-106, 193):
        order = 1.0 + 2.0 ** (exponent / 16)
        tau = 0.5 * order * mu_squared
        tau += first["dimension"] * (order * gap + over) / (order - 1.0)
        best = min(best, tau + math.log1p(-1.0 / order) - math.log(order * delta) / (order - 1.0))
    if first["least_fresh"] >= 4.0:
        mu = math.sqrt(mu_squared / (1.0 - 0.1 / first["least_fresh"]))
        best = min(best, _gaussian_form(mu, first["dimension"] * (gap + rounds * 1.2e-33), delta))
    return max(best, 0.0)


def _gaussian_form(mu: float, over: float, delta: float) -> float:
    """Return the epsilon at which e^over times delta of the Gaussian, at epsilon - over, is delta.

    With x = (epsilon/mu - mu/2) / sqrt(2) and x' = x + mu/sqrt(2), delta is half of
    erfc(x) - e^(-x^2) erfcx(x'), because e^epsilon times the density of N(0, 1) at sqrt(2) x' is
    that at sqrt(2) x.
    """
    target = delta * math.exp(-over)
    if target < 1e-300:  # near there, doubles say nothing
        return math.inf

    def beyond(epsilon: float) -> float:
        x = (epsilon / mu - mu / 2.0) / math.sqrt(2.0)
        scaled = math.exp(-x * x) * float(special.erfcx(x + mu / math.sqrt(2.0)))
        return 0.5 * (math.erfc(x) - scaled) - target

    if beyond(0.0) <= 0.0:
        return over
    most = mu * mu / 2.0 + mu * 40.0  # there delta is no double
    return over + float(optimize.brentq(beyond, 0.0, most, xtol=1e-13 * most, rtol=1e-12))


def _check(event: Mapping[str, Any], index: int, first: Mapping[str, Any]) -> None:
    """Raise unless an event is round ``index`` of the run that ``first`` begins."""
    if set(event) != {"tag", *_SIZES, *_WHOLE} or event["tag"] != TAG:
        raise LedgerError(f"the ledger holds a malformed event: {dict(event)!r}")
    sound = all(type(event[name]) is int and event[name] >= 1 for name in _WHOLE) and all(
        type(event[name]) is float and 0.0 <= event[name] < math.inf for name in _SIZES
    )
    if not sound or not 0.0 < event["least_fresh"] <= event["fresh_variance"] * (1 + 1e-9):
        raise LedgerError(f"the ledger holds a malformed event: {dict(event)!r}")
    if event["index"] != index or any(event[name] != first[name] for name in _PROMISED):
        raise LedgerError(
            f"entry {index} of a run with correlated noise is not its round {index}, or was "
            "promised other noise than the first"
        )


def _mu_squared(events: Sequence[Mapping[str, Any]], rounds: int) -> float:
    """Return B' Sigma^-1 B of the rounds so far and of a future in which everything comes back."""
    size = len(events)
    fresh = np.full(rounds, events[0]["least_fresh"])
    back = np.full(rounds, _returnable(events[0], events[0]["least_fresh"]))
    bounds = np.zeros(rounds)
    fresh[:size] = [event["fresh_variance"] for event in events]
    back[:size] = [event["returned_variance"] for event in events]
    back[size : size + 1] = _returnable(events[-1], events[-1]["fresh_variance"])
    bounds[:size] = [event["l2_sensitivity"] for event in events]
    if back[0] or (back[1:] >= fresh[:-1]).any():
        return math.inf
    sigma = np.diag(fresh + back)
    sigma[np.arange(rounds - 1), np.arange(1, rounds)] = -back[1:]
    sigma[np.arange(1, rounds), np.arange(rounds - 1)] = -back[1:]
    return float(bounds @ np.linalg.solve(sigma, bounds))


def _returnable(event: Mapping[str, Any], fresh: float) -> float:
    """Return the most that may come back of a round that added so much."""
    return float(min(event["largest_return"], max(fresh - event["least_kept"], 0.0)))


def _gap(promised: Mapping[str, Any], rounds: int) -> float:
    """Return Gamma, from its definition."""
    part, kept = promised["smallest_part"], promised["least_kept"]
    if not (part > 0.0 and kept > 0.0):
        return math.inf
    groups = _largest_group(part, promised["most_parts"])
    rate = 2.0 * math.pi**2 / (1.0 / part + 4.0 / kept)
    between = math.expm1((rounds - 1) * math.log1p(_rest(rate)))
    if not max(groups, between) < 1.0:
        return math.inf
    return 2 * rounds * 2.0 * math.atanh(groups) + 2.0 * math.atanh(between)


def _largest_group(part: float, parts: int) -> float:
    """Return e_1: of the page's sums over M, for s = 2 .. ``parts``, the largest.

    Logarithms, because the binomial coefficients may be no doubles. A sum of 1 or more ends it.
    """
    size = np.arange(2.0, parts + 1.0)
    sums = np.zeros(size.size)
    log_x = math.log(parts) + float(_log_rest(np.array([math.pi**2 * part]))[0])
    for support in range(1, parts + 1):
        size = size[size >= support]
        rate = 2.0 * math.pi**2 * part * (1.0 - np.minimum(support, size // 2.0) / size)
        ways = -special.betaln(support + 1.0, size - support + 1.0) - np.log1p(size)
        sums[sums.size - size.size :] += np.exp(ways + support * _log_rest(rate))
        largest = float(sums.max(initial=0.0))
        if largest >= 1.0:
            break
        # No later term is above x^M / M!, which more than halves from one M to the next.
        following = (support + 1) * log_x - math.lgamma(support + 2.0)
        if math.log(support / 2.0) > log_x and math.exp(following) <= 1e-18 * largest:
            break
    return largest


def _log_rest(rate: FloatArray) -> FloatArray:
    """Return ln of `_rest`, which may itself be no double."""
    beyond = np.zeros(rate.size)
    for k in range(2, 200):
        term = np.exp(-rate * (k * k - 1.0))
        beyond += term
        if not term.max(initial=0.0) > 1e-18:
            break
    logarithm: FloatArray = math.log(2.0) - rate + np.log1p(beyond)
    return logarithm


def _rest(rate: float) -> float:
    return 2.0 * math.fsum(math.exp(-rate * k * k) for k in range(1, 200) if rate * k * k < 700.0)
