"""The options of `veilsum reproduce adaptive-mean`; everything else is loaded late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.output import progress_bar


def adaptive_mean_command(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and the plot.")] = Path(
        "veilsum-adaptive-mean"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Small and few: seconds.")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Data sets of every kind, instead of the plan's.", min=2)
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes vectors and hashes.", min=0)] = 1,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Mean estimation with autotuned sketches: error and size, untrusted and central form."""
    from simulations.reproduce.adaptive_mean.campaign import Plan, reproduce
    from simulations.reproduce.adaptive_mean.report import REPORT

    plan = Plan.chosen(quick)
    plan = plan if seeds is None else replace(plan, seeds=seeds)
    with progress_bar("adaptive means", plan.steps) as bar:
        figures = reproduce(plan, seed, workers, bar.advance)
    REPORT.finish(figures, out, as_json)
