"""What a newcomer gets wrong is told at once, by name, with what would be right."""

from __future__ import annotations

import pickle
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from round_kit import IDENTITIES, make_setup

from dp import BudgetExceededError, Ledger, RoundsUsedUpError
from protocol import (
    IdealAggregator,
    PrivacyGoal,
    PrivateTraining,
    RealAggregator,
    RoundResult,
    TrainingPlan,
)
from protocol.errors import PolicyError
from protocol.planning.policies import client_policy
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.policy import ClientPolicy
from secagg import Identity, ParameterError, TooFewSurvivorsError
from sketch.controllers import FixedRate
from tests.doubles.plans import plan_of_words

PEOPLE = [Identity.generate() for _ in range(6)]
COHORT = [person.public for person in PEOPLE]
DIMENSION = 20


def plan(**changes: Any) -> TrainingPlan:
    wanted = {
        "goal": PrivacyGoal(epsilon=8.0, delta=1e-6, rounds=1),
        "cohort": 6,
        "tolerated_dropouts": 1,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
    }
    return plan_of_words({**wanted, **changes})


@pytest.fixture(params=["real", "ideal"])
def training(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateTraining]:
    chosen = plan()
    real = RealAggregator(PEOPLE, client_policy(chosen, DIMENSION))
    aggregator = real if request.param == "real" else IdealAggregator()
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        yield PrivateTraining(chosen, DIMENSION, FixedRate(1.0), aggregator, ledger)


def run(
    training: PrivateTraining,
    updates: Callable[..., Any] | np.ndarray = lambda _: np.ones(DIMENSION),
    dropouts: Any = None,
) -> RoundResult:
    return training.run_round(COHORT, secrets.token_bytes(32), updates, dropouts or {})


def test_rounds_that_are_used_up_are_told_as_such(training: PrivateTraining) -> None:
    first = run(training)
    words = r"taken part 1 times, as often as its goal says \(epsilon 7\.\d+ of 8 is spent\)"
    with pytest.raises(RoundsUsedUpError, match=words) as caught:
        run(training)
    assert caught.value.spent == first.epsilons.server
    assert caught.value.rounds == 1
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert isinstance(again, BudgetExceededError) and str(again) == str(caught.value)
    assert training.state.attempts == 1


def test_a_client_says_too_that_its_rounds_are_used_up(tmp_path: Path) -> None:
    """A server that deviates, and so asks for one round more, hears it from the client."""
    chosen = plan()
    history = ClientHistory(chosen.goal)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        training = PrivateTraining(chosen, DIMENSION, FixedRate(1.0), IdealAggregator(), ledger)
        setup = training.next_setup(COHORT, bytes(32))
    client = RoundClient(PEOPLE[0], COHORT, client_policy(chosen, DIMENSION), history)
    history.charge(setup)
    with pytest.raises(PolicyError, match=r"goal are used up \(1\).*at most 8 in all"):
        client.join(setup.announce(), bytes(32))


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ([1.0] * DIMENSION, "of type list"),
        (None, "of type NoneType"),
        (np.ones(DIMENSION, np.int64), "an array of int64"),
        (np.ones(DIMENSION, np.float16), "an array of float16"),
        (np.ones((4, 5)), r"shape \(4, 5\)"),
        (np.ones(DIMENSION - 1), r"shape \(19,\)"),
    ],
)
def test_an_update_that_is_none_says_what_it_is_and_what_it_must_be(
    training: PrivateTraining, update: list[float] | np.ndarray | None, words: str
) -> None:
    with pytest.raises(TooFewSurvivorsError) as caught:
        run(training, lambda _: update)
    first = caught.value.__notes__[0]
    assert re.search(rf"party 0 was lost: update = '{words}'", first), first
    assert "must be a NumPy array of float32 or float64, shape (20,)" in first


