"""`veilsum reproduce trust-models`: settings, runs that are kept, verdicts, and the page."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from protocol.planning.configuration import build_plan
from protocol.planning.deployment import plan_deployment
from simulations.learning.local_dp.registry import build_algorithm
from simulations.reproduce.trust_models import campaign as campaign_module
from simulations.reproduce.trust_models.campaign import (
    Campaign,
    one_each,
    reproduce,
)
from simulations.reproduce.trust_models.findings import crossing, difference, findings, winner
from simulations.reproduce.trust_models.methods import BY_NAME, METHODS, Candidate, Trust
from simulations.reproduce.trust_models.plan import Plan, Setting
from simulations.reproduce.trust_models.report import chosen_rows, conclusions, page

ADULT_DIMENSION = 109
"""Weights and bias of logistic regression on the encoded table."""

TINY = replace(
    Plan.quick(),
    rounds=2,
    cohort=16,
    epsilons=(8.0,),
    more_epsilons=(),
    shares=(1 / 2,),
    seeds=2,
    slow_seeds=1,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, reproduced):
    """One tiny run: (figures on standard output, folder)."""
    folder = tmp_path_factory.mktemp("trust")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "quick", classmethod(lambda _: TINY))
        return reproduced("trust-models", "--quick", "--out", folder), folder


class TestPlan:
    def test_every_private_method_is_at_every_epsilon(self):
        plan = Plan()
        found = {(s.method, s.epsilon) for s in plan.by_epsilon()}
        private = [method for method in METHODS if method.trust is not Trust.EVERYBODY]
        assert found >= {(m.name, e) for m in private for e in plan.epsilons}
        assert ("plain", None) in found

    def test_settings_come_once_and_their_files_too(self):
        settings = Plan().settings()
        assert len({s.name for s in settings}) == len(set(settings)) == len(settings)

    @pytest.mark.parametrize("plan", [Plan(), Plan.quick()], ids=["full", "quick"])
    def test_all_configurations_fit_together(self, plan):
        for setting in plan.settings():
            for candidate in plan.candidates(setting):
                config = plan.config(setting, candidate, 1)
                config.check()
                reports = setting.knob if setting.of.knob.key == "reports" else 1
                assert config.participations == reports
                assert config.engine.evaluate_every == config.rounds

    def test_all_mechanisms_of_the_full_plan_exist(self):
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
                deployment = plan_deployment(build_plan(config.privacy, config.cohort, 1), sketch)
                assert deployment.epsilons.server <= setting.epsilon
        assert len(cohorts) == 4

    def test_cohorts_are_the_same_for_all_methods(self):
        plan = Plan()
        configs = [plan.config(s, Candidate(1.0, 1.0), 3) for s in plan.by_epsilon()]
        assert len({(c.cohort.size, c.task.population, c.rounds, c.seed) for c in configs}) == 1

    def test_nothing_is_evaluated_with_a_seed_of_a_trial(self):
        plan = Plan()
        for setting in plan.settings():
            assert not set(plan.trial_seeds(setting, 1)) & set(plan.evaluation_seeds(setting, 1))

    def test_trials_are_taken_over_at_the_same_knob_and_clients(self):
        setting = Setting("distributed", 2.0, 4.0, 0.25)
        assert Plan().tuned(setting) == Setting("central", 2.0, 4.0, 0.25)
        assert Plan().tuned(Setting("sqsgd", 2.0, 0.5)) == Setting("sqsgd", 2.0, 0.5)

    def test_the_reach_is_the_bound_times_the_rate(self):
        config = Plan().config(Setting("piecewise", 2.0, 1.0), Candidate(0.25, 1.0), 1)
        assert config.privacy.clip_l2 * config.server.learning_rate == pytest.approx(1.0)
        assert config.server.final_learning_rate == pytest.approx(0.4)

    def test_knobs_that_count_are_whole_numbers(self):
        assert BY_NAME["cross_polytope"].knob.changes(4.0, 100) == (("local_dp.repeats", 4),)
        assert BY_NAME["piecewise"].knob.changes(4.0, 100) == (("rounds", 400),)
        assert BY_NAME["sqsgd"].knob.changes(0.5, 100) == (("local_dp.sample_share", 0.5),)


class TestRecords:
    def test_every_client_has_one_of_its_own(self, digits):
        numbered = np.arange(len(digits.train), dtype=np.int64) % 10
        marked = replace(digits, train=replace(digits.train, labels=numbered))
        chosen = one_each(marked, 300, 1)
        assert len(chosen.train) == 300
        assert len(np.unique(chosen.train.inputs, axis=0)) == 300
        assert chosen.test is marked.test

    def test_the_seed_decides(self, digits):
        first, again, other = (one_each(digits, 50, seed).train.inputs for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_more_clients_than_records_are_refused(self, digits):
        with pytest.raises(ValueError, match="9999 clients with one record each, but 1"):
            one_each(digits, 9999, 1)


class TestRuns:
    def test_a_campaign_goes_on_where_it_stopped(self, tiny, digits, monkeypatch):
        figures, folder = tiny
        monkeypatch.setattr(campaign_module, "run_experiment", None)
        assert json.loads(json.dumps(reproduce(TINY, digits, 1, folder))) == figures

    def test_a_run_of_another_configuration_is_made_again(self, tiny, digits, monkeypatch):
        _, folder = tiny
        plan = replace(TINY, delta=1e-6)
        campaign = Campaign(plan, digits, 1, folder)
        monkeypatch.setattr(campaign_module, "run_experiment", None)
        with pytest.raises(TypeError, match="not callable"):
            campaign.run(Setting("central", 8.0, 1.0), Candidate(0.3, 0.1), 1001)

    def test_bytes_of_the_distributed_sum_are_what_its_deployment_plans(self, tiny):
        rows = [row for row in tiny[0]["rows"] if row["trust"] == Trust.COHORT.value]
        row = rows[0]
        setting = Setting(row["method"], row["epsilon"], row["knob"], row["share"])
        config = TINY.config(setting, Candidate(row["bound"], row["reach"]), 1)
        plan = build_plan(config.privacy, config.cohort, 1)
        sketch = config.sketch.build(config.rounds).initial(row["parameters"]).spec
        assert row["bytes"] == plan_deployment(plan, sketch, 0).bytes_per_client
        # The messages beside the vector do not depend on the sketch.
        at_full = [each for each in rows if each["share"] == 1.0]
        assert len({each["overhead_bytes"] for each in at_full}) == 1
        assert len({each["recorded_bytes"] for each in at_full}) > 1

    def test_bytes_of_others_are_those_of_their_reports(self, tiny):
        for row in tiny[0]["rows"]:
            if row["trust"] != Trust.COHORT.value:
                assert row["overhead_bytes"] == 0
                assert row["bytes"] == row["reports"] * row["recorded_bytes"]

    def test_nobody_spends_more_than_epsilon(self, tiny):
        for row in tiny[0]["rows"]:
            if row["trust"] == Trust.EVERYBODY.value:
                assert row["epsilon_server"] == "inf"
                continue
            central = row["trust"] == Trust.SERVER.value
            spent = row["epsilon_outsider" if central else "epsilon_server"]
            assert 0.0 < spent <= row["epsilon"] * (1.0 + 1e-9)

    def test_the_best_candidate_is_chosen(self, tiny):
        for row in tiny[0]["rows"]:
            tried = {(bound, reach): accuracy for bound, reach, accuracy in row["tried"]}
            assert tried[row["bound"], row["reach"]] == max(tried.values())
            assert len(row["accuracies"]) == (1 if BY_NAME[row["method"]].slow else 2)


def made_up(method, epsilon, accuracies, **other):
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


class TestFindings:
    def test_a_crossing_is_read_by_the_logarithm(self):
        found = crossing([1.0, 4.0, 16.0], [0.5, 0.6, 0.8], 0.7)
        assert found == {"value": pytest.approx(8.0), "relation": "="}

    def test_a_dip_does_not_count(self):
        # Whoever may spend 4 can spend 1: the curve from there is that of 0.6 and 0.8.
        found = crossing([1.0, 4.0, 16.0], [0.6, 0.5, 0.8], 0.7)
        assert found == {"value": pytest.approx(8.0), "relation": "="}

    @pytest.mark.parametrize(("target", "value", "relation"), [(0.4, 1.0, "<="), (0.9, 16.0, ">")])
    def test_beyond_the_ends(self, target, value, relation):
        found = crossing([1.0, 4.0, 16.0], [0.5, 0.6, 0.8], target)
        assert found == {"value": value, "relation": relation}

    def test_differences_are_of_pairs(self):
        one = {"accuracies": [0.9, 0.8, 0.7]}
        other = {"accuracies": [0.8, 0.7, 0.6, 0.1, 0.1]}
        gap, width = difference(one, other)
        assert (gap, width) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-12))

    def test_an_interval_that_holds_zero_decides_nothing(self):
        assert winner(0.1, 0.05) == "distributed"
        assert winner(-0.1, 0.05) == "local"
        assert winner(0.1, 0.2) == winner(0.1, None) == "undecided"

    def test_factors(self):
        figures = {
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


class TestReport:
    def test_everything_is_written(self, tiny):
        figures, folder = tiny
        assert json.loads((folder / "trust-models.json").read_text()) == figures
        assert (folder / "trust-models.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "trust-models.md").read_text() == page(figures)

    def test_the_page_says_what_ran_and_where(self, tiny):
        figures, _ = tiny
        text = page(figures)
        assert f"--seed {figures['seed']}" in text
        assert figures["source"] in text and figures["machine"]["processor"] in text
        assert "is not the same promise" in text
        for method in METHODS:
            assert method.title in text

    def test_a_conclusion_for_every_epsilon_and_one_on_bytes(self, tiny):
        figures, _ = tiny
        said = conclusions(figures)
        assert len(said) == len(figures["plan"]["epsilons"]) + 1
        assert "they do not overlap" in said[-1]

    def test_an_edge_of_the_grid_is_told(self):
        tried = [[b, r, 0.5] for b in (1.0, 2.0) for r in (1.0, 2.0, 4.0)]
        row = made_up("sqsgd", 1.0, [0.5], title="sqSGD", clients=10, tried=tried)
        table = chosen_rows({"rows": [row | {"bound": 1.0, "reach": r} for r in (2.0, 4.0)]})
        assert [line[-1] for line in table[1:]] == ["-", "rate"]
