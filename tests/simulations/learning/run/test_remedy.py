"""A configuration's errors come together, and the values that they name make it valid."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ConfigurationError, Cure
from protocol.planning.configuration import parse
from simulations.common.failures import one_line
from simulations.learning.configuration import RunConfig, demo_config
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
            {"sketch.controller", "sketch.gamma", "scheme.kind", "scheme.committee.kind"}
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


def test_a_block_to_copy_is_toml() -> None:
    found = {"scheme.kind": "one-shot", "cohort.size": 3, "sketch.gamma": Cure.LEFT_OUT}
    assert as_tables(found) == (
        '# left out: sketch.gamma\n\n[scheme]\nkind = "one-shot"\n\n[cohort]\nsize = 3'
    )
