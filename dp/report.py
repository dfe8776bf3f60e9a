"""One figure out of many bounds, with the name of the bound that won and reasons for the rest.

The smallest of several bounds is a bound, *if each of them is about the whole run*: every
accountant composes all releases first and the minimum is taken last. (Picking a winner for each
release and adding the winners up would mix incompatible shares of delta.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dp.accounting.accountant import DominationAccountant, GaussianReference
from dp.accounting.base import EventCounter, refusal
from dp.accounting.contraction import ContractionAccountant
from dp.accounting.cpsgd import Theorem1Accountant
from dp.accounting.exact import ExactAccountant
from dp.accounting.local import LocalAccountant
from dp.accounting.moments import MAX_TERMS, MomentsAccountant
from dp.accounting.published import PublishedAccountant
from dp.checks import require_between_0_and_1
from dp.correlated.accountant import CorrelatedAccountant
from dp.correlated.event import CorrelatedRelease
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, IntegerRelease
from dp.events import (
    Adjacency,
    DiscreteGaussianRelease,
    LocalRelease,
    NonPrivateRelease,
    SkellamRelease,
    leaves,
    replace_one,
)

_ALWAYS: Final[Mapping[str, type[EventCounter]]] = {
    "theorem1": Theorem1Accountant,
    "domination": DominationAccountant,
    "moments": MomentsAccountant,
    "gaussian_reference": GaussianReference,
}

Counted = tuple[Event, int]
"""An event and how many adaptive runs of it there were."""


@dataclass(frozen=True, slots=True)
class EpsilonReport:
    """Epsilon of a run against the server, by every accountant.

    Attributes:
        epsilon: the smallest bound.
        winner: the accountant it is from; empty if every bound is infinite.
        delta: that all of them are stated at.
        by_accountant: name to epsilon; ``gaussian_reference`` and ``theorem1`` are no bounds and
            never win, ``exact`` is there if the run is small enough to enumerate, ``published``
            and ``contraction`` if there is Skellam or discrete Gaussian noise. A run of local
            reports has ``local`` only, and one whose noise comes back ``correlated``.
        reasons: name to the reason, for every epsilon that is infinite.
        adjacency: what all of them are about.
    """

    epsilon: float
    winner: str
    delta: float
    by_accountant: Mapping[str, float]
    reasons: Mapping[str, str]
    adjacency: Adjacency = Adjacency.ZERO_OUT

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; infinity is the string "inf"."""
        return {
            "epsilon": json_number(self.epsilon),
            "winner": self.winner,
            "delta": self.delta,
            "by_accountant": {k: json_number(v) for k, v in self.by_accountant.items()},
            "reasons": dict(self.reasons),
            "adjacency": str(self.adjacency),
        }


def json_number(value: float) -> float | str:
    """Return a number that JSON has: infinity becomes "inf"."""
    return "inf" if math.isinf(value) else value


