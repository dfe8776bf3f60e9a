"""The options of `veilsum reproduce autotune`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir
from simulations.reproduce.output import progress_bar


def autotune_command(
    config: Annotated[Path, typer.Argument(help="TOML file of the task; its sketch is varied.")],
    out: Annotated[
        Path, typer.Option(help="Folder for runs, figures, table and plot; finished runs stay.")
    ] = Path("veilsum-autotune"),
    noise: Annotated[
        list[float] | None, typer.Option(help="Noise multiplier; may be repeated.", min=0.001)
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(help="Fixed rate; may be repeated.", min=1.0)
    ] = None,
    gamma: Annotated[
        list[float] | None, typer.Option(help="Of adapt_norm; may be repeated.", min=0.0001)
    ] = None,
    budget_gamma: Annotated[
        list[float] | None, typer.Option(help="Of adapt_budget; may be repeated.", min=0.0001)
    ] = None,
    controller: Annotated[
        list[str] | None, typer.Option(help="A further controller; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of every point.", min=1)] = 1,
    rounds: Annotated[int | None, typer.Option(help="Instead of the file's.", min=1)] = None,
    data_dir: DataDir = None,
    as_json: JsonFlag = False,
) -> None:
    """Autotuned sketches: accuracy and rate by controller, beside fixed rates (the Genie)."""
    from protocol.planning.configuration import load
    from simulations.learning.configuration import RunConfig
    from simulations.learning.federated import load_data
    from simulations.reproduce.autotune.campaign import Plan, reproduce
    from simulations.reproduce.autotune.report import REPORT

    base, usual = load(config, RunConfig), Plan()
    plan = Plan(
        noise=noise or usual.noise,
        rates=rate or usual.rates,
        gammas=gamma or usual.gammas,
        budgets=budget_gamma or usual.budgets,
        others=controller or usual.others,
        seeds=tuple(range(1, seeds + 1)),
        rounds=rounds,
    )
    with progress_bar("autotune", len(list(plan.points()))) as bar:
        figures = reproduce(base, plan, load_data(base, data_dir), out, bar.ended)
    REPORT.finish(figures, out, as_json)
