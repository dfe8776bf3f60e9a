"""The keys of a run's configuration as Markdown, from the sections that check them."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from simulations.learning.configuration import RunConfig

BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def page(_: str) -> str:
    """The tables of a file one after the other; keys outside of tables come first."""
    fields = RunConfig.model_fields
    tables = {name: _section(field) for name, field in fields.items()}
    parts = ["## Keys outside of tables", _doc(RunConfig)]
    parts.append(_table({name: field for name, field in fields.items() if not tables[name]}))
    for name, section in tables.items():
        if section:
            parts += [f"## `[{name}]`", _doc(section), _table(section.model_fields)]
    return "\n\n".join(parts)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a key is the table of."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _doc(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").split())


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = [_row(name, field) for name, field in fields.items()]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _row(name: str, field: FieldInfo) -> str:
    value = ", ".join([_kind(field.annotation), *_bounds(field)])
    return f"| `{name}` | {value} | {_default(field)} | {field.description or ''} |"


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return " or ".join(_kind(each) for each in inner)
    if get_origin(annotation) is dict:
        return "table"
    return str(annotation.__name__)


def _bounds(field: FieldInfo) -> list[str]:
    return [
        f"{words} {_number(getattr(bound, name))}"
        for bound in field.metadata
        for name, words in BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "empty"
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return ""
    text = str(field.default).lower() if isinstance(field.default, bool) else repr(field.default)
    return f"`{text}`".replace("'", '"')
