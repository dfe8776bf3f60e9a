"""Changes to a configuration from the command line, and the grids of a sweep."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from protocol.errors import ConfigurationError, Remedy
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig

T = TypeVar("T")


def changed(config: RunConfig, changes: Sequence[tuple[str, Any]]) -> RunConfig:
    """The configuration with other values, checked; a table of another `kind` begins empty."""
    return parse(with_changes(config.model_dump(exclude_none=True), changes), RunConfig)


def with_changes(given: Mapping[str, Any], changes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The tables of a configuration with other values, not checked; see `changed`."""
    raw: dict[str, Any] = deepcopy(dict(given))
    # Kinds first, and outer ones before inner ones: they say which other keys there are.
    of_kinds = [change for change in changes if change[0].endswith(".kind")]
    others = [change for change in changes if change not in of_kinds]
    for key, value in (*sorted(of_kinds, key=lambda change: change[0].count(".")), *others):
        *tables, name = key.split(".")
        place = raw
        for table in tables:
            inner = place.setdefault(table, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(key, f"{table} is a value", "a key of a table")
            place = inner
        if name == "kind" and place.get(name) != value:
            place.clear()
        if value is Remedy.LEFT_OUT:
            place.pop(name, None)
        else:
            place[name] = value
    return raw


def read_change(text: str) -> tuple[str, Any]:
    """Read `key=value`, the value as TOML has it; a bare word is a string."""
    key, values = read_choices(text)
    if len(values) != 1:
        raise ConfigurationError(key, f"{len(values)} values", "one value; see `veilsum sweep`")
    return key, values[0]


def read_choices(text: str) -> tuple[str, list[Any]]:
    """Read a word of the form `key=value,value,...`."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip() or not rest.strip():
        raise ConfigurationError("set", f"{text!r}", "key=value, for instance privacy.epsilon=2")
    try:
        values = tomllib.loads(f"values = [{rest}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [_word(word) for word in rest.split(",")]
    return key.strip(), values


def once(changes: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """The same pairs of a key and what is said of it, if no key is named twice."""
    found: dict[str, T] = {}
    for key, said in changes:
        if key in found:
            problem = f"given as {found[key]!r} and again as {said!r}"
            raise ConfigurationError(key, problem, "once; a sweep takes key=value,value,...")
        found[key] = said
    return list(found.items())


def grid(choices: Sequence[tuple[str, Sequence[Any]]]) -> Iterator[list[tuple[str, Any]]]:
    """Every combination, the last key changing fastest."""
    keys = [key for key, _ in choices]
    for values in itertools.product(*(values for _, values in choices)):
        yield list(zip(keys, values, strict=True))


def point_name(point: Sequence[tuple[str, Any]]) -> str:
    """A folder name for a point of a grid."""
    parts = (f"{key.rpartition('.')[2]}={value}" for key, value in point)
    return ",".join(parts).replace("/", "_")


def named(points: Iterable[list[tuple[str, Any]]]) -> dict[str, list[tuple[str, Any]]]:
    """The points of a grid by the names of their folders."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for point in points:
        if (name := point_name(point)) in found:
            valid = "values whose folders have different names, each value once"
            raise ConfigurationError("set", f"two points with the name {name!r}", valid)
        found[name] = point
    return found


def as_choices(values: Sequence[Any]) -> str:
    """Return values as `read_choices` reads them: words bare where that is enough."""
    shown = (str(each).lower() if isinstance(each, bool) else str(each) for each in values)
    bare = ",".join(shown)
    return bare if read_choices(f"key={bare}")[1] == list(values) else json.dumps(values)[1:-1]


def _word(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
