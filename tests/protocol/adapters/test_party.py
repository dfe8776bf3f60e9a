"""A party's half of rounds, without a framework: stored between any two messages, answered once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from round_kit import IDENTITIES, make_setup, updates

from protocol.adapters.party import OneShotParty, Party
from protocol.errors import PolicyError
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.remote import RemoteAggregator
from protocol.exchange.remote_one_shot import RemoteOneShotAggregator
from protocol.exchange.sealing_book import SealingBook
from protocol.exchange.stages import Outbound
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.clauses import PairwiseClauses
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.policy import ClientPolicy
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadFolder
from protocol.schemes import OneShot
from protocol.schemes.one_shot import one_shot_setup
from secagg import Identity, LocalProtocolError, RemoteProtocolError
from secagg.oneshot.committee import CommitteeKind
from secagg.storage import TokenFolder
from sketch import PublicSeed, SketchSpec

OPEN = ClientPolicy(minimum_noise_multiplier=0.0)
BOTH = ClientPolicy(
    minimum_noise_multiplier=0.0,
    schemes=(PairwiseClauses(), CommitteePolicy(kind=CommitteeKind.EVERYONE, corrupt=0)),
)
MODEL, SESSION, LENGTH = bytes(32), bytes(16), 16


class Memory:
    """A shelf that remembers whether a key was there when it was emptied."""

    def __init__(self, keys: TokenFolder) -> None:
        self.keys, self.state, self.dropped_with_keys = keys, b"", False

    def read(self) -> bytes:
        return self.state

    def drop(self) -> None:
        self.dropped_with_keys |= bool(self.state) and any(self.keys._folder.iterdir())
        self.state = b""

    def keep(self, state: bytes) -> None:
        self.state = state


def parties_of(identities: list[Identity], folder: Path, policy: ClientPolicy) -> list[Party]:
    registry = frozenset(each.public for each in identities)
    keys = [TokenFolder(folder / f"keys{index}") for index in range(len(identities))]
    return [
        Party(
            identity=identity,
            registry=registry,
            policy=policy,
            keys=own,
            shelf=Memory(own),
            clock=time.time,
        )
        for identity, own in zip(identities, keys, strict=True)
    ]


def one_shot(party: Party, folder: Path, index: int = 0) -> OneShotParty:
    """The same party in one-shot rounds."""
    return OneShotParty(
        party=party,
        shelf=Memory(party.keys),
        uploads=UploadFolder(folder / f"upload{index}"),
        sealing=SealingFolder(folder / f"sealing{index}", time.time),
    )


def played(
    parties: list[Party],
    histories: list[ClientHistory],
    before: Callable[[int, Stage, bytes], None],
) -> None:
    """One round of all parties; `before` sees each message before its party does."""

    def exchange(stage: Stage, messages: Outbound) -> Iterator[tuple[int, bytes]]:
        for index, data in messages:
            before(index, stage, data)
            train = partial(lambda who, _: updates(who), index)
            begins = stage is Stage.ADVERTISE
            yield index, parties[index].stage(data, MODEL, train, histories[index], begins=begins)

    outcome = RemoteAggregator(exchange).run(make_setup())
    assert list(outcome.total.survivors) == list(range(len(parties)))


def test_pairwise_rounds_go_on_from_what_is_stored(tmp_path: Path) -> None:
    parties = parties_of(IDENTITIES, tmp_path, OPEN)
    histories = [ClientHistory() for _ in parties]
    heard: list[tuple[int, bytes]] = []

    def hear(index: int, _: Stage, data: bytes) -> None:
        heard.append((index, data))

    played(parties, histories, hear)
    index, data = heard[-1]
    with pytest.raises(LocalProtocolError, match="no round to go on with"):
        parties[index].stage(data, MODEL, lambda _: updates(0), histories[index], begins=False)
    # What is left of a state is gone after its key, in a round that goes on and in a new one.
    party, kept = parties[0], list[bytes]()
    for number in (1, 2):
        announced = make_setup(round_number=number).announce()
        party.stage(announced, MODEL, lambda _: updates(0), histories[0], begins=True)
        kept.append(party.shelf.read())
        # One that is refused ends no other: the key is there, and so is what it opens.
        keys = set(party.keys._folder.iterdir())
        for data in (announced, b"no announcement"):
            with pytest.raises((PolicyError, RemoteProtocolError)):
                party.stage(data, MODEL, lambda _: updates(0), histories[0], begins=True)
        assert set(party.keys._folder.iterdir()) == keys and len(keys) == 1
        assert party.shelf.read() == kept[-1]
    assert kept[0] != kept[1]
    shelves = [each.shelf for each in parties]
    assert not any(each.dropped_with_keys for each in shelves if isinstance(each, Memory))


def test_a_round_outlives_messages_that_it_cannot_be_resumed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stray message to a member, and a key that cannot be read for a moment."""
    parties = parties_of(IDENTITIES, tmp_path, OPEN)
    histories = [ClientHistory() for _ in parties]
    strayed: list[int] = []

    def interrupted(index: int, stage: Stage, data: bytes) -> None:
        if stage is Stage.ADVERTISE:
            return
        party = parties[index]
        folk = one_shot(replace(party, policy=BOTH), tmp_path)
        with pytest.raises(LocalProtocolError, match="no round to go on with"):
            folk.as_member(data, ClientHistory(), MemberStage.CONFIRM)
        with monkeypatch.context() as patched, pytest.raises(OSError, match="too many"):
            patched.setattr(TokenFolder, "key", too_many)
            party.stage(data, MODEL, lambda _: updates(index), histories[index], begins=False)
        strayed.append(index)

    played(parties, histories, interrupted)
    assert set(strayed) == set(range(len(parties)))


