"""Figures as tables for people, or as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_GAP: Final = 2
"""Spaces between two columns."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def show(title: str, figures: Mapping[str, object], as_json: bool) -> None:
    """Print a benchmark's figures: one JSON object, or a table under the same names."""
    if as_json:
        typer.echo(json.dumps(figures))
        return
    rows = [(name, readable(value)) for name, value in figures.items()]
    show_rows(title, ("figure", "value"), rows)


def show_rows(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    console: Console | None = None,  # standard output if left out
) -> None:
    """Print a title, if there is one, a table, and an empty line."""
    console = console or Console()
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(fitted(heads, rows, console.width))
    console.print()


def fitted(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table in which no word is broken and nothing is cut off.

    Where it is too narrow for the longest words of all columns, every row becomes a list of its
    cells, each beside its head.
    """
    widths = _widths(heads, rows, width)
    columns = [Column(Text(head), overflow="fold", width=width) for head, width in widths]
    if not widths:
        columns = [Column(no_wrap=True), Column(overflow="fold")]
        cells = [pair for row in rows for pair in (*zip(heads, row, strict=True), ("", ""))]
        rows = cells[:-1]
    table = Table(
        *columns,
        show_header=bool(widths),
        show_edge=False,
        box=SIMPLE_HEAD,
        padding=(0, _GAP - 1, 0, 0),
    )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _widths(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[tuple[str, int]]:
    """The heads with the widths of their columns; nothing if their words do not fit.

    Rich by itself narrows the widest columns first, and breaks words where others have room.
    """
    cells = list(zip(heads, *rows, strict=True))
    least = [
        max((len(word) for cell in column for word in cell.split()), default=1) for column in cells
    ]
    most = [max(map(len, column)) for column in cells]
    spare = width - sum(least) - _GAP * len(least)
    if spare < 0:
        return []
    for _ in range(spare):
        place = max(range(len(least)), key=lambda place: most[place] / least[place])
        least[place] += least[place] < most[place]
    return list(zip(heads, least, strict=True))


def readable(value: object) -> str:
    """A number with separators and four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"
