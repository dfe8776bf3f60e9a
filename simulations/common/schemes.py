"""Which scheme a command is about, as options, and figures of both beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from protocol.schemes import SCHEMES, OneShot, Pairwise
from simulations.common.committees import MEMBERS, POPULATION
from simulations.common.tables import show

_SEVERAL: Mapping[str, tuple[str, ...]] = {
    "both": (Pairwise.KIND, OneShot.KIND),
    "all": tuple(SCHEMES),
}


class _Chosen:
    """What a choice stands for."""

    value: str

    @property
    def names(self) -> tuple[str, ...]:
        """The schemes chosen."""
        return _SEVERAL.get(self.value, (self.value,))


class SchemeChoice(_Chosen, Enum):
    """One scheme, or both beside each other."""

    PAIRWISE = "pairwise"
    ONE_SHOT = "one-shot"
    BOTH = "both"


class AnyScheme(_Chosen, Enum):
    """One scheme, or some beside each other."""

    PAIRWISE = "pairwise"
    ONE_SHOT = "one-shot"
    VALIDATED = "validated"
    BOTH = "both"
    ALL = "all"


AnySchemeOption = Annotated[
    AnyScheme,
    typer.Option(
        help="How vectors are summed; both compares pairwise and one-shot, all all three."
    ),
]
SchemeOption = Annotated[
    SchemeChoice, typer.Option(help="How vectors are summed; both compares the two schemes.")
]
CommitteeOption = Annotated[
    tuple[int, int, int] | None,
    typer.Option(
        help="Named committee of one-shot or validated rounds: members, corrupt ones, and honest "
        f"ones that may be away. Default: {MEMBERS} members, as many corrupt and away as a pick "
        f"from {POPULATION} candidates gives, of whom 5 % are each.",
        show_default=False,
    ),
]


Measures = Mapping[str, Callable[[], Mapping[str, Any]]]
"""What measures each scheme, by its name."""


def show_schemes(
    title: str,
    scheme: SchemeChoice | AnyScheme,
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
    tables = {**{name: found[name] for name in scheme.names}, "ratio": ratio}
    if as_json:
        typer.echo(json.dumps(tables))
    else:
        for name, figures in tables.items():
            show(f"{title}, {name}", figures, False)
    return list(found.values())