def too_many(*_: object, **__: object) -> Any:
    raise OSError("too many open files")


def test_one_shot_rounds_go_on_from_what_is_stored(tmp_path: Path) -> None:
    plan = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 4),
        cohort=len(IDENTITIES),
        tolerated_dropouts=1,
        tolerated_colluders=0,
        clip_l2=1.0,
        scheme=OneShot(),
    )
    policy = client_policy(plan, LENGTH)
    parties = parties_of(IDENTITIES, tmp_path, policy)
    folks = [one_shot(party, tmp_path, index) for index, party in enumerate(parties)]
    keys = [each.public for each in IDENTITIES]
    histories = [ClientHistory(policy.goal) for _ in folks]
    signed = [ClientHistory() for _ in folks]
    book = SealingBook(SESSION, time.time)
    for key, each in zip(keys, folks, strict=True):
        assert book.add(key, each.key(book.request(0)), 0) is None
    members = [book.entries(0)[key] for key in keys]
    parameters = plan.calibrate(SketchSpec.identity(LENGTH), MODEL, PublicSeed(bytes(32)))
    setup = one_shot_setup(plan, parameters, keys, members, SESSION, 0)
    of_another = plan.calibrate(SketchSpec.identity(LENGTH), b"\1" * 32, PublicSeed(bytes(32)))
    following = one_shot_setup(plan, of_another, keys, members, SESSION, 1)
    trained, checked = list[int](), dict[int, bytes]()

    def uploaded(index: int, data: bytes) -> bytes:
        def update(_: object) -> Any:
            trained.append(index)
            return np.ones(LENGTH)

        return folks[index].upload(data, MODEL, update, lambda: nullcontext(histories[index]))

    def collect(messages: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for index, data in messages:
            # A reply that was lost: nothing is trained again, and the bytes are the same.
            first = uploaded(index, data)
            # Nor does a round over another model, which is refused, erase anything.
            with pytest.raises(RemoteProtocolError):
                uploaded(index, following.announce(index))
            assert uploaded(index, data) == first
            yield index, first

    def consult(
        stage: MemberStage, messages: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        for index, data in messages:
            checked.setdefault(index, data)
            if stage is not MemberStage.CHECK:  # once more, which ends no round that is under way
                with pytest.raises(PolicyError):
                    folks[index].as_member(checked[index], signed[index], MemberStage.CHECK)
            yield index, folks[index].as_member(data, signed[index], stage)
            if stage is MemberStage.OPEN:
                with pytest.raises(LocalProtocolError, match="no round to go on with"):
                    folks[index].as_member(data, signed[index], stage)

    aggregator = RemoteOneShotAggregator(collect, consult, lambda *_: members)
    outcome = aggregator.run(setup)
    assert list(outcome.total.survivors) == trained == list(range(len(folks)))


def test_a_party_whose_policy_has_no_committee_refuses_one_shot_rounds(tmp_path: Path) -> None:
    party = one_shot(parties_of(IDENTITIES[:1], tmp_path, OPEN)[0], tmp_path)
    asked: list[Callable[[], object]] = [
        lambda: party.key(SealingBook(SESSION, time.time).request(0)),
        lambda: party.upload(b"", MODEL, lambda _: np.ones(LENGTH), lambda: nullcontext(None)),  # type: ignore[arg-type, return-value]
        lambda: party.as_member(b"", ClientHistory(), MemberStage.CHECK),
    ]
    for ask in asked:
        with pytest.raises(PolicyError, match="pairwise only"):
            ask()
