"""Stored one-shot sessions: the same round as without storing, and each state once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest

from secagg import ClientSession, SessionAbortedError
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.states import ClientParty, MemberParty
from secagg.oneshot.transitions import ClientPhase, MemberPhase
from secagg.pairwise.client_states import Party
from secagg.storage import StoredStateError, TokenFolder, resume, suspend

SEEDS = (0b11, 0b01)


@pytest.fixture
def keys(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path / "keys")


def client_party(round_: kit.Round, index: int) -> ClientParty:
    return ClientParty(
        round_.context, index, kit.identity("client", index), round_.clients[index]._party.rand
    )


def member_party(round_: kit.Round, index: int) -> MemberParty:
    """What a host knows of itself when it starts: nothing about what it uploaded."""
    identity, sealing = round_.member_identity(index), kit.sealing(round_.names, index)
    return MemberParty(round_.context, index, identity, sealing, None, None)


class Restarting(kit.Round):
    """Every party's process ends before every one of its steps, and another one goes on."""

    keys: TokenFolder

    def restart_client(self, index: int) -> None:
        party = client_party(self, index)
        stored = suspend(self.clients[index], self.keys)
        assert self.clients[index].phase is ClientPhase.ABORTED
        self.clients[index] = resume(OneShotClient, stored, party, self.keys)

    def restart_member(self, index: int) -> None:
        stored = suspend(self.members[index], self.keys)
        assert self.members[index].phase is MemberPhase.ABORTED
        party = member_party(self, index)
        self.members[index] = resume(OneShotMember, stored, party, self.keys)

    def upload(self, client: int) -> bytes:
        self.restart_client(client)
        self.clients[client].seeds(b"rounded %d" % client)
        self.restart_client(client)
        data = self.clients[client].submit_bytes(self.vector(client))
        self.restart_client(client)
        assert self.clients[client].resend_bytes() == data
        self.restart_client(client)
        assert self.clients[client].resend_bytes() == data
        return data

    def pass_on(self, change: Any = None) -> None:
        for member in self.members:
            self.restart_member(member)
        super().pass_on(change)


@pytest.mark.parametrize("everyone", [False, True])
@pytest.mark.parametrize("removal", [(), SEEDS])
def test_a_round_with_restarts_is_the_round_without(
    keys: TokenFolder, everyone: bool, removal: tuple[int, ...]
) -> None:
    kind = CommitteeKind.EVERYONE if everyone else CommitteeKind.NAMED
    committee = kit.committee(5, "client" if everyone else "member", kind=kind)
    context = kit.context(5, committee=committee, removal=removal)
    plain, restarting = kit.Round(context), Restarting(context)
    restarting.keys = keys
    answers: dict[bool, list[bytes]] = {False: [], True: []}
    for round_ in (plain, restarting):
        kept = answers[round_ is restarting]
        round_.collect({3})
        for _ in range(3):
            round_.pass_on(lambda _, data, kept=kept: kept.append(data) or data)  # type: ignore[misc]
    assert answers[False] == answers[True]
    opened, other = plain.server.open(), restarting.server.open()
    assert opened.vector.elements.tolist() == other.vector.elements.tolist()
    assert opened.removed == other.removed


def phases(keys: TokenFolder) -> dict[Any, tuple[type[Any], bytes, Any]]:
    """Client 1 and member 1 of a round, stored in every phase that can be."""
    stored: dict[Any, tuple[type[Any], bytes, Any]] = {}

    def store(kind: type[Any], session: Any, party: Any) -> Any:
        phase, state = session.phase, session._state
        stored[phase] = (kind, suspend(session, keys), party)
        return kind.from_state(session._party, state)

    round_ = kit.Round(kit.context(removal=SEEDS))
    party = client_party(round_, 1)
    session = store(OneShotClient, round_.clients[1], party)
    session.seeds(b"rounded 1")
    session = store(OneShotClient, session, party)
    session.submit(round_.vector(1))
    store(OneShotClient, session, party)
    round_ = kit.Round(kit.context(removal=SEEDS))
    round_.collect()
    for _ in range(3):
        round_.members[1] = store(OneShotMember, round_.members[1], member_party(round_, 1))
        round_.pass_on()
    return stored


def test_every_phase_that_waits_can_be_stored(keys: TokenFolder) -> None:
    final = {ClientPhase.ABORTED, MemberPhase.ABORTED, MemberPhase.FINISHED}
    assert set(phases(keys)) == {*ClientPhase, *MemberPhase} - final


