"""`veilsum reproduce secure-autotune`: one small campaign, and what its rows decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from simulations.reproduce.secure_autotune.campaign import (
    CAMPAIGN,
    FREE,
    PRESETS,
    SECURE,
    TRUSTED,
    claims,
)


@pytest.fixture(scope="module")
def figures(written: Callable[..., Any]) -> dict[str, Any]:
    """Six rounds of both protocols, with lost clients."""
    return written(CAMPAIGN, PRESETS["quick"])[0]


def test_arms_differ_in_who_adds_up_and_in_nothing_else() -> None:
    plan = PRESETS["usual"]
    configs = plan.configs(7)
    assert list(configs) == [FREE, TRUSTED, *SECURE]
    kinds = {arm: (c.engine.aggregator, c.scheme.kind) for arm, c in configs.items()}
    assert [kinds[arm] for arm in SECURE] == [("real", kind) for kind in SECURE]
    assert kinds[TRUSTED][0] == kinds[FREE][0] == "central"
    alike = {
        with_usual(config, "engine", "scheme", "sketch").model_dump_json()
        for config in configs.values()
    }
    assert len(alike) == 1 and configs[FREE].sketch.rate == 1.0
    assert {each.faults.dropout for each in configs.values()} == {plan.dropout} != {0.0}


def with_usual(config: Any, *names: str) -> Any:
    """Return a configuration whose sections of these names are those of the trusted server."""
    base = PRESETS["usual"].configs(7)[TRUSTED]
    return config.model_copy(update={name: getattr(base, name) for name in names})


def test_real_rounds_lose_clients_and_stay_within_their_guarantee(figures: dict[str, Any]) -> None:
    rounds = PRESETS["quick"].rounds
    for arm in SECURE:
        (run,) = figures["runs"][arm]
        assert run["rounds"] == run["ledger"]["releases"] == rounds == len(run["sizes"])
        assert sum(run["lost"]) >= rounds
        assert run["ledger"]["epsilon"] == pytest.approx(run["epsilon"], rel=1e-3)
        assert run["bytes"] > 4_000 and len(set(run["sizes"])) > 1
    assert figures["runs"][TRUSTED][0]["ledger"] is None
    shown = {row["arm"]: row for row in figures["results"]}
    assert 1.0 < shown["pairwise"]["byte_rate"] < shown["pairwise"]["rate"]


@pytest.mark.parametrize(
    ("arm", "key", "value", "word"),
    [
        ("pairwise", "rate", [10.0, 11.0, 12.0], REPRODUCED),
        ("pairwise", "rate", [20.0, 22.0, 24.0], NOT_REPRODUCED),
        ("one-shot", "accuracy", [0.85, 0.86, 0.87], NOT_REPRODUCED),
        ("one-shot", "accuracy", [0.95, 0.80, 0.97], UNDECIDED),
        ("one-shot", "ledger", [{"epsilon": 2.0, "releases": 6}] * 3, NOT_REPRODUCED),
        ("one-shot", "ledger", [{"epsilon": 1.0, "releases": 5}] * 3, NOT_REPRODUCED),
    ],
)
def test_verdicts_follow_the_rows(
    figures: dict[str, Any], arm: str, key: str, value: list[Any], word: str
) -> None:
    shown = json.loads(json.dumps(figures))
    alike = {"rate": [10.0, 11.0, 12.0], "accuracy": [0.95, 0.96, 0.97], "epsilon": [1.0] * 3}
    alike |= {"ledger": [{"epsilon": 1.0, "releases": 6}] * 3}
    for name in shown["runs"]:
        rows = zip(*alike.values(), strict=True)
        shown["runs"][name] = [{"rounds": 6, **dict(zip(alike, row, strict=True))} for row in rows]
    assert {claim.verdict for claim in claims(shown)} == {REPRODUCED}
    for run, each in zip(shown["runs"][arm], value, strict=True):
        run[key] = each
    found = {claim.verdict for claim in claims(shown) if claim.statement.startswith(arm)}
    assert found == {word, REPRODUCED}
