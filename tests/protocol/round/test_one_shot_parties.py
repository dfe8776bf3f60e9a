"""What clients and members of one-shot rounds refuse, whatever a server announces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from one_shot_rounds import identity
from one_shot_worlds import DIGEST, SESSION, World, plan_of, update
from returned_worlds import HEAD, changed

from dp import LedgerError
from protocol import ClientHistory
from protocol.errors import PolicyError
from protocol.round.committee_policy import KEY_ROUNDS, CommitteePolicy
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup
from protocol.round.setup import RoundEncoding
from protocol.schemes.one_shot import one_shot_of
from secagg import (
    LocalProtocolError,
    ParameterError,
    RemoteProtocolError,
    SessionAbortedError,
)
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.context import fewest_survivors
from tests.doubles.refused import refused


def member_of(world: World, policy: MemberPolicy | None = None) -> RoundMember:
    """Member 0, with a history of its own."""
    who = identity("member", 0)
    if one_shot_of(world.plan).committee.KIND is CommitteeKind.EVERYONE:
        who = world.identities[0]
    return RoundMember(
        who, SealingKeys(who, SESSION), policy or world.member_policy, ClientHistory()
    )


@pytest.fixture(params=list(CommitteeKind), ids=lambda kind: kind.value)
def world(request: pytest.FixtureRequest) -> World:
    """A round of either kind."""
    return World(plan_of(request.param))


def test_an_announcement_is_read_back(world: World) -> None:
    setup = world.setup()
    for index in (0, 9):
        read = OneShotAnnouncement.read(setup.announce(index))
        assert read.setup(DIGEST) == OneShotSetup(setup.context, setup.parameters)
        assert read.index == index
    assert OneShotAnnouncement.read(setup.announce_to_member()).member_context() == setup.context


def test_a_client_uploads_once_and_may_send_it_again(world: World) -> None:
    client = world.client()
    with pytest.raises(LocalProtocolError, match="join a round first"):
        client.submit(update(0))
    announcement = world.setup().announce(0)
    client.join(announcement, DIGEST)
    with pytest.raises(LocalProtocolError, match="already joined"):
        client.join(announcement, DIGEST)
    sent = client.submit(update(0))
    assert client.resend() == sent
    with pytest.raises(LocalProtocolError):
        client.submit(update(1))


def test_an_upload_is_not_sent_again_before_it_is_charged() -> None:
    world = World(plan_of(CommitteeKind.NAMED))

    class Asked(ClientHistory):
        def charge(self, setup: RoundEncoding) -> None:
            other = pool.submit(client.resend)
            assert wait([other], timeout=0.1).not_done
            asked.append(other)
            with pytest.raises(LedgerError, match="already in use by this thread"):
                client.resend()
            super().charge(setup)

    asked: list[Future[bytes]] = []
    client = world.client(history=Asked(world.client_policy.goal))
    client.join(world.setup().announce(0), DIGEST)
    with ThreadPoolExecutor(1) as pool:
        sent = client.submit(update(0))
        assert asked[0].result() == sent


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"index": 1}, "cohort"),
        ({"index": -1}, "cohort"),
        ({"proof": b""}, "cohort"),
        ({"cohort_root": bytes(32)}, "cohort|committee"),
        ({"minimum_survivors": 7}, "tolerated_dropouts|minimum_survivors"),
        ({"corrupt": 0}, "corrupt"),
        ({"quorum": 3}, "quorum"),
        ({"randomness": 0}, "randomness"),
        ({"kind": "somebody"}, "somebody"),
        ({"degree": 512}, "ring"),
        ({"limbs": 9}, "limbs"),
        ({"members": b"x"}, "list of members"),
        ({"entries": 9}, "entries"),
    ],
)
def test_a_client_refuses_other_terms(world: World, change: dict[str, Any], argument: str) -> None:
    announcement = changed(world.setup().announce(0), **change)
    with pytest.raises((PolicyError, RemoteProtocolError), match=argument):
        world.client().join(announcement, DIGEST)


@pytest.mark.parametrize("cut", [0, 3, HEAD, HEAD + 1, -1])
def test_what_is_no_announcement_is_refused(world: World, cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        OneShotAnnouncement.read(world.setup().announce(0)[:cut])


def test_bytes_that_are_no_text_are_refused(world: World) -> None:
    data = world.setup().announce(0)
    kind = one_shot_of(world.plan).committee.KIND.value.encode()
    assert kind in data
    with pytest.raises(RemoteProtocolError):
        OneShotAnnouncement.read(data.replace(kind, b"\xff" * len(kind)))


def small(committee: Any) -> Any:
    """Two of the members, within the theorem."""
    return dataclasses.replace(
        committee, members=committee.members[:2], randomness=1, per_polynomial=1, quorum=2
    )


def long_lived(committee: Any) -> Any:
    """A sealing key that is erased one round later than the policy allows."""
    first = SealingKeys(identity("member", 0), SESSION, rounds=KEY_ROUNDS + 1).entry
    return dataclasses.replace(committee, members=(first, *committee.members[1:]))


@pytest.mark.parametrize(
    ("change", "argument"), [(small, "threshold"), (long_lived, "sealing_key")]
)
def test_a_client_insists_on_the_size_and_the_keys_of_its_committee(
    change: Callable[[Any], Any], argument: str
) -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    setup = world.setup()
    committee = change(setup.context.committee)
    other = dataclasses.replace(setup.context, committee=committee)
    with refused(PolicyError, argument):
        world.client_policy.check(OneShotSetup(other, setup.parameters, setup.cohort))


def test_corrupt_members_of_everyone_are_corrupt_clients() -> None:
    """Else four corrupt clients and one honest one make a sum of five, within the policy."""
    world = World(plan_of(CommitteeKind.EVERYONE))
    setup = world.setup()
    committee = dataclasses.replace(setup.context.committee, corrupt=1)
    context = dataclasses.replace(
        setup.context,
        committee=committee,
        tolerated_colluders=0,
        minimum_survivors=max(fewest_survivors(10, 0), 8),
        removal=(),
    )
    policy = CommitteePolicy(kind=CommitteeKind.EVERYONE, corrupt=1)
    policy.check_committee(setup.context)
    with pytest.raises(PolicyError, match="corrupt"):
        policy.check_committee(context)
    bold = dataclasses.replace(world.member_policy, tolerated_colluders=0)
    announcement = changed(setup.announce_to_member(), tolerated_colluders=0, removable=False)
    with pytest.raises(PolicyError, match="tolerated_colluders"):
        member_of(world, bold).join(announcement)


def test_a_client_without_a_clock_takes_no_round_that_must_expire(world: World) -> None:
    policy = dataclasses.replace(world.client_policy, largest_lifetime_seconds=60)
    with pytest.raises(ParameterError, match="clock"):
        world.client(policy=policy)
    with pytest.raises(PolicyError, match="lifetime_seconds"):
        world.client(policy=policy, clock=lambda: 0.0).join(world.setup().announce(0), DIGEST)


def test_a_policy_with_a_goal_needs_a_history_that_counts_against_it(world: World) -> None:
    with pytest.raises(ParameterError, match="history"):
        OneShotRoundClient(world.identities[0], frozenset(world.keys), world.client_policy)


def test_strangers_in_a_cohort_of_everyone_are_refused() -> None:
    world = World(plan_of(CommitteeKind.EVERYONE))
    client = OneShotRoundClient(
        world.identities[0],
        frozenset(world.keys[:-1]),
        world.client_policy,
        ClientHistory(world.client_policy.goal),
    )
    with pytest.raises(PolicyError, match="1 unregistered"):
        client.join(world.setup().announce(0), DIGEST)


@pytest.mark.parametrize(
    ("name", "value"),
    [("minimum_survivors", 9), ("tolerated_colluders", 2), ("corrupt", 2)],
)
def test_a_member_insists_on_its_own_figures(world: World, name: str, value: int) -> None:
    policy = dataclasses.replace(world.member_policy, **{name: value})
    with pytest.raises(PolicyError, match=name):
        member_of(world, policy).join(world.setup().announce_to_member())


def test_a_member_signs_for_a_number_once(world: World) -> None:
    setup = world.setup()
    who = setup.context.committee.members[0].identity
    member, again = (world.committee.member(SESSION, who) for _ in range(2))
    member.join(setup.announce_to_member())
    with pytest.raises(LocalProtocolError, match="already joined"):
        member.join(setup.announce_to_member())
    with pytest.raises(PolicyError, match="not signed for before"):
        again.join(setup.announce_to_member())


def test_a_member_of_another_committee_is_refused(world: World) -> None:
    who = identity("nobody", 0)
    policy = dataclasses.replace(world.member_policy)
    stranger = RoundMember(who, SealingKeys(who, SESSION), policy, ClientHistory())
    with pytest.raises(PolicyError, match="without this member"):
        stranger.join(world.setup().announce_to_member())
    with pytest.raises(LocalProtocolError, match="join a round first"):
        stranger.receive(b"")


def test_a_member_that_leaves_forgets_what_it_opened(world: World) -> None:
    setup = world.setup()
    member = world.committee.member(SESSION, setup.context.committee.members[0].identity)
    member.abort()
    member.join(setup.announce_to_member())
    member.abort()
    with pytest.raises(SessionAbortedError):
        member.receive(b"anything")


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"kind": CommitteeKind.EVERYONE, "named": [bytes(32)]}, "named"),
        ({"kind": CommitteeKind.NAMED}, "named"),
        ({"kind": CommitteeKind.NAMED, "named": [b"short"]}, "named"),
        ({"corrupt": -1}, "corrupt"),
        ({"corrupt": 1.0}, "corrupt"),
        ({"smallest_threshold": 1}, "smallest_threshold"),
        ({"largest_key_rounds": 0}, "largest_key_rounds"),
        ({"largest": 0}, "largest"),
    ],
)
def test_infeasible_committee_policies(changes: dict[str, Any], argument: str) -> None:
    with refused(ParameterError, argument):
        CommitteePolicy(**{"kind": CommitteeKind.EVERYONE, "corrupt": 1, **changes})


def test_infeasible_member_policies() -> None:
    registry = frozenset([bytes(32), bytes([1]) * 32])
    good = {"minimum_survivors": 3, "tolerated_colluders": 1, "corrupt": 1, "registry": registry}
    wrong = {"minimum_survivors": -1, "corrupt": 1.5, "registry": frozenset()}
    for name, value in {**wrong, "largest_variance": 0.0}.items():
        with refused(ParameterError, name):
            MemberPolicy(**{**good, name: value})  # type: ignore[arg-type]
