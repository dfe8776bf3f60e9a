"""Which scheme a command is about, as options, and figures of both beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from protocol.schemes import SCHEMES
from simulations.common.committees import MEMBERS, POPULATION
from simulations.common.tables import show


class SchemeChoice(Enum):
    """One scheme, or both beside each other."""

    PAIRWISE = "pairwise"
    ONE_SHOT = "one-shot"
    BOTH = "both"

    @property
    def names(self) -> tuple[str, ...]:
        """The schemes chosen."""
        return tuple(SCHEMES) if self is SchemeChoice.BOTH else (self.value,)


SchemeOption = Annotated[
    SchemeChoice, typer.Option(help="How vectors are summed; both compares the two schemes.")
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
"""What measures each scheme, by its name."""


def show_schemes(
    title: str,
    scheme: SchemeChoice,
    measures: Measures,
    compared: Sequence[str],  # figures of both protocols to divide
    as_json: bool,
) -> list[Mapping[str, Any]]:
    """Measure, print and return one scheme, or both and how many times as much pairwise takes."""
    # One-shot first: a process never says that its peak of memory has gone down.
    found = {name: measures[name]() for name in reversed(scheme.names)}
    if len(found) == 1:
        show(title, found[scheme.names[0]], as_json)
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
