"""Drawn committees as clients see them, and as the server makes them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_shot_rounds import identity
from one_shot_worlds import DIGEST, DIMENSION, SESSION, World, plan_of, update
from returned_worlds import HEAD

from dp import Ledger
from protocol import ClientPolicy, PrivacyGoal
from protocol.errors import PolicyError
from protocol.exchange.one_shot import LocalCommittee
from protocol.planning.configuration import DrawnTable
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import DrawPolicy
from protocol.round.lottery import DrawnMembers, Lottery
from protocol.round.member import SealingKeys
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup, WrittenDraw
from protocol.schemes.committee import Drawn
from protocol.schemes.one_shot import draw_policy, local_committee, one_shot_of, one_shot_setup
from protocol.schemes.scheme import KeyHolders
from protocol.training.charged_sums import MOST_DRAWS, ChargedSums
from protocol.training.local import local_aggregator
from secagg import LocalProtocolError, ParameterError, RemoteProtocolError, TooFewSurvivorsError
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.draw_bound import BITS_WITH_BEACON, BITS_WITHOUT_BEACON, corrupt_bound
from secagg.oneshot.sortition import CERTAIN, Places, Registry, ticket
from sketch import SketchSpec
from tests.doubles.refused import refused

ROOT = bytes(range(32))
HALF = CERTAIN // 2
SIZE, REGISTERED = 8, 30


def beacon_of(session_id: bytes, number: int) -> bytes:
    """A beacon that the server cannot move by its choice of a session."""
    del session_id
    return hashlib.sha256(b"beacon %d" % number).digest()


def policy_of(**changes: Any) -> DrawPolicy:
    terms: dict[str, Any] = {
        "registry_root": ROOT,
        "registry_size": REGISTERED,
        "odds": HALF,
        "corrupt_identities": 1,
        "smallest": SIZE,
    }
    return DrawPolicy(**{**terms, **changes})


def drawn_by(**changes: Any) -> CommitteePolicy:
    return CommitteePolicy(**{"kind": CommitteeKind.DRAWN, "draw": policy_of(), **changes})


def planned(**changes: Any) -> Drawn:
    return Drawn(**{"size": 8, "corrupt": 1, "away": 1, "odds": 0.5, **changes})


def registered(count: int = REGISTERED) -> Registry:
    return Registry([identity("member", i).public for i in range(count)])


@lru_cache(maxsize=1)
def entries() -> tuple[Member, ...]:
    return tuple(
        SealingKeys(identity("member", i), SESSION, rounds=10).entry for i in range(REGISTERED)
    )


def among(some: Iterable[Member]) -> Callable[[bytes], Member | None]:
    """Whose entries the server has."""
    return {each.identity: each for each in some}.get


def seated(number: int = 0, **changes: Any) -> DrawnMembers:
    """Who is seated in a round, of thirty."""
    terms: dict[str, Any] = {"registry": registered(), "odds": HALF, "size": SIZE}
    return Lottery(**{**terms, **changes}).seat(SESSION, number, among(entries()))


class Announced:
    """A round of ten clients whose committee is drawn from thirty others, with its policy."""

    def __init__(self, drawn: DrawnMembers | None = None, **changes: Any) -> None:
        self.drawn = drawn or seated()
        base = WORLD.setup()
        numbers: dict[str, Any] = {
            "kind": CommitteeKind.DRAWN,
            "members": self.drawn.members,
            "draw": self.drawn.draw,
        }
        committee = dataclasses.replace(base.context.committee, **{**numbers, **changes})
        self.context: OneShotContext = dataclasses.replace(base.context, committee=committee)
        self.setup = OneShotSetup(self.context, base.parameters, base.cohort, self.drawn.places)

    def check(self, places: Places | None = None, **changes: Any) -> None:
        """Hold it against a policy that it meets unless changed."""
        policy = policy_of(**{"registry_root": registered().root, **changes})
        CommitteePolicy(kind=CommitteeKind.DRAWN, draw=policy).check_committee(
            self.context, places or self.drawn.places
        )


WORLD = World(plan_of(CommitteeKind.DRAWN))
ANNOUNCED = Announced()


# -- what a client refuses ----------------------------------------------------------------------


def test_a_draw_within_the_policy_is_accepted() -> None:
    ANNOUNCED.check()
    read = OneShotAnnouncement.read(ANNOUNCED.setup.announce(0)).setup(DIGEST)
    assert read.context == ANNOUNCED.context
    assert read.places == ANNOUNCED.drawn.places


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"registry_root": ROOT}, "registry_root"),
        ({"registry_size": REGISTERED + 1}, "registry_size"),
        ({"odds": HALF - 1}, "odds"),
        ({"odds": HALF + 1}, "odds"),
        ({"beacon_of": beacon_of}, "beacon"),
        ({"smallest": SIZE + 1}, "committee"),
        ({"corrupt_identities": 2}, "corrupt"),
    ],
)
def test_a_draw_by_other_terms_is_refused(changes: dict[str, Any], parameter: str) -> None:
    with refused(PolicyError, parameter):
        ANNOUNCED.check(**changes)


def test_a_committee_of_another_kind_is_refused() -> None:
    named = Announced(kind=CommitteeKind.NAMED, draw=None)
    with pytest.raises(PolicyError, match="drawn only"):
        named.check()
    with pytest.raises(PolicyError, match="drawn only"):
        policy_of().check(named.context, None)


def test_a_stranger_with_a_low_ticket_is_refused() -> None:
    """It is a candidate by its ticket, under the client's own root, but it is not registered."""
    drawn = seated()
    seed = drawn.draw.seed(SESSION, 0)
    own = (identity("server", i) for i in range(100))
    stranger = next(each for each in own if ticket(seed, each.public) < HALF)
    members = (*drawn.members[:-1], SealingKeys(stranger, SESSION, rounds=10).entry)
    announced = Announced(members=members)
    with pytest.raises(PolicyError, match="stranger"):
        announced.check()
    # Nor does a proof under another root help, whoever is in it.
    others = Registry([each.identity for each in members])
    with pytest.raises(PolicyError, match="stranger"):
        announced.check(others.places([each.identity for each in members]))


