"""What would mend a configuration: values for the keys that its errors name, tried before told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tomli_w

from protocol.errors import ConfigurationError, Cure
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig
from simulations.learning.run.overrides import with_changes

_MOST_TRIES: Final = 8


def remedy(raw: Mapping[str, Any], error: ConfigurationError, ranks: int = 1) -> dict[str, Any]:
    """Values by key with which a configuration is valid; empty if none are found.

    A value that mends one problem may show the next: noise that comes back needs another scheme,
    which needs a committee, which needs a size.
    """
    changes: dict[str, Any] = {}
    for _ in range(_MOST_TRIES):
        told = (error, *error.others)
        if any(each.cure is None or changes.get(each.key) == each.cure for each in told):
            return {}
        changes |= {each.key: each.cure for each in told}
        try:
            parse(with_changes(raw, list(changes.items())), RunConfig).check(ranks)
        except ConfigurationError as found:
            error = found
        else:
            return changes
    return {}


def as_tables(changes: Mapping[str, Any]) -> str:
    """Values by key as TOML, to be copied into a file; above them, which keys have to go."""
    gone = [key for key, value in changes.items() if value is Cure.LEFT_OUT]
    lines = [f"# left out: {', '.join(gone)}\n"] if gone else []
    kept = [(key, value) for key, value in changes.items() if key not in gone]
    return "\n".join([*lines, tomli_w.dumps(with_changes({}, kept))]).strip()
