"""The keys of a run's configuration as Markdown, from the sections that check them."""

from __future__ import annotations

from simulations.learning.keys import Key, Table, tables


def page(_: str) -> str:
    """The tables of a file one after the other; keys outside of tables come first."""
    parts = []
    for table in tables():
        heading = f"`[{table.name}]`" if table.name else "Keys outside of tables"
        parts += [f"## {heading}", table.meaning, _rows(table)]
    return "\n\n".join(parts)


def _rows(table: Table) -> str:
    rows = [_row(key) for key in table.keys]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _row(key: Key) -> str:
    return f"| `{key.name}` | {key.values('`')} | {_default(key)} | {key.meaning} |"


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.default is None:
        return ""
    if key.default == {}:
        return "empty"
    text = str(key.default).lower() if isinstance(key.default, bool) else repr(key.default)
    return f"`{text}`".replace("'", '"')
