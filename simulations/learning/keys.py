"""The tables and keys of a run's configuration, as the models that check them describe them.

The reference page of the documentation and the file that `veilsum init` writes are made from it, so
a key's meaning, values and default stand in one place.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from protocol.planning.configuration import CONTROLLERS, Sketch
from simulations.learning.configuration import RunConfig
from simulations.learning.local_dp.config import KEYS as LOCAL_KEYS
from simulations.learning.local_dp.config import LocalDp
from sketch.controllers.options import options_of

BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
WORDS = {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A key of a table.

    Attributes:
        name: as in the file.
        field: of the model that checks it.
    """

    name: str
    field: FieldInfo

    @property
    def meaning(self) -> str:
        """What the key is about."""
        return self.field.description or ""

    @property
    def required(self) -> bool:
        """Whether every file has to give it."""
        return self.field.is_required()

    @property
    def default(self) -> Any:
        """What it is when it is left out; None if that is nothing, or if it is required."""
        default = self.field.get_default(call_default_factory=True)
        return None if default is PydanticUndefined else default

    def values(self, mark: str = "") -> str:
        """What may stand there, in words.

        Args:
            mark: around what is to be written literally, a backtick for Markdown.
        """
        return ", ".join([_kind(self.field.annotation, mark), *_bounds(self.field)])


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table of a file.

    Attributes:
        name: empty for the keys outside of tables.
        model: that checks it.
        optional: whether a file without it means something else than one with its defaults.
        keys: in the order of the model.
    """

    name: str
    model: type[BaseModel]
    optional: bool
    keys: tuple[Key, ...]

    @property
    def meaning(self) -> str:
        """What the table is about."""
        return " ".join((self.model.__doc__ or "").split())

    def in_use(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that go together with those of a file, and their defaults.

        A controller of `[sketch]` and an algorithm of `[local_dp]` have keys of their own, and the
        controller its own defaults.

        Args:
            given: the table as the file has it.
        """
        defaults = {key.name: key.default for key in self.keys}
        if self.model is Sketch:
            controller = CONTROLLERS[given.get("controller", defaults["controller"])]
            own = {field.name: field.default for field in dataclasses.fields(controller)}
            found = {name: own.get(name) for name in options_of(controller)}
            known = {n: None if v is dataclasses.MISSING else v for n, v in found.items()}
            return {"controller": defaults["controller"], **known}
        if self.model is LocalDp:
            kept = {"algorithm", *LOCAL_KEYS[given["algorithm"]]}
            return {name: value for name, value in defaults.items() if name in kept}
        return defaults


def tables() -> list[Table]:
    """All tables of a file; the keys outside of tables come first."""
    fields = RunConfig.model_fields
    models = {name: _model(field) for name, field in fields.items()}
    outside = {name: field for name, field in fields.items() if models[name] is None}
    found = [Table("", RunConfig, False, _keys(outside))]
    for name, model in models.items():
        if model is not None:
            optional = fields[name].default is None
            found.append(Table(name, model, optional, _keys(model.model_fields)))
    return found


def _keys(fields: Mapping[str, FieldInfo]) -> tuple[Key, ...]:
    return tuple(Key(name, field) for name, field in fields.items())


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the table that a key stands for; None for a plain value."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _kind(annotation: Any, mark: str) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f'{mark}"{choice}"{mark}' for choice in get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return " or ".join(_kind(each, mark) for each in inner)
    if get_origin(annotation) is dict:
        return "table"
    return WORDS.get(annotation.__name__, str(annotation.__name__))


def _bounds(field: FieldInfo) -> list[str]:
    return [
        f"{words} {_number(getattr(bound, name))}"
        for bound in field.metadata
        for name, words in BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
