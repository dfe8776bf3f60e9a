"""The options of `veilsum reproduce compression`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir, Epochs, FirstSeed, QuickTraining
from simulations.reproduce.output import progress_bar

TASKS = ("names", "fashion-mnist", "cifar10")


def compression_command(
    task: Annotated[str, typer.Option(help=f"One of {', '.join(TASKS)}.")] = "names",
    quick: QuickTraining = False,
    epochs: Epochs = None,
    seeds: Annotated[int, typer.Option(help="Runs of every point.", min=1)] = 1,
    seed: FirstSeed = 1,
    workers: Annotated[int, typer.Option(help="Processes that train.", min=1)] = 1,
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, tables and plots; finished runs stay.")
    ] = Path("veilsum-compression"),
    as_json: JsonFlag = False,
) -> None:
    """Gradient compression under example-level privacy: accuracy, bytes, errors, and the claims."""
    from protocol.errors import ConfigurationError
    from simulations.reproduce.compression.campaign import progress_steps, reproduce
    from simulations.reproduce.compression.plan import Plan
    from simulations.reproduce.compression.report import REPORT

    if task not in TASKS:
        raise ConfigurationError("task", f"value {task!r}", ", ".join(TASKS))
    chosen = "digits" if quick else task
    plan = Plan.of(chosen).changed(epochs, seeds, seed)
    folder = out / chosen
    with progress_bar(f"compression, {chosen}", progress_steps(plan)) as bar:
        figures = reproduce(plan, data_dir, folder, workers, bar.advance)
    REPORT.finish(figures, folder, as_json)
