"""`veilsum export`: the rounds of runs as a table; `simulations.reports.run.rows` makes it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


class Kind(Enum):
    """How a table is written."""

    CSV = "csv"
    PARQUET = "parquet"


def export_command(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, sweeps or demos; all runs in them are exported."),
    ],
    to: Annotated[
        Kind, typer.Option("--to", help="Kind of file; parquet needs the extra of that name.")
    ] = Kind.CSV,
    out: Annotated[
        Path | None,
        typer.Option(help="File. Default: rounds.csv or rounds.parquet in the first folder."),
    ] = None,
) -> None:
    """Write the rounds of one or more runs as one flat table."""
    from simulations.reports.run.folders import find_runs
    from simulations.reports.run.rows import rows_of, write_rows

    runs = find_runs(folders)
    rows = rows_of(runs)
    path = out or folders[0] / f"rounds.{to.value}"
    write_rows(rows, path, to.value)
    text = f"{path}: {len(rows)} rounds of {len(runs)} runs, {len(rows[0])} columns"
    Console(stderr=True).print(Text(text), soft_wrap=True)
