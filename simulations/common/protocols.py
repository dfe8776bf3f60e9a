"""Which protocol a command is about, and the committee of its one-shot rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from protocol.planning.committee import CommitteeNumbers, committee_numbers
from simulations.common.tables import show

POPULATION = 1000
"""Candidates that the members of the default committee are picked from, blindly."""
MEMBERS = 248
"""s of the default committee. More members cost a client more work and fewer bytes."""
CORRUPT_SHARE = 0.05
"""Share of corrupt candidates; the sparse graphs of pairwise rounds are chosen for the same."""
AWAY_SHARE = 0.05
"""Share of candidates that are away. Clients are lost more often; members are named for staying."""
SAFE_BITS, STUCK_BITS = 40, 20
"""More corrupt members, or more away, than planned: in one of 2^40 picks, and of 2^20."""


class ProtocolChoice(Enum):
    """One protocol, or both beside each other."""

    PAIRWISE = "pairwise"
    ONE_SHOT = "one-shot"
    BOTH = "both"

    @property
    def names(self) -> tuple[str, ...]:
        """The protocols chosen."""
        return ("pairwise", "one-shot") if self is ProtocolChoice.BOTH else (self.value,)


ProtocolOption = Annotated[
    ProtocolChoice, typer.Option(help="How vectors are summed; both compares the two protocols.")
]
CommitteeOption = Annotated[
    tuple[int, int, int] | None,
    typer.Option(
        help="Named committee of one-shot rounds: members, corrupt ones, and honest ones that may "
        f"be away. Default: {MEMBERS} members, as many corrupt and away as a pick from "
        f"{POPULATION} candidates gives, of whom 5 % are each.",
        show_default=False,
    ),
]


def numbers_of(committee: tuple[int, int, int] | None) -> CommitteeNumbers:
    """The numbers of a named committee, given as in `CommitteeOption`.

    Raises:
        ParameterError: too many are corrupt or away for so many members.
    """
    return committee_numbers(*(default_committee() if committee is None else committee))


def default_committee() -> tuple[int, int, int]:
    """Members, corrupt and away ones of a committee that is picked blindly, and then named."""
    return MEMBERS, _most(CORRUPT_SHARE, SAFE_BITS), _most(AWAY_SHARE, STUCK_BITS)


def committee_figures(numbers: CommitteeNumbers) -> dict[str, int]:
    """A committee's numbers by their names in full."""
    return {
        "members": numbers.size,
        "corrupt_members": numbers.corrupt,
        "randomness": numbers.randomness,
        "per_polynomial": numbers.per_polynomial,
        "quorum": numbers.quorum,
    }


Measures = Mapping[str, Callable[[], Mapping[str, Any]]]
"""What measures each protocol, by its name."""


def show_protocols(
    title: str,
    protocol: ProtocolChoice,
    measures: Measures,
    compared: Sequence[str],
    as_json: bool,
) -> list[Mapping[str, Any]]:
    """Measure and print one protocol, or both and how many times as much the pairwise one takes.

    Args:
        compared: figures of both protocols to divide.

    Returns:
        The figures of each protocol.
    """
    # One-shot first: a process never says that its peak of memory has gone down.
    found = {name: measures[name]() for name in reversed(protocol.names)}
    if len(found) == 1:
        show(title, found[protocol.value], as_json)
        return list(found.values())
    ratio = {
        name: float(found["pairwise"][name]) / float(found["one-shot"][name]) for name in compared
    }
    tables = {"pairwise": found["pairwise"], "one-shot": found["one-shot"], "ratio": ratio}
    if as_json:
        typer.echo(json.dumps(tables))
    else:
        for name, figures in tables.items():
            show(f"{title}, {name}", figures, False)
    return list(found.values())


def _most(share: float, bits: int) -> int:
    """Marked candidates that a pick of the committee has at most, except with chance 2^-bits."""
    from scipy.stats import hypergeom  # slow to load

    pick = hypergeom(POPULATION, round(share * POPULATION), MEMBERS)
    return next(count for count in range(MEMBERS) if pick.sf(count) <= 2.0**-bits)
