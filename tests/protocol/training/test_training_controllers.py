"""Every controller in a private run: its shapes go through the protocol, its state through JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from training_doubles import KEYS, plan_of

from dp import Ledger
from protocol.exchange.aggregators import IdealAggregator
from protocol.planning.configuration import CONTROLLERS, Sketch
from protocol.training.private import PrivateTraining
from sketch.controllers import ControllerState

D, ROUNDS = 2000, 4
FIRST = {
    "adapt_budget": {"first_rate": 4.0},
    "adapt_norm": {"first_rate": 4.0},
    "adapt_norm_two_sketches": {"first_rate": 4.0, "probe_size": 64},
    "adapt_progress": {"first_rate": 4.0},
    "adapt_tail": {"first_rate": 4.0, "probe_size": 64},
    "fixed": {"rate": 4.0},
    "published": {"first_rate": 4.0},
    "two_stage": {"warmup": 2},
}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_rounds_of_a_private_run(name: str, ledger: Ledger) -> None:
    """Sizes of rounds are those decided, both sketches are sent, and a run may go on from JSON."""
    controller = Sketch(controller=name, rows=5, **FIRST[name]).build(20)  # type: ignore[arg-type]
    state = None
    # Few coins: their exact law takes seconds if there are many.
    plan = plan_of(ROUNDS, 100.0)
    for number in range(ROUNDS):
        training = PrivateTraining(plan, D, controller, IdealAggregator(), ledger, state)
        decided = training.state.decision.spec
        result = training.run_round(KEYS, bytes(32), lambda _: np.full(D, 0.02), {})
        assert result.setup.parameters.sketch == decided
        assert result.setup.context.length == decided.size
        assert (decided.probe is not None) == ("probe_size" in FIRST[name])
        state = training.state
        assert state.decision.state.last_round == number
        kept = json.loads(json.dumps(dataclasses.asdict(state.decision.state)))
        restored = ControllerState(**{**kept, "memory": tuple(kept["memory"])})
        assert restored == state.decision.state
        decision = dataclasses.replace(state.decision, state=restored)
        state = dataclasses.replace(state, decision=decision)
        # The figures that explain a size can be written down.
        json.dumps(dict(decision.rationale.numbers), allow_nan=False)


def test_a_plan_knows_clip_and_noise_before_the_first_release(ledger: Ledger) -> None:
    """The deviation z C / n of a mean over the cohort; a run's first sketch is sized by it."""
    plan = plan_of(ROUNDS)
    prior = plan.prior
    assert prior.norm_squared == pytest.approx(plan.clip_l2**2)
    deviation = plan.goal.noise_multiplier * plan.clip_l2 / plan.cohort
    assert prior.noise_variance == pytest.approx(deviation**2)
    controller = Sketch(rows=5).build(20)
    training = PrivateTraining(plan, D, controller, IdealAggregator(), ledger)
    assert training.state.decision == controller.initial(D, prior)
    assert training.state.decision.spec.size < D
