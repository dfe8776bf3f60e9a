"""The columns of an exported table as Markdown, from the module that writes them."""

from __future__ import annotations

from simulations.reports.run.rows import COLUMNS


def page(_: str) -> str:
    """Unit and meaning of every column, in order."""
    rows = [f"| `{name}` | {each.unit} | {each.meaning} |" for name, each in COLUMNS.items()]
    return "\n".join(["| column | unit | meaning |", "|---|---|---|", *rows])
