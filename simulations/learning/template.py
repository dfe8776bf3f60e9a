"""A configuration as a file that explains itself: what `veilsum init` writes.

It begins from an example, whose values are known to work. The comments, the keys that the example
leaves out, and their defaults come from the models that check the file (`keys`).
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from protocol.errors import ConfigurationError
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig
from simulations.learning.keys import NAMES, Key, Table, tables

FOLDER: Final = Path(__file__).parent / "examples"
FIRST: Final = "digits"
"""The example that needs no files."""

WIDTH: Final = 98

HEAD: Final = (
    "veilsum run FILE --dry-run checks this file and says what the run would take; veilsum run "
    "FILE runs it. A line such as `key = value` is a setting. One such as `#key = value` is left "
    "out: it shows the default, and has no effect until you remove the `#`. A key without a value "
    "has no default."
)


def example_names() -> list[str]:
    """The examples that come with the program."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def example_text(name: str) -> str:
    """An example as it was written."""
    if name not in example_names():
        valid = f"one of {', '.join(example_names())}"
        raise ConfigurationError("example", f"value {name!r}", valid)
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def commented(example: str = FIRST, **task: str) -> str:
    """A whole configuration, with a comment for every key."""
    source = example_text(example)
    given = tomllib.loads(source)
    for key, value in task.items():
        if key in NAMES and value not in NAMES[key]:
            valid = f"one of {', '.join(NAMES[key])}"
            raise ConfigurationError(f"task.{key}", f"value {value!r}", valid)
    if task.get("data", given["task"]["data"]) != given["task"]["data"]:
        # These are for the reader of the example's own data.
        given["task"].pop("data_options", None)
    given["task"] |= task
    parse(given, RunConfig).check()
    parts = [_comment(HEAD)]
    parts += [_comment(text) for text in _introduction(source, given["task"]["data"], task)]
    for table in tables():
        own = given if not table.name else given.get(table.name)
        other = own is not None and table.kind and own.get("kind", table.kind) != table.kind
        if not other and (own is not None or not table.optional):
            parts.append(_written(table, own or {}))
    parts += [_others(given)]
    return "\n\n".join(parts) + "\n"


def _introduction(source: str, data: str, task: Mapping[str, str]) -> Iterator[str]:
    """What an example says of itself, and whether its data are files."""
    lines = [line for line in source.splitlines() if line.startswith("#")]
    words = [line.removeprefix("#").strip() for line in lines if not line.startswith("#   ")]
    if not task:
        yield " ".join(words)
    if data != FIRST:
        yield f"The data set {data} is read from files: veilsum run FILE --data-dir FOLDER"


def _written(table: Table, given: Mapping[str, Any]) -> str:
    """A table with all keys that go together."""
    parts = [
        f"[{table.name}]\n{_comment(table.meaning)}" if table.name else _comment(table.meaning)
    ]
    defaults = table.in_use(given)
    for key in table.keys:
        if key.name in defaults:
            parts.append(_entry(key, given, defaults[key.name]))
    return "\n\n".join(parts)


def _entry(key: Key, given: Mapping[str, Any], default: Any) -> str:
    """A key with its comment; the key is a comment, too, if it is not given."""
    values = key.values()
    if key.required:
        values += "; required"
    elif key.name in given and default is not None:
        values += f"; default: {_value(default)}"
    if key.name in given:
        line = f"{key.name} = {_value(given[key.name])}"
    else:
        line = f"#{key.name} = {'' if default is None else _value(default)}".rstrip()
    return "\n".join([_comment(key.meaning), _comment(values, indent="    "), line])


def _others(given: Mapping[str, Any]) -> str:
    """The optional tables that are not there."""
    absent = [table for table in tables() if table.optional and table.name not in given]
    lines = [
        _comment("Other tables (PowerSGD, local DP, adaptive clipping); see the reference of keys:")
    ]
    for table in absent:
        first = table.meaning.partition(". ")[0].rstrip(".")
        lines.append(_comment(f"{table.heading} {first}."))
    return "\n".join(lines)


def _comment(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=f"# {indent}",
        subsequent_indent=f"# {indent}",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(value: Any) -> str:
    """A value as TOML has it, in one line."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
