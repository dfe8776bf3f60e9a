"""What would mend a configuration: values for the keys that its errors name, tried before told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tomli_w

from protocol.errors import ConfigurationError, Remedy
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig
from simulations.learning.run.overrides import with_changes

_MOST_TRIES: Final = 8


def remedy(raw: Mapping[str, Any], error: ConfigurationError, ranks: int = 1) -> dict[str, Any]:
    """Values by key with which a configuration is valid; empty if none are found.

    A value that mends one problem may show the next: noise that comes back needs another scheme,
    which needs a committee, which needs a size. What turns out to be needless is not told.
    """
    changes: dict[str, Any] = {}
    left: ConfigurationError | None = error
    for _ in range(_MOST_TRIES):
        if left is None:
            break
        found = (left, *left.others)
        if any(each.remedy is None or changes.get(each.key) == each.remedy for each in found):
            return {}
        changes |= {each.key: each.remedy for each in found}
        left = _problem(raw, changes, ranks)
    if left is not None:
        return {}
    for key in tuple(changes):
        without = {name: value for name, value in changes.items() if name != key}
        if without and _problem(raw, without, ranks) is None:
            changes = without
    return changes


def _problem(
    raw: Mapping[str, Any], changes: Mapping[str, Any], ranks: int
) -> ConfigurationError | None:
    try:
        parse(with_changes(raw, list(changes.items())), RunConfig).check(ranks)
    except ConfigurationError as error:
        return error
    return None


def as_tables(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """Values by key as TOML, to be copied into a file; above them, which of its keys have to go.

    A table of another `kind` has other keys.
    """
    gone = sorted(_keys(raw) - _keys(with_changes(raw, list(changes.items()))))
    kept = [(key, value) for key, value in changes.items() if value is not Remedy.LEFT_OUT]
    lines = [f"# left out: {', '.join(gone)}\n"] if gone else []
    return "\n".join([*lines, tomli_w.dumps(with_changes({}, kept))]).strip()


def _keys(tables: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Every key that has a value, with its place."""
    found = set()
    for name, value in tables.items():
        inner = isinstance(value, dict)
        found |= _keys(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}"}
    return found
