"""What an audit consists of: the attack catalogue, the Span check, privacy audits, Flower.

A unit is what is run, kept and taken up again as a whole. Most units give one check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from protocol.errors import ConfigurationError
from secagg import Mode
from simulations.audits.base import Check, Effort
from simulations.audits.suite import audits
from simulations.reports.audit.one_shot import (
    RUNS_ID,
    SHARES_ID,
    check_one_shot_span,
    check_returned_runs,
    check_shares,
    one_shot_id,
)
from simulations.reports.audit.span import check_span, span_id
from simulations.threats.attack import Attack

FLOWER: Final = "flower"


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing to run."""

    id: str  # of its check; a name of its own if it gives several
    title: str  # what is promised, or what it is about, for the progress display and for errors
    run: Callable[[], Sequence[Check]]  # gives its checks
    defence: str = ""  # what the twin lacks, in words; empty if the check's title says so


def all_units(effort: Effort, seed: int) -> list[Unit]:
    """Return everything that an audit runs, in order.

    Args:
        seed: fixes all randomness but the secrets of real rounds.
    """
    from simulations.threats.catalogue import CATALOGUE

    return [
        *attack_units(CATALOGUE, effort, seed),
        *span_units(effort),
        *one_shot_units(effort, seed),
        *privacy_units(effort, seed),
        flower_unit(effort, seed),
    ]


def _alone(check: Callable[[], Check]) -> Callable[[], Sequence[Check]]:
    """What a unit runs that gives one check."""
    return lambda: [check()]


def attack_units(catalogue: Iterable[Attack], effort: Effort, seed: int) -> list[Unit]:
    """Return a unit for each attack, with and without the defence."""
    return [
        Unit(a.id, a.title, _alone(partial(a.check, effort, seed)), a.stopped_by) for a in catalogue
    ]


def span_units(effort: Effort) -> list[Unit]:
    """Return the Span check for rounds of 3 and 4 clients, and of 5 in a full audit."""
    return [
        Unit(
            span_id(size, mode),
            f"No schedule of a round of {size} clients yields more than the promised sum",
            _alone(partial(check_span, size, mode)),
            "one rule of the client at a time",
        )
        for size in range(3, effort.choose(4, 5) + 1)
        for mode in Mode
    ]


def one_shot_units(effort: Effort, seed: int) -> list[Unit]:
    """Return the checks of small one-shot rounds, committees and runs."""
    shares = partial(check_shares, effort.choose(4, 6))
    runs = partial(check_returned_runs, effort.choose(2_000, 60_000), seed)
    sizes = [(3, 3), (4, 3)] if effort is Effort.QUICK else [(3, 3), (4, 3), (3, 4), (4, 4)]
    return [
        Unit(
            one_shot_id(clients, members),
            f"No schedule of a one-shot round, {clients} clients, yields more than one sum",
            _alone(partial(check_one_shot_span, clients, members)),
            "one rule of members and clients at a time",
        )
        for clients, members in sizes
    ] + [
        Unit(SHARES_ID, "Shares give the sums of one signed set and nothing else", _alone(shares)),
        Unit(
            RUNS_ID,
            "No schedule opens sums with less noise than their records say",
            _alone(runs),
            "one rule of members at a time",
        ),
    ]


def privacy_units(effort: Effort, seed: int) -> list[Unit]:
    """Return the privacy audits."""
    return [
        Unit(audit.id, f"privacy audit: {audit.id}", _alone(audit.check))
        for audit in audits(effort, seed)
    ]


def flower_unit(effort: Effort, seed: int) -> Unit:
    """Return the attacks on Flower's own secure aggregation; no checks if Flower is absent."""

    def run() -> list[Check]:
        from simulations.threats.flower import flower_weaknesses

        return flower_weaknesses(effort, seed)

    return Unit(FLOWER, "Weaknesses of Flower's secure aggregation are absent here", run)


def chosen_units(units: Sequence[Unit], only: Iterable[str]) -> list[Unit]:
    """Return the units with the ids asked for, in the order of the audit; all if none are."""
    wanted = {name.strip().casefold() for entry in only for name in entry.split(",")} - {""}
    known = {unit.id.casefold() for unit in units}
    unknown = sorted(wanted - known)
    if unknown:
        valid = ", ".join(unit.id for unit in units)
        raise ConfigurationError("only", f"there is no check {unknown[0]!r}", valid)
    return [unit for unit in units if not wanted or unit.id.casefold() in wanted]
