"""Members elsewhere that add noise: the ideal sums, whoever restarts; what hostile servers get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from one_shot_rounds import Stream, identity
from one_shot_worlds import DIGEST, rounding, update
from returned_worlds import EVERYBODY, MEMBERS, N, ReturnedWorld, changed, noise_of, plan_of, record
from round_kit import HOUR, OPENED, expiring

from dp import Ledger, NoiseSeed
from protocol.adapters.party import AddingMember, OneShotParty, Party
from protocol.errors import PolicyError
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.remote import MESSAGE
from protocol.exchange.remote_one_shot import (
    RemoteMember,
    RemoteOneShotAggregator,
    split_announcement,
    with_announcement,
)
from protocol.exchange.stages import Refusal, RoundOutcome, no_losses
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.member import RoundMember
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.stored_upload import UploadFolder
from protocol.schemes import Validated
from protocol.schemes.committee import Named
from secagg import LocalProtocolError, RemoteProtocolError, TooFewSurvivorsError, centre
from secagg.framing import encode_set
from secagg.oneshot.messages import Complaints, decode_from_member
from secagg.oneshot.records import RoundRecord
from secagg.storage import StoredStateError, TokenFolder
from simulations.threats.attack import Attack, Effort
from simulations.threats.catalogue import one_shot_returns
from simulations.threats.one_shot.returning import ReturningRun

NOISE, CHECK, CONFIRM, OPEN = MemberStage
Answers = Iterator[tuple[int, bytes | Refusal]]


class InMemory:
    """A shelf, which outlasts its member."""

    state = b""

    def read(self) -> bytes:
        return self.state

    def drop(self) -> None:
        self.state = b""

    def keep(self, state: bytes) -> None:
        self.state = state


class Elsewhere(ReturnedWorld):
    """Members of which nothing is left between two messages but files."""

    fewest, now = 5, 0.0

    def __init__(self, folder: Path, absences: Any = None, **changes: Any) -> None:
        super().__init__(plan_of(**changes), absences)
        self.folder = folder
        self.histories = [ClientHistory(self.policy.goal) for _ in self.people]
        self.signed = [ClientHistory() for _ in range(MEMBERS)]
        self.shelves = [InMemory() for _ in range(MEMBERS)]

    def party(self, index: int) -> OneShotParty:
        """A new process of a member."""
        home = self.folder / str(index)
        who = identity("member", index)
        party = Party(
            identity=who,
            registry=frozenset(self.keys),
            policy=self.policy,
            keys=TokenFolder(home / "keys"),
            shelf=self.shelves[index],
            clock=lambda: self.now,
        )
        sealing: Any = self  # `key` is all that is asked of it
        uploads = UploadFolder(home / "upload")
        return OneShotParty(party=party, shelf=party.shelf, uploads=uploads, sealing=sealing)

    def ask(self, index: int, message: bytes, stage: MemberStage | None = None) -> bytes:
        """What a new process of a member answers; in the stage that the message is for, or this."""
        home, folk = self.folder / str(index), self.party(index)
        if stage is None:
            stage = CHECK if split_announcement(message)[1] else NOISE
        with StoredMemberNoise(home / "noise") as memory:
            adding = AddingMember(
                memory=memory, uploads=UploadFolder(home / "added"), fewest=self.fewest
            )
            return folk.as_member(message, self.signed[index], stage, adding)

    def key(self, who: Any, session: bytes, number: int) -> Any:
        """The sealing key of a member, known to everybody here; in place of a `SealingFolder`."""
        return self.committee._keys(session, who.public)

    def seed(self, session: bytes, number: int, index: int) -> NoiseSeed:
        """What a member has on its disk."""
        with StoredMemberNoise(self.folder / str(index) / "noise") as memory:
            (seed,) = [e.seed for e in memory._read(session).added if e.round_number == number]
        return NoiseSeed(seed)

    def run(
        self,
        setup: OneShotSetup,
        lost: Iterable[int] = (),
        asks: Callable[[MemberStage, int, bytes], bytes | None] | None = None,
        **options: Any,
    ) -> RoundOutcome:
        """A round; members that are away hear nothing from a stage on."""
        away = self.absences.get(setup.context.round_number, {})

        def collect(messages: Iterable[tuple[int, bytes]]) -> Answers:
            for index, data in messages:
                if index not in lost:
                    number = self.keys.index(setup.known_cohort().keys[index])
                    client = self.client(number, self.histories[number])
                    client._rand = Stream("client", index)  # as of the ideal sum
                    client.join(data, DIGEST)
                    yield index, MESSAGE + client.submit(update(index), rounding(index))

        def consult(stage: MemberStage, messages: Iterable[tuple[int, bytes]]) -> Answers:
            for index, data in messages:
                if away.get(index, len(MemberStage)) > stage:
                    answer = (asks or self.asks)(stage, index, data)
                    if answer is not None:
                        yield index, answer

        told = options.pop("on_member_loss", no_losses)
        server = RemoteOneShotAggregator(
            collect, consult, self.committee.members, on_member_loss=told
        )
        return server.run(setup, **options)

    def plays(self, setup: OneShotSetup, *_: Any, before_release: Any) -> RoundOutcome:
        """The same as an aggregator does it; updates are the clients' own."""
        return self.run(setup, before_release=before_release)

    def asks(self, stage: MemberStage, index: int, data: bytes) -> bytes:
        """What a member answers; its noise it is asked for twice, as if a reply had been lost."""
        answer = self.ask(index, data, stage)
        assert stage is not NOISE or self.ask(index, data) == answer
        return answer


