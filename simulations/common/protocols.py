"""Which protocol a command is about, as options, and figures of both beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from protocol.planning.plan_checks import ProtocolName
from simulations.common.committees import MEMBERS, POPULATION
from simulations.common.tables import show


class ProtocolChoice(Enum):
    """One protocol, or both beside each other."""

    PAIRWISE = "pairwise"
    ONE_SHOT = "one-shot"
    BOTH = "both"

    @property
    def names(self) -> tuple[ProtocolName, ...]:
        """The protocols chosen."""
        chosen: dict[ProtocolChoice, tuple[ProtocolName, ...]] = {
            ProtocolChoice.PAIRWISE: ("pairwise",),
            ProtocolChoice.ONE_SHOT: ("one-shot",),
            ProtocolChoice.BOTH: ("pairwise", "one-shot"),
        }
        return chosen[self]


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


Measures = Mapping[str, Callable[[], Mapping[str, Any]]]
"""What measures each protocol, by its name."""


def show_protocols(
    title: str,
    protocol: ProtocolChoice,
    measures: Measures,
    compared: Sequence[str],  # figures of both protocols to divide
    as_json: bool,
) -> list[Mapping[str, Any]]:
    """Measure, print and return one protocol, or both and how many times as much pairwise takes."""
    # One-shot first: a process never says that its peak of memory has gone down.
    found = {name: measures[name]() for name in reversed(protocol.names)}
    if len(found) == 1:
        show(title, found[protocol.names[0]], as_json)
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
