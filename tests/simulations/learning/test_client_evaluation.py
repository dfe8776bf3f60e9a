"""Clients evaluate a run's models: what they say is right within its errors, and is paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from small_runs import BARE, config_of, run

from dp import Ledger
from protocol.errors import ConfigurationError
from simulations.learning.client_evaluation import (
    errors_of,
    kept_back,
    planned_evaluation,
    said,
)
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset, load_dataset
from simulations.learning.federated import Federation
from simulations.learning.noise_schedule import training_plan
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.run.forecast import forecast

EVERY_SECOND: Mapping[str, Any] = {"evaluation.every": 2, "evaluation.held_out": 2}
Z = NormalDist().inv_cdf(1.0 - 1e-6 / 4.0)
"""Of two figures, two-sided, at alpha = 1e-6."""
LITTLE_NOISE: Mapping[str, Any] = {"privacy.epsilon": 2_000.0, "privacy.error_share": 0.5}


def small(*changes: Mapping[str, Any]) -> RunConfig:
    return config_of(BARE, EVERY_SECOND, *changes)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def truth(config: RunConfig, data: Dataset, path: Path, cohort: list[int]) -> tuple[float, float]:
    """Accuracy and clipped loss of the last model, of these clients, who weigh alike."""
    checkpoint = Checkpoint.load(path / "checkpoint.npz")
    assert checkpoint is not None and config.evaluation is not None
    federation = Federation(config, data)
    found = []
    for client in cohort:
        examples = federation._kept_back[client]
        right, losses = federation.task.judged(checkpoint.state.released, data.train, examples)
        found.append((right.mean(), np.minimum(losses, config.evaluation.loss_bound).mean()))
    accuracy, loss = np.mean(found, axis=0)
    return float(accuracy), float(loss)


def test_what_clients_say_is_right_within_its_errors_and_paid_for(
    digits: Dataset, tmp_path: Path
) -> None:
    # Everybody is in every cohort, and every prediction counts.
    changes = {
        "cohort.size": 30,
        "evaluation.records": 64,
        "engine.insecure_seed": 7,
        **LITTLE_NOISE,
    }
    config = small(changes)
    result = run(config, digits, tmp_path)
    said = [record.get("by_clients") for record in result.records]
    assert said[0] is said[2] is None
    assert said[1] is not None and said[3] is not None
    predicted = errors_of(planned_evaluation(config.evaluation, training_plan(config)))  # type: ignore[arg-type]
    for name, true in zip(
        ("accuracy", "loss"), truth(config, digits, tmp_path, list(range(30))), strict=True
    ):
        error = said[3][f"{name}_error"]
        # Errors follow from the values, so they are a little off what is planned for the middle.
        assert 0.5 * predicted[name] < error < 1.5 * predicted[name] < 0.2
        assert abs(said[3][name] - true) < Z * error
        # The control: the model two rounds before is another one.
        assert abs(said[1][name] - true) > Z * error
    assert config.participations == 4 and config.charged_rounds == 6
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        asked = ["survey" in entry.metadata["notes"] for entry in ledger.entries()]
    assert asked == [False, False, True, False, False, True]
    spent = result.records[-1]["epsilons"]
    assert float(spent["server"]) <= float(spent["guaranteed"] or math.nan) == 2_000.0
    # Bytes of both sums.
    sent = [record["bytes_per_client"] for record in result.records]
    assert sent[1] > sent[0] == sent[2]


def test_a_goal_without_room_for_evaluations_would_be_overspent(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: noise for as many rounds as are trained in does not pay for more."""
    monkeypatch.setattr(RunConfig, "charged_rounds", RunConfig.participations)
    with pytest.raises(Exception, match=r"[Bb]udget|epsilon"):
        run(small({"cohort.size": 30}), digits, tmp_path)


def test_what_is_kept_back_is_not_trained_on(digits: Dataset) -> None:
    parts = tuple(np.arange(n) for n in (1, 4, 5, 11))
    section = small({"evaluation.held_out": 5}).evaluation
    train, held = kept_back(parts, section)
    assert [list(each) for each in held] == [[], [], [4], [4, 9]]
    for part, rest, kept in zip(parts, train, held, strict=True):
        assert sorted([*rest, *kept]) == list(part)
    assert kept_back(parts, None) == (parts, ())
    federation = Federation(small(), digits)
    kept = np.concatenate(federation._kept_back)
    assert not np.isin(kept, np.concatenate(federation.members)).any() and len(kept) > 100


def test_a_forecast_has_the_errors_before_anybody_is_asked(digits: Dataset) -> None:
    config = small()
    figures = forecast(config, Federation(config, digits))
    errors = figures["errors_of_an_evaluation"]
    assert isinstance(errors, dict) and set(errors) == {"accuracy", "loss"}
    assert "errors_of_an_evaluation" not in forecast(
        config_of(BARE), Federation(config_of(BARE), digits)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"engine.aggregator": "plain"},
        {"engine.aggregator": "central"},
        {"powersgd": {"rank": 1}},
        {"denoise": {}},
        {"attackers": {"fraction": 0.1}},
        {"robust": {"rule": "group-median", "corrupt": 1}},
        {"privacy.moment_order": 4},
    ],
)
def test_what_it_does_not_go_together_with(changes: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        small(changes).check()
    assert caught.value.key == "evaluation"
    with pytest.raises(ConfigurationError, match="evaluation: given for 2 ranks"):
        small().check(2)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"evaluation.every": 5}, "evaluation.every"),
        ({"evaluation.held_out": 1_000}, "evaluation.held_out"),
        ({"evaluation.held_out": 1}, "evaluation.held_out"),
        # With one, errors would leave out which prediction is drawn.
        ({"evaluation.records": 1}, "evaluation.records"),
        ({"evaluation.loss_bound": 1e300}, "evaluation.loss_bound"),
    ],
)
def test_figures_that_cannot_be_meant(
    digits: Dataset, changes: Mapping[str, Any], key: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Federation(small(changes), digits)
    assert caught.value.key == key


def test_what_the_noise_leaves_nothing_of_is_none() -> None:
    config = small()
    assert config.evaluation is not None
    survey = planned_evaluation(config.evaluation, training_plan(config)).survey
    found = said(survey.answers(survey.even(10), 1e9, 10))
    assert set(found.values()) == {None} and set(found) > {"accuracy", "loss_error"}
