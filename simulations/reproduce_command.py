"""The options of `veilsum reproduce`; its bodies are in `simulations.reproduce`, loaded late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

reproduce_app = typer.Typer(
    help="Run published results again, beside this project's own.", no_args_is_help=True
)


@reproduce_app.callback()
def _group() -> None:
    """Keep `cpsgd` a command of its own while it is the only one."""


@reproduce_app.command("cpsgd")
def cpsgd_command(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and plots.")] = Path(
        "veilsum-cpsgd"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A few points and runs: seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Fixes every simulation.", min=0)] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """cpSGD: Theorems 3 and 4 against simulation, Figure 1 under two accountants, bits saved."""
    from simulations.reproduce.cpsgd import Plan, reproduce, write
    from simulations.reproduce.summary import print_summary

    plan = Plan.chosen(quick)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("cpSGD", total=plan.steps)
        figures = reproduce(plan, seed, lambda: progress.advance(task))
    paths = write(figures, out)
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        print_summary(figures, paths, Console())
