"""Tables of clients, from files or objects: columns by name for each client."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.errors import ConfigurationError

Columns = Mapping[str, Sequence[Any]]


def read_table(path: str | Path) -> Columns:
    """Read a file of rows with named columns: .parquet, or text with commas.

    Numbers in text become numbers, and empty fields no answers.

    Raises:
        ConfigurationError: no such file, or not one of these.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        found: Columns = parquet.read_table(path).to_pydict()
        return found
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        valid = "a file of comma-separated values with a header, or .parquet"
        raise ConfigurationError("data", f"{path} ({error})", valid) from None
    header = rows[0] if rows else []
    wrong = next((n for n, row in enumerate(rows, 1) if len(row) != len(header)), None)
    if not header or wrong is not None:
        valid = "a header, and as many values in each line"
        raise ConfigurationError("data", f"{path}, line {wrong or 1}", valid)
    columns = zip(*rows[1:], strict=True) if rows[1:] else [()] * len(header)
    return {n: [_value(v) for v in each] for n, each in zip(header, columns, strict=True)}


def _value(text: str) -> Any:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None


def clients_of(table: Any, by: str | None) -> dict[str, dict[str, list[Any]]]:
    """Divide a table among its clients.

    Args:
        table: columns by name; a mapping, a data frame, or a table of `datasets`.
        by: the column that names the client; without one, every row is a client of its own.

    Raises:
        ConfigurationError: no such column, or a client has no name.
    """
    names = list(getattr(table, "column_names", None) or table)
    if by is not None and by not in names:
        raise ConfigurationError("client", by, f"one of {', '.join(map(str, names))}")
    columns = {name: _listed(table[name]) for name in names}
    rows = len(next(iter(columns.values()), []))
    keys = range(1, rows + 1) if by is None else columns[by]
    clients: dict[str, dict[str, list[Any]]] = {}
    for row, key in enumerate(keys):
        if key is None:
            raise ConfigurationError("client", f"empty in row {row + 1}", "a name in every row")
        mine = clients.setdefault(str(key), {name: [] for name in names})
        for name in names:
            mine[name].append(columns[name][row])
    return clients


def _listed(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)