def test_a_member_that_may_no_longer_be_drawn_is_refused() -> None:
    keys = [each.identity for each in ANNOUNCED.drawn.members]
    draw = policy_of(registry_root=registered().root)
    drawn_by(draw=draw, named=keys).check(ANNOUNCED.setup)
    with pytest.raises(PolicyError, match="no member that was revoked"):
        drawn_by(draw=draw, named=keys[1:]).check(ANNOUNCED.setup)


def test_a_registry_of_those_who_checked_in_is_refused() -> None:
    own = Registry([each.identity for each in seated().members])
    some = [each for each in entries() if each.identity in own.keys]
    drawn = Lottery(own, CERTAIN - 1, SIZE).seat(SESSION, 0, among(some))
    with pytest.raises(PolicyError, match="registry_root"):
        Announced(drawn).check()
    with pytest.raises(PolicyError, match="odds"):
        Announced(drawn).check(registry_root=own.root, registry_size=SIZE)
    Announced(drawn).check(registry_root=own.root, registry_size=SIZE, odds=CERTAIN - 1)


def test_places_are_needed_and_must_be_those_of_the_members() -> None:
    draw, places = policy_of(registry_root=registered().root), ANNOUNCED.drawn.places
    moved = Places(tuple(each + 1 for each in places.positions), places.proof)
    for wrong in (None, moved, Places(places.positions, bytes(len(places.proof)))):
        with pytest.raises(PolicyError, match="stranger"):
            draw.check(ANNOUNCED.context, wrong)


def test_members_come_in_the_order_of_the_registry() -> None:
    drawn = seated()
    announced = Announced(members=drawn.members[::-1])
    with pytest.raises(PolicyError, match="in its order"):
        announced.check()


def test_a_beacon_is_the_clients_own() -> None:
    drawn = seated(beacon_of=beacon_of)
    announced = Announced(drawn)
    announced.check(beacon_of=beacon_of)
    with pytest.raises(PolicyError, match="beacon"):
        announced.check()
    with pytest.raises(PolicyError, match="beacon"):
        announced.check(beacon_of=lambda session, number: beacon_of(session, number + 1))
    with pytest.raises(ParameterError, match="beacon_of"):
        announced.check(beacon_of=lambda session, number: b"")


