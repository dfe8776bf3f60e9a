"""What a ledger of a run adds up to, if a part of its noise came back in later rounds.

All rounds are counted together for every client, with contributions to its own alone: those of
others tell of it, too, when noise comes back. Nothing of delta is set aside for noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dp.audit import replayed_epsilon
from dp.correlated import CorrelatedRelease
from dp.errors import UnsupportedEventError
from dp.ledger_reader import ReplayedEntry, flattened
from protocol.goal import delta_for_noise
from protocol.training.records import listed_cohort

RUN_ROUTE: Final = "independent replay: the whole covariance, solved densely"


def is_of_run(entries: Sequence[ReplayedEntry]) -> bool:
    """Whether a ledger is one of noise that comes back."""
    tags = {event["tag"] for entry in entries for event in flattened(entry.event)}
    if CorrelatedRelease.tag in tags and len(tags) > 1:
        others = ", ".join(sorted(tags - {CorrelatedRelease.tag}))
        raise UnsupportedEventError(
            f"the ledger holds rounds whose noise comes back beside {others}: the two have no "
            "common bound; keep a ledger for each"
        )
    return CorrelatedRelease.tag in tags


def busiest_of_run(
    entries: Sequence[ReplayedEntry], delta: float, everybody: str
) -> tuple[str, int, float]:
    """The client that has spent most: its name, its rounds, and its epsilon against the server."""
    rounds = [event for entry in entries for event in flattened(entry.event)]
    listed = [listed_cohort(entry.metadata) for entry in entries]
    cohorts = [None if names is None else frozenset(names) for names in listed]
    names = sorted(frozenset().union(*(cohort or () for cohort in cohorts))) or [everybody]
    spent: dict[tuple[bool, ...], tuple[str, float]] = {}
    for name in names:
        mine = tuple(cohort is None or name in cohort for cohort in cohorts)
        if mine not in spent:
            events = [_seen(event, own) for event, own in zip(rounds, mine, strict=True)]
            left = delta_for_noise(delta, rounds[0]["rounds"])
            spent[mine] = name, replayed_epsilon(events, left)
    pattern = max(spent, key=lambda each: (spent[each][1], spent[each][0]))
    name, epsilon = spent[pattern]
    return name, sum(pattern), epsilon


def _seen(event: Mapping[str, Any], own: bool) -> Mapping[str, Any]:
    """A round as one client meets it."""
    return event if own else {**event, "l2_sensitivity": 0.0}