def test_the_sums_are_the_ideal_ones_whoever_restarts_or_leaves(tmp_path: Path) -> None:
    """Bit for bit, and so is what members take back, from their disks."""
    absences: Mapping[int, Any] = {
        0: {7: NOISE},
        1: {0: NOISE, 1: CHECK},
        2: {2: CONFIRM},
        3: {3: OPEN, 4: NOISE},
    }
    world = Elsewhere(tmp_path, absences)
    told: tuple[RoundRecord, ...] = ()
    for number in range(4):
        setup, lost = world.setup(number, *told), [3] if number == 1 else []
        heard: list[Any] = []
        got = world.run(setup, lost, before_release=lambda *of, to=heard: to.append(of))
        away = dict.fromkeys(lost, Stage.INPUT)
        expected = world.of(setup).ideal(world.seed).run(setup, update, away)
        assert np.array_equal(got.total.vector.elements, expected.total.vector.elements)
        twin = world.ideal(noise_of).run(setup, update, away)
        assert not np.array_equal(got.total.vector.elements, twin.total.vector.elements)
        assert heard == [(expected.total.survivors, expected.record)] and got.record is not None
        assert got.refused == got.refused_members == {}
        told = (*told, got.record)
    assert [len(each.returned) for each in told] == [0, 6, 7, 7]


def test_validated_rounds_go_on_from_files_as_well(tmp_path: Path) -> None:
    """Their sums have errors beside the noise, as in one process."""
    scheme = Validated(committee=Named(size=MEMBERS, corrupt=1, away=1))
    world, told = Elsewhere(tmp_path, scheme=scheme), tuple[RoundRecord, ...]()
    for number in range(2):
        setup = world.setup(number, *told)
        got = world.run(setup)
        expected = world.of(setup).ideal(world.seed).run(setup, update, {})
        differences = centre(got.total.vector) - centre(expected.total.vector)
        assert np.abs(differences).max() < 6.0 * (16 * setup.error_variance) ** 0.5  # type: ignore[attr-defined]
        assert got.record == expected.record and got.record is not None
        told = (*told, got.record)
    assert told[1].returned == EVERYBODY


