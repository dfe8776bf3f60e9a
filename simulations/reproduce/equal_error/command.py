"""The options of `veilsum reproduce equal-error`; everything else is loaded late."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.output import progress_bar

NOISES = (0.5, 1.0, 2.0, 4.0, 8.0)
LEAST_NOISE, MOST_NOISE = 0.1, 100.0


def equal_error_command(
    out: Annotated[Path, typer.Option(help="Folder for figures, page and plot.")] = Path(
        "veilsum-equal-error"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="1,024 coordinates: seconds.")] = False,
    noise: Annotated[
        list[float] | None,
        typer.Option(
            help="z, the error of a coordinate of the sum over the clip; may be repeated.",
            min=LEAST_NOISE,
            max=MOST_NOISE,
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="Of the sum.", min=2, max=1_000_000)] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Epsilon at equal error: this system, other noise below secure sums, and local privacy."""
    from simulations.reproduce.equal_error.report import REPORT
    from simulations.reproduce.equal_error.systems import Task, compared
    from simulations.reproduce.origin import facts

    # Seen to before the figures are made, which takes a while.
    out.mkdir(parents=True, exist_ok=True)
    task = Task(clients=clients, dimension=1 << 10 if quick else 1 << 20)
    points = []
    noises = sorted(set(noise or NOISES))
    with progress_bar("equal error", len(noises)) as bar:
        for each in noises:
            points.append({"noise": each, "systems": compared(replace(task, noise=each))})
            bar.advance()
    REPORT.finish({**facts(), "task": asdict(task), "points": points}, out, as_json)