def test_with_a_beacon_fewer_bits_are_enough() -> None:
    many = {"registry_size": 10_000, "odds": CERTAIN // 100, "corrupt_identities": 500}
    without, having = policy_of(**many), policy_of(**many, beacon_of=beacon_of)
    assert (without.bits, having.bits) == (BITS_WITHOUT_BEACON, BITS_WITH_BEACON)
    assert without.corrupt == corrupt_bound(500, CERTAIN // 100, 128)
    assert having.corrupt == corrupt_bound(500, CERTAIN // 100, 64) < without.corrupt


def test_what_draws_may_fail_with_is_a_part_of_delta() -> None:
    """All rounds of a goal set a hundredth of it aside, and draws may fail once in all of them."""
    draws = policy_of(beacon_of=beacon_of)
    assert draws.failure == 2.0**-40
    assert policy_of().failure == 2.0**-68
    committee = drawn_by(draw=draws)

    def policy(delta: float, committee: CommitteePolicy) -> ClientPolicy:
        goal = PrivacyGoal(8.0, delta, 3)
        return ClientPolicy(minimum_noise_multiplier=0.0, goal=goal, schemes=(committee,))

    assert policy(1.01e-10, committee)
    with refused(ParameterError, "security_bits"):
        policy(0.9e-10, committee)
    more = policy_of(beacon_of=beacon_of, security_bits=80)
    assert policy(0.9e-10, drawn_by(draw=more))
    assert policy(0.9e-10, drawn_by())


@pytest.mark.parametrize(
    ("make", "changes", "argument"),
    [
        (policy_of, {"registry_root": b""}, "registry_root"),
        (policy_of, {"odds": 0}, "odds"),
        (policy_of, {"corrupt_identities": REGISTERED + 1}, "corrupt_identities"),
        (policy_of, {"corrupt_identities": -1}, "corrupt_identities"),
        (policy_of, {"smallest": 0}, "smallest"),
        (policy_of, {"security_bits": 127}, "security_bits"),
        (policy_of, {"security_bits": 63, "beacon_of": beacon_of}, "security_bits"),
        (policy_of, {"security_bits": 64.0, "beacon_of": beacon_of}, "security_bits"),
        (drawn_by, {"draw": None}, "draw"),
        (drawn_by, {"kind": CommitteeKind.NAMED, "named": [bytes(32)], "corrupt": 1}, "draw"),
        (drawn_by, {"kind": CommitteeKind.EVERYONE, "corrupt": 1}, "draw"),
        (drawn_by, {"named": [b"short"]}, "named"),
        (drawn_by, {"corrupt": 1}, "corrupt"),
        (CommitteePolicy, {"kind": CommitteeKind.EVERYONE}, "corrupt"),
        (planned, {"odds": None}, "odds"),
        (planned, {"odds": 0.0}, "odds"),
        (planned, {"odds": 1.0}, "odds"),
        (planned, {"odds": float("nan")}, "odds"),
        (planned, {"odds": 1}, "odds"),
        (planned, {"size": None}, "size"),
        (planned, {"corrupt": None}, "corrupt"),
    ],
)
def test_policies_and_plans_that_cannot_be(
    make: Callable[..., object], changes: dict[str, Any], argument: str
) -> None:
    with refused(ParameterError, argument):
        make(**changes)


def test_rules_in_a_file_are_those_of_a_plan_whose_bits_a_file_can_say() -> None:
    """Else clients would insist on less than was planned for, or on more than is announced."""
    rare = planned(size=14, corrupt=3, odds=2.0**-60, security_bits=BITS_WITHOUT_BEACON)
    plan = plan_of(CommitteeKind.DRAWN, committee=rare)
    rules = plan.scheme.rules(plan)["committee"]
    assert one_shot_of(plan).numbers(plan).corrupt == 2
    assert (rules["corrupt"], rules["size"], rules["odds"]) == (3, 14, 2.0**-60)
    for bits in (BITS_WITHOUT_BEACON - 1, BITS_WITHOUT_BEACON + 1):
        plan = plan_of(CommitteeKind.DRAWN, committee=planned(security_bits=bits))
        with refused(ParameterError, "security_bits"):
            plan.scheme.rules(plan)


def test_as_many_clients_are_corrupt_in_draws_as_in_cohorts() -> None:
    """Both are of one registry, where parties are elsewhere."""
    for corrupt, refuses in ((1, False), (0, True)):
        plan = plan_of(CommitteeKind.DRAWN, committee=planned(corrupt=corrupt))
        keys, scheme = registered().keys, one_shot_of(plan)
        for make in (scheme.draw, partial(scheme.key_holders, named=())):
            with refused(ParameterError, "corrupt") if refuses else nullcontext():
                make(plan, registry=keys)


def test_who_is_away_is_seated_only_where_too_few_are_connected() -> None:
    keys, lottery = registered().keys, Lottery(registered(), HALF, SIZE)
    holders = KeyHolders(frozenset(keys), SIZE, lottery=lottery)
    known = {each.identity: each for each in entries()}
    first = seated().members[0].identity
    here = set(keys) - {first}
    assert holders.members(SESSION, (), 0, known, ()) == seated()
    others = holders.members(SESSION, (), 0, known, here)
    assert isinstance(others, DrawnMembers)
    assert here.issuperset(each.identity for each in others.members)


def test_the_bound_on_corrupt_members_is_the_draws() -> None:
    policy = drawn_by(draw=policy_of(corrupt_identities=3))
    assert policy.most_corrupt == 3
    everyone = CommitteePolicy(kind=CommitteeKind.EVERYONE, corrupt=2)
    assert everyone.most_corrupt == 2


# -- announcements ------------------------------------------------------------------------------


def announced_with(**changes: Any) -> bytes:
    """An announcement with other words about the draw."""
    data = ANNOUNCED.setup.announce(0)
    read = OneShotAnnouncement.read(data)
    assert read.draw is not None
    draw = msgspec.structs.replace(read.draw, **changes)
    return data[:HEAD] + msgspec.msgpack.encode(msgspec.structs.replace(read, draw=draw))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("registry_root", [bytes(31)]),
        ("registry_size", [0, -1, 1 << 33]),
        ("odds", [0, -1]),
        ("beacon", [bytes(31), bytes(33)]),
        ("positions", [b"", *(bytes(4 * SIZE + more) for more in (0, -1, 4))]),
        ("positions", [b"".join(bytes([SIZE - i, 0, 0, 0]) for i in range(SIZE))]),
        ("proof", [bytes(31)]),
    ],
)
def test_malformed_draws_are_refused(name: str, values: list[Any]) -> None:
    for value in values:
        read = OneShotAnnouncement.read(announced_with(**{name: value}))
        with pytest.raises(RemoteProtocolError):
            read.setup(DIGEST)


@pytest.mark.parametrize("last", [-1, None])
def test_positions_have_one_length(last: int | None) -> None:
    """The last byte of the last position is zero: without it the number would be the same."""
    right = WrittenDraw.of(ANNOUNCED.context.committee, ANNOUNCED.drawn.places)
    assert right is not None and right.positions[-1] == 0
    wrong = right.positions[:last] if last else right.positions + bytes(3) + b"1"
    read = OneShotAnnouncement.read(announced_with(positions=wrong))
    with pytest.raises(RemoteProtocolError, match="one for each"):
        read.setup(DIGEST)


@pytest.mark.parametrize("field", ["odds", "registry_size"])
def test_numbers_beyond_64_bits_are_refused(field: str) -> None:
    data = announced_with(**{field: (1 << 64) - 1})
    changed = data.replace(b"\xcf" + b"\xff" * 8, b"\xca" + b"\xff" * 4)
    with pytest.raises(RemoteProtocolError):
        OneShotAnnouncement.read(changed).setup(DIGEST)


def test_a_draw_goes_with_a_drawn_committee_only() -> None:
    data = ANNOUNCED.setup.announce(0)
    read = OneShotAnnouncement.read(data)
    for changes in ({"draw": None}, {"kind": "named"}, {"kind": "everyone"}):
        changed = msgspec.structs.replace(read, **changes)
        with pytest.raises(RemoteProtocolError):
            changed.setup(DIGEST)
        with pytest.raises(RemoteProtocolError):
            changed.member_context()


def test_an_announcement_needs_the_places_of_drawn_members_only() -> None:
    announced = ANNOUNCED
    with pytest.raises(LocalProtocolError, match="places"):
        dataclasses.replace(announced.setup, places=None).announce(0)
    named = World(plan_of(CommitteeKind.NAMED)).setup()
    assert OneShotAnnouncement.read(named.announce(0)).draw is None
    with pytest.raises(LocalProtocolError, match="places"):
        dataclasses.replace(named, places=announced.drawn.places).announce(0)


@given(data=st.data())
def test_changed_bytes_are_refused_or_the_same_draw(data: st.DataObject) -> None:
    """Whatever a server sends, a client takes its own draw or raises a typed error."""
    sent = ANNOUNCED.setup.announce(0)
    read = OneShotAnnouncement.read(sent)
    assert read.draw is not None
    written = msgspec.msgpack.encode(read.draw)
    at = sent.rindex(written) + data.draw(st.integers(0, len(written) - 1))
    changed = sent[:at] + bytes([sent[at] ^ data.draw(st.integers(1, 255))]) + sent[at + 1 :]
    policy = policy_of(registry_root=ANNOUNCED.drawn.draw.registry_root)
    try:
        setup = OneShotAnnouncement.read(changed).setup(DIGEST)
        policy.check(setup.context, setup.places)
    except (RemoteProtocolError, PolicyError):
        return
    # Only the length of a length can be written in another way.
    assert setup.places == ANNOUNCED.drawn.places
    assert setup.context == ANNOUNCED.context


# -- the server's half --------------------------------------------------------------------------


def test_the_lowest_tickets_that_are_there_are_seated() -> None:
    lottery = Lottery(registered(), HALF, SIZE)
    seed = lottery.draw(SESSION, 0).seed(SESSION, 0)
    candidates = lottery.candidates(SESSION, 0)
    tickets = [ticket(seed, key) for key in candidates]
    assert tickets == sorted(tickets) and max(tickets) < HALF
    others = set(registered().keys) - set(candidates)
    assert others and min(ticket(seed, key) for key in others) >= HALF
    drawn = lottery.seat(SESSION, 0, among(entries()))
    assert {each.identity for each in drawn.members} == set(candidates[:SIZE])
    assert list(drawn.places.positions) == sorted(drawn.places.positions)
    assert drawn.places.hold(drawn.draw, [each.identity for each in drawn.members])


def test_whoever_comes_late_waits() -> None:
    lottery = Lottery(registered(), HALF, SIZE)
    first = lottery.candidates(SESSION, 0)[0]
    late = [each for each in entries() if each.identity != first]
    without = lottery.seat(SESSION, 0, among(late))
    assert first not in {each.identity for each in without.members}
    assert len(without.members) == SIZE


@pytest.mark.parametrize("rounds", [None, (0, 1), (6, 3)], ids=["away", "old", "early"])
def test_too_few_candidates_are_a_typed_error(rounds: tuple[int, int] | None) -> None:
    """Whoever is not there, or has a key for other rounds only, is not seated."""
    lottery, number = Lottery(registered(), HALF, SIZE), 5
    there = lottery.candidates(SESSION, number)[: SIZE - 1]
    some = [each for each in entries() if each.identity in there]
    if rounds is not None:
        others = (identity("member", i) for i in range(REGISTERED))
        some += [
            SealingKeys(each, SESSION, *rounds).entry for each in others if each.public not in there
        ]
    with pytest.raises(TooFewSurvivorsError) as raised:
        lottery.seat(SESSION, number, among(some))
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == ("draw", 7, SIZE)


BAD: dict[str, Callable[[Member, Member], Member]] = {
    "unsigned": lambda entry, _: dataclasses.replace(entry, signature=bytes(64)),
    "short": lambda entry, _: dataclasses.replace(entry, signature=b"", sealing_key=b""),
    "small order": lambda entry, _: dataclasses.replace(entry, sealing_key=bytes(32)),
    "another's": lambda _, other: other,
    "unbounded": lambda entry, _: dataclasses.replace(entry, last_round=1 << 63),
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_an_entry_that_no_committee_can_have_is_passed_over(
    spoil: Callable[[Member, Member], Member],
) -> None:
    """It ended every round that its owner is drawn for."""
    lottery, known = Lottery(registered(), HALF, SIZE), {each.identity: each for each in entries()}
    first, *others = lottery.candidates(SESSION, 0)
    known[first] = spoil(known[first], known[others[0]])
    drawn = lottery.seat(SESSION, 0, known.get)
    assert {each.identity for each in drawn.members} == set(others[:SIZE])
    Announced(drawn)


def test_of_two_with_one_sealing_key_the_first_is_seated() -> None:
    lottery, known = Lottery(registered(), HALF, SIZE), {each.identity: each for each in entries()}
    first, second, *others = lottery.candidates(SESSION, 0)
    (copier,) = (i for i in range(REGISTERED) if identity("member", i).public == second)
    key = known[first].sealing_key
    known[second] = Member.sign(identity("member", copier), SESSION, key, 0, 9)
    drawn = lottery.seat(SESSION, 0, known.get)
    assert {each.identity for each in drawn.members} == {first, *others[: SIZE - 1]}
    Announced(drawn)


def test_a_number_with_too_few_candidates_is_passed_over(tmp_path: Path) -> None:
    """Without a beacon the same number would draw the same candidates, for ever."""
    plan = plan_of(
        CommitteeKind.DRAWN,
        committee=Drawn(size=8, corrupt=1, away=1, odds=0.8),
    )
    identities = [identity("client", i) for i in range(10)]
    committee = local_committee(plan, identities)
    assert committee.lottery is not None
    drawn = [len(committee.lottery.candidates(SESSION, number)) for number in range(8)]
    number = next(i for i in range(7) if drawn[i] < 8 <= drawn[i + 1])
    aggregator = local_aggregator(plan, identities, DIMENSION, committee=committee)
    keys = [each.public for each in identities]
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        sums = ChargedSums(plan, aggregator, ledger, SESSION, attempts=number)
        setup = sums.setup(SketchSpec.identity(DIMENSION), keys, DIGEST)
        assert setup.context.round_number == number + 1
        outcome = sums.run(setup, 0, update)
        assert len(outcome.total.survivors) == 10
        assert sums.attempts == number + 2


def test_numbers_do_not_run_for_ever(tmp_path: Path) -> None:
    committee = Drawn(size=8, corrupt=1, away=1, odds=1e-6)
    plan = plan_of(CommitteeKind.DRAWN, committee=committee)
    identities = [identity("client", i) for i in range(10)]
    aggregator = local_aggregator(plan, identities, DIMENSION)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        sums = ChargedSums(plan, aggregator, ledger, SESSION)
        with pytest.raises(TooFewSurvivorsError, match="draw"):
            sums.setup(SketchSpec.identity(DIMENSION), [i.public for i in identities], DIGEST)
        assert sums.attempts == MOST_DRAWS


def test_rounds_with_a_beacon() -> None:
    """The registry is that of the clients, and all parties ask the same source."""
    plan = plan_of(
        CommitteeKind.DRAWN,
        committee=Drawn(size=8, corrupt=1, away=1, odds=0.97, security_bits=64),
    )
    identities = [identity("client", i) for i in range(10)]
    with pytest.raises(ParameterError, match="security_bits"):
        local_aggregator(plan, identities, DIMENSION)
    committee = local_committee(plan, identities, beacon_of=beacon_of)
    aggregator = local_aggregator(plan, identities, DIMENSION, committee=committee)
    setup = WORLD.setup()
    keys = [each.public for each in identities]
    members = committee.members(SESSION, keys, 0)
    setup = one_shot_setup(plan, setup.parameters, keys, members, SESSION, 0)
    assert setup.context.committee.draw is not None
    assert setup.context.committee.draw.beacon == beacon_of(SESSION, 0)
    assert len(aggregator.run(setup, update, {}).total.survivors) == 10


# -- plans --------------------------------------------------------------------------------------


def test_a_plan_tolerates_the_tail_of_all_corrupt_identities() -> None:
    plan = Drawn(size=320, corrupt=100, away=5, odds=0.04)
    assert plan.numbers(1000, 10, 10).corrupt == corrupt_bound(100, plan.whole_odds, 128) == 47
    assert plan.numbers(1000, 10, 10).size == 320
    small = dataclasses.replace(plan, size=230)
    with pytest.raises(ParameterError, match="47 of them corrupt"):
        small.numbers(1000, 10, 10)


def test_plans_and_members_are_of_one_kind() -> None:
    setup, drawn = WORLD.setup(), WORLD.committee.members(SESSION, WORLD.keys, 0)
    assert isinstance(drawn, DrawnMembers)
    rest, named = (setup.parameters, WORLD.keys), plan_of(CommitteeKind.NAMED)
    for plan, members in ((WORLD.plan, drawn.members), (named, drawn)):
        with refused(ParameterError, "draw"):
            one_shot_setup(plan, *rest, members, SESSION, 0)
    with refused(ParameterError, "committee"):
        draw_policy(named, ROOT, 10)
    with refused(ParameterError, "lottery"):
        LocalCommittee(CommitteeKind.DRAWN, WORLD.identities, WORLD.member_policy)
    # A configuration draws where it gives odds.
    table = DrawnTable(kind="drawn", size=8, corrupt=1, away=1, odds=0.9)
    assert table.build() == Drawn(size=8, corrupt=1, away=1, odds=0.9)
