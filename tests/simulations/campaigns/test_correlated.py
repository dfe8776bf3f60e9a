"""`veilsum reproduce correlated`: settings, runs, the noise in the model, and the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from protocol.errors import ConfigurationError
from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED
from simulations.campaigns.tuning import held_out
from simulations.learning.data import Dataset
from simulations.learning.noise_schedule import noise_weights, returned_plan, schedule_of
from simulations.learning.run.overrides import changed
from simulations.studies.correlated.campaign import CAMPAIGN
from simulations.studies.correlated.findings import comparisons, planned_noise
from simulations.studies.correlated.plan import (
    ARMS,
    PRESETS,
    SCHEDULES,
    TASKS,
    Plan,
    Setting,
)
from simulations.studies.correlated.training import run

ALL = replace(Plan(), arms=tuple(ARMS))
# Matrices of sixty rounds take seconds; `make test` has a small one of the digits.
SETTINGS = [
    pytest.param(each, id=each.title, marks=pytest.mark.slow if each.arm == "banded" else ())
    for each in ALL.settings()
]
TINY = replace(
    PRESETS["quick"], arms=("independent", "returned", "banded", "plain"), climb=0, seeds=2
)


@pytest.fixture(scope="module")
def tiny(written: Callable[..., Any]) -> tuple[dict[str, Any], Path]:
    """One tiny campaign: its figures, and the folder."""
    return written(CAMPAIGN, TINY)


class TestPlan:
    def test_two_real_tasks_of_sixty_rounds_far_apart(self) -> None:
        for name in Plan().tasks:
            config = Plan().config(Setting(name, "returned", 2.0, "constant"), 0, 1)
            assert config.rounds >= 60 and schedule_of(config).apart >= 5
            assert config.task.data != "digits"
        assert len(Plan().tasks) == len(Plan().epsilons) == 2 and Plan().seeds >= 5

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_every_configuration_fits_together(self, setting: Setting) -> None:
        config = ALL.config(setting, 1, 3)
        config.check()
        falls = config.server.private_rate(config.rounds - 1, config.rounds) < 2.0
        assert falls is SCHEDULES[setting.schedule].falls
        assert config.privacy.epsilon == (setting.epsilon or 1.0)

    def test_settings_come_once(self) -> None:
        settings = list(ALL.settings())
        assert len(set(settings)) == len(settings) == 2 * 3 * (5 * 2 + 1)

    def test_a_name_that_nobody_knows_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="writers, fashion, digits") as caught:
            replace(Plan(), tasks=("wrtiers",)).check()
        assert caught.value.key == "tasks"


class TestValidation:
    def test_it_is_a_part_of_the_training_examples(self, digits: Dataset) -> None:
        found = held_out(digits, 0.25)
        count = len(digits.train)
        assert len(found.test) == round(0.25 * count) == count - len(found.train)
        every = np.concatenate([found.train.inputs, found.test.inputs])
        order = [np.lexsort(each.reshape(count, -1).T) for each in (every, digits.train.inputs)]
        assert np.array_equal(every[order[0]], digits.train.inputs[order[1]])

    def test_trials_never_see_a_test_example(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = changed(
            TINY.config(Setting("digits", "plain", None, "constant"), 0, 1), [("rounds", 1)]
        )
        seen = []
        module = "simulations.studies.correlated.training"
        monkeypatch.setattr(
            f"{module}._trained", lambda config, data, *more: seen.append(data) or {}
        )
        run(config, 0.25)
        run(config)
        trial, final = seen
        assert not {x.tobytes() for x in final.test.inputs} & {
            x.tobytes() for x in [*trial.test.inputs, *trial.train.inputs]
        }


class TestNoise:
    @pytest.mark.parametrize("falls", ["constant", "decay"])
    def test_what_is_planned_is_the_models_variance(self, falls: str) -> None:
        config = TINY.config(Setting("digits", "trusted-returned", 8.0, falls), 1, 1)
        plan, rounds = returned_plan(config), config.rounds
        step = np.eye(rounds) - np.eye(rounds, k=-1)
        kept = (1.0 - plan.returned_share) * np.eye(rounds)
        covariance = plan.fresh_ratio * (kept + plan.returned_share * step @ step.T)
        weights = noise_weights(config.server, rounds)
        z = config.privacy.goal(config.participations).noise_multiplier
        expected = np.sqrt(np.diagonal(weights @ covariance @ weights.T))
        unit = z * config.privacy.clip_l2 / config.cohort.size
        assert planned_noise(config) == pytest.approx(list(unit * expected))

    @pytest.mark.parametrize("arm", ["trusted-independent", "trusted-returned", "banded"])
    def test_a_trusted_servers_noise_is_what_was_planned(self, arm: str) -> None:
        config = TINY.config(Setting("digits", arm, 8.0, "constant"), 0, 1)
        measured = np.array(run(config)["noise"])
        ratios = measured / planned_noise(config)
        # Root mean squares of d normal coordinates deviate by sqrt(1/2d): 12 rounds at 1e-6.
        tolerance = stats.norm.isf(1e-6 / 24) * np.sqrt(0.5 / 610)
        assert np.all(np.abs(ratios - 1.0) < tolerance)
        other = "banded" if arm != "banded" else "trusted-returned"
        wrong = planned_noise(TINY.config(Setting("digits", other, 8.0, "constant"), 0, 1))
        assert np.any(np.abs(measured / wrong - 1.0) > tolerance)

    @pytest.mark.slow
    def test_integers_that_nobody_is_trusted_with_cost_a_little_more(
        self, tiny: tuple[dict[str, Any], Path]
    ) -> None:
        for row in tiny[0]["rows"]:
            if row["arm"] in ("independent", "returned"):
                ratio = np.linalg.norm(row["noise"]) / np.linalg.norm(row["planned"]["noise"])
                assert 0.97 < ratio < 1.4


class TestFindings:
    def test_arms_are_compared_seed_by_seed(self) -> None:
        place = {"task": "digits", "epsilon": 8.0, "schedule": "constant"}
        better, worse = [0.80, 0.70, 0.90], [0.70, 0.60, 0.81]

        def rows(returned: list[float], independent: list[float]) -> list[dict[str, Any]]:
            made = {"returned": returned, "independent": independent}
            return [
                {**place, "arm": arm, "accuracies": each, "accuracy": float(np.mean(each))}
                for arm, each in made.items()
            ]

        (gained,) = comparisons(rows(better, worse))
        assert gained["verdict"] == REPRODUCED
        assert gained["mean"] == pytest.approx(0.29 / 3)
        (lost,) = comparisons(rows(worse, better))
        assert lost["verdict"] == NOT_REPRODUCED


@pytest.mark.slow
class TestPage:
    def test_all_settings_are_on_it(self, tiny: tuple[dict[str, Any], Path]) -> None:
        figures, folder = tiny
        page = (folder / "correlated.md").read_text(encoding="utf-8")
        for arm in TINY.arms:
            assert ARMS[arm].title in page
        assert TASKS["digits"].title in page
        assert len(figures["rows"]) == 3 * 4
        assert len(figures["claims"]) == 3 * 2

    def test_averages_are_of_the_same_runs(self, tiny: tuple[dict[str, Any], Path]) -> None:
        names = [line for line in (tiny[1] / "results.jsonl").read_text().splitlines() if line]
        # Trials of 3 arms and runs of 4, each with 2 kinds of rates: none are for averages alone.
        assert len(names) == 4 * 2 * 1 + 4 * 2 * 2

    def test_what_is_spent_is_at_most_what_was_promised(
        self, tiny: tuple[dict[str, Any], Path]
    ) -> None:
        for row in tiny[0]["rows"]:
            if row["arm"] == "returned":
                assert row["epsilons"]["server"] <= 8.0 and row["epsilons"]["guaranteed"] == 8.0
            elif row["arm"] == "banded":
                assert row["epsilons"]["server"] == "inf"
                assert row["epsilons"]["outsider"] == pytest.approx(8.0)