def epsilons(
    events: Sequence[Event | Counted], delta: float, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> EpsilonReport:
    """Account for a run against the server by every accountant that has a theorem for it.

    Args:
        events: what was released, in order; a pair (event, count) stands for repetitions.
        delta: in (0, 1).
        adjacency: zero-out or replace-one. Local reports are private for any two inputs, which is
            more than either, and say so.

    Raises:
        UnsupportedEventError: no accountant at all has a theorem for an event.
    """
    require_between_0_and_1("delta", delta)
    counted = under(adjacency, events)
    found: dict[str, float] = {}
    reasons: dict[str, str] = {}
    local = is_local(counted)
    correlated = _is_correlated(counted)
    if not (local or correlated):
        _require_some_theorem(counted)
    chosen: dict[str, type[EventCounter]] = {"local": LocalAccountant}
    if not local:
        chosen = {"correlated": CorrelatedAccountant} if correlated else _chosen(counted)
    for name, kind in chosen.items():
        found[name], reason = _account(kind(), counted, delta)
        if math.isinf(found[name]):
            reasons[name] = reason
    bounds = {name: eps for name, eps in found.items() if chosen[name].is_bound}
    winner = min(bounds, key=lambda name: bounds[name])
    best = bounds[winner]
    adjacency = Adjacency.ANY_INPUT if local else adjacency
    name = "" if math.isinf(best) else winner
    return EpsilonReport(best, name, delta, found, reasons, adjacency)


def with_counts(events: Iterable[Event | Counted]) -> list[Counted]:
    """Return every event with the number of its runs, 1 where none is given."""
    return [event if isinstance(event, tuple) else (event, 1) for event in events]


def under(adjacency: Adjacency, events: Iterable[Event | Counted]) -> list[Counted]:
    """Return counted events whose zero-out epsilon is that under ``adjacency``."""
    counted = with_counts(events)
    if adjacency is Adjacency.ZERO_OUT:
        return counted
    if adjacency is Adjacency.REPLACE_ONE:
        return [(replace_one(event), count) for event, count in counted]
    raise ValueError(f"adjacency must be ZERO_OUT or REPLACE_ONE, got {adjacency.name}")


def is_local(counted: Sequence[Counted]) -> bool:
    """Say whether a run has local reports and nothing else that has noise."""
    simple = [leaf for event, _ in counted for leaf in leaves(event)]
    local = [isinstance(leaf, LocalRelease) for leaf in simple]
    return any(local) and all(
        known or isinstance(leaf, NonPrivateRelease)
        for known, leaf in zip(local, simple, strict=True)
    )


def _is_correlated(counted: Sequence[Counted]) -> bool:
    """Say whether a run has noise that comes back; its accountant refuses all other noise."""
    simple = (leaf for event, _ in counted for leaf in leaves(event))
    return any(isinstance(leaf, CorrelatedRelease) for leaf in simple)


def _chosen(counted: Sequence[Counted]) -> dict[str, type[EventCounter]]:
    """Return the accountants to ask: four always, three where they have something to say."""
    chosen = dict(_ALWAYS)
    simple = [leaf for event, _ in counted for leaf in leaves(event)]
    if any(isinstance(leaf, SkellamRelease | DiscreteGaussianRelease) for leaf in simple):
        chosen |= {"contraction": ContractionAccountant, "published": PublishedAccountant}
    enumerated = all(ExactAccountant().supports(leaf) for leaf in simple)
    if enumerated and any(isinstance(leaf, IntegerRelease) for leaf in simple):
        chosen["exact"] = ExactAccountant
    return chosen


def _account(
    accountant: EventCounter, counted: Sequence[Counted], delta: float
) -> tuple[float, str]:
    """Return (epsilon, why it is infinite if it is) by one accountant."""
    try:
        for event, count in counted:
            accountant.compose(event, count)
        epsilon = accountant.epsilon(delta)
    except UnsupportedEventError as error:
        return math.inf, str(error)
    return epsilon, _reason(accountant, delta) if math.isinf(epsilon) else ""


def _reason(accountant: EventCounter, delta: float) -> str:
    """Return why an accountant that accepts the events finds no finite epsilon."""
    if accountant.non_private:
        return "something was released without noise"
    if isinstance(accountant, Theorem1Accountant):
        return accountant.reason(delta)
    if isinstance(accountant, CorrelatedAccountant):
        return "single parts of the noise are too small for the theorem"
    if isinstance(accountant, LocalAccountant):
        return "the epsilons add up to more than a float holds"
    if isinstance(accountant, MomentsAccountant):
        return (
            "the noise does not cover the largest shift except with probability delta, or the "
            f"moments would take more than {MAX_TERMS} terms"
        )
    if isinstance(accountant, ContractionAccountant):
        return "some noise is so little, or of so many narrow parts, that nothing is proved of it"
    return "the noise does not cover the largest shift except with probability delta"


def _require_some_theorem(counted: Sequence[Counted]) -> None:
    """Raise the refusal of an event that neither domination nor Theorem 1 knows."""
    for leaf in (leaf for event, _ in counted for leaf in leaves(event)):
        if not any(kind().supports(leaf) for kind in _ALWAYS.values()):
            raise UnsupportedEventError(refusal(DominationAccountant.name, leaf))