def test_a_run_goes_on_and_is_charged_as_a_simulated_one(tmp_path: Path) -> None:
    """With an attempt that fails: its noise was asked for, and is in no record."""
    absences: Mapping[int, Any] = {1: dict.fromkeys(range(4), NOISE)}
    found = []
    for kind in ("elsewhere", "here"):
        world = Elsewhere(tmp_path / kind, absences)
        with Ledger.open(tmp_path / f"{kind}.jsonl") as ledger:
            elsewhere = SimpleNamespace(members=world.committee.members, run=world.plays)
            training = world.training(ledger, elsewhere if kind == "elsewhere" else world.real)
            cohorts = [world.cohort(number) for number in range(4)]
            training.run_round(cohorts[0], DIGEST, update)
            with pytest.raises(TooFewSurvivorsError):
                training.run_round(cohorts[1], DIGEST, update)
            for cohort in cohorts[2:]:
                result = training.run_round(cohort, DIGEST, update)
            records = [entry.metadata["record"] for entry in ledger.entries()]
        found.append((records, result.epsilons, result.outcome.record))
    assert found[0] == found[1]
    assert found[0][2] == record(3, EVERYBODY, EVERYBODY)


def test_members_whose_noise_is_not_in_check_and_sign_all_the_same(tmp_path: Path) -> None:
    """Two were not reached in time; an upload was spoiled on its way, and lost for that alone."""
    world, noted = Elsewhere(tmp_path), list[tuple[int, str]]()

    def asks(stage: MemberStage, index: int, data: bytes) -> bytes | None:
        if stage is NOISE and index < 2:
            return None
        answer = world.ask(index, data, stage)
        spoils = stage is NOISE and index == 2
        return answer[:-1] + bytes([answer[-1] ^ 1]) if spoils else answer

    outcome = world.run(world.setup(), asks=asks, on_member_loss=lambda *of: noted.append(of))
    assert outcome.record == record(0, (3, 4, 5, 6, 7)) and outcome.refused_members == {}
    ((lost, why),) = noted
    assert lost == 2 and "signature" in why


class Pending:
    """A round whose members have not got the messages of a stage; member 0 is the one to watch.

    Attributes:
        late: what answers for it when it is not asked for its noise; None if it is.
    """

    def __init__(self, folder: Path, stage: MemberStage, late: Any = None) -> None:
        self.world, self.held = Elsewhere(folder), dict[int, bytes]()
        self.stage = stage

        def asks(now: MemberStage, index: int, data: bytes) -> bytes | None:
            if now < stage:
                if late and (now, index) == (NOISE, 0):
                    return late(index, data)
                return self.world.ask(index, data, now)
            self.held.setdefault(index, data)
            return None

        with suppress(TooFewSurvivorsError):
            self.world.run(self.world.setup(), asks=asks)

    def due(self) -> bytes:
        """The answer to the message that is due."""
        return self.world.ask(0, self.held[0], self.stage)

    def put_back(self) -> bytes:
        """The answer in a round that was stored, and is put back when a later one has begun."""
        shelf = self.world.shelves[0]
        stored = shelf.state
        self.noise(1)
        shelf.keep(stored)
        return self.due()

    def noise(self, number: int = 0, *told: RoundRecord, **terms: Any) -> bytes:
        """The answer when asked for the noise of a round."""
        return self.world.ask(0, self.asking(number, *told, **terms))

    def asking(self, number: int = 0, *told: RoundRecord, **terms: Any) -> bytes:
        """A message that asks for noise."""
        setup = self.world.setup(number, *told, **terms)
        return with_announcement(setup.announce_to_member(0), b"")

    def as_client(self, announcement: bytes) -> bytes:
        """The answer to an announcement, to the client of the same identity."""
        history = ClientHistory(self.world.policy.goal)
        party = self.world.party(0)
        return party.upload(announcement, DIGEST, lambda _: update(0), lambda: nullcontext(history))

    def strays(self, number: int) -> None:
        """Send uploads that are none."""
        with pytest.raises((PolicyError, RemoteProtocolError)):
            self.world.ask(0, self.asking(number) + b"a delivery")

    def ended(self) -> bytes:
        """The answer when the list has all the rounds that there are."""
        announced = split_announcement(self.asking(2, record(0), record(1)))[0]
        return self.world.ask(0, with_announcement(changed(announced, returns={"rounds": 2}), b""))

    def after(self, seconds: float) -> bytes:
        """The answer when asked for the same noise again, so long after it was."""
        announced = expiring(self.world.setup()).announce_to_member(0)
        for self.world.now in (OPENED, OPENED + HOUR, OPENED + seconds):
            answer = self.world.ask(0, with_announcement(announced, b""))
        return answer

    def under(self, other: bytes) -> bytes:
        """The answer to the delivery that is due, under the announcement of another message."""
        announcement, delivery = split_announcement(other)[0], split_announcement(self.held[0])[1]
        return self.world.ask(0, with_announcement(announcement, delivery))


