"""A run that was interrupted is continued where it was, and pays for no round twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training_doubles import COHORT, KEYS, MODEL, Killed9Error, KilledIn, Secrets, plan_of

from dp import Ledger
from protocol.exchange.aggregators import Aggregator, IdealAggregator
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.training.private import PrivateTraining, TrainingState
from secagg import LocalProtocolError
from sketch.controllers import AdaptNorm

D = 300
PLAN = plan_of(3)
POLICY = client_policy(PLAN, D)


def training(
    ledger: Ledger, inner: Aggregator, secrets: Secrets, state: TrainingState | None = None
) -> PrivateTraining:
    return PrivateTraining(PLAN, D, AdaptNorm(), inner, ledger, state=state, rand=secrets.public)


def update(index: int) -> np.ndarray:
    return np.full(D, 0.01 * (1 + index % 3))


@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_a_charged_round_is_released_again_at_no_cost(tmp_path: Path, kind: str) -> None:
    secrets, gone = Secrets(), {2: Stage.INPUT}
    with Ledger.open(tmp_path / "whole.jsonl") as ledger:
        whole = training(ledger, secrets.aggregator(kind, COHORT, POLICY), secrets)
        expected = whole.run_round(KEYS, MODEL, update, gone)
    with Ledger.open(tmp_path / "cut.jsonl") as ledger:
        run = training(ledger, KilledIn(secrets.aggregator(kind, COHORT, POLICY)), secrets)
        state = run.state
        with pytest.raises(Killed9Error):
            run.run_round(KEYS, MODEL, update, gone)
        assert len(ledger.entries()) == 1
    with Ledger.open(tmp_path / "cut.jsonl") as ledger:
        again = training(ledger, secrets.aggregator(kind, COHORT, POLICY), secrets, state)
        result = again.run_round(KEYS, MODEL, update, gone)
        assert len(ledger.entries()) == 1
        assert np.array_equal(result.release.update, expected.release.update)
        assert result.epsilons == expected.epsilons
        assert again.state == whole.state
        assert np.array_equal(again.state.previous, whole.state.previous)
        going_on = training(ledger, secrets.aggregator(kind, COHORT, POLICY), secrets, again.state)
        assert np.array_equal(going_on.state.previous, whole.state.previous)
        # The next round is charged like any other.
        secrets.attempt = 1
        following = again.run_round(KEYS, MODEL, update, gone)
        assert len(ledger.entries()) == 2
        assert following.epsilons.server > result.epsilons.server


@pytest.mark.parametrize(
    ("before", "after"), [({}, {1: Stage.INPUT}), ({2: Stage.INPUT}, {5: Stage.INPUT})]
)
def test_another_release_under_the_same_number_is_refused(
    tmp_path: Path, before: dict[int, Stage], after: dict[int, Stage]
) -> None:
    """Of as many survivors, but others, too: their difference would be naked."""
    secrets = Secrets()
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        run = training(ledger, KilledIn(secrets.aggregator()), secrets)
        state = run.state
        with pytest.raises(Killed9Error):
            run.run_round(KEYS, MODEL, update, before)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        again = training(ledger, secrets.aggregator(), secrets, state)
        with pytest.raises(LocalProtocolError, match="another release"):
            again.run_round(KEYS, MODEL, update, after)


def test_a_round_under_another_number_or_session_is_charged(tmp_path: Path) -> None:
    """The broken twin: only the very round that was interrupted is free."""
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        for session in range(2):
            secrets = Secrets(session)
            run = training(ledger, secrets.aggregator(), secrets)
            run.run_round(KEYS, MODEL, update, {})
            assert len(ledger.entries()) == session + 1


def test_a_state_without_the_secrets_of_its_round_does_not_release_it_for_free(
    tmp_path: Path,
) -> None:
    """Whoever goes on with fresh randomness draws another public seed: another round, paid for."""
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        killed = PrivateTraining(PLAN, D, AdaptNorm(), KilledIn(IdealAggregator()), ledger)
        state = killed.state
        with pytest.raises(Killed9Error):
            killed.run_round(KEYS, MODEL, update, {})
        again = PrivateTraining(PLAN, D, AdaptNorm(), IdealAggregator(), ledger, state=state)
        again.run_round(KEYS, MODEL, update, {})
        assert len(ledger.entries()) == 2


def test_the_last_round_of_a_budget_can_be_finished_after_a_kill(tmp_path: Path) -> None:
    """It is in the records already, so it must not be refused as one too many."""
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        secrets = Secrets()
        run = training(ledger, secrets.aggregator(), secrets)
        lost = dict.fromkeys(range(3), Stage.INPUT)
        for secrets.attempt in range(2):
            run.run_round(KEYS, MODEL, update, lost)
        secrets.attempt, state = 2, run.state
        killed = training(ledger, KilledIn(secrets.aggregator()), secrets, state)
        with pytest.raises(Killed9Error):
            killed.run_round(KEYS, MODEL, update, lost)
        again = training(ledger, secrets.aggregator(), secrets, state)
        assert again.run_round(KEYS, MODEL, update, lost).epsilons.server <= 8.0
        assert len(ledger.entries()) == 3
