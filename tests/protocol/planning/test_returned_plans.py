"""Plans of runs whose noise comes back: what they refuse, and the rounds that they make."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from one_shot_worlds import DIGEST, DIMENSION, GOAL, update
from rank_doubles import on_ranks
from returned_worlds import APART, EVERYBODY, MEMBERS, ROUNDS, N, ReturnedWorld, plan_of, record

from dp import DiscreteGaussianMechanism
from protocol.checks import of_kind
from protocol.noise.noise import Independent, Returned, returned_run
from protocol.noise.returned import member_uploads
from protocol.round.losses import NOBODY
from protocol.round.parameters import RoundParameters
from protocol.round.returned_events import RunEvents
from protocol.schemes import Pairwise
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.schemes.one_shot import one_shot_setup
from secagg import ParameterError
from secagg.oneshot.records import fewest_members
from sketch import PublicSeed, SketchSpec
from tests.doubles.refused import refused

SKETCH = SketchSpec.identity(DIMENSION)
SEED = PublicSeed(bytes(32))


def calibrated(**options: Any) -> RoundParameters:
    return plan_of().calibrate(SKETCH, DIGEST, SEED, **options)


# -- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("committee", {"committee": Everyone()}),
        (
            "committee",
            {"committee": Drawn(size=MEMBERS, corrupt=0, away=1, odds=0.9)},
        ),
        ("scheme", {"scheme": Pairwise()}),
        ("apart", {"noise": Returned(rounds=8, apart=4)}),
        ("away", {"noise": Returned(rounds=ROUNDS, apart=APART, away=0.5)}),
    ],
)
def test_plans_that_cannot_have_returned_noise_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    with refused(ParameterError, argument):
        plan_of(**changes)


def test_a_plan_without_returned_noise_has_no_run() -> None:
    with refused(ParameterError, "noise"):
        _ = returned_run(plan_of(noise=Independent(mechanism="discrete-gaussian")))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounds", 0), ("rounds", 1.0), ("apart", 0), ("apart", True), ("away", "0"), ("away", None)],
)
def test_figures_of_a_run_that_cannot_be_are_named(name: str, value: Any) -> None:
    with refused(ParameterError, name):
        Returned(**{"rounds": ROUNDS, "apart": APART, name: value})


def test_the_fewest_members_are_those_sure_to_be_there() -> None:
    """All but the corrupt, as many honest ones that these have left out, and those away."""
    for size, corrupt, gone in ((8, 1, 1), (12, 1, 2), (16, 2, 1), (17, 3, 0)):
        committee = Named(size=size, corrupt=corrupt, away=gone)
        plan = plan_of(committee=committee)
        sure = size - 2 * corrupt - gone
        run = returned_run(plan)
        assert run.fewest_members == max(sure, fewest_members(size, corrupt))
        assert run.fewest_returning == max(0, 2 * run.fewest_members - size)


# -- parameters -----------------------------------------------------------------------------------


def test_a_round_has_the_noise_of_the_run() -> None:
    plan, parameters = plan_of(), calibrated()
    noise = of_kind("noise", plan.noise, Returned).planned(plan, DIMENSION)
    assert parameters.mechanism == noise.client
    assert isinstance(parameters.mechanism, DiscreteGaussianMechanism)
    assert parameters.returned is not None
    assert parameters.returned.mechanism == noise.member
    assert (parameters.returned.rounds, parameters.returned.divisor) == (ROUNDS, N)
    assert (parameters.scale, parameters.linf_bound) == (noise.scale, noise.sensitivities.linf)
    assert parameters.l2_bound == pytest.approx(noise.sensitivities.l2)


@pytest.mark.parametrize(
    "options", [{"clip_l2": 0.5}, {"goal": dataclasses.replace(GOAL, epsilon=4.0)}]
)
def test_rounds_do_not_take_unequal_shares(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="those of the plan in all rounds"):
        calibrated(**options)
    same = calibrated(clip_l2=1.0, goal=GOAL)
    assert same == calibrated()


def test_nothing_else_comes_back() -> None:
    with refused(ParameterError, "returned"):
        dataclasses.replace(calibrated(), returned=object())  # type: ignore[arg-type]


# -- terms of a round -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "options", "expected"),
    [
        ((), {"opened": True}, (False, 0)),
        ((record(0),), {"opened": True}, (True, 2)),
        ((record(0),), {"opened": True, "in_turn": False}, (True, 0)),
        ((record(0),), {"opened": False}, (False, 0)),
        ((record(0),), {}, (False, 0)),
        ((record(0, EVERYBODY[:5]),), {"opened": True}, (True, 2)),
    ],
)
def test_the_terms_follow_from_what_became_of_the_last_round(
    records: Any, options: dict[str, bool], expected: tuple[bool, int]
) -> None:
    plan, parameters = plan_of(), calibrated()
    terms = member_uploads(returned_run(plan), parameters, records, **options)
    assert (terms.returning, terms.fewest_returning) == expected
    assert (terms.fewest, terms.records) == (5, records)
    assert terms.block == parameters.block_digest()


def test_a_first_round_needs_no_terms() -> None:
    world = ReturnedWorld()
    parameters = calibrated()
    members = world.committee.members(bytes(16), world.cohort(0), 0)
    setup = one_shot_setup(world.plan, parameters, world.cohort(0), members, bytes(16), 0)
    assert setup.context.member_uploads == member_uploads(returned_run(world.plan), parameters)
    assert setup.context.invited == N
    assert setup.identities == tuple(world.cohort(0))
    assert setup.adding_members == MEMBERS


def test_a_client_cannot_be_a_member_of_the_run() -> None:
    """It would have two uploads in one sum."""
    world = ReturnedWorld()
    members = world.committee.members(bytes(16), world.cohort(0), 0)
    keys = [*world.cohort(0)[:-1], members[0].identity]
    with refused(ParameterError, "cohort"):
        one_shot_setup(world.plan, calibrated(), keys, members, bytes(16), 0)


# -- what a round costs ---------------------------------------------------------------------------


def test_what_a_round_costs_lies_between_what_it_may_cost() -> None:
    setup = ReturnedWorld().setup(1, record(0))
    possible = setup.possible_events()
    back = [each.server.returned_variance for each in possible]  # type: ignore[attr-defined]
    least, most = min(back), max(back)
    assert least < most
    fresh = {each.server.fresh_variance for each in possible}  # type: ignore[attr-defined]
    assert min(fresh) == setup.run_events.parts.least_fresh
    for clients, entered, returned in ((8, EVERYBODY, EVERYBODY), (7, EVERYBODY[:5], (0, 1))):
        told = record(1, entered, returned, clients)
        costs: Any = setup.events(clients, told)
        event = costs.server
        assert event.fresh_variance >= min(fresh)
        assert least <= event.returned_variance <= most
        assert costs.absent == dataclasses.replace(event, l2_sensitivity=0.0)
        # One client may work for the server, which knows its noise.
        assert costs.without_members.contributors == clients - 1


@pytest.mark.parametrize(("survivors", "told"), [(8, None), (7, record(1)), (8, record(0))])
def test_the_cost_is_that_of_the_rounds_own_record(survivors: int, told: Any) -> None:
    setup = ReturnedWorld().setup(1, record(0))
    with refused(ParameterError, "record"):
        setup.events(survivors, told)


def test_rounds_without_returned_noise_have_no_run() -> None:
    world = ReturnedWorld()
    with refused(ParameterError, "returned"):
        RunEvents(world.setup().context, dataclasses.replace(calibrated(), returned=None))
    setup = world.plain()
    assert setup.adding_members == 0
    with pytest.raises(ParameterError):
        _ = setup.run_events


# -- one process ----------------------------------------------------------------------------------


def test_members_that_add_noise_are_in_one_process() -> None:
    def alone(ranks: Any) -> Any:
        world = ReturnedWorld()
        world.real._ranks = ranks
        with pytest.raises(ParameterError) as raised:
            world.real.run(world.setup(), update, NOBODY)
        return raised.value.argument

    assert on_ranks(2, alone) == ["ranks", "ranks"]
