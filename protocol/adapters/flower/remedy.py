"""For an error message: a table to be copied, of settings near to those that do not do."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from protocol.errors import ConfigurationError

SIMULATION_KEY = "simulation_dir"

EXAMPLE: Mapping[str, Any] = {
    "rounds": 5,
    SIMULATION_KEY: "~/.cache/veilsum",
    "privacy": {"epsilon": 8.0, "delta": 1e-5, "clip_l2": 1.0},
    "cohort": {"size": 10, "tolerated_dropouts": 2, "tolerated_colluders": 0},
}
"""Of a simulation; it lacks nothing, and holds together."""

DEPLOYMENT = {"ledger": "/srv/veilsum/ledger.jsonl", "registry": "/srv/veilsum/registry.txt"}
"""The same keys' part that a deployment has in place of a folder for everybody."""
_TABLE = "tool.flwr.app.config.veilsum"
_OURS = "  # an example: choose your own"

Check = Callable[[dict[str, Any]], Collection[ConfigurationError]]
"""What is wrong with settings; keys are dotted, as in a `ConfigurationError`."""


def hyphened(name: str) -> str:
    """A key as Flower's own are written."""
    return name.replace("_", "-")


def mended(values: Mapping[str, Any], check: Check) -> dict[str, Any]:
    """Settings that `check` finds nothing wrong with.

    First, only what is wrong is taken out, and what is missing is filled in from an example; then,
    whole tables; then there is nothing left but the example.
    """
    tried = _filled(_copied(values))
    for whole_tables in (False, False, True):
        problems = check(tried)
        if not problems:
            return tried
        for problem in problems:
            key = problem.key.partition(".")[0] if whole_tables else problem.key
            _remove(tried, key.split("."))
        tried = _filled(tried)
    return _filled({}) if check(tried) else tried


def toml_table(settings: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Settings as TOML for an app's pyproject.toml; marks what is not as it was given."""
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    plain = {name: value for name, value in settings.items() if name not in tables}
    parts = [f"[{_TABLE}]", *_lines(plain, given)]
    for name, table in tables.items():
        before = given.get(name)
        lines = _lines(table, before if isinstance(before, dict) else {})
        parts += ["", f"[{_TABLE}.{hyphened(name)}]", *lines]
    return "\n".join(parts)


def _lines(table: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            before = given.get(name)
            lines = _lines(value, before if isinstance(before, dict) else {})
            yield from (f"{hyphened(name)}.{line}" for line in lines)
            continue
        remark = "" if name in given and given[name] is value else _OURS
        # JSON writes strings and truth values as TOML does.
        text = repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
        yield f"{hyphened(name)} = {text}{remark}"


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {n: dict(value) if isinstance(value, dict) else value for n, value in values.items()}


def _remove(settings: dict[str, Any], path: list[str]) -> None:
    *parents, last = path
    table: Any = settings
    for parent in parents:
        table = table.get(parent) if isinstance(table, dict) else None
    value = table.get(last) if isinstance(table, dict) else None
    if isinstance(value, dict) and {"epsilon", "noise_multiplier"} <= value.keys():
        del value["noise_multiplier"]  # the one is enough
    elif isinstance(table, dict):
        table.pop(last, None)


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With the example's values where none is given, and in its order."""
    example = _copied(EXAMPLE)
    privacy = settings.get("privacy")
    if isinstance(privacy, dict) and "noise_multiplier" in privacy:
        del example["privacy"]["epsilon"]
    if SIMULATION_KEY not in settings and not settings.keys().isdisjoint(DEPLOYMENT):
        del example[SIMULATION_KEY]
        example |= DEPLOYMENT
    filled = {**example, **settings}
    for name, value in example.items():
        if isinstance(value, dict) and isinstance(filled[name], dict):
            filled[name] = {**value, **filled[name]}
    return filled
