"""Every key of a configuration says what it means, what may stand there, and what it is if not."""

from __future__ import annotations

import inspect

import pytest
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from dp.local.two_stage import two_stage
from protocol.planning.configuration import CONTROLLERS
from simulations.learning.data import DATASETS, dataset_options
from simulations.learning.keys import DATA_OPTIONS, Key, Table, data_options, tables
from simulations.learning.local_dp.config import KEYS

KEYS_OF_A_RUN = [(table, key) for table in tables() for key in table.keys]


def unclear(table: Table, key: Key) -> str:
    """What is not said of a key; empty if all is."""
    if len(key.meaning.split()) < 3:
        return "meaning"
    if key.values() in ("", "text", "table") and key.name != "data_options":
        return "values"
    own = [default for default in table.owners(key.name).values() if default is not None]
    if key.default is None and not key.required and not own and "left out" not in key.meaning:
        return "default"
    return ""


@pytest.mark.parametrize(
    ("table", "key"),
    KEYS_OF_A_RUN,
    ids=[f"{table.name}.{key.name}" for table, key in KEYS_OF_A_RUN],
)
def test_all_is_said(table: Table, key: Key) -> None:
    assert unclear(table, key) == ""


@pytest.mark.parametrize(
    ("field", "missing"),
    [
        (FieldInfo(annotation=int, default=1), "meaning"),
        (FieldInfo(annotation=int, default=1, description="a number"), "meaning"),
        (FieldInfo(annotation=str, default="a", description="some word or other"), "values"),
        (FieldInfo(annotation=dict[str, int], default={}, description="a few more"), "values"),
        (FieldInfo(annotation=int | None, default=None, description="a number of it"), "default"),
        (FieldInfo(annotation=int, default=1, description="a number of it"), ""),
        (FieldInfo(annotation=int, description="a number of it"), ""),
    ],
)
def test_what_is_not_said_would_be_noticed(field: FieldInfo, missing: str) -> None:
    key = Key("imagined", field)
    assert unclear(Table("imagined", BaseModel, False, (key,)), key) == missing


def test_values_are_said_in_words() -> None:
    class Imagined(BaseModel):
        named: str = Field("a", description="a name", json_schema_extra={"values": "a or b"})
        share: float = Field(gt=0, le=1)

    keys = {name: Key(name, field) for name, field in Imagined.model_fields.items()}
    assert keys["named"].values() == "a or b"
    assert keys["share"].values() == "number, above 0, at most 1"
    found = {key.name: key.values("`") for _, key in KEYS_OF_A_RUN}
    assert found["data"].startswith("one of `digits`, `mnist`")
    assert found["optimizer"] == '`"sgd"` or `"adam"`'


def test_keys_of_some_controllers_are_told_with_their_defaults() -> None:
    sketch = next(table for table in tables() if table.name == "sketch")
    assert sketch.owners("window") == {"adapt_progress": 30, "published": 3}
    assert sketch.owners("first_rate")["published"] == 1.0
    assert sketch.owners("first_rate")["adapt_norm"] is None
    assert sketch.owners("update") == {"adapt_tail": "sign"}
    assert sketch.owners("horizon") == {"adapt_budget": None}
    assert sketch.owners("rows") == {} != sketch.owners("gamma").keys() & CONTROLLERS.keys()


def test_keys_of_some_algorithms_are_told() -> None:
    local = next(table for table in tables() if table.name == "local_dp")
    assert local.owners("levels") == {"sqsgd": None}
    assert local.owners("epsilon_report") == {}
    assert local.owners("bound").keys() == KEYS.keys() - {"cross_polytope"}


def test_the_defaults_that_are_said_in_words_are_those_of_the_algorithm() -> None:
    said = {key.name: key.meaning for table, key in KEYS_OF_A_RUN if table.name == "local_dp"}
    parameters = inspect.signature(two_stage).parameters
    for name in ("selector", "selection_share", "kept_share"):
        assert f"{parameters[name].default}" in said[name], name


def test_every_option_of_a_data_set_is_told() -> None:
    assert {option.name for option in data_options()} == DATA_OPTIONS.keys()
    for option in data_options():
        assert option.meaning and option.values in ("integer", "number", "true or false")
        for name in option.data:
            assert dataset_options(name)[option.name] == option.default
    named = [(option.name, data) for option in data_options() for data in option.data]
    assert len(named) == len(set(named))
    assert {data for _, data in named} <= set(DATASETS)
