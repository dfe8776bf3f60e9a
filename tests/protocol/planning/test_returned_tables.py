"""Configurations of runs whose noise comes back, for parties elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from returned_worlds import MEMBERS, plan_of

from protocol.errors import ConfigurationError
from protocol.planning.configuration import PlanTables, named_members, parse, returned_noise

RETURNED = {"kind": "returned", "apart": 4}


def tables_of(noise: dict[str, Any], **privacy: float) -> PlanTables:
    cohort = {"size": 8, "tolerated_dropouts": 1, "tolerated_colluders": 1}
    promised = {"delta": 1e-6, "clip_l2": 1.0, **(privacy or {"epsilon": 8.0})}
    return parse({"privacy": promised, "cohort": cohort, "noise": noise}, PlanTables)


def test_the_noise_is_that_of_the_whole_run_and_all_members() -> None:
    assert returned_noise(tables_of(RETURNED), 12) == plan_of().noise
    assert returned_noise(tables_of({}), None) is None
    assert named_members(plan_of()) == MEMBERS


@pytest.mark.parametrize(
    ("tables", "horizon", "problem"),
    [
        (tables_of(RETURNED), None, "horizon: missing"),
        (tables_of({"kind": "returned"}), 12, "noise.apart: missing"),
        (tables_of({**RETURNED, "share": 0.5}), 12, "noise.share: value 0.5"),
        (tables_of({}), 12, "horizon: value 12, and no noise"),
        (tables_of(RETURNED, noise_multiplier=2.0), 12, "privacy.noise_multiplier: given"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tables: PlanTables, horizon: int | None, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        returned_noise(tables, horizon)
    assert problem in str(caught.value)
