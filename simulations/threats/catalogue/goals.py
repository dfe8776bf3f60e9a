"""A26: a client with a goal is asked for one full-price round after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from protocol import (
    ClientHistory,
    ClientPolicy,
    PrivacyGoal,
    RoundClient,
    StoredHistory,
)
from protocol.round import client as client_module
from secagg import LocalProtocolError, ParameterError
from simulations.audits.base import identities_of, noise_seed
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal
from simulations.threats.game.weak_clients import replaced
from simulations.threats.rounds.announced import (
    COHORT,
    DELTA,
    DIMENSION,
    FULL_PRICE,
    TARGET,
    announced_round,
    price,
)
from simulations.threats.rounds.parties import Participant, opened_sum, trusting_participant

MODEL: Final = bytes(32)

HistoryMaker = Callable[[ExitStack, PrivacyGoal], ClientHistory | None]


def _on_disk(stack: ExitStack, goal: PrivacyGoal | None) -> ClientHistory:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return stack.enter_context(StoredHistory(Path(folder), goal))


def _larger(goal: PrivacyGoal) -> PrivacyGoal:
    return PrivacyGoal(100.0 * goal.epsilon, goal.delta, 100 * goal.rounds)


UNCOUNTED: Final[dict[str, HistoryMaker]] = {
    "none at all": lambda _, goal: None,
    "memory without a goal": lambda _, goal: ClientHistory(),
    "disk without a goal": lambda stack, goal: _on_disk(stack, None),
    "memory with another goal": lambda _, goal: ClientHistory(_larger(goal)),
    "disk with another goal": lambda stack, goal: _on_disk(stack, _larger(goal)),
}
"""Histories that do not count against the client's goal, as a host may hand them over."""


def _updates(history: ClientHistory | None, goal: PrivacyGoal, seed: int) -> int:
    """In how many of five rounds, each at the price of the goal, the target's update leaves."""
    identities = identities_of(seed, COHORT)
    policy = ClientPolicy(minimum_noise_multiplier=0.0, goal=goal)
    left = 0
    for number in range(5):
        setup = announced_round(identities, MODEL, FULL_PRICE, seed, number)
        update, noise = np.full(DIMENSION, 0.01), noise_seed(seed, number)
        client = RoundClient(identities[TARGET], setup.context.cohort, policy, history)
        target = Participant(client, setup.announce(), MODEL, update, noise)
        people = {
            u: trusting_participant(setup, identity, update, noise_seed(seed, number, u))
            for u, identity in enumerate(identities)
        }
        # The others are enough for a sum, with the target or without it.
        left += TARGET in opened_sum(setup.context, {**people, TARGET: target}).survivors
    return left


def uncounted_goal(effort: Effort, seed: int) -> Findings:
    """A26: the server asks for more rounds than a client's goal allows."""
    setup = announced_round(identities_of(seed, COHORT), MODEL, FULL_PRICE, seed)
    goal = PrivacyGoal(price(setup, 1), DELTA, 1)
    # A client that never sends anything would pass as well: with the right history it does, once.
    counted = _updates(ClientHistory(goal), goal, seed)
    if counted != goal.rounds:
        raise LocalProtocolError(f"with its own history the client sent {counted} updates, not 1")
    answers: dict[str, str] = {}
    overruns = 0
    most = 0
    for name, make_history in UNCOUNTED.items():
        with ExitStack() as stack:
            history = make_history(stack, goal)
            try:
                updates = _updates(history, goal, seed)
                answers[name] = f"{updates} updates"
                overruns += updates > goal.rounds
            except ParameterError as error:
                answers[name] = f"{refusal(error)} ({error.argument})"
        with ExitStack() as stack:
            # A client that does not look whether its history counts for its policy.
            with replaced((client_module, "require_means", lambda *_: None)):
                most = max(most, _updates(make_history(stack, goal), goal, seed))
    return Findings(
        {
            **rate(overruns, len(UNCOUNTED)),
            "refused_with": "; ".join(f"{name}: {how}" for name, how in answers.items()),
            "updates_when_counted": counted,
            "goal_epsilon": goal.epsilon,
        },
        {"succeeded": most > goal.rounds, "updates": most, "goal_rounds": goal.rounds},
    )


ATTACKS: Final = (
    Attack(
        id="A26",
        promise="P6",
        name="a goal without its count",
        title="A client whose policy has a goal counts every round against that very goal",
        says="announces full-price rounds to a client whose history is missing or counts "
        "against another goal",
        stopped_by="every client with a goal has a history that counts against exactly that goal",
        run=uncounted_goal,
    ),
)
