"""The tables and keys of a run's configuration, as the models that check them describe them.

The reference page of the documentation and the file that `veilsum init` writes are made from it, so
a key's meaning, values and default stand in one place.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from protocol.planning.configuration import CONTROLLERS, Sketch
from simulations.learning.configuration import RunConfig
from simulations.learning.data import DATASETS, dataset_options
from simulations.learning.local_dp.config import KEYS as LOCAL_KEYS
from simulations.learning.local_dp.config import LocalDp
from simulations.learning.models import MODELS
from sketch.controllers.options import options_of

BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
NAMES: Final[Mapping[str, tuple[str, ...]]] = {"data": DATASETS, "model": MODELS}
"""Keys of `[task]` whose values are names of something else."""
DATA_OPTIONS: Final[Mapping[str, str]] = {
    "attack_classes": "tell four classes of attacks apart, rather than attacks from none",
    "bound": "limit of a standardised number",
    "complete_rows": "leave out rows with a missing value, which is a category otherwise",
    "distinct": "keep one of the names of a language that are spelt the same without accents",
    "length": "characters of a context, or of a name",
    "minimum_lines": "speakers with fewer lines are left out",
    "seed": "of the split into training and test examples",
    "stride": "characters between the contexts of a speaker",
    "test_fraction": "share of the examples that is for testing, above 0 and below 1",
    "writers": "the people who wrote the digits are natural clients; takes QMNIST's files as well",
}
"""What the keys of `task.data_options` mean, which data sets have in common."""
WORDS = {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A key of a table."""

    name: str  # as in the file
    field: FieldInfo  # of the model that checks it

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
        """What may stand there, in words."""
        if self.name in NAMES:
            return f"one of {', '.join(f'{mark}{name}{mark}' for name in NAMES[self.name])}"
        extra = self.field.json_schema_extra
        if isinstance(extra, Mapping) and "values" in extra:
            return str(extra["values"])
        return ", ".join([_kind(self.field.annotation, mark), *_bounds(self.field)])


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table of a file."""

    name: str  # empty for the keys outside of tables
    model: type[BaseModel]  # that checks it
    optional: bool  # whether a file without it means something else than one with its defaults
    keys: tuple[Key, ...]  # in the order of the model
    kind: str = ""  # that makes it this one of several tables of the name

    @property
    def heading(self) -> str:
        """Its name in brackets, with its kind where there are several."""
        return f'[{self.name}], kind = "{self.kind}":' if self.kind else f"[{self.name}]"

    @property
    def meaning(self) -> str:
        """What the table is about."""
        return " ".join((self.model.__doc__ or "").split())

    def owners(self, key: str) -> dict[str, Any]:
        """The controllers or algorithms that have a key, if not all of them have.

        Their names, each with its own default; None where that is none, or said in words.
        """
        if self.model is Sketch:
            found = {
                name: next(f.default for f in dataclasses.fields(kind) if f.name == key)
                for name, kind in CONTROLLERS.items()
                if key in options_of(kind)
            }
            known = {name: _plain(default) for name, default in found.items()}
            return {} if len(known) == len(CONTROLLERS) else known
        if self.model is LocalDp:
            found = {name: None for name, keys in LOCAL_KEYS.items() if key in keys}
            return {} if len(found) == len(LOCAL_KEYS) else found
        return {}

    def in_use(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that go together with those of a file, and their defaults.

        A controller of `[sketch]` and an algorithm of `[local_dp]` have keys of their own, and the
        controller its own defaults.
        """
        defaults = {key.name: key.default for key in self.keys}
        if self.model is Sketch:
            controller = CONTROLLERS[given.get("controller", defaults["controller"])]
            own = {field.name: field.default for field in dataclasses.fields(controller)}
            known = {name: _plain(own[name]) for name in options_of(controller)}
            return {"controller": defaults["controller"], **known}
        if self.model is LocalDp:
            kept = {"algorithm", *LOCAL_KEYS[given["algorithm"]]}
            return {name: value for name, value in defaults.items() if name in kept}
        return defaults


@dataclasses.dataclass(frozen=True, slots=True)
class DataOption:
    """A key of `task.data_options`."""

    name: str  # as in the file
    default: bool | int | float | str  # which says its type, too
    data: tuple[str, ...]  # the data sets that have it

    @property
    def meaning(self) -> str:
        """What the option is about."""
        return DATA_OPTIONS[self.name]

    @property
    def values(self) -> str:
        """What may stand there, in words."""
        return WORDS[type(self.default).__name__]


def data_options() -> list[DataOption]:
    """The options of all data sets that a file can give, by name."""
    found: dict[tuple[str, Any], list[str]] = {}
    for data in DATASETS:
        for name, default in dataset_options(data).items():
            if isinstance(default, bool | int | float | str):
                found.setdefault((name, default), []).append(data)
    return [
        DataOption(name, default, tuple(data)) for (name, default), data in sorted(found.items())
    ]


def _plain(default: Any) -> Any:
    """A default as a file has it."""
    if default is dataclasses.MISSING:
        return None
    return default.value if isinstance(default, enum.Enum) else default


def tables() -> list[Table]:
    """All tables of a file; the keys outside of tables come first."""
    fields = RunConfig.model_fields
    models = {name: _model(field) for name, field in fields.items()}
    outside = {name: field for name, field in fields.items() if models[name] is None}
    found = [Table("", RunConfig, False, _keys(outside))]
    for name, model in models.items():
        if kinds := _kinds(fields[name]):
            found += _of_kinds(name, kinds, fields[name].default)
        elif model is not None:
            optional = fields[name].default is None
            found.append(Table(name, model, optional, _keys(model.model_fields)))
    return found


def _of_kinds(name: str, kinds: Mapping[str, type[BaseModel]], default: object) -> list[Table]:
    """The tables of a name that are told apart by their `kind`, and those within them."""
    found = []
    for kind, model in kinds.items():
        optional = not isinstance(default, model)
        found.append(Table(name, model, optional, _keys(model.model_fields), kind))
        for inner, field in model.model_fields.items():
            if below := _kinds(field):
                found += _of_kinds(f"{name}.{inner}", below, None)
    return found


def _kinds(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """The models that a field tells apart by their `kind`; none if it does not."""
    return {
        mark.tag: get_args(kind)[0]
        for kind in get_args(field.annotation)
        for mark in getattr(kind, "__metadata__", ())
        if isinstance(mark, Tag)
    }


def _keys(fields: Mapping[str, FieldInfo]) -> tuple[Key, ...]:
    return tuple(Key(name, field) for name, field in fields.items())


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the table that a key stands for; None for a plain value."""
    kinds = [field.annotation, *get_args(field.annotation), *_kinds(field).values()]
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
