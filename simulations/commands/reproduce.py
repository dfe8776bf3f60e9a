"""`veilsum reproduce`: one command for all campaigns of `simulations.reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.catalog import CAMPAIGNS

LISTED = "\n\n".join(f"{name}: {about}" for name, about in CAMPAIGNS.items())


def reproduce_command(
    name: Annotated[str | None, typer.Argument(help="Of a campaign; see the list below.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small plan: seconds to minutes, and no files.")
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Which of the campaign's plans; an error lists them.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="field=value,value,... of the plan; may be repeated."),
    ] = None,
    show_plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the plan, whose fields --set changes; run nothing."),
    ] = False,
    seed: Annotated[int, typer.Option(help="The first of them.", min=0)] = 1,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of everything that has several.", min=1)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data sets; VEILSUM_DATA_DIR if left out.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for figures, page, plots and results; veilsum-NAME if left out."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Run published results again, beside this project's own.

    Every result is kept in the folder as soon as it is there, with its configuration and a digest
    of the code that made it. The same command goes on with what is missing.
    """
    if name is None:
        typer.echo("\n".join(f"{each:20}{about}" for each, about in CAMPAIGNS.items()))
        return
    from simulations.learning.run.overrides import read_choices
    from simulations.reproduce.catalog import campaign
    from simulations.reproduce.engine.campaign import QUICK, Options
    from simulations.reproduce.engine.command import carry_out

    found = campaign(name)
    options = Options(
        preset=QUICK if quick else preset,
        changes=dict(map(read_choices, change or [])),
        seed=seed,
        seeds=seeds,
    )
    carry_out(found, options, out or Path(f"veilsum-{name}"), data_dir, workers, as_json, show_plan)
