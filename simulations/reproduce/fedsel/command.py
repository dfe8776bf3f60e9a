"""The options of `veilsum reproduce fedsel`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir
from simulations.reproduce.output import progress_bar


def fedsel_command(
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, page and plots; finished cells stay.")
    ] = Path("veilsum-fedsel"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A small synthetic table: seconds, no files needed.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(help="BANK, ADULT, KDD or such as syn-H-0.1-0.6; may be repeated."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Of the cross-validation of Table 3.", min=2)
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes folds, order, choice and noise.", min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """FedSel: Table 3 and Figure 2 (f) to (i), at common learning rates and at each arm's own."""
    from simulations.learning.data import DataFolder, find_data_dir
    from simulations.reproduce.fedsel.campaign import (
        Counted,
        Plan,
        campaign_of,
        needs_files,
        tables_of,
    )
    from simulations.reproduce.fedsel.figures import figures_of
    from simulations.reproduce.fedsel.report import REPORT

    plan = (Plan.quick() if quick else Plan()).changed(table, repeats)
    folder = DataFolder(find_data_dir(data_dir)) if needs_files(plan) else None
    tables = tables_of(plan, folder)
    counted = Counted(plan, tables)
    figures_of(counted)
    with progress_bar("FedSel", counted.count) as bar:
        figures = figures_of(campaign_of(plan, tables, seed, out, bar.advance))
    REPORT.finish(figures, out, as_json)
