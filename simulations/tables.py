"""Figures as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def figures_table(title: str, figures: Mapping[str, Any]) -> Table:
    """One row for each figure; nested ones as `outer, inner`."""
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, figure in inner:
            label = f"{name}, {part}" if part else name
            table.add_row(label.replace("_", " "), readable(figure))
    return table


def readable(value: object) -> str:
    """A number with separators and four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"
