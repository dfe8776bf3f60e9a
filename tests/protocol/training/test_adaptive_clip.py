"""A clip that follows released norms: the vote, its sensitivity, and where the clip goes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training_doubles import MODEL, keys, plan_of

from dp import Ledger, NonFiniteUpdateError
from dp.minimal_clip import ClipController
from protocol import TrainingPlan
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.planning.policies import client_policy
from protocol.training.adaptive_clip import (
    AdaptiveClipTraining,
    ClippingState,
    Vote,
    clip_digest,
    starting,
)
from protocol.training.private import PrivateTraining
from secagg import Identity, ParameterError
from sketch.controllers import FixedRate

N, D, ROUNDS = 100, 40, 14
VOTE = Vote(share=0.05, rate=0.6)
CROWD = [hashlib.sha256(b"a%d" % i).digest() for i in range(N)]
CONTROLLER = ClipController(smallest=0.01, largest=3.0, window=3)


def plan(cohort: int = N, epsilon: float = 100.0, clip_l2: float = 4.0) -> TrainingPlan:
    return plan_of(ROUNDS, epsilon, cohort=cohort, tolerated_dropouts=cohort // 4, clip_l2=clip_l2)


def training(
    ledger: Ledger,
    *,
    made: TrainingPlan | None = None,
    inner: Aggregator | None = None,
    clip: float = 1.0,
    threshold: float | None = None,
    controller: ClipController = CONTROLLER,
) -> AdaptiveClipTraining:
    private = PrivateTraining(
        made or plan(), D + 1, FixedRate(1.0), inner or IdealAggregator(), ledger
    )
    return AdaptiveClipTraining(private, controller, starting(controller, clip, threshold), VOTE)


DIRECTION = np.ones(D) / math.sqrt(D)


def alike(norm: float) -> Callable[..., Any]:
    """Updates of one direction whose norms have the given median."""
    return lambda index: DIRECTION * norm * (0.5 + index / (N - 1))


class TestVote:
    """One more coordinate, within the clip."""

    @pytest.mark.parametrize("norm", [0.0, 0.3, 0.7, 2.0, 1e200])
    @pytest.mark.parametrize("threshold", [0.5, 5.0])
    def test_update_and_vote_share_the_clip(self, norm: float, threshold: float) -> None:
        vector = VOTE.cast(norm * DIRECTION, 0.7, threshold)
        assert vector.shape == (D + 1,)
        # The longest vector has the whole clip.
        assert np.linalg.norm(vector) <= 0.7 * VOTE.whole * (1.0 + 1e-12)
        assert norm < 0.7 or np.linalg.norm(vector) == pytest.approx(0.7 * VOTE.whole)
        assert np.linalg.norm(vector[:-1]) == pytest.approx(min(norm, 0.7))
        assert bool(vector[-1] > 0) == (norm <= threshold)
        assert abs(vector[-1]) == pytest.approx(0.7 * VOTE.weight)

    def test_the_mean_of_votes_is_a_share(self) -> None:
        votes = [VOTE.cast(norm * DIRECTION, 0.7, 1.0)[-1] for norm in (0.2, 0.9, 1.1, 3.0, 0.5)]
        assert VOTE.counted(float(np.mean(votes)), 0.7) == pytest.approx(3 / 5)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_what_is_not_finite_is_refused(self, value: float) -> None:
        with pytest.raises(NonFiniteUpdateError):
            VOTE.cast(np.full(D, value), 0.7, 1.0)

    @pytest.mark.parametrize(
        ("name", "values"),
        [("share", [0.0, 1.0, math.nan]), ("rate", [0.0, -0.2, 10.5, math.nan])],
    )
    def test_figures_out_of_range_are_refused(self, name: str, values: list[float]) -> None:
        """Before a round, that is: afterwards it is paid for."""
        for value in values:
            with pytest.raises(ParameterError, match=name):
                Vote(**{name: value})


def test_clip_and_threshold_find_norms_far_from_where_they_began(ledger: Ledger) -> None:
    """Updates that agree: the least error is at a clip near their norm."""
    run = training(ledger, clip=0.1, threshold=0.05)
    for _ in range(ROUNDS):
        result = run.run_round(CROWD, MODEL, alike(0.5))
    assert 0.35 < run.state.threshold < 0.65
    assert 0.35 < run.state.clip.clip < 0.65
    assert np.linalg.norm(result.update - 0.5 * DIRECTION) < 0.25


@pytest.mark.slow
def test_the_clip_is_shorter_where_noise_dominates(ledger: Ledger) -> None:
    """Updates that point everywhere: their mean is next to nothing, and noise is all it gets."""
    rng = np.random.default_rng(1)
    everywhere = rng.normal(size=(N, D)) / math.sqrt(D) * 0.5
    run = training(ledger, made=plan(epsilon=2.0), clip=0.5, threshold=0.5)
    for _ in range(ROUNDS // 2):
        run.run_round(CROWD, MODEL, everywhere.__getitem__)
    assert run.state.clip.clip < 0.25


def test_a_round_is_accounted_with_its_own_clip_and_the_same_noise(ledger: Ledger) -> None:
    run = training(ledger, clip=0.1, threshold=1.0)
    first = run.run_round(CROWD, MODEL, alike(0.5))
    second = run.run_round(CROWD, MODEL, alike(0.5))
    for result in (first, second):
        parameters = result.inner.setup.parameters
        assert parameters.clip_l2 == result.before.clip.clip * VOTE.whole
        assert parameters.sketch.dimension == D + 1
    clips = [result.inner.setup.parameters.clip_l2 for result in (first, second)]
    scales = [result.inner.setup.parameters.scale for result in (first, second)]
    assert clips[1] > 1.2 * clips[0]
    # In integer units, where noise is added, nothing changes.
    assert scales[0] * clips[0] == pytest.approx(scales[1] * clips[1], rel=1e-9)
    events = [entry.event for entry in ledger.entries()]
    assert events[0].coins == events[1].coins


def test_clients_bind_clip_and_threshold(ledger: Ledger) -> None:
    run = training(ledger, clip=0.5, threshold=0.8)
    result = run.run_round(CROWD, MODEL, alike(0.5))
    bound = result.inner.setup.parameters.model_digest
    assert bound == clip_digest(MODEL, 0.5, 0.8, VOTE.share)
    others = {
        clip_digest(bytes(31) + b"1", 0.5, 0.8, VOTE.share),
        clip_digest(MODEL, 0.6, 0.8, VOTE.share),
        clip_digest(MODEL, 0.5, 0.9, VOTE.share),
        clip_digest(MODEL, 0.5, 0.8, 0.1),
    }
    assert len(others | {bound}) == 5


def test_the_real_protocol_runs_it(ledger: Ledger) -> None:
    people = [Identity.generate() for _ in range(8)]
    made = plan(8)
    run = training(
        ledger, made=made, inner=RealAggregator(people, client_policy(made, D + 1)), clip=0.3
    )
    result = run.run_round(keys(people), MODEL, lambda _: 0.2 * DIRECTION)
    assert result.update.shape == (D,)
    assert isinstance(run.state, ClippingState)
    assert run.state.clip.clip != 0.3


def test_a_clip_beyond_the_plan_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ParameterError, match="largest"):
        training(ledger, made=plan(clip_l2=3.0))
    private = PrivateTraining(plan(), D, FixedRate(1.0), IdealAggregator(), ledger)
    for clip in (4.1, math.nan):
        with pytest.raises(ParameterError, match="clip_l2"):
            private.next_setup(CROWD, MODEL, clip)


def test_a_failed_round_leaves_the_clip_as_it_was(ledger: Ledger) -> None:
    run = training(ledger)
    before = run.state
    with pytest.raises(ParameterError):
        run.run_round(CROWD[:5], MODEL, alike(0.5))
    assert run.state is before


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_a_threshold_that_is_no_length_is_refused_before_a_round(
    ledger: Ledger, threshold: float
) -> None:
    with pytest.raises(ParameterError, match="threshold"):
        training(ledger, threshold=threshold)


def test_the_largest_clip_is_within_the_plan_whatever_is_rounded(ledger: Ledger) -> None:
    vote = Vote(share=0.2)
    largest = 5.0 / vote.whole
    assert largest * vote.whole > 5.0
    private = PrivateTraining(plan(clip_l2=5.0), D + 1, FixedRate(1.0), IdealAggregator(), ledger)
    controller = ClipController(smallest=0.01, largest=largest)
    run = AdaptiveClipTraining(private, controller, starting(controller, largest), vote)
    result = run.run_round(CROWD, MODEL, alike(9.0))
    assert not result.inner.outcome.refused
    assert result.inner.setup.parameters.clip_l2 == 5.0


def test_a_threshold_does_not_vanish(ledger: Ledger) -> None:
    """Of updates that are all zero every share is below it, so that it shrinks for ever."""
    run = training(ledger, threshold=1e-100)
    result = run.run_round(CROWD, MODEL, lambda index: np.zeros(D))
    assert result.below > 0.5
    assert run.state.threshold == 1e-100
