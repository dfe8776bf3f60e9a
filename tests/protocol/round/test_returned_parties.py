"""Members and clients of runs whose noise comes back: what they announce, join and refuse."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_shot_rounds import identity
from one_shot_worlds import DIGEST, SESSION, update
from returned_worlds import EVERYBODY, MEMBERS, ROUNDS, N, ReturnedWorld, changed, record

from dp.sampling.laws import MAX_VARIANCE
from protocol import ClientHistory
from protocol.errors import PolicyError
from protocol.round.field_size import bits_for, largest_sum
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.member_noise import LARGEST_GAP, MemberNoise, StoredMemberNoise, noise_vector
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup, WrittenReturns
from protocol.round.returned_noise import ReturnedNoise, likely_returning
from secagg import LocalProtocolError, ParameterError, RemoteProtocolError, centre
from secagg.field import FieldVector
from secagg.oneshot.messages import decode_upload
from secagg.oneshot.records import MAX_RECORDS, encode_records
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.transitions import MemberPhase
from secagg.storage import StoredStateError, TokenFolder
from tests.doubles.refused import refused

FUZZED = ReturnedWorld()
TOLD = FUZZED.setup(3, record(0), record(2, (0, 1, 2, 3, 7), (1,)))


@pytest.fixture
def world() -> ReturnedWorld:
    return ReturnedWorld()


# -- announcements --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "records", [(), (record(0),), (record(0), record(2, (0, 1, 2, 3, 7), (1,)))]
)
def test_an_announcement_is_read_back(world: ReturnedWorld, records: Any) -> None:
    setup = world.setup(3, *records)
    for index in (0, N - 1):
        read = OneShotAnnouncement.read(setup.announce(index))
        assert read.setup(DIGEST) == OneShotSetup(setup.context, setup.parameters)
        assert (read.index, read.encode()) == (index, setup.announce(index))
    for member in (0, MEMBERS - 1):
        read = OneShotAnnouncement.read(setup.announce_to_member(member))
        context = read.member_context()
        assert context == setup.context
        assert context.member_uploads == setup.context.member_uploads
        assert read.encoding(DIGEST) == setup.parameters
        key = setup.context.committee.members[member].identity
        assert context.is_invited(read.index, key, read.proof)


def test_what_is_announced_of_a_run_is_all_there_is(world: ReturnedWorld) -> None:
    setup = world.setup(3, record(0))
    written = WrittenReturns.of(setup)
    assert written is not None
    assert written.noise == setup.parameters.returned
    assert written.uploads(setup.parameters, MEMBERS) == setup.context.member_uploads


MALFORMED: dict[str, list[Any]] = {
    "variance": [0.0, -1.0, float("nan"), float("inf"), 1e300],
    "rounds": [0, 1 << 40],
    "divisor": [0, -8],
    "fewest": [4, 9, -1],
    "fewest_returning": [9, -1],
    "returning": [False],
    "records": [
        *(b"x", b""),
        encode_records([record(3)], MEMBERS),
        encode_records([record(1), record(0)], MEMBERS),
        encode_records([record(0, (0, 1))], MEMBERS),
        encode_records([record(0, clients=6)], MEMBERS),
        encode_records([record(0, clients=9)], MEMBERS),
        encode_records([record(0, returned=(1,))], MEMBERS),
    ],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_terms_are_refused(world: ReturnedWorld, name: str) -> None:
    setup = world.setup(3, record(0))
    for value in MALFORMED[name]:
        told = [
            changed(announced, returns={name: value})
            for announced in (setup.announce(0), setup.announce_to_member(0))
        ]
        for read in map(OneShotAnnouncement.read, told):
            for reading in (lambda read=read: read.setup(DIGEST), read.member_context):
                with pytest.raises(RemoteProtocolError):
                    reading()
        with pytest.raises(RemoteProtocolError):
            world.client(3 * N).join(told[0], DIGEST)
        with pytest.raises(RemoteProtocolError):
            world.member().add_noise(told[1])


def test_vectors_are_as_long_as_their_parameters_say(world: ReturnedWorld) -> None:
    """A member would draw noise of that length, whatever its policy says of longer ones."""
    setup = world.setup()
    with pytest.raises(RemoteProtocolError, match="length = 41: must be the sketch size 40"):
        world.member().add_noise(changed(setup.announce_to_member(0), length=41))
    world.member().add_noise(setup.announce_to_member(0))


@pytest.mark.parametrize("value", ["1", None, 1.5, [], {}])
def test_terms_of_another_type_are_refused(world: ReturnedWorld, value: Any) -> None:
    announcement = world.setup(3, record(0)).announce(0)
    for name in ("rounds", "fewest", "records", "returning"):
        with pytest.raises(RemoteProtocolError):
            OneShotAnnouncement.read(changed(announcement, returns={name: value}))


@settings(max_examples=150, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_any_bytes_are_an_announcement_or_refused(member: bool, changes: Any) -> None:
    """The last bytes are those of the run; nothing but our own errors comes out."""
    data = bytearray(TOLD.announce_to_member(0) if member else TOLD.announce(0))
    for place, byte in changes:
        data[-min(place, len(data))] = byte
    try:
        read = OneShotAnnouncement.read(bytes(data))
    except RemoteProtocolError:
        return
    for reading in (lambda: FUZZED.policy.check(read.setup(DIGEST)), read.member_context):
        with contextlib.suppress(RemoteProtocolError, PolicyError):
            reading()


@pytest.mark.parametrize("rounds", [1, 2, 11, 12, 13, 4096, 4097, MAX_RECORDS])
def test_a_client_refuses_runs_that_are_longer_than_planned(
    world: ReturnedWorld, rounds: int
) -> None:
    """Also those that nobody computes: what may still come back is charged up to the end."""
    announcement = changed(world.setup(0).announce(0), returns={"rounds": rounds})
    read = OneShotAnnouncement.read(announcement)
    told = changed(announcement, digest=read.encoding(DIGEST).digest())
    if rounds <= ROUNDS:
        world.client(0).join(told, DIGEST)
        return
    with refused(PolicyError, "epsilon"):
        world.client(0).join(told, DIGEST)


def test_a_client_takes_part_as_seldom_as_its_policy_says(world: ReturnedWorld) -> None:
    history = ClientHistory(world.policy.goal)
    client = world.client(0, history)
    client.join(world.setup(0).announce(0), DIGEST)
    client.submit(update(0))
    told = [record(0), record(1, EVERYBODY, EVERYBODY)]
    with refused(PolicyError, "apart"):
        world.client(0, history).join(world.setup(2, *told, cohort=0).announce(0), DIGEST)
    assert history.epsilon > 0.0


def test_records_of_more_rounds_than_the_run_has_are_refused(world: ReturnedWorld) -> None:
    """The last round of the run has T - 1 records before it."""
    told = [record(number) for number in range(ROUNDS)]
    last = world.setup(ROUNDS - 1, *told[:-1])
    assert last.run_events.index == ROUNDS
    with pytest.raises(ParameterError, match="the last that is planned for"):
        world.setup(ROUNDS, *told)


def test_a_setup_whose_block_is_of_other_parameters_is_refused(world: ReturnedWorld) -> None:
    with refused(ParameterError, "block"):
        world.setup(1, record(0), block=bytes(32))
    setup = world.setup(1, record(0))
    other = dataclasses.replace(setup.parameters, model_digest=b"m" * 32)
    assert other.block_digest() == setup.parameters.block_digest()
    for changes in (
        {"scale": setup.parameters.scale * 2},
        {"clip_l2": 2.0},
        {"returned": dataclasses.replace(setup.parameters.returned, rounds=13)},  # type: ignore[type-var]
        {"returned": dataclasses.replace(setup.parameters.returned, divisor=9)},  # type: ignore[type-var]
        {"returned": ReturnedNoise(variance=9.0, rounds=12, divisor=8)},
        {"returned": None},
    ):
        other = dataclasses.replace(setup.parameters, **changes)
        assert other.block_digest() != setup.parameters.block_digest()


@pytest.mark.parametrize(
    ("argument", "values"),
    [("variance", [0.0, float("nan"), "1"]), ("rounds", [0, 1.0]), ("divisor", [0, True])],
)
def test_noise_that_cannot_be_is_named(argument: str, values: list[Any]) -> None:
    for value in values:
        with refused(ParameterError, argument):
            ReturnedNoise(**{"variance": 9.0, "rounds": 12, "divisor": 8, argument: value})


def test_members_that_are_likely_to_take_back() -> None:
    """If in each of two rounds all but the fewest may be away, they may be others each time."""
    for members in range(1, 9):
        for fewest in range(members + 1):
            worst = min(
                len(set(range(fewest)) & set(range(start, start + fewest)))
                for start in range(members - fewest + 1)
            )
            assert likely_returning(members, fewest) == worst


# -- the field ------------------------------------------------------------------------------------


def test_the_field_holds_what_members_add_and_take_back(world: ReturnedWorld) -> None:
    parameters = world.setup().parameters
    assert parameters.returned is not None
    without = largest_sum(parameters, N)
    with_members = largest_sum(parameters, N, members=MEMBERS)
    # Both are cohort * linf plus so many standard deviations, by one tail bound.
    clients = N * parameters.mechanism.amount
    both = clients + 2 * MEMBERS * parameters.returned.variance
    plain = N * parameters.linf_bound
    ratio = (with_members - plain) / (without - plain)
    assert ratio == pytest.approx(np.sqrt(both / clients), rel=0.02)
    assert bits_for(parameters, N, members=MEMBERS) == world.setup().context.bits
    assert 2 * with_members < 1 << world.setup().context.bits


# -- members --------------------------------------------------------------------------------------


def submitted(world: ReturnedWorld, setup: OneShotSetup, member: RoundMember, index: int) -> Any:
    data = member.add_noise(setup.announce_to_member(index))
    return data, decode_upload(data, N + index, len(data))


def test_a_member_uploads_once_and_the_same_again(world: ReturnedWorld) -> None:
    setup, member = world.setup(), world.member()
    with pytest.raises(LocalProtocolError, match="uploaded nothing"):
        member.resend()
    data, message = submitted(world, setup, member, 0)
    assert member.resend() == data == member.resend()
    assert message.returns is False
    with pytest.raises(LocalProtocolError, match="already joined"):
        member.add_noise(setup.announce_to_member(0))
    for again in (world.member().add_noise, world.member().join):
        with refused(PolicyError, "round_number"):
            again(setup.announce_to_member(0))


def test_a_member_that_fails_once_it_has_entered_enters_no_other_round(
    world: ReturnedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.member()
    monkeypatch.setattr(MemberNoise, "add", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        member.add_noise(world.setup().announce_to_member(0))
    monkeypatch.undo()
    for enter in (member.add_noise, member.join):
        with pytest.raises(LocalProtocolError, match="already joined"):
            enter(world.setup(1).announce_to_member(0))
    world.member().add_noise(world.setup(1).announce_to_member(0))


def test_an_abort_while_a_member_joins_is_not_lost(
    world: ReturnedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = world.member()
    add = MemberNoise.add

    def aborts(*arguments: Any, **named: Any) -> Any:
        member.abort()
        return add(*arguments, **named)

    monkeypatch.setattr(MemberNoise, "add", aborts)
    member.add_noise(world.setup().announce_to_member(0))
    assert member.phase is MemberPhase.ABORTED


def test_the_default_policy_of_members_takes_the_noise_that_plans_may_have() -> None:
    policy = MemberPolicy(
        minimum_survivors=1,
        tolerated_colluders=0,
        corrupt=0,
        registry=frozenset([bytes(32), bytes(31) + b"1"]),
    )
    assert policy.largest_variance == MAX_VARIANCE


def uploaded(
    world: ReturnedWorld,
    setup: OneShotSetup,
    server: OneShotServer,
    members: dict[int, RoundMember],
) -> None:
    """All clients and these members upload."""
    for index in range(N):
        client = world.client(world.keys.index(setup.known_cohort().keys[index]))
        client.join(setup.announce(index), DIGEST)
        server.receive_upload(index, client.submit(update(index)))
    for index, member in members.items():
        server.receive_upload(N + index, member.add_noise(setup.announce_to_member(index)))


def play(world: ReturnedWorld, setup: OneShotSetup, members: dict[int, RoundMember]) -> Any:
    """A whole round of members alone in charge of their messages; gives its record and sum."""
    world.of(setup)
    server = OneShotServer(setup.context, setup.known_cohort())
    uploaded(world, setup, server, members)
    for _ in range(3):
        for index, data in dict(server.close_round_bytes()).items():
            if index in members:
                server.receive_from_member(index, members[index].receive(data))
    return server.record, server.open()


def test_a_member_that_comes_late_joins_without_noise(world: ReturnedWorld) -> None:
    """It missed the uploads, and checks and signs all the same."""
    setup = world.setup()
    late = world.member(7)
    late.join(setup.announce_to_member(7))
    assert late.has_joined
    # Its number is used up, for uploads as well.
    with pytest.raises(PolicyError):
        world.member(7).add_noise(setup.announce_to_member(7))


def test_a_late_member_complains_about_an_upload_in_its_name(world: ReturnedWorld) -> None:
    setup = world.setup()
    data = world.member(7).add_noise(setup.announce_to_member(7))
    # Another machine of the same member, which has lost its memory.
    other = world.member(7)
    policy, noise = world.committee.policy, MemberNoise()
    twin = RoundMember(other._identity, other._sealing, policy, ClientHistory(), noise=noise)
    twin.join(setup.announce_to_member(7))
    server = OneShotServer(setup.context, setup.known_cohort())
    server.receive_upload(N + 7, data)
    uploaded(world, setup, server, {index: world.member(index) for index in range(5)})
    sent = dict(server.close_round_bytes())
    server.receive_from_member(7, twin.receive(sent[7]))
    assert server._complaints[7] == {N + 7}


def _key(index: int) -> bytes:
    return identity("member", index).public


def policy_of(world: ReturnedWorld, **changes: Any) -> MemberPolicy:
    return dataclasses.replace(world.committee.policy, **changes)


def member_with(
    world: ReturnedWorld,
    policy: MemberPolicy | None = None,
    noise: MemberNoise | None = None,
    history: ClientHistory | None = None,
) -> RoundMember:
    known = world.member(0)
    return RoundMember(
        known._identity,
        known._sealing,
        policy or world.committee.policy,
        history or ClientHistory(),
        noise=noise,
    )


OWN: dict[str, Any] = {"policy": {}, "announced": lambda setup: setup.announce_to_member(0)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fewest_members", {"policy": {"fewest_members": 6}}),
        ("minimum_survivors", {"policy": {"minimum_survivors": 8}}),
        ("tolerated_colluders", {"policy": {"tolerated_colluders": 2}}),
        ("corrupt", {"policy": {"corrupt": 2}}),
        ("length", {"policy": {"largest_length": 39}}),
        ("variance", {"policy": {"largest_variance": 1.0}}),
        # It joins in its own place only.
        ("cohort", {"announced": lambda setup: setup.announce_to_member(1)}),
        ("cohort", {"announced": lambda setup: setup.announce_to_member()}),
        ("cohort", {"announced": lambda setup: changed(OWN["announced"](setup), proof=b"")}),
        # Nor does it without a memory of noise.
        ("returns", {"noise": None}),
    ],
)
def test_what_a_member_refuses_does_not_use_up_the_number(
    world: ReturnedWorld, name: str, changes: dict[str, Any]
) -> None:
    """All is looked at before the round is begun."""
    setup, history = world.setup(), ClientHistory()
    terms = {**OWN, "noise": MemberNoise(), **changes}
    policy = policy_of(world, **terms["policy"])
    for act in ("add_noise", "join"):
        refusing = member_with(world, policy, terms["noise"], history)
        with refused(PolicyError, name):
            getattr(refusing, act)(terms["announced"](setup))
    noise = terms["noise"] or MemberNoise()
    member_with(world, None, noise, history).add_noise(setup.announce_to_member(0))


@pytest.mark.parametrize("act", ["add_noise", "join"])
@pytest.mark.parametrize("number", [0, 2, LARGEST_GAP - 1])
def test_a_member_that_lost_its_memory_of_a_run_has_no_further_part(
    world: ReturnedWorld, act: str, number: int
) -> None:
    """Not even below the number that it signed for, nor with a list that has it."""
    setup, history = world.setup(1), ClientHistory()
    member_with(world, None, MemberNoise(), history).add_noise(setup.announce_to_member(0))
    noise = MemberNoise()
    for records in ((), (record(1),) if number > 1 else ()):
        again = member_with(world, None, noise, history)
        with refused(PolicyError, "returns"):
            getattr(again, act)(world.setup(number, *records).announce_to_member(0))
    assert not noise.has_begun(SESSION) and not history.has_entered(SESSION, [number])


def test_no_noise_goes_into_a_round_to_which_clients_alone_upload() -> None:
    """And the member can still sign for it."""
    world = ReturnedWorld()
    setup, noise, history = world.plain(), MemberNoise(), ClientHistory()
    policy = policy_of(world, fewest_members=0)
    with refused(PolicyError, "returns"):
        member_with(world, policy, noise, history).add_noise(setup.announce_to_member())
    member_with(world, policy, noise, history).join(setup.announce_to_member())


def test_what_a_member_uploads_depends_on_nothing_but_its_secrets(world: ReturnedWorld) -> None:
    """Fresh noise less that of the round before, as its memory says."""
    memory = world.committee
    setup = world.setup()
    found, _ = play(world, setup, {i: world.member(i) for i in EVERYBODY})
    later = world.setup(1, found)
    member = world.member(3)
    seen: list[FieldVector] = []
    inner = noise_vector

    def watched(*of: Any) -> FieldVector:
        seen.append(inner(*of))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("protocol.round.member.noise_vector", watched)
        _, message = submitted(world, later, member, 3)
    assert message.returns is True
    first, second = memory._noise[_key(3)]._read(SESSION).added
    assert (first.round_number, second.round_number) == (0, 1)
    assert first.seed != second.seed
    expected = inner(later.context.field, later.context.length, second, first)
    assert np.array_equal(seen[0].elements, expected.elements)
    variance = np.var(centre(seen[0]).astype(float))
    assert later.parameters.returned is not None
    # Forty draws of variance 2 V: within the chi-square tails at 1e-6.
    assert 0.25 < variance / (2 * later.parameters.returned.variance) < 2.6


# -- rounds that pass one another -----------------------------------------------------------------


class Stage:
    """A first round whose members have not got a message yet; and a second that has begun."""

    def __init__(self, world: ReturnedWorld, stage: int) -> None:
        self.setup = world.setup()
        self.server = OneShotServer(self.setup.context, self.setup.known_cohort())
        self.members = {i: world.member(i) for i in EVERYBODY}
        uploaded(world, self.setup, self.server, self.members)
        for _ in range(stage):
            for index, data in dict(self.server.close_round_bytes()).items():
                self.server.receive_from_member(index, self.members[index].receive(data))
        self.pending = dict(self.server.close_round_bytes())


@pytest.mark.parametrize("stored", [False, True])
def test_a_round_is_answered_after_a_later_one_was_begun(
    world: ReturnedWorld, tmp_path: Path, stored: bool
) -> None:
    """What was signed for stands in all lists that come, so its sum may still be opened."""
    stage = Stage(world, 2)
    told = stage.server.record
    assert told is not None
    keys, member = TokenFolder(tmp_path), stage.members[0]
    kept = member.suspend(keys) if stored else b""
    for index in EVERYBODY:
        world.member(index).add_noise(world.setup(1, told).announce_to_member(index))
    if stored:
        stage.members[0] = world.member(0)
        stage.members[0].resume(kept, keys)
    for index in EVERYBODY:
        stage.server.receive_from_member(index, stage.members[index].receive(stage.pending[index]))
    assert stage.server.open().survivors == tuple(range(N))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("stage", [0, 1])
def test_nothing_is_checked_or_signed_after_a_later_round_was_begun(
    world: ReturnedWorld, tmp_path: Path, stage: int, stored: bool
) -> None:
    pending = Stage(world, stage)
    member, keys = pending.members[0], TokenFolder(tmp_path)
    kept = member.suspend(keys) if stored else b""
    world.member(0).add_noise(world.setup(1).announce_to_member(0))
    with refused(PolicyError, "round_number"):
        if stored:
            world.member(0).resume(kept, keys)
        else:
            member.receive(pending.pending[0])
    assert member.phase is MemberPhase.ABORTED


def test_what_is_signed_for_is_remembered_before_the_signature_leaves(
    world: ReturnedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = Stage(world, 1)
    noise = world.committee._noise[_key(0)]

    def full(*_: Any) -> None:
        raise OSError("no space left on the disk")

    monkeypatch.setattr(noise, "_write", full)
    with pytest.raises(OSError, match="no space"):
        pending.members[0].receive(pending.pending[0])
    monkeypatch.undo()
    with pytest.raises(LocalProtocolError):
        pending.members[0].receive(pending.pending[0])
    pending.members[1].receive(pending.pending[1])
    assert world.committee._noise[_key(1)]._read(SESSION).records == 1
    assert noise._read(SESSION).records == 0


# -- stored rounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_stored_round_goes_on(world: ReturnedWorld, tmp_path: Path, stage: int) -> None:
    keys = TokenFolder(tmp_path / "keys")
    pending = Stage(world, stage)
    stored = pending.members[0].suspend(keys)
    again = world.member(0)
    again.resume(stored, keys)
    answer = again.receive(pending.pending[0])
    pending.server.receive_from_member(0, answer)
    if stage == 1:
        assert world.committee._noise[_key(0)]._read(SESSION).records == 1
    with pytest.raises(LocalProtocolError, match="uploaded nothing"):
        again.resend()


def test_a_member_without_a_memory_resumes_nothing_and_spoils_nothing(
    world: ReturnedWorld, tmp_path: Path
) -> None:
    keys = TokenFolder(tmp_path / "keys")
    pending = Stage(world, 1)
    stored = pending.members[0].suspend(keys)
    with pytest.raises((PolicyError, StoredStateError)):
        member_with(world).resume(stored, keys)
    again = world.member(0)
    again.resume(stored, keys)
    assert again.receive(pending.pending[0])


def test_a_member_goes_on_from_disk(world: ReturnedWorld, tmp_path: Path) -> None:
    setup = world.setup()
    with StoredMemberNoise(tmp_path) as noise:
        _, first = submitted(world, setup, member_with(world, None, noise), 0)
    later = world.setup(1, record(0))
    with StoredMemberNoise(tmp_path) as noise:
        # Nobody here has signed round 0; the list is believed, and the noise comes back.
        _, second = submitted(world, later, member_with(world, None, noise), 0)
    assert (first.returns, second.returns) == (False, True)
