"""A run in the terms of dp-accounting, whose accountants then agree with ours."""

from __future__ import annotations

import math

import pytest
from accounts import epsilon_of
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant

from dp import (
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    DominationAccountant,
    Event,
    FixedSizeSampled,
    GaussianRelease,
    LevelRelease,
    LocalAccountant,
    LocalRelease,
    NonPrivateRelease,
    OutsiderAccountant,
    PoissonSampled,
    SkellamRelease,
    UnsupportedEventError,
    to_dp_event,
)
from dp.accounting.base import EventCounter
from dp.correlated import CorrelatedRelease
from dp.events import AboveThresholdRelease, LaplaceRelease

DELTA, DELTA0 = 1e-5, 2.0**-24
COINS = BinomialRelease(14262, 16.0, 16, 100)
GAUSSIAN = GaussianRelease(60.0, 16.0)
SKELLAM = SkellamRelease(3600.0, 16.0, 16, 9)
DISCRETE = DiscreteGaussianRelease(36.0, 100, 16.0, 16, 9)


@pytest.mark.parametrize(
    ("kind", "event", "failing"),
    [
        (DominationAccountant, GAUSSIAN, 0),
        (DominationAccountant, COINS, 4),
        (DominationAccountant, Composition((COINS, SKELLAM, DISCRETE, GAUSSIAN)), 12),
        (OutsiderAccountant, PoissonSampled(0.1, GAUSSIAN), 0),
        (OutsiderAccountant, PoissonSampled(0.1, COINS), 4),
        (LocalAccountant, LocalRelease(0.5), 0),
    ],
)
def test_dp_accounting_agrees_on_four_rounds(
    kind: type[EventCounter], event: Event, failing: int
) -> None:
    run = to_dp_event([(event, 4)], DELTA0)
    assert run.failure == pytest.approx(failing * DELTA0)
    assert run.failure >= failing * DELTA0
    # Its delta0 is the best of a grid for one figure, and fixed for the other.
    ours = epsilon_of(kind, event, delta=DELTA, rounds=4)
    assert run.epsilon(DELTA) == pytest.approx(ours, rel=5e-3)


def test_renyi_accountants_take_the_event_as_well() -> None:
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    run = to_dp_event([(COINS, 4), GAUSSIAN], DELTA0)
    epsilon = accountant.compose(run.event).get_epsilon(DELTA - run.failure)
    assert run.epsilon(DELTA) < epsilon < 1.2 * run.epsilon(DELTA)


def test_pure_epsilons_add_up() -> None:
    laplace, above = LaplaceRelease(2.5, 3), AboveThresholdRelease(20.0, 40.0, 1)
    run = to_dp_event([laplace, (above, 2)], DELTA0)
    assert run.failure == 0.0
    assert 1.39 < run.epsilon(1e-9) <= 1.4001


def test_what_hides_nothing_and_what_changes_nothing() -> None:
    silent, bare = BinomialRelease(0, 0.5, 1, 1), BinomialRelease(0, 1.0, 1, 1)
    assert to_dp_event([silent], DELTA0).epsilon(DELTA) == 0.0
    assert to_dp_event([silent], DELTA0).failure == 0.0
    for event in (bare, NonPrivateRelease(), PoissonSampled(0.5, bare)):
        assert to_dp_event([GAUSSIAN, event], DELTA0).epsilon(DELTA) == math.inf
    assert to_dp_event([(COINS, 200)], DELTA0).epsilon(DELTA) == math.inf  # nothing of delta left


def test_the_words_are_those_of_the_library() -> None:
    run = to_dp_event([(GAUSSIAN, 3), PoissonSampled(0.5, GAUSSIAN)], DELTA0)
    first, second = run.event.events
    assert isinstance(first, dp_event.SelfComposedDpEvent)
    assert first.count == 3
    assert 3.75 * (1 - 1e-14) < first.event.noise_multiplier < 3.75
    assert second.sampling_probability == 0.5


@pytest.mark.parametrize(
    "event",
    [
        LevelRelease(100, 0.5, 3, 1.0, 4, False),
        CorrelatedRelease(
            index=1,
            fresh_variance=400.0,
            returned_variance=0.0,
            l2_sensitivity=4.0,
            dimension=8,
            rounds=4,
            least_fresh=400.0,
            largest_return=300.0,
            smallest_part=20.0,
            most_parts=20,
            least_kept=100.0,
        ),
        FixedSizeSampled(5, 10, GAUSSIAN),
        Allocated(3, GAUSSIAN),
        SkellamRelease(1e300, 1.0, 1, 1),
    ],
    ids=lambda event: event.tag,
)
def test_other_events_are_refused_by_name(event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match=type(event).__name__):
        to_dp_event([GAUSSIAN, Composition((event,))], DELTA0)


@pytest.mark.parametrize("delta0", [0.0, 0.5, math.nan])
def test_a_delta0_out_of_range_is_refused(delta0: float) -> None:
    with pytest.raises(ValueError, match="delta0"):
        to_dp_event([GAUSSIAN], delta0)
