"""`veilsum reproduce attackers`: arms differ in the sum alone; verdicts follow from rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from simulations.campaigns.rows import first
from simulations.studies.attackers.campaign import (
    BACKDOOR,
    BOUND,
    CAMPAIGN,
    FAR,
    PLAIN,
    PRESETS,
    RETURNED,
    RULES,
    VALIDATED,
    claims,
)


@pytest.fixture(scope="module")
def figures(written: Callable[..., Any]) -> dict[str, Any]:
    """Three rounds of every arm."""
    return written(CAMPAIGN, PRESETS["quick"])[0]


def test_arms_differ_in_how_updates_become_a_mean_and_in_nothing_else() -> None:
    plan = PRESETS["quick"]
    configs = {arm: plan.config(arm, 2.0, 7) for arm in plan.arms}
    apart = {"noise", "scheme", "robust", "engine", "cohort"}
    alike = {config.model_dump_json(exclude=apart) for config in configs.values()}
    assert len(alike) == 1
    assert {arm for arm, c in configs.items() if c.engine.aggregator == "plain"} == set(RULES)
    assert {arm for arm, c in configs.items() if c.scheme.kind == "validated"} == {
        VALIDATED,
        RETURNED,
    }
    for config in configs.values():
        config.check()


def test_validated_sums_leave_out_what_is_beyond_the_bound(figures: dict[str, Any]) -> None:
    rows, plan = figures["results"], figures["plan"]
    arms = {row["arm"] for row in rows}
    assert len(rows) == len(arms) * (2 + len(plan["attacks"]) * len(plan["fractions"]))
    far, near = (first(rows, arm=VALIDATED, attack=attack) for attack in (FAR, BOUND))
    assert far["survivors"] == 18 < near["survivors"] == 20
    assert first(rows, arm=PLAIN, attack=FAR)["survivors"] == 20
    bounds = figures["bounds"]
    assert 1.0 < bounds[RETURNED][0] < bounds[VALIDATED][0] == figures["bound"] < 50.0
    assert bounds[VALIDATED][1] == 0.0 < bounds[RETURNED][0] < bounds[RETURNED][1]
    assert {row["arm"] for row in rows if row["backdoor"] is not None} == arms
    assert all((row["backdoor"] is None) is (row["attack"] != BACKDOOR) for row in rows)


def test_verdicts_follow_the_rows(figures: dict[str, Any]) -> None:
    """Of three differences of the same sign, and of one that is not."""

    def verdicts(plain: list[float], validated: list[float], fooled: float = 0.05) -> list[str]:
        changed = json.loads(json.dumps(figures))
        for row in changed["results"]:
            row["accuracies"] = {PLAIN: plain, VALIDATED: validated}.get(row["arm"], plain)
            row["fooled"] = [fooled if row["fraction"] else 0.05] * 3
        return [claim.verdict for claim in claims(changed)]

    better = verdicts([0.5, 0.51, 0.52], [0.8, 0.81, 0.82], fooled=0.5)
    assert better == [REPRODUCED] * 4 + [NOT_REPRODUCED] * 3
    worse = verdicts([0.8, 0.81, 0.82], [0.5, 0.51, 0.52])
    assert worse == [NOT_REPRODUCED] * 3 + [REPRODUCED] * 4
    assert set(verdicts([0.2, 0.9, 0.5], [0.9, 0.2, 0.5])[:3]) == {UNDECIDED}
