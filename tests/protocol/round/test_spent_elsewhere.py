"""Rounds that a client has spent elsewhere are as spent as its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from round_kit import OPEN_POLICY, make_setup

from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.history import ClientHistory
from protocol.round.policy import require_means
from protocol.round.run_account import RunAccount
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from secagg import ParameterError
from tests.doubles.refused import refused

SETUPS = [make_setup(coins=20_000, round_number=number) for number in range(5)]
GOAL = PrivacyGoal(SETUPS[0].released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, 3)), 1e-5, 3)


@pytest.mark.parametrize(("earlier", "left"), [(0, 3), (1, 2), (2, 1), (3, 0), (1 << 31, 0)])
def test_so_many_rounds_are_left(tmp_path: Path, earlier: int, left: int) -> None:
    """Over restarts, at each of which it is told again and counted once."""
    for setup in SETUPS[:left]:
        with StoredHistory(tmp_path, GOAL, earlier) as history:
            history.answer(setup)
            history.charge(setup)
    with StoredHistory(tmp_path, GOAL, earlier) as history:
        assert (history.epsilon > 0.0) == (left > 0)
        for step in (history.answer, history.charge):
            with refused(PolicyError, "epsilon"):
                step(SETUPS[left])


def test_rings_of_rounds_elsewhere_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    share = GOAL.reserve.aggregation
    monkeypatch.setattr(RoundSetup, "ring_failure", lambda *_, **__: share)
    history = ClientHistory(GOAL, 2)
    history.answer(SETUPS[0])
    with refused(PolicyError, "security_bits"):
        history.answer(SETUPS[1])


def test_noise_that_returns_is_not_counted_with_them() -> None:
    of_a_run = SimpleNamespace(released=SimpleNamespace(account=RunAccount))
    with refused(PolicyError, "returns"):
        ClientHistory(GOAL, 1)._account_for(of_a_run)  # type: ignore[arg-type]


def test_only_equal_rounds_of_a_goal_can_be_counted_so() -> None:
    for goal, earlier in ((None, 1), (GOAL, -1)):
        with refused(ParameterError, "earlier"):
            ClientHistory(goal, earlier)
    policy = replace(OPEN_POLICY, goal=GOAL)
    require_means(policy, ClientHistory(GOAL, 1), None)
    with refused(ParameterError, "history"):
        require_means(replace(policy, equal_rounds=False), ClientHistory(GOAL, 1), None)