def test_a_state_is_resumed_once(keys: TokenFolder, tmp_path: Path) -> None:
    """Also by another process, which shares the folder of keys and nothing else."""
    for phase, (kind, stored, party) in phases(keys).items():
        assert resume(kind, stored, party, keys).phase is phase
        for folder in (keys, TokenFolder(tmp_path / "keys")):
            with pytest.raises(StoredStateError, match="before"):
                resume(kind, stored, party, folder)


def test_a_member_s_own_upload_is_stored_with_it(keys: TokenFolder) -> None:
    """Forgotten, another upload in our name would be signed."""
    committee = kit.committee(5, "client", kind=CommitteeKind.EVERYONE)
    round_ = kit.Round(kit.context(5, committee=committee))
    round_.collect({4})
    for index in (1, 4):
        session = round_.members[index]
        own = session._party.own
        stored = suspend(session, keys)
        again = resume(OneShotMember, stored, member_party(round_, index), keys)
        assert again._party.own == own is not None
        assert own[0] == index
    silent = kit.Round(round_.context).member(2)
    stored = suspend(silent, keys)
    again = resume(OneShotMember, stored, member_party(round_, 2), keys)
    assert again._party.own == (2, None)


def test_a_state_belongs_to_its_party_round_and_kind_of_session(keys: TokenFolder) -> None:
    """A client that is a member has one index, one identity and one context for both."""
    committee = kit.committee(5, "client", kind=CommitteeKind.EVERYONE)
    context = kit.context(5, committee=committee)
    round_ = kit.Round(context)
    round_.collect()
    client, member = client_party(round_, 1), member_party(round_, 1)
    states = (
        (OneShotClient, suspend(round_.clients[1], keys), client),
        (OneShotMember, suspend(round_.members[1], keys), member),
    )
    other = kit.context(5, committee=committee, round_number=4)
    identity = kit.identity("client", 2)
    for place, (kind, stored, party) in enumerate(states):
        another_kind, _, another_party = states[1 - place]
        sealing = (party.sealing, None, None) if kind is OneShotMember else (party.rand,)
        for wrong_kind, wrong in (
            (another_kind, another_party),
            (kind, type(party)(other, 1, party.identity, *sealing)),
            (kind, type(party)(context, 2, party.identity, *sealing)),
            (kind, type(party)(context, 1, identity, *sealing)),
            (ClientSession, Party(context, 1, party.identity, kit.Stream())),  # type: ignore[arg-type]
        ):
            with pytest.raises(StoredStateError, match="cannot be opened"):
                resume(wrong_kind, stored, wrong, keys)  # type: ignore[type-var]
        assert resume(kind, stored, party, keys)  # type: ignore[type-var]


def test_secrets_are_not_readable_in_a_stored_state(keys: TokenFolder) -> None:
    round_ = kit.Round(kit.context(removal=SEEDS))
    _, *removable = round_.clients[0].seeds(b"rounded")
    root = round_.clients[0]._state.root.expose()
    stored = suspend(round_.clients[0], keys)
    assert all(secret not in stored for secret in (root, *(each.expose() for each in removable)))
    round_ = kit.Round(kit.context())
    round_.collect()
    round_.pass_on()
    row = round_.members[0]._state.shares[2].tobytes()
    assert row[:32] not in suspend(round_.members[0], keys)


def test_shares_come_back_as_they_were(keys: TokenFolder) -> None:
    round_ = kit.Round(kit.context(removal=SEEDS))
    round_.collect()
    for _ in range(2):
        round_.pass_on()
        before = round_.members[0]._state
        stored = suspend(round_.members[0], keys)
        again = resume(OneShotMember, stored, member_party(round_, 0), keys)
        assert type(again._state) is type(before)
        assert again._state.shares.dtype == before.shares.dtype
        assert np.array_equal(again._state.shares, before.shares)
        round_.members[0] = again


def test_sessions_that_are_over_cannot_be_stored(keys: TokenFolder, tmp_path: Path) -> None:
    round_ = kit.Round(kit.context())
    round_.finish()
    round_.clients[0].abort()
    for session in (round_.members[0], round_.clients[0]):
        with pytest.raises(SessionAbortedError):
            suspend(session, keys)
    assert list((tmp_path / "keys").iterdir()) == []
