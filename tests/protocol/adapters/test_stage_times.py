"""How long servers wait: by the first trip, by what a stage sends, or as they are told."""

from __future__ import annotations

import hashlib

import pytest
from returned_worlds import MEMBERS, ReturnedWorld

from protocol.adapters.stage_times import FIRST_SECONDS, LEAST_SECONDS, StageTimes
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.setup import RoundSetup
from protocol.schemes import OneShot
from protocol.schemes.pairwise import pairwise_setup
from sketch.hashing import PublicSeed
from sketch.spec import SketchKind, SketchSpec


@pytest.mark.parametrize(
    ("trip", "wait"),
    [(None, FIRST_SECONDS), (0.1, LEAST_SECONDS), (20.0, 80.0), (1e6, FIRST_SECONDS)],
)
def test_four_trips_are_waited_for_and_a_slow_client_lengthens_nothing(
    trip: float | None, wait: float
) -> None:
    times, told = StageTimes(), StageTimes(7.0)
    for each in (times, told):
        if trip is not None:
            each.measure(trip)
            each.measure(trip / 2)
    assert times.seconds() == wait
    assert told.seconds() == told.seconds(setup_of(40)) == 7.0


def setup_of(clients: int) -> RoundSetup:
    plan = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 3),
        cohort=clients,
        tolerated_dropouts=clients // 5,
        tolerated_colluders=clients // 20,
        clip_l2=1.0,
        lifetime_seconds=0,
    )
    spec = SketchSpec(SketchKind.IDENTITY, 100, 1, 100)
    parameters = plan.calibrate(spec, bytes(32), PublicSeed(bytes(32)))
    cohort = [hashlib.sha256(bytes([i])).digest() for i in range(clients)]
    return pairwise_setup(plan, parameters, cohort, bytes(16), 0)


def test_what_members_upload_is_waited_for() -> None:
    world = ReturnedWorld()
    adding, plain = (OneShot.stage_bytes(setup) for setup in (world.setup(), world.plain()))
    assert adding > max(plain, MEMBERS * world.setup().vector_bytes)


def test_what_a_stage_sends_takes_time_on_the_line() -> None:
    """Everybody has sealed shares for everybody: of four times as many, 16 times as long."""
    few, many = (StageTimes().seconds(setup_of(n)) - FIRST_SECONDS for n in (10, 40))
    assert 0.0 < 16 * few < many < 64 * few
