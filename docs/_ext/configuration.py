"""The keys of a run's configuration as Markdown, from the sections that check them."""

from __future__ import annotations

from typing import Any

from simulations.learning.keys import Key, Table, data_options, tables


def page(_: str) -> str:
    """The tables of a file one after the other; keys outside of tables come first."""
    parts = []
    for table in tables():
        heading = f"`[{table.name}]`" if table.name else "Keys outside of tables"
        heading += f" of kind `{table.kind}`" if table.kind else ""
        parts += [f"## {heading}", table.meaning, _rows(table)]
        if table.name == "task":
            parts += ["### Options of data sets", _options()]
    return "\n\n".join(parts)


def _rows(table: Table) -> str:
    rows = [_row(table, key) for key in table.keys]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _row(table: Table, key: Key) -> str:
    owners = table.owners(key.name)
    of = f"{', '.join(owners)}: " if owners else ""
    return f"| `{key.name}` | {key.values('`')} | {_default(key, owners)} | {of}{key.meaning} |"


def _default(key: Key, owners: dict[str, Any]) -> str:
    if key.required:
        return "required"
    own: dict[str, list[str]] = {}
    for name, default in owners.items():
        if default is not None:
            own.setdefault(_literal(default), []).append(name)
    if own:
        several = len(own) > 1
        return "; ".join(
            f"{value} ({', '.join(names)})" if several else value for value, names in own.items()
        )
    if key.default is None:
        return "none"
    return "empty" if key.default == {} else _literal(key.default)


def _literal(value: Any) -> str:
    """A value as a file has it."""
    value = getattr(value, "kind", value)
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"`{text}`".replace("'", '"')


def _options() -> str:
    """What `data_options` may hold."""
    rows = [
        f"| `{each.name}` | {each.values} | {_literal(each.default)} | "
        f"{', '.join(each.data)}: {each.meaning} |"
        for each in data_options()
    ]
    return "\n".join(["| option | value | default | meaning |", "|---|---|---|---|", *rows])
