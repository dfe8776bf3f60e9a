"""The options of `veilsum reproduce cpsgd`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.output import progress_bar


def cpsgd_command(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and plots.")] = Path(
        "veilsum-cpsgd"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A few points and runs: seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Fixes every simulation.", min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """cpSGD: Theorems 3 and 4 against simulation, Figure 1 under two accountants, bits saved."""
    from simulations.reproduce.cpsgd.campaign import Plan, reproduce
    from simulations.reproduce.cpsgd.report import REPORT

    # Seen to before the figures are made, which takes a while.
    out.mkdir(parents=True, exist_ok=True)
    plan = Plan.chosen(quick)
    with progress_bar("cpSGD", plan.steps) as bar:
        figures = reproduce(plan, seed, bar.advance)
    REPORT.finish(figures, out, as_json)
