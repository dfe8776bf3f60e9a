"""Figures as tables for people, or as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def show(title: str, figures: Mapping[str, object], as_json: bool) -> None:
    """Print a benchmark's figures: one JSON object, or a table under the same names."""
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        table.add_row(name, readable(value))
    Console().print(table)


def readable(value: object) -> str:
    """A number with separators and four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"
