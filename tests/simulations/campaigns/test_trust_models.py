"""`veilsum reproduce trust-models`: settings, runs, what is read off them, and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from protocol.planning.configuration import build_plan
from protocol.planning.deployment import plan_deployment
from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.local_dp.registry import build_algorithm
from simulations.studies.trust_models import training
from simulations.studies.trust_models.campaign import CAMPAIGN, CHOSEN, _way
from simulations.studies.trust_models.findings import claims, crossing, findings, paired
from simulations.studies.trust_models.methods import BY_NAME, METHODS, Candidate, Trust
from simulations.studies.trust_models.plan import PRESETS, Plan, Setting
from simulations.studies.trust_models.training import one_each

ADULT_DIMENSION = 109
"""Weights and bias of logistic regression on the encoded table."""

TINY = replace(
    PRESETS["quick"],
    rounds=2,
    cohort=16,
    epsilons=(8.0,),
    more_epsilons=(),
    shares=(1 / 2,),
    seeds=2,
    slow_seeds=1,
)


@pytest.fixture(scope="module")
def tiny(written: Callable[..., Any]) -> tuple[dict[str, Any], Path]:
    """One tiny campaign: its figures, and the folder."""
    return written(CAMPAIGN, TINY)


class TestPlan:
    def test_every_private_method_is_at_every_epsilon(self) -> None:
        plan = Plan()
        found = {(s.method, s.epsilon) for s in plan.by_epsilon()}
        private = [method for method in METHODS if method.trust is not Trust.EVERYBODY]
        assert found >= {(m.name, e) for m in private for e in plan.epsilons}
        assert ("plain", None) in found

    def test_settings_come_once_and_their_files_too(self) -> None:
        settings = Plan().settings()
        assert len({s.name for s in settings}) == len(set(settings)) == len(settings)

    @pytest.mark.parametrize("plan", list(PRESETS.values()), ids=list(PRESETS))
    def test_all_configurations_fit_together(self, plan: Plan) -> None:
        for setting in plan.settings():
            for candidate in plan.candidates(setting):
                config = plan.config(setting, candidate, 1)
                config.check()
                reports = setting.knob if setting.of.knob.key == "reports" else 1
                assert config.participations == reports
                assert config.engine.evaluate_every == config.rounds

    def test_all_mechanisms_of_the_full_plan_exist(self) -> None:
        plan, candidate, cohorts = Plan(), Candidate(1.0, 1.0), set()
        for setting in plan.settings():
            config = plan.config(setting, candidate, 1)
            if config.local_dp is not None:
                algorithm = build_algorithm(
                    config.local_dp, config.privacy, ADULT_DIMENSION, config.participations
                )
                assert 0.0 < algorithm.epsilon <= setting.epsilon
            elif setting.of.trust is Trust.COHORT and config.cohort.size not in cohorts:
                cohorts.add(config.cohort.size)
                sketch = config.sketch.build(config.rounds).initial(ADULT_DIMENSION).spec
                deployment = plan_deployment(build_plan(config, 1), sketch)
                assert deployment.epsilons.server <= setting.epsilon
        assert len(cohorts) == 4

    def test_cohorts_are_the_same_for_all_methods(self) -> None:
        plan = Plan()
        configs = [plan.config(s, Candidate(1.0, 1.0), 3) for s in plan.by_epsilon()]
        assert len({(c.cohort.size, c.task.population, c.rounds, c.seed) for c in configs}) == 1

    def test_nothing_is_evaluated_with_a_seed_of_a_trial(self) -> None:
        plan = Plan()
        for setting in plan.settings():
            assert not set(plan.trial_seeds(setting, 1)) & set(plan.evaluation_seeds(setting, 1))

    def test_trials_are_taken_over_at_the_same_knob_and_clients(self) -> None:
        setting = Setting("distributed", 2.0, 4.0, 0.25)
        assert Plan().tuned(setting) == Setting("central", 2.0, 4.0, 0.25)
        assert Plan().tuned(Setting("sqsgd", 2.0, 0.5)) == Setting("sqsgd", 2.0, 0.5)

    def test_the_reach_is_the_bound_times_the_rate(self) -> None:
        config = Plan().config(Setting("piecewise", 2.0, 1.0), Candidate(0.25, 1.0), 1)
        assert config.privacy.clip_l2 * config.server.learning_rate == pytest.approx(1.0)
        assert config.server.final_learning_rate == pytest.approx(0.4)

    def test_knobs_that_count_are_whole_numbers(self) -> None:
        assert BY_NAME["cross_polytope"].knob.changes(4.0, 100) == (("local_dp.repeats", 4),)
        assert BY_NAME["piecewise"].knob.changes(4.0, 100) == (("rounds", 400),)
        assert BY_NAME["sqsgd"].knob.changes(0.5, 100) == (("local_dp.sample_share", 0.5),)


class TestRecords:
    def test_every_client_has_one_of_its_own(self, digits: Dataset) -> None:
        numbered = np.arange(len(digits.train), dtype=np.int64) % 10
        marked = replace(digits, train=replace(digits.train, labels=numbered))
        chosen = one_each(marked, 300, 1)
        assert len(chosen.train) == 300
        assert len(np.unique(chosen.train.inputs, axis=0)) == 300
        assert chosen.test is marked.test

    def test_the_seed_decides(self, digits: Dataset) -> None:
        first, again, other = (one_each(digits, 50, seed).train.inputs for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_more_clients_than_records_are_refused(self, digits: Dataset) -> None:
        with pytest.raises(ValueError, match="9999 clients with one record each, but 1"):
            one_each(digits, 9999, 1)


@pytest.mark.slow
class TestRuns:
    def test_bytes_of_the_distributed_sum_are_what_its_deployment_plans(
        self, tiny: tuple[dict[str, Any], Path]
    ) -> None:
        rows = [row for row in tiny[0]["rows"] if row["trust"] == Trust.COHORT.value]
        row = rows[0]
        setting = Setting(row["method"], row["epsilon"], row["knob"], row["share"])
        config = TINY.config(setting, Candidate(row["bound"], row["reach"]), 1)
        plan = build_plan(config, 1)
        sketch = config.sketch.build(config.rounds).initial(row["parameters"]).spec
        planned = plan_deployment(plan, sketch, 0).bytes_per_client
        assert row["bytes"] == pytest.approx(planned, rel=1e-3)

    def test_bytes_of_others_are_those_of_their_reports(
        self, tiny: tuple[dict[str, Any], Path]
    ) -> None:
        for row in tiny[0]["rows"]:
            if row["trust"] != Trust.COHORT.value:
                assert row["bytes"] % row["reports"] == 0

    def test_nobody_spends_more_than_epsilon(self, tiny: tuple[dict[str, Any], Path]) -> None:
        for row in tiny[0]["rows"]:
            if row["trust"] == Trust.EVERYBODY.value:
                assert row["epsilon_server"] == "inf"
                continue
            central = row["trust"] == Trust.SERVER.value
            spent = row["epsilon_outsider" if central else "epsilon_server"]
            assert 0.0 < spent <= row["epsilon"] * (1.0 + 1e-9)

    def test_the_best_candidate_is_chosen(self, tiny: tuple[dict[str, Any], Path]) -> None:
        for row in tiny[0]["rows"]:
            tried = {(bound, reach): accuracy for bound, reach, accuracy in row["tried"]}
            assert tried[row["bound"], row["reach"]] == max(tried.values())
            assert len(row["accuracies"]) == (1 if BY_NAME[row["method"]].slow else 2)


def made_up(method: str, epsilon: float, accuracies: list[float], **other: Any) -> dict[str, Any]:
    """A row that no run made."""
    return {
        "method": method,
        "trust": BY_NAME[method].trust.value,
        "epsilon": epsilon,
        "knob": 1.0,
        "share": 1.0,
        "by_epsilon": True,
        "by_bytes": True,
        "by_clients": method == "distributed",
        "accuracy": float(np.mean(accuracies)),
        "half_width": 0.01,
        "accuracies": accuracies,
        "bytes": 100.0,
        **other,
    }


def test_trials_are_tested_on_records_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, tested = CAMPAIGN.study(TINY, tmp_path), []

    def run_of(config: RunConfig, data: Dataset) -> Any:
        tested.append({each.tobytes() for each in data.test.inputs})
        return MagicMock()

    monkeypatch.setattr(training, "run_of", run_of)
    way = _way(study, Setting("central", 8.0, 1.0))
    for trial in (True, False):
        (cell, *_) = way.cells(Candidate(1.0, 1.0), trial)
        cell.make(*cell.given)
    trial, evaluated = tested
    assert (len(trial), len(evaluated)) == (120, 240) and not trial & evaluated


class TestFindings:
    @pytest.mark.parametrize(
        ("heights", "target", "value", "relation"),
        [
            ([0.5, 0.6, 0.8], 0.7, 8.0, "="),  # half-way, by the logarithm
            ([0.6, 0.5, 0.8], 0.7, 8.0, "="),  # the same, as whoever may spend 4 can spend 1
            ([0.5, 0.6, 0.8], 0.4, 1.0, "<="),
            ([0.5, 0.6, 0.8], 0.9, 16.0, ">"),
        ],
    )
    def test_where_a_curve_crosses_a_target(
        self, heights: list[float], target: float, value: float, relation: str
    ) -> None:
        found = crossing([1.0, 4.0, 16.0], heights, target)
        assert found == {"value": pytest.approx(value), "relation": relation}

    def test_differences_are_of_pairs(self) -> None:
        one, other = made_up("hybrid", 1.0, [0.9, 0.8]), made_up("sqsgd", 1.0, [0.8, 0.7, 0.1])
        assert paired(one, other) == pytest.approx([0.1, 0.1])

    @pytest.mark.parametrize(
        ("accuracies", "verdict"),
        [
            ([0.9, 0.91], REPRODUCED),
            ([0.5, 0.51], NOT_REPRODUCED),
            ([0.9, 0.6], UNDECIDED),
            ([0.9], UNDECIDED),
        ],
    )
    def test_an_interval_that_holds_zero_decides_nothing(
        self, accuracies: list[float], verdict: str
    ) -> None:
        rows = [
            made_up("central", 1.0, [0.9, 0.9]),
            made_up("distributed", 1.0, accuracies),
            made_up("hybrid", 1.0, [0.7, 0.7]),
        ]
        [claim] = claims({"plan": {"epsilons": [1.0]}, "rows": rows})
        assert claim.verdict == verdict

    def test_factors(self) -> None:
        figures: dict[str, Any] = {
            "plan": {"epsilons": [1.0, 4.0], "byte_epsilon": 4.0},
            "rows": [
                made_up("central", 1.0, [0.9, 0.9]),
                made_up("central", 4.0, [0.9, 0.9]),
                made_up("distributed", 1.0, [0.8, 0.8], bytes=5000.0),
                made_up("distributed", 4.0, [0.9, 0.9], bytes=5000.0),
                made_up("distributed", 1.0, [0.6, 0.6], share=1 / 16, by_epsilon=False),
                made_up("distributed", 4.0, [0.75, 0.75], share=1 / 16, by_epsilon=False),
                made_up("piecewise", 1.0, [0.5, 0.5]),
                made_up("hybrid", 1.0, [0.6, 0.7]),
                made_up("piecewise", 4.0, [0.7, 0.7]),
                made_up("piecewise", 16.0, [0.9, 0.9], by_bytes=False),
            ],
        }
        figures["rows"] = [
            row | {"by_bytes": row["by_bytes"] and row["share"] == 1.0} for row in figures["rows"]
        ]
        found = findings(figures)
        low, high = found["by_epsilon"]
        assert (low["best_local"], high["best_local"]) == ("hybrid", "piecewise")
        # 0.8 is half-way between 0.7 at 4 and 0.9 at 16.
        assert low["epsilon_factor"] == {"value": pytest.approx(8.0), "relation": "="}
        # 0.65 is a quarter of the way from 0.6 with a 16th of the clients to 0.8 with all.
        assert low["clients_factor"] == {"value": pytest.approx(8.0), "relation": "="}
        assert high["clients_factor"] == {"value": pytest.approx(16.0), "relation": ">="}
        assert not found["by_bytes"]["overlap"]
        assert found["by_bytes"]["bytes_factor"] == pytest.approx(50.0)


@pytest.mark.slow
def test_the_page_has_every_method(tiny: tuple[dict[str, Any], Path]) -> None:
    figures, folder = tiny
    text = (folder / "trust-models.md").read_text()
    for method in METHODS:
        assert method.title in text
    assert "they do not overlap" in text and len(figures["claims"]) == len(TINY.epsilons)


def test_an_edge_of_the_grid_is_told() -> None:
    tried = [[b, r, 0.5] for b in (1.0, 2.0) for r in (1.0, 2.0, 4.0)]
    row = made_up("sqsgd", 1.0, [0.5], title="sqSGD", clients=10, tried=tried, bound=1.0)
    assert [CHOSEN[-1].cell(row | {"reach": reach}) for reach in (2.0, 4.0)] == ["-", "rate"]
