"""A configuration's errors come together, and the values that they name make it valid."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from protocol.errors import ConfigurationError
from protocol.planning.configuration import parse
from simulations.common.failures import one_line
from simulations.learning.configuration import RunConfig, demo_config, write_config
from simulations.learning.run.overrides import with_changes
from simulations.learning.run.remedy import as_tables, remedy

RAW = demo_config().model_dump(exclude_none=True)


def refused(raw: dict[str, Any]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse(raw, RunConfig).check()
    return caught.value


@pytest.mark.parametrize(
    ("changes", "mended"),
    [
        (
            {"noise.kind": "returned"},
            {"sketch.controller", "sketch.gamma", "scheme.kind"}
            | {f"scheme.committee.{name}" for name in ("size", "corrupt", "away")},
        ),
        ({"cohort.size": 500}, {"cohort.size", "faults.dropout"}),
        (
            {"faults.dropout": 0.5, "faults.members_away": 0.1},
            {"faults.dropout", "faults.members_away"},
        ),
        ({"cohort.size": 500, "local.learning_rate": -1}, set()),
        ({"colour": "blue"}, set()),
    ],
)
def test_what_is_said_to_be_valid_is(changes: dict[str, Any], mended: set[str]) -> None:
    raw = with_changes(RAW, list(changes.items()))
    found = remedy(raw, refused(raw))
    assert set(found) == mended
    if found:
        parse(with_changes(raw, list(found.items())), RunConfig).check()


def test_all_problems_are_told_at_once() -> None:
    changes = [("cohort.size", 500), ("faults.members_away", 0.5), ("server.optimizer", "adam")]
    told = refused(with_changes(RAW, changes))
    assert {told.key, *(each.key for each in told.others)} == {
        "cohort.size",
        "faults.dropout",
        "faults.members_away",
    }
    text = one_line(told)
    assert text is not None
    assert text.splitlines()[0] == "ConfigurationError: 3 problems:" and len(text.splitlines()) == 4


def merged(raw: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """What somebody has who copies a block into a file, key by key."""
    return raw | {
        name: merged(raw.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"noise.kind": "returned"},
        {"noise.kind": "returned", "scheme.security_bits": 90},
        {"cohort.size": 150, "noise.kind": "banded", "noise.apart": 1},
    ],
)
def test_a_block_that_is_copied_mends_the_file(changes: dict[str, Any]) -> None:
    raw = with_changes(RAW, list(changes.items()))
    block = as_tables(raw, remedy(raw, refused(raw)))
    mended = merged(raw, tomllib.loads(block))
    if block.startswith("# left out: "):
        for key in block.splitlines()[0].removeprefix("# left out: ").split(", "):
            *tables, name = key.split(".")
            place = mended
            for table in tables:
                place = place[table]
            del place[name]
    parse(mended, RunConfig).check()


def test_the_command_prints_the_block(tmp_path: Path) -> None:
    path = write_config(demo_config(), tmp_path / "own.toml")
    error = invoke("run", path, "--dry-run", "--set", "noise.kind=returned").exception
    assert isinstance(error, ConfigurationError)
    text = one_line(error)
    assert text is not None and "with these values it is valid:" in text
    assert "# left out: scheme.mode, sketch.gamma" in text and 'kind = "one-shot"' in text
