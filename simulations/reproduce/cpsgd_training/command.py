"""The options of `veilsum reproduce cpsgd-mnist`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir
from simulations.reproduce.output import progress_bar


def cpsgd_mnist_command(
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, tables and the plot; finished runs stay.")
    ] = Path("veilsum-cpsgd-mnist"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Embedded digits, one k: seconds, no files needed.")
    ] = False,
    steps: Annotated[int | None, typer.Option(help="Steps of every run.", min=1)] = None,
    levels: Annotated[
        list[int] | None, typer.Option(help="k, instead of the plan's; may be repeated.", min=2)
    ] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Of one step; may be repeated.", min=0.01, max=8.0)
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes order, model, rounding and noise.", min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """cpSGD's Figure 2 with MNIST: accuracy by k, m and epsilon, under two accountants."""
    from simulations.learning.data import load_dataset
    from simulations.reproduce.cpsgd_training.plan import Plan
    from simulations.reproduce.cpsgd_training.report import REPORT
    from simulations.reproduce.cpsgd_training.training import progress_steps, reproduce

    plan = (Plan.quick() if quick else Plan()).changed(steps, levels, epsilon)
    data = load_dataset("digits") if quick else load_dataset("mnist", data_dir)
    with progress_bar("cpSGD on MNIST", progress_steps(plan)) as bar:
        figures = reproduce(plan, data, seed, out, bar.advance)
    REPORT.finish(figures, out, as_json)
