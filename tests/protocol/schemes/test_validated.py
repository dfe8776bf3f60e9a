"""Validated rounds through plan, policy, parties and ledger: what is too long is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from one_shot_rounds import identity
from one_shot_worlds import DIMENSION, SESSION, World, ideal, plan_of, update
from returned_worlds import ReturnedWorld, noise_of, remembered
from returned_worlds import plan_of as returned_plan

from dp import Ledger
from protocol import PrivateTraining
from protocol.errors import PolicyError
from protocol.exchange.one_shot import MemberStage, one_shot_script
from protocol.exchange.remote_one_shot import RemoteMember, RemoteOneShotAggregator, RemoteUploader
from protocol.exchange.stages import conduct
from protocol.noise.noise import Independent
from protocol.planning.deployment import plan_deployment
from protocol.round.losses import Stage
from protocol.round.member import RoundMember
from protocol.round.pipeline import Pipeline
from protocol.round.validated_setup import ValidatedSetup, bounds_of
from protocol.schemes import OneShot, Validated
from protocol.schemes.committee import CommitteePlan, Drawn, Everyone, Named
from protocol.schemes.validated import BoundChoice, validated_numbers
from secagg import CapacityError, ParameterError, RemoteProtocolError, centre
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.records import RoundRecord
from secagg.storage import TokenFolder
from secagg.validated.bounds import announced_bound, least_bound
from secagg.validated.context import DEGREE, bits_of_sum
from simulations.threats.one_shot.too_long import upload_of_any_length
from sketch import SketchSpec
from sketch.controllers import FixedRate

NAMED = Named(size=8, corrupt=1, away=1)
COMMITTEES: Mapping[str, CommitteePlan] = {
    "everyone": Everyone(),
    "named": NAMED,
    "drawn": Drawn(size=8, corrupt=1, away=1, odds=0.97),
}


def world_of(committee: CommitteePlan = NAMED, **changes: Any) -> World:
    """Ten clients, of whom two may be lost (one if all are members) and one is corrupt."""
    changes.setdefault("noise", Independent(mechanism="discrete-gaussian"))
    if isinstance(committee, Everyone):
        # Ten members cannot do without two of them.
        changes.setdefault("tolerated_dropouts", 1)
    kind = CommitteeKind.NAMED
    return World(plan_of(kind, scheme=Validated(committee=committee), **changes))


def setup_of(world: World) -> ValidatedSetup:
    """Its first round."""
    setup = world.setup()
    assert isinstance(setup, ValidatedSetup)
    return setup


def shorter(setup: ValidatedSetup, **changes: Any) -> ValidatedSetup:
    """The round with other terms of validation."""
    return replace(setup, context=replace(setup.context, **changes))


@pytest.mark.parametrize("committee", COMMITTEES.values(), ids=list(COMMITTEES))
@pytest.mark.parametrize("mechanism", ["binomial", "discrete-gaussian"])
def test_the_sum_is_that_of_the_ideal_functionality_but_for_errors(
    committee: CommitteePlan, mechanism: Any
) -> None:
    world = world_of(committee, noise=Independent(mechanism=mechanism))
    setup, lost = setup_of(world), {3: Stage.INPUT}
    got = world.real.run(setup, update, lost)
    expected = ideal(setup).run(setup, update, lost)
    assert got.total.survivors == expected.total.survivors
    assert not got.refused
    sums = [Pipeline(setup)._lift.server(each.total.vector) for each in (got, expected)]
    errors, deviation = sums[0] - sums[1], (9 * setup.error_variance) ** 0.5
    # Alpha 1e-6 over 40 coordinates, and for their mean square.
    assert 0.4 * deviation < errors.std() < 1.8 * deviation
    assert np.abs(errors).max() < 6.0 * deviation
    traffic = setup.traffic(len(got.total.survivors))
    assert got.bytes_up[0] == sum(traffic.up.values())
    # Of a member that everyone is, the most: paths in a tree of ten differ.
    least = 0.95 if committee.KIND is CommitteeKind.EVERYONE else 1.0
    assert least * sum(traffic.down.values()) <= got.bytes_down[0] <= sum(traffic.down.values())


@pytest.mark.parametrize(("factor", "kept"), [(0.98, True), (1.02, False)])
def test_a_vector_beyond_the_bound_is_left_out(factor: float, kept: bool) -> None:
    world = world_of()
    setup = setup_of(world)
    spike = np.zeros(DIMENSION, np.int64)
    spike[7] = int(factor * setup.context.longest(1))
    assert setup.accepts(spike) is kept
    cheat = upload_of_any_length(
        setup.context, 2, world.identities[2], setup.known_cohort().proof(2), spike
    )
    members: dict[int, RoundMember] = {}

    def carry(stage: Any, messages: Any) -> Any:
        for index, data in messages:
            if stage is Stage.INPUT:
                client = world.client(index)
                client.join(data, setup.parameters.model_digest)
                yield index, cheat if index == 2 else client.submit(update(index))
                continue
            if index not in members:
                key = setup.context.committee.members[index].identity
                members[index] = world.committee.member(SESSION, key)
                members[index].join(setup.announce_to_member())
            yield index, members[index].receive(data)

    announced = ((index, setup.announce(index)) for index in range(10))
    outcome = conduct(one_shot_script(setup.server(), setup), announced, carry, lambda _: None)
    survivors = tuple(range(10)) if kept else (0, 1, 3, 4, 5, 6, 7, 8, 9)
    assert outcome.total.survivors == survivors
    total = Pipeline(setup)._lift.server(outcome.total.vector)
    assert bool(abs(total[7]) > 0.5 * spike[7]) is kept


def test_a_field_that_one_upload_would_overflow_is_refused() -> None:
    context = setup_of(world_of()).context
    needed = bits_of_sum(context.longest(10))
    assert context.bits == needed
    with pytest.raises(CapacityError):
        replace(context, bits=needed - 1)


def test_a_client_insists_on_the_bound_of_its_own_clip_and_noise() -> None:
    world = world_of()
    setup = setup_of(world)
    least, of_member = bounds_of(setup.parameters, least_bound)
    assert setup.least_bound == least <= setup.context.bound
    assert of_member == setup.context.member_bound == 0
    world.client_policy.check(shorter(setup, bound=least))
    with pytest.raises(PolicyError, match=f"at least {least}"):
        world.client_policy.check(shorter(setup, bound=least - 1))
    # Noise and clip go in: with a tenth of either another bound.
    for change in ({"sketch_clip_l2": 0.1}, {"mechanism": type(setup.parameters.mechanism)(9.0)}):
        assert bounds_of(replace(setup.parameters, **change), least_bound)[0] < 0.99 * least


def test_a_client_of_one_scheme_takes_no_round_of_the_other() -> None:
    validated = world_of()
    noise = Independent(mechanism="discrete-gaussian")
    one_shot = World(plan_of(CommitteeKind.NAMED, noise=noise))
    with pytest.raises(PolicyError, match="one-shot only"):
        one_shot.client_policy.check(validated.setup())
    with pytest.raises(PolicyError, match="validated only"):
        validated.client_policy.check(one_shot.setup())


def test_an_announcement_is_read_back() -> None:
    world = world_of(COMMITTEES["drawn"])
    setup = setup_of(world)
    read = world.client().join(setup.announce(0), setup.parameters.model_digest)
    assert type(read) is ValidatedSetup
    assert read == setup and read.context.hash == setup.context.hash


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"limbs": 2}, "limbs"),
        ({"degree": 4096}, "degree"),
        ({"ring_bits": 41}, "ring_bits = 41"),
        ({"away": 9}, "members = 8"),
        ({"bound": 0}, "bound"),
    ],
)
def test_an_announcement_with_other_terms_is_refused(change: dict[str, int], named: str) -> None:
    setup = setup_of(world_of())
    announced = setup._announcement(0, setup.known_cohort().proof(0))
    with pytest.raises(RemoteProtocolError, match=named):
        msgspec.structs.replace(announced, **change).setup(setup.parameters.model_digest)


def test_parties_elsewhere_and_members_that_restart(tmp_path: Path) -> None:
    world = world_of()
    setup = setup_of(world)
    model = setup.parameters.model_digest
    keys, stored = TokenFolder(tmp_path), dict[int, bytes]()

    def collect(messages: Any) -> Any:
        for index, data in messages:
            party = RemoteUploader(world.client(index), model, lambda _, i=index: update(i))  # type: ignore[misc]
            yield index, party.answer(data)

    def consult(stage: MemberStage, messages: Any) -> Any:
        for index, data in messages:
            key = setup.context.committee.members[index].identity
            member = world.committee.member(SESSION, key)
            if index in stored:
                member.resume(stored.pop(index), keys)
            remote = RemoteMember(member)
            yield index, remote.answer(data)
            if not remote.is_over:
                stored[index] = member.suspend(keys)

    remote = RemoteOneShotAggregator(collect, consult, world.committee.members)
    got = remote.run(setup)
    assert got.total.survivors == tuple(range(10)) and not stored
    mean = np.mean([update(i) for i in range(10)], axis=0)
    release = Pipeline(setup).decode(got.total)
    spread = 6.0 * release.noise_variance**0.5
    assert np.abs(release.update - mean).max() < spread


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"noise": Independent(exact=True)}, "exact"),
        ({"noise": Independent(mechanism="skellam")}, "mechanism"),
        ({"committee": Named(size=7, corrupt=1, away=2)}, "committee"),
    ],
    ids=["removable", "skellam", "few members"],
)
def test_what_cannot_be_planned_is_named(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(ParameterError) as raised:
        world_of(**changes)
    assert raised.value.argument == argument


def test_the_least_committee_of_an_error_is_large_enough() -> None:
    for corrupt in range(4):
        for away in range(4):
            with pytest.raises(ParameterError, match=r"(\d+) members or more") as raised:
                validated_numbers(2, corrupt, away)
            least = int(raised.value.valid.split(", ")[1].split()[0])
            numbers = validated_numbers(least, corrupt, away)
            assert numbers.per_polynomial >= 1
            with pytest.raises(ParameterError):
                validated_numbers(least - 1, corrupt, away)


class TestNoiseOfMembers:
    """Members add noise within a bound of their own, and take it back in the next round."""

    def world(self, **absences: Mapping[int, MemberStage]) -> ReturnedWorld:
        return ReturnedWorld(returned_plan(scheme=Validated(committee=NAMED)), **absences)

    def test_the_sums_are_those_of_the_ideal_functionality_but_for_errors(self) -> None:
        away = {0: {7: MemberStage.NOISE}, 1: {0: MemberStage.CHECK}, 2: {3: MemberStage.OPEN}}
        world, told = self.world(absences=away), tuple[RoundRecord, ...]()
        for number in range(3):
            setup, lost = world.setup(number, *told), {number: Stage.INPUT}
            got = world.real.run(setup, update, lost)
            world.of(setup)
            expected, twin = (
                world.ideal(of).run(setup, update, lost) for of in (remembered(world), noise_of)
            )
            assert got.total.survivors == expected.total.survivors
            assert got.record == expected.record and got.record is not None
            sums = [centre(each.total.vector) for each in (got, expected, twin)]
            deviation = (15 * setup.error_variance) ** 0.5
            assert np.abs(sums[0] - sums[1]).max() < 6.0 * deviation
            # The twin, members whose noise is another: about 5 deviations in each place.
            assert np.mean((sums[0] - sums[1]) ** 2) < (2.0 * deviation) ** 2
            assert np.mean((sums[0] - sums[2]) ** 2) > (2.0 * deviation) ** 2
            told = (*told, got.record)
        assert told[1].returned == (0, 1, 2, 3, 4, 5, 6)

    def test_a_plan_says_how_far_members_move_the_sum(self) -> None:
        world = self.world()
        priced = plan_deployment(world.plan, SketchSpec.identity(DIMENSION)).priced
        assert isinstance(priced, BoundChoice)
        context, parameters = world.setup().context, world.setup().parameters
        unit = parameters.scale * parameters.sketch_clip_l2
        assert priced.bound == pytest.approx(context.bound**0.5 / unit)
        assert priced.member_bound == pytest.approx(context.member_bound**0.5 / unit)
        assert priced.largest_shift == priced.bound + priced.member_bound
        # This round's noise and that of the round before, and errors in a whole block.
        assert parameters.returned is not None
        noise = DIMENSION, (2.0 * parameters.returned.variance + 6.4**2) ** 0.5
        rest = DEGREE - DIMENSION, 6.4
        assert context.member_bound == announced_bound(0.0, [noise, rest])
        # A member weighs as much as one corrupt client and one corrupt member together.
        assert (priced.left_out, priced.honest_signal) == (1, 6.0)

    def test_a_member_insists_on_the_bound_of_its_own_noise(self) -> None:
        world = self.world()
        setup = world.setup()
        assert isinstance(setup, ValidatedSetup)
        least = bounds_of(setup.parameters, least_bound)[1]
        data = world.member(2).add_noise(shorter(setup, member_bound=least).announce_to_member(2))
        assert len(data) > setup.vector_bytes
        low = shorter(setup, member_bound=least - 1)
        with pytest.raises(PolicyError, match=f"member_bound.*at least {least}"):
            world.member(3).add_noise(low.announce_to_member(3))

    @pytest.mark.parametrize(("factor", "kept"), [(0.92, True), (1.08, False)])
    def test_noise_beyond_the_bound_is_left_out(
        self, factor: float, kept: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Or it would complain itself of an upload in its name that it knows nothing of.
        world = self.world(absences={0: {7: MemberStage.CHECK}})
        setup = world.setup()
        assert isinstance(setup, ValidatedSetup)
        cheat, place = identity("member", 7), setup.context.invited + 7
        spike = np.zeros(DIMENSION, np.int64)
        # Errors are in the norm as well, and change it by 1.3 % for one deviation.
        errors = DEGREE * setup.error_variance
        spike[0] = int((factor * setup.context.member_bound - errors) ** 0.5)
        proof = setup.known_cohort().proof(place)
        data = upload_of_any_length(setup.context, place, cheat, proof, spike)
        adding = RoundMember._add_noise

        def added(member: RoundMember, announcement: bytes) -> bytes:
            made = adding(member, announcement)
            return data if member._identity.public == cheat.public else made

        monkeypatch.setattr(RoundMember, "_add_noise", added)
        got = world.real.run(setup, update, {})
        assert got.record is not None
        assert (7 in got.record.entered) is kept
        assert got.total.survivors == tuple(range(8))


def test_a_plan_says_how_far_colluders_move_the_sum() -> None:
    world = world_of()
    priced = plan_deployment(world.plan, SketchSpec.identity(DIMENSION)).priced
    assert isinstance(priced, BoundChoice)
    context, parameters = setup_of(world).context, setup_of(world).parameters
    unit = parameters.scale * parameters.sketch_clip_l2
    assert priced.bound == pytest.approx(context.bound**0.5 / unit)
    assert (priced.largest_shift, priced.left_out, priced.honest_signal) == (priced.bound, 0, 9.0)
    traffic = setup_of(world).traffic(10)
    got, sent = priced.bytes_each, traffic.each
    assert {**got, "announcement": 0} == {**sent, "announcement": 0}
    assert abs(got["announcement"] - sent["announcement"]) < 40


def test_a_run_costs_what_one_shot_rounds_cost(tmp_path: Path) -> None:
    spent = []
    for scheme in (Validated(committee=NAMED), OneShot(committee=NAMED)):
        noise = Independent(mechanism="discrete-gaussian")
        world = World(plan_of(CommitteeKind.NAMED, scheme=scheme, noise=noise))
        ledger = Ledger.open(tmp_path / f"{scheme.KIND}.jsonl")
        training = PrivateTraining(world.plan, DIMENSION, FixedRate(rate=1.0), world.real, ledger)
        for number in range(2):
            result = training.run_round(world.keys, bytes(32), update, {number: Stage.INPUT})
        spent.append(result.epsilons.server)
    # Noise is calibrated at another scale, to the same goal.
    assert spent[0] == pytest.approx(spent[1], rel=0.01)


def test_silence_is_paid_for_by_what_a_goal_sets_aside() -> None:
    setup = setup_of(world_of())
    goal = world_of().plan.goal
    setup.check_failure(goal)
    # Of ten clients together, not of one: each may cost a tenth of what is set aside.
    affordable = log(goal.reserve.aggregation) + 80 * log(2.0)
    setup.check_failure(replace(goal, epsilon=affordable - log(20.0)))
    with pytest.raises(PolicyError, match="silence costs"):
        setup.check_failure(replace(goal, epsilon=affordable - log(5.0)))
    with pytest.raises(PolicyError, match="silence costs"):
        setup.check_failure(replace(goal, epsilon=60.0))


def test_units_are_fine_beside_the_errors_that_stay() -> None:
    world = world_of()
    setup = setup_of(world)
    assert setup.error_variance == pytest.approx(6.4**2)
    assert setup.error_variance < 2.0 * world.plan.error_share * setup.parameters.mechanism.variance
    # What a release says of its noise has them in it.
    plain = replace(world.plan, scheme=OneShot(committee=NAMED))
    other = World(plain).setup()
    said = [Pipeline(each).noise_variance(10) for each in (setup, other)]
    assert said[0] == pytest.approx(said[1], rel=0.02)
    bare = setup.parameters.mechanism.variance * 10 / (10 * setup.parameters.scale) ** 2
    errors = (setup.error_variance + 1 / 6) * 10 / (10 * setup.parameters.scale) ** 2
    assert said[0] == pytest.approx(bare + errors)


def test_the_bound_covers_coins_that_are_off_their_mean() -> None:
    setup = setup_of(world_of(noise=Independent(mechanism="binomial")))
    mechanism = type(setup.parameters.mechanism)
    even, odd = (
        bounds_of(replace(setup.parameters, mechanism=mechanism(coins)), least_bound)[0]
        for coins in (1000, 1001)
    )
    more = bounds_of(replace(setup.parameters, mechanism=mechanism(1002)), least_bound)[0]
    # Half a unit in each coordinate, beside which one coin more is nothing.
    assert odd > more > even