@pytest.mark.parametrize(
    ("dropouts", "words"),
    [
        ({1: "input"}, r"dropouts\[1\] = 'input': must be Stage.ADVERTISE, .*Stage.INPUT"),
        ({1: 2}, r"dropouts\[1\] = 2: must be Stage"),
        ({6: Stage.INPUT}, r"dropouts = 6: must be indices in the cohort, 0 \.\. 5"),
        ({-1: Stage.INPUT}, r"dropouts = -1: must be indices"),
        ({"1": Stage.INPUT}, r"dropouts = '1': must be indices"),
        ([1, 2], r"dropouts = 'of type list': must be a mapping"),
    ],
)
def test_losses_that_cannot_be_played_cost_no_round(
    training: PrivateTraining, dropouts: list[int] | dict[int | str, int | Stage | str], words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        run(training, dropouts=dropouts)
    assert training.state.attempts == 0
    run(training, dropouts={np.int64(1): Stage.INPUT})


@pytest.mark.parametrize("kind", ["real", "ideal"])
def test_an_aggregator_looks_at_losses_itself(kind: str) -> None:
    policy = ClientPolicy(minimum_noise_multiplier=0.0)
    aggregator = RealAggregator(IDENTITIES, policy) if kind == "real" else IdealAggregator()
    with pytest.raises(ParameterError, match=r"dropouts\[0\] = 'share'"):
        aggregator.run(make_setup(), lambda _: np.ones(DIMENSION), {0: "share"})


def test_updates_in_an_array_are_told_to_be_a_function(training: PrivateTraining) -> None:
    with pytest.raises(ParameterError, match=r"updates = 'of type ndarray': must be a function"):
        run(training, np.ones((6, DIMENSION)))
    assert training.state.attempts == 0


@pytest.mark.parametrize(
    ("name", "values", "valid"),
    [
        ("cohort", [20.5, 20.0, "20", True, 1], "an int in 2 .. 1048576"),
        ("tolerated_dropouts", [1.5, -1], "an int in 0 .. 1048576"),
        ("tolerated_colluders", [0.5], "an int in 0 .. 1048576"),
        ("degree", [2.5], "an int of at least 0"),
        ("threshold", ["7"], "an int of at least 0"),
        ("clip_l2", ["6", None], "a number in [1e-100, 1e+100]"),
        ("error_share", ["a"], "a number in [0.005, 1]"),
        ("wrap_probability", [True], "a number"),
        ("exact", ["no"], "a bool, or left out"),
        ("mode", ["active"], "Mode.SEMI_HONEST or Mode.ACTIVE"),
        ("goal", [(8.0, 1e-6, 1)], "a PrivacyGoal"),
    ],
)
def test_a_plan_names_the_figure_that_is_of_a_wrong_type(
    name: str, values: list[Any], valid: str
) -> None:
    for value in values:
        with pytest.raises(ParameterError, match=rf"^{name} = .*: must be {re.escape(valid)}$"):
            plan(**{"exact_noise" if name == "exact" else name: value})


@pytest.mark.parametrize(
    ("name", "values", "valid"),
    [
        ("epsilon", ["8", np.nan, np.inf, 0.0, True, 10**400], "a number in (0, inf)"),
        ("delta", [None, 0.0, 1.0], "a number in (0, 1)"),
        ("rounds", [1.5, 0, True], "an int of at least 1"),
        ("moment_order", [1.0, np.nan, True], "a number in (1, inf)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_goal_names_the_figure_that_is_wrong(name: str, values: list[Any], valid: str) -> None:
    for value in values:
        figures = {"epsilon": 8.0, "delta": 1e-6, "rounds": 1, name: value}
        with pytest.raises(ParameterError, match=rf"^{name} = .*: must be {re.escape(valid)}$"):
            PrivacyGoal(**figures)


def test_no_noise_is_chosen_by_an_epsilon_beyond_accounting() -> None:
    """Such an epsilon is fine as a bound that a client counts against."""
    goal = PrivacyGoal(1e9, 1e-6, 1)
    assert ClientHistory(goal).epsilon == 0.0
    with pytest.raises(ParameterError, match=r"^epsilon = 1000000000.0: must be below 1e\+06"):
        client_policy(plan(goal=goal), DIMENSION)


def test_figures_of_numpy_are_numbers() -> None:
    assert plan(clip_l2=np.float64(1.0)).clip_l2 == 1.0
    assert PrivacyGoal(np.float64(8.0), np.float64(1e-6), 1).epsilon == 8.0