Story = Callable[[Pending], object]

HOSTILE: dict[str, tuple[MemberStage, Story, type[Exception], str]] = {
    "an update in its place": (
        CHECK,
        lambda it: it.as_client(split_announcement(it.asking())[0]),
        PolicyError,
        "cohort",
    ),
    "other terms": (CHECK, lambda it: it.noise(fewest=6), PolicyError, "round_number"),
    "another list": (
        CHECK,
        lambda it: (it.noise(1), it.noise(1, record(0))),
        PolicyError,
        "round_number",
    ),
    "a list of the whole run": (NOISE, lambda it: it.ended(), PolicyError, "fewer than 2"),
    "noise after the end": (NOISE, lambda it: it.after(HOUR + 1), PolicyError, "opened_at"),
    "uploads when another round was begun": (
        CHECK,
        lambda it: (it.strays(1), it.due()),
        PolicyError,
        "round_number",
    ),
    "not what was signed": (OPEN, lambda it: it.noise(1), PolicyError, "records"),
    "noise after the uploads": (
        CONFIRM,
        lambda it: it.world.ask(0, it.asking(), CONFIRM),
        RemoteProtocolError,
        "server: ",
    ),
    "noise in the stage of a check": (
        NOISE,
        lambda it: it.world.ask(0, it.held[0], CHECK),
        RemoteProtocolError,
        "check without uploads",
    ),
    "uploads in the stage of noise": (
        CHECK,
        lambda it: it.world.ask(0, it.held[0], NOISE),
        RemoteProtocolError,
        "noise with uploads",
    ),
    "uploads announced otherwise": (
        CHECK,
        lambda it: it.under(it.asking(fewest=6)),
        RemoteProtocolError,
        "another announcement",
    ),
    "uploads twice": (CHECK, lambda it: (it.due(), it.due()), RemoteProtocolError, "server: "),
    "uploads after a later round": (
        CHECK,
        lambda it: (it.noise(1), it.due()),
        PolicyError,
        "round_number",
    ),
    "a round put back": (
        CONFIRM,
        lambda it: it.put_back(),
        StoredStateError,
        "resumed before",
    ),
    "a signature after a later round": (
        CONFIRM,
        lambda it: (it.noise(1), it.due()),
        RemoteProtocolError,
        "first message",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_server_gets_no_second_upload_and_no_second_signature(
    name: str, tmp_path: Path
) -> None:
    stage, story, error, match = HOSTILE[name]
    with pytest.raises(error, match=match):
        story(Pending(tmp_path, stage))


@pytest.mark.parametrize("twin", [False, True])
def test_one_who_came_late_adds_nothing_any_more(tmp_path: Path, twin: bool) -> None:
    """And what another machine of the same identity added is left out."""
    late = Elsewhere(tmp_path / "twin").ask if twin else lambda *_: None
    pending = Pending(tmp_path, CHECK, late)
    if (receipt := UploadFolder(tmp_path / "twin" / "0" / "added").receipt()) is not None:
        UploadFolder(tmp_path / "0" / "upload").keep(receipt, b"")  # as if a client had sent it
    answer = decode_from_member(pending.due()[len(MESSAGE) :], 0, 1 << 10)
    assert isinstance(answer, Complaints)
    assert answer.bad == encode_set([N] * twin, N + MEMBERS)
    with pytest.raises(PolicyError, match="round_number"):
        pending.noise()


@pytest.mark.parametrize("stage", [CHECK, CONFIRM, OPEN])
def test_a_round_that_is_refused_does_not_end_the_one_under_way(
    tmp_path: Path, stage: MemberStage
) -> None:
    pending = Pending(tmp_path, stage)
    with pytest.raises(PolicyError, match="round_number"):
        pending.noise(fewest=6)
    pending.strays(1 << 11)
    for stray in (b"garbage", split_announcement(pending.asking())[0]):
        with pytest.raises((PolicyError, RemoteProtocolError)):
            pending.as_client(stray)
    assert pending.due()[:1] == MESSAGE


@pytest.mark.parametrize("name", ["receipt", "upload"])
def test_a_damaged_file_costs_the_round_and_no_more(tmp_path: Path, name: str) -> None:
    pending = Pending(tmp_path, CHECK)
    (tmp_path / "0" / "added" / name).write_bytes(b"")
    with pytest.raises(PolicyError, match="round_number"):
        pending.noise()
    assert pending.noise(1)[:1] == MESSAGE


def test_a_crash_costs_the_round_and_gives_no_second_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the upload is kept, and between that and what the round goes on from."""
    before = Pending(tmp_path / "before", NOISE)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(UploadFolder, "keep", full)
        before.due()
    with pytest.raises(PolicyError, match="round_number"):
        before.due()
    # The number is used up, and what was drawn for it is in no upload.
    assert before.noise(1)[:1] == MESSAGE
    between = Pending(tmp_path / "between", NOISE)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(InMemory, "keep", full)
        between.due()
    assert between.due() == between.due()
    with pytest.raises(LocalProtocolError, match="no round to go on with"):
        between.world.ask(0, between.asking() + b"a delivery")


def full(*_: object) -> None:
    raise OSError("the disk is full")


def test_what_a_member_refuses_uses_nothing_up(tmp_path: Path) -> None:
    """Without a memory, or where fewer members' noise is in a sum than it insists on."""
    pending = Pending(tmp_path, NOISE)
    pending.world.fewest = 6
    with pytest.raises(PolicyError, match="fewest_members"):
        pending.due()
    pending.world.fewest = 5
    member = RemoteMember(pending.world.member())
    member._member._noise = None
    with pytest.raises(PolicyError, match="remembers no noise"):
        member.answer(pending.held[0])
    assert pending.due()[:1] == MESSAGE


# -- the catalogue's servers ----------------------------------------------------------------------


class Restarted:
    """A member that is a new process at every message, and hears bytes only."""

    def __init__(self, make: Callable[[], RoundMember], keys: TokenFolder) -> None:
        self._make, self._keys, self._stored, self._announced = make, keys, b"", b""

    def add_noise(self, announcement: bytes) -> bytes:
        self._announced = announcement
        return self._ask(with_announcement(announcement, b""))

    def receive(self, message: bytes) -> bytes:
        announcement, self._announced = self._announced, b""
        return self._ask(with_announcement(announcement, message) if announcement else message)

    def _ask(self, data: bytes) -> bytes:
        member, stored = self._make(), self._stored
        self._stored = b""
        if stored:
            member.resume(stored, self._keys)
        remote = RemoteMember(member)
        answer = remote.answer(data)
        if not remote.is_over:
            self._stored = member.suspend(self._keys)
        return answer[len(MESSAGE) :]


@pytest.mark.parametrize("attack", one_shot_returns.ATTACKS, ids=lambda each: each.id)
def test_the_catalogue_s_servers_get_no_more_from_members_elsewhere(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole runs; the twins, members that lack a defence, lose to the same servers."""
    keys = TokenFolder(tmp_path)

    class Run(ReturningRun):
        def member(self, *of: Any, **options: Any) -> Any:
            return Restarted(partial(super().member, *of, **options), keys)

    monkeypatch.setattr(one_shot_returns, "ReturningRun", Run)
    found = attack.run(Effort.QUICK, 7)
    assert not found.real["succeeded"] and found.twin["succeeded"]
