"""`veilsum doctor`: whether the installation is well; `simulations.reports.doctor` examines it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from simulations.commands.run import DataOption
from simulations.common.tables import JsonFlag


def doctor_command(
    kernels: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Check only those compiled kernels whose names contain this."
        ),
    ] = "",
    data_dir: DataOption = None,
    site: Annotated[
        Path | None, typer.Option(help="Check this site's folder as well, and its sandbox.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the installation, and say what helps: kernels, caches, packages, versions, folders.

    The exit status is 0 if all is well, 1 after warnings, and 2 if something is wrong. Kernels that
    are in no cache yet are compiled, which takes a minute or two.
    """
    from simulations.reports.doctor import examine, exit_status

    findings = []
    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False)
    bar.disable = not bar.console.is_terminal
    task = bar.add_task("")

    def begin(place: int, total: int, name: str) -> None:
        bar.start()
        bar.update(task, completed=place, total=total, description=name)

    for finding in examine(kernels, data_dir, begin, site):
        findings.append(finding)
        bar.stop()
        if not as_json:
            typer.echo(str(finding))
    status = exit_status(findings)
    if as_json:
        typer.echo(json.dumps({"exit_status": status, "findings": [*map(asdict, findings)]}))
    raise typer.Exit(status)
