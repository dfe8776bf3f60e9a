"""One-shot rounds with parties elsewhere: the exact sum, whoever leaves; refusals in one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_shot_rounds import Stream, identity, secret
from one_shot_worlds import DIGEST, DIMENSION, SESSION, ideal, rounding, update

from dp import NoiseSeed
from protocol import PrivacyGoal, TrainingPlan
from protocol.errors import PolicyError, TrainingFailedError
from protocol.exchange.one_shot import EXCHANGES, MemberStage
from protocol.exchange.remote import answer_or_refuse, open_answer
from protocol.exchange.remote_one_shot import (
    RemoteMember,
    RemoteOneShotAggregator,
    RemoteUploader,
    round_of,
    split_announcement,
    with_announcement,
)
from protocol.exchange.stages import PEER_ERRORS, Refusal, RoundOutcome
from protocol.planning.policies import client_policy
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.lottery import Lottery, Members
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadReceipt
from protocol.schemes import OneShot
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.schemes.one_shot import draw_policy, one_shot_of, one_shot_setup
from secagg import (
    FieldSum,
    LocalProtocolError,
    ParameterError,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.sortition import Registry
from secagg.oneshot.transitions import MemberPhase
from secagg.storage import StoredStateError, TokenFolder
from sketch import PublicSeed, SketchSpec

CLIENTS = 6

Answer = tuple[int, bytes | Refusal]


def plan_of(kind: CommitteeKind) -> TrainingPlan:
    """Six clients, two may be lost; a named committee is made of strangers, a drawn one of some."""
    numbers = {"size": 5, "corrupt": 0, "away": 1}
    committees = {
        CommitteeKind.NAMED: Named(**numbers),
        CommitteeKind.DRAWN: Drawn(odds=0.9, **numbers),
    }
    return TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 3),
        cohort=CLIENTS,
        tolerated_dropouts=2,
        tolerated_colluders=0,
        clip_l2=1.0,
        scheme=OneShot(committee=committees.get(kind, Everyone())),
    )


def unchanged(stage: object, index: int, answer: bytes) -> bytes:
    """What happens to answers on their way: nothing."""
    del stage, index
    return answer


class Repeatable(OneShotRoundClient):
    """A client whose rounding is that of the ideal sum it is compared with."""

    rounding: NoiseSeed

    def submit(self, update: Any, rounding: NoiseSeed | None = None) -> bytes:
        return super().submit(update, self.rounding)


class Elsewhere:
    """Clients and members of which nothing is left between two messages but stored bytes.

    `lost` and `away` say which message of whom does not arrive; `change` what happens to answers.
    """

    def __init__(
        self,
        kind: CommitteeKind,
        folder: Path,
        *,
        lost: Sequence[int] = (),
        away: dict[int, MemberStage] | None = None,
        change: Callable[..., bytes] = unchanged,
        updates: Callable[[int], Any] = update,
    ) -> None:
        self.plan, self.lost, self.away, self.change = plan_of(kind), lost, away or {}, change
        self.updates = updates
        self.clients = [identity("client", i) for i in range(CLIENTS)]
        self.keys = [each.public for each in self.clients]
        self.registry = frozenset(self.keys)
        named = [identity("member", i) for i in range(5)]
        self.members = named if kind is CommitteeKind.NAMED else self.clients
        names = [each.public for each in self.members] if kind is CommitteeKind.NAMED else []
        draw, self.lottery = None, None
        committee = one_shot_of(self.plan).committee
        if isinstance(committee, Drawn):
            registry = Registry(self.keys)
            self.lottery = Lottery(registry, committee.whole_odds, 5)
            first = self.lottery.candidates(SESSION, 0)[:5]
            self.members = [each for each in self.clients if each.public in first]
            draw = draw_policy(self.plan, registry.root, len(registry))
        self.policy = client_policy(self.plan, DIMENSION, frozenset(names), draw)
        self.histories = [ClientHistory(self.policy.goal) for _ in self.clients]
        self.signed = [ClientHistory() for _ in self.members]
        self.sealing = [
            SealingFolder(folder / f"sealing{i}", lambda: 0.0) for i in range(len(self.members))
        ]
        self.tokens = [TokenFolder(folder / f"keys{i}") for i in range(len(self.members))]
        self.stored: dict[int, bytes] = {}
        self.receipts: dict[int, bytes] = {}
        self.errors: dict[object, Exception] = {}
        self.asked: list[tuple[object, int]] = []
        self.losses: list[tuple[str, int, str]] = []

    def entries(self, session: bytes, cohort: Sequence[bytes], number: int) -> Members:
        pairs = zip(self.members, self.sealing, strict=True)
        entries = [folder.begin(who, session).entry for who, folder in pairs]
        if self.lottery is None:
            return entries
        checked_in = {entry.identity: entry for entry in entries}
        return self.lottery.seat(session, number, checked_in.get)

    def setup(self, number: int = 0) -> OneShotSetup:
        parameters = self.plan.calibrate(
            SketchSpec.identity(DIMENSION), DIGEST, PublicSeed(secret("seed"))
        )
        members = self.entries(SESSION, self.keys, number)
        return one_shot_setup(self.plan, parameters, self.keys, members, SESSION, number)

    def aggregator(self) -> RemoteOneShotAggregator:
        return RemoteOneShotAggregator(
            self.collect,
            self.exchange,
            self.entries,
            lambda index, reason: self.losses.append(("client", index, reason)),
            lambda index, reason: self.losses.append(("member", index, reason)),
        )

    def collect(self, announcements: Iterable[tuple[int, bytes]]) -> Iterator[Answer]:
        for index, data in announcements:
            self.asked.append(("upload", index))
            if index not in self.lost:
                yield index, self.change("upload", index, self.upload(index, data))

    def client(self, index: int) -> OneShotRoundClient:
        ours = (self.clients[index], self.registry, self.policy, self.histories[index])
        client = Repeatable(*ours, Stream("client", index))
        client.rounding = rounding(index)
        return client

    def upload(self, index: int, data: bytes) -> bytes:
        client = self.client(index)
        remote = RemoteUploader(client, DIGEST, lambda _: self.updates(index))
        answer, error = answer_or_refuse(remote, data)
        if error is None:
            self.receipts[index] = client.receipt.encode()
        else:
            self.errors["upload", index] = error
        return answer

    def exchange(
        self, stage: MemberStage, messages: Iterable[tuple[int, bytes]]
    ) -> Iterator[Answer]:
        for index, data in messages:
            self.asked.append((stage, index))
            if self.away.get(index, len(MemberStage)) > stage:
                yield index, self.change(stage, index, self.answer(index, data))

    def member(self, index: int, session: bytes = SESSION) -> RoundMember:
        policy = MemberPolicy(
            minimum_survivors=4, tolerated_colluders=0, corrupt=0, registry=self.registry
        )
        who = self.members[index]
        return RoundMember(
            who, self.sealing[index].key(who, session, 0), policy, self.signed[index]
        )

    def answer(self, index: int, data: bytes) -> bytes:
        member, receipt = self.member(index), None
        if index in self.stored:
            assert RoundMember.round_of(self.stored[index])[0] == SESSION
            member.resume(self.stored.pop(index), self.tokens[index])
        elif self.members[index] in self.clients:
            sent = self.receipts.get(self.clients.index(self.members[index]))
            receipt = UploadReceipt.decode(sent) if sent else None
        remote = RemoteMember(member, receipt)
        answer, error = answer_or_refuse(remote, data)
        if error is not None:
            self.errors["member", index] = error
        assert remote.is_over == (error is not None or member.phase is MemberPhase.FINISHED)
        if not remote.is_over:
            self.stored[index] = member.suspend(self.tokens[index])
        return answer


def exact(setup: OneShotSetup, lost: Iterable[int]) -> FieldSum:
    """The ideal sum."""
    return ideal(setup).run(setup, update, dict.fromkeys(lost, Stage.INPUT)).total


@pytest.mark.parametrize("kind", list(CommitteeKind))
@pytest.mark.parametrize(
    ("lost", "away"),
    [
        ((), {}),
        ((1, 4), {}),
        ((), {0: MemberStage.CHECK}),
        ((2,), {2: MemberStage.CHECK}),
        ((), {3: MemberStage.CONFIRM}),
        ((), {3: MemberStage.OPEN}),
    ],
    ids=["nobody", "uploads", "check", "client and member", "confirm", "open"],
)
def test_the_sum_is_the_exact_one_whoever_restarts_or_leaves(
    kind: CommitteeKind, lost: tuple[int, ...], away: dict[int, MemberStage], tmp_path: Path
) -> None:
    world = Elsewhere(kind, tmp_path, lost=lost, away=away)
    setup, told = world.setup(), list[Sequence[int]]()
    outcome = world.aggregator().run(setup, before_release=told.append)
    expected = exact(setup, lost)
    assert np.array_equal(outcome.total.vector.elements, expected.vector.elements)
    assert told == [outcome.total.survivors] and outcome.total.removed == expected.removed
    assert outcome.total.survivors == tuple(i for i in range(CLIENTS) if i not in lost)
    # A client is asked once, a member three times at most.
    assert sum(stage == "upload" for stage, _ in world.asked) == CLIENTS
    assert max(map(world.asked.count, world.asked)) == 1
    everyone = kind is CommitteeKind.EVERYONE
    asked = {stage for stage, index in world.asked if index == 5} if not everyone else set()
    assert asked <= {"upload"}
    # One that left at a late stage keeps a state that nobody will ask for.
    assert set(world.stored) == {i for i, stage in away.items() if stage > MemberStage.CHECK}
    assert world.errors == {} and world.losses == []
    check_bytes(outcome, setup, everyone)


def check_bytes(outcome: RoundOutcome, setup: OneShotSetup, everyone: bool) -> None:
    """What a client that is no member is sent is its announcement, and what it sends its upload."""
    for index in outcome.total.survivors:
        as_member = outcome.member_bytes_down.get(index, 0) if everyone else 0
        assert outcome.bytes_down[index] - as_member == len(setup.announce(index))
        assert outcome.bytes_up[index] > setup.vector_bytes
    for index, size in outcome.member_bytes_down.items():
        assert size > len(setup.announce_to_member()), index


def test_survivors_are_told_before_any_member_signs(tmp_path: Path) -> None:
    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)

    def before_release(survivors: Sequence[int]) -> None:
        world.asked.append(("charged", len(survivors)))

    world.aggregator().run(world.setup(), before_release=before_release)
    at = world.asked.index(("charged", CLIENTS))
    assert {stage for stage, _ in world.asked[:at]} == {"upload", MemberStage.CHECK}
    later = {stage for stage, _ in world.asked[at + 1 :]}
    assert later == {MemberStage.CONFIRM, MemberStage.OPEN}


def test_a_client_that_cannot_train_is_a_member_all_the_same(tmp_path: Path) -> None:
    def updates(index: int) -> Any:
        if index == 3:
            raise SystemExit("patient 17")
        return update(index)

    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path, updates=updates)
    setup = world.setup()
    outcome = world.aggregator().run(setup)
    assert np.array_equal(outcome.total.vector.elements, exact(setup, [3]).vector.elements)
    assert world.losses == [("client", 3, "OwnReasons")] and outcome.refused == {3: "OwnReasons"}
    assert isinstance(world.errors["upload", 3], TrainingFailedError)
    assert (MemberStage.OPEN, 3) in world.asked and outcome.refused_members == {}


@pytest.mark.parametrize("error", [ValueError, MemoryError, KeyboardInterrupt])
def test_an_error_of_training_ends_the_client(error: type[BaseException], tmp_path: Path) -> None:
    """Every one is refused in the same bytes; an interrupt ends the program too."""

    def fail(_: OneShotSetup) -> NoReturn:
        raise error("patient 17")

    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
    announcement, client = world.setup().announce(0), world.client(0)
    remote = RemoteUploader(client, DIGEST, fail)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            remote.answer(announcement)
    else:
        answer, told = answer_or_refuse(remote, announcement)
        assert answer == b"\1OwnReasons" and "patient 17" in str(told)
    again, told = answer_or_refuse(remote, announcement)
    assert again == b"\1OwnReasons" and isinstance(told, LocalProtocolError)
    with pytest.raises(LocalProtocolError):
        client.submit(update(0))


def test_the_same_round_is_uploaded_for_and_signed_for_once(tmp_path: Path) -> None:
    world = Elsewhere(CommitteeKind.NAMED, tmp_path)
    setup = world.setup()
    world.aggregator().run(setup)
    with pytest.raises(TooFewSurvivorsError):
        world.aggregator().run(setup)
    assert all(isinstance(world.errors["upload", i], PolicyError) for i in range(CLIENTS))
    # Clients that forgot do not make members forget.
    world.histories = [ClientHistory(world.policy.goal) for _ in world.clients]
    with pytest.raises(TooFewSurvivorsError, match="check"):
        world.aggregator().run(setup)
    assert "signed for before" in str(world.errors["member", 0])


def test_another_model_than_the_announced_one_is_not_trained_on(tmp_path: Path) -> None:
    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)

    def never(_: OneShotSetup) -> NoReturn:
        raise AssertionError("trained")

    remote = RemoteUploader(world.client(0), secret("other model"), never)
    answer, error = answer_or_refuse(remote, world.setup().announce(0))
    assert open_answer(answer) == Refusal("RemoteProtocolError")
    assert "another model" in str(error)
    # It was not entered as answered: an honest announcement is still taken.
    assert world.upload(0, world.setup().announce(0))[:1] == b"\0"


@pytest.mark.parametrize("what", ["upload", *EXCHANGES])
def test_spoiled_answers_cost_their_party_only(what: object, tmp_path: Path) -> None:
    def change(stage: object, index: int, answer: bytes) -> bytes:
        spoils = stage == what and index == 2
        return answer[:-1] + bytes([answer[-1] ^ 1]) if spoils else answer

    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path, change=change)
    setup = world.setup()
    outcome = world.aggregator().run(setup)
    lost = [2] if what == "upload" else []
    assert np.array_equal(outcome.total.vector.elements, exact(setup, lost).vector.elements)
    ((party, index, reason),) = world.losses
    assert (party, index) == ("client" if what == "upload" else "member", 2)
    assert "signature" in reason


@pytest.mark.parametrize("kind", ["upload", *EXCHANGES])
def test_an_answer_of_somebody_who_was_not_asked_is_a_broken_transport(
    kind: object, tmp_path: Path
) -> None:
    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)

    def mixed(exchange: Callable[..., Iterator[Answer]], stage: object) -> Callable[..., Any]:
        def wrong(*args: Any) -> Iterator[Answer]:
            at = args[0] if len(args) > 1 else "upload"
            for index, answer in exchange(*args):
                yield (index + 100 if at == kind else index), answer

        return wrong

    server = RemoteOneShotAggregator(
        mixed(world.collect, "upload"), mixed(world.exchange, "members"), world.entries
    )
    with pytest.raises(LocalProtocolError, match=r"(client|member) 10\d answered without"):
        server.run(world.setup())


def test_parties_elsewhere_have_updates_and_losses_of_their_own(tmp_path: Path) -> None:
    world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
    server, setup = world.aggregator(), world.setup()
    with pytest.raises(ParameterError, match="updates"):
        server.run(setup, update)
    with pytest.raises(ParameterError, match="dropouts"):
        server.run(setup, dropouts={1: Stage.INPUT})
    with pytest.raises(ParameterError, match="setup"):
        server.run(object())  # type: ignore[arg-type]
    assert world.asked == []
    assert [each.identity for each in server.members(SESSION, world.keys, 0)] == world.keys


class TestMember:
    """What a member does for a server that lies or asks again."""

    def deliveries(self, world: Elsewhere, setup: OneShotSetup, stop: MemberStage) -> bytes:
        """Member 0's message of a stage; all earlier ones are answered."""
        caught = []

        def exchange(stage: MemberStage, messages: Iterable[tuple[int, bytes]]) -> Iterator[Answer]:
            for index, data in messages:
                if stage is stop and index == 0:
                    caught.append(data)
                else:
                    yield index, world.answer(index, data)

        RemoteOneShotAggregator(world.collect, exchange, world.entries).run(setup)
        return caught[0]

    @pytest.mark.parametrize("stage", EXCHANGES)
    def test_a_message_is_answered_once(self, stage: MemberStage, tmp_path: Path) -> None:
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
        data = self.deliveries(world, world.setup(), stage)
        stored = world.stored.get(0)
        assert world.answer(0, data)[:1] == b"\0"
        if stage is MemberStage.CHECK:
            world.stored.clear()
            assert world.answer(0, data)[:1] == b"\1"
            assert "signed for before" in str(world.errors["member", 0])
            return
        # What was stored before the answer is of no use after it.
        assert stored is not None
        with pytest.raises(StoredStateError, match="resumed before"):
            world.member(0).resume(stored, world.tokens[0])

    def test_a_stored_state_opens_for_nobody_else(self, tmp_path: Path) -> None:
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
        self.deliveries(world, world.setup(), MemberStage.CONFIRM)
        stored = world.stored[0]
        with pytest.raises(StoredStateError, match="cannot be opened"):
            other = world.member(1)
            other.resume(stored, world.tokens[0])
        for damaged in (b"", stored[:-1], stored[:-1] + bytes([stored[-1] ^ 1])):
            with pytest.raises(StoredStateError):
                world.member(0).resume(damaged, world.tokens[0])
        # None of that has used it up.
        member = world.member(0)
        member.resume(stored, world.tokens[0])
        assert member.phase is MemberPhase.CHECKED
        with pytest.raises(LocalProtocolError, match="already joined"):
            member.resume(stored, world.tokens[0])

    def test_another_upload_in_our_name_is_left_out(self, tmp_path: Path) -> None:
        """A client whose machine was set back has uploaded twice: its member notices."""
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
        receipt = UploadReceipt(SESSION, 0, 0, secret("another upload"), bytes(32))

        def collect(announcements: Iterable[tuple[int, bytes]]) -> Iterator[Answer]:
            yield from world.collect(announcements)
            world.receipts[0] = receipt.encode()

        server = RemoteOneShotAggregator(collect, world.exchange, world.entries)
        outcome = server.run(world.setup())
        assert outcome.total.survivors == (1, 2, 3, 4, 5) and outcome.refused_members == {}
        assert outcome.refused == {0: "its shares do not open"}

    def test_a_receipt_of_an_earlier_round_does_not_count(self, tmp_path: Path) -> None:
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path, lost=[])
        world.aggregator().run(world.setup(0))
        world.lost = [1]
        outcome = world.aggregator().run(world.setup(1))
        assert 1 not in outcome.total.survivors and outcome.refused_members == {}

    def test_a_round_is_stored_once_it_was_joined(self, tmp_path: Path) -> None:
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
        announcement, member = world.setup().announce_to_member(), world.member(0)
        for call in (lambda: member.suspend(world.tokens[0]), lambda: member.receive(b"")):
            with pytest.raises(LocalProtocolError, match="join a round first"):
                call()
        member.join(announcement)
        stored = member.suspend(world.tokens[0])
        assert member.phase is MemberPhase.ABORTED
        again = world.member(0)
        again.resume(stored, world.tokens[0])
        assert again.phase is MemberPhase.WAITING

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.binary(max_size=200), joined=st.booleans())
    def test_a_server_that_sends_anything_gets_a_refusal(
        self, data: bytes, joined: bool, tmp_path: Path
    ) -> None:
        world = Elsewhere(CommitteeKind.EVERYONE, tmp_path)
        announcement, member = world.setup().announce_to_member(), world.member(0)
        if joined:
            member.join(announcement)
        remote = RemoteMember(member)
        answer, error = answer_or_refuse(remote, data)
        assert isinstance(error, PEER_ERRORS) and isinstance(open_answer(answer), Refusal)
        assert remote.is_over
        answer, error = answer_or_refuse(remote, data)
        assert isinstance(error, LocalProtocolError) and "has left" in str(error)


def test_first_messages_are_split_as_they_were_joined() -> None:
    assert split_announcement(with_announcement(b"ab", b"cde")) == (b"ab", b"cde")
    for bad in (b"", b"\1", with_announcement(b"ab", b"")[:-1], b"\xff" * 9):
        with pytest.raises(RemoteProtocolError):
            split_announcement(bad)
    with pytest.raises(RemoteProtocolError):
        round_of(with_announcement(b"ab", b""))
