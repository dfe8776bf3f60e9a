"""Options that several `veilsum bench` commands have, and what they share beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console

from secagg import Mode
from simulations.common.peers import Peer

Bits = Annotated[int, typer.Option(help="Bits of a field element, 8 to 62.")]
CohortSize = Annotated[int, typer.Option(help="Size of the cohort.", min=2)]
Dropout = Annotated[float, typer.Option(help="Share of clients that never upload.", min=0, max=0.9)]
PeerChoice = Annotated[
    Peer | None, typer.Option(help="Also measure another system's code for the same task.")
]
Rate = Annotated[float, typer.Option(help="Compression rate.", min=1.0)]
Repeats = Annotated[int, typer.Option(help="Number of timed repetitions.", min=1)]
Trust = Annotated[Mode, typer.Option(help="How far the server is trusted.")]

prose = Console(stderr=True)
"""For progress; standard output is for the figures."""


def exit_if_wrong(figures: Mapping[str, object]) -> None:
    """Exit status 1 if our result or a peer's is not what it must be."""
    if not (figures["correct"] and figures.get("peer_correct", True)):
        raise typer.Exit(1)
