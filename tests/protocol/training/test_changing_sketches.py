"""Sketches that change from round to round, through the whole protocol with real cryptography."""

from __future__ import annotations

import numpy as np
import pytest
from round_kit import IDENTITIES, make_setup, noise, updates
from training_doubles import keys, plan_of

from dp import Ledger
from protocol.exchange.aggregators import IdealAggregator, RealAggregator
from protocol.planning.policies import client_policy
from protocol.round.policy import ClientPolicy
from protocol.training.private import PrivateTraining
from sketch import Probe, SketchKind, SketchSpec
from sketch.controllers import ControllerState, Decision, Prior, Rationale, ReleasedStats

D = 200
SPECS = [
    SketchSpec.identity(D),
    SketchSpec(SketchKind.COUNT_MEAN, D, 5, 12),
    SketchSpec(SketchKind.COUNT_MEAN, D, 5, 20, probe=Probe(32, 0.2)),
    SketchSpec(SketchKind.COUNT_MEDIAN, D, 2, 15, copies=3),
    SketchSpec.identity(D, Probe(16)),
]
OPEN_POLICY = ClientPolicy(minimum_noise_multiplier=0.0)


class Scripted:
    """A controller that takes its shapes from a list and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[ReleasedStats] = []
        self.told: list[Prior | None] = []

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        self.told.append(prior)
        return self._decide(ControllerState(dimension, SPECS[0].main_size), 0)

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        self.shown.append(released)
        return self._decide(state, released.round_number + 1)

    def _decide(self, state: ControllerState, number: int) -> Decision:
        spec = SPECS[number % len(SPECS)]
        after = ControllerState(state.dimension, spec.main_size, number - 1)
        return Decision(after, spec, Rationale("As written.", {}))


@pytest.mark.parametrize("spec", SPECS[1:], ids=lambda spec: f"{spec.kind.name} {spec.size}")
def test_both_aggregators_agree_bit_for_bit(spec: SketchSpec) -> None:
    setup = make_setup(sketch=spec, removable=False)
    assert setup.context.length == spec.size
    real = RealAggregator(IDENTITIES, OPEN_POLICY, noise=noise).run(setup, updates, {})
    ideal = IdealAggregator(noise=noise).run(setup, updates, {})
    assert np.array_equal(real.total.vector.elements, ideal.total.vector.elements)


def test_rounds_of_a_run_have_the_shapes_that_were_decided(ledger: Ledger) -> None:
    """And release the mean, with a squared error of at most six times what is expected."""
    few = {"tolerated_dropouts": 1, "tolerated_colluders": 0}
    plan = plan_of(len(SPECS), 100.0, cohort=len(IDENTITIES), **few)
    mean, controller = np.full(D, 0.5 / np.sqrt(D)), Scripted()
    real = RealAggregator(IDENTITIES, client_policy(plan, D))
    training = PrivateTraining(plan, D, controller, real, ledger)
    assert controller.told == [plan.prior]
    for number, spec in enumerate(SPECS):
        result = training.run_round(keys(IDENTITIES), bytes(32), lambda _: mean, {})
        assert result.setup.parameters.sketch == spec
        assert result.setup.context.length == spec.size
        noise = result.release.noise_variance / spec.main_weight**2
        # Copies are noisier by M each, and their median by no more.
        hashing = 0.0 if spec.main_size == D else 0.25 * spec.copies / spec.main_size
        expected = D * (hashing + noise * spec.copies)
        assert np.sum((result.release.update - mean) ** 2) < 6.0 * expected
        shown = controller.shown[number]
        assert shown.size == spec.main_size
        assert (shown.probe is None) == (spec.probe is None)
        assert (shown.previous_inner is None) == (number == 0)
