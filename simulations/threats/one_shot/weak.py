"""Clients, members and members' memories with one defence missing. Never use them.

Most checks compare what the server says with the context. A party without such a check runs the
product's code on a context that says something else, under the same hash. The others lack a check
while they take a step: `lacking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dp import NoiseSeed
from protocol.round.member_noise import AddedNoise, MemberNoise, StoredMemberNoise
from secagg.keys import SecretSeed
from secagg.oneshot import client as client_module
from secagg.oneshot import member as member_module
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import CommitteeContext, OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.records import RoundRecord
from secagg.oneshot.states import Checked, Finished
from secagg.sealing import unseal
from secagg.tags import Usage, derive, digest, encode_index
from simulations.threats.game.weak_clients import lacking, weakened
from simulations.threats.one_shot.parties import MemberMaker
from simulations.threats.one_shot.whole_run import Draw


def believing(quorum: int | None = None, **changes: Any) -> MemberMaker:
    """A member that believes other parameters than those it has agreed on."""

    def make(context: OneShotContext, *rest: Any) -> OneShotMember:
        if quorum is not None:
            changes["committee"] = weakened(context.committee, quorum=quorum)
        return OneShotMember(weakened(context, **changes), *rest)

    return make


no_agreement = believing(quorum=1)
"""Answers on the set that it signed, whatever the others have signed."""
no_minimum = believing(minimum_survivors=1)
"""Signs every set, however small."""
neither = believing(quorum=1, minimum_survivors=1)
"""Answers on any set."""


class SignsAgain(OneShotMember):
    """Keeps the shares after it has signed and answered: it can be asked about another set."""

    _kept: Checked | None = None

    def _step(self, event: Any, payload: Any) -> Any:
        """The product's step; after the answer, the state is that before the signature."""
        if isinstance(self._state, Checked):
            self._kept = self._state
        answer = super()._step(event, payload)
        if isinstance(self._state, Finished) and self._kept is not None:
            self._state = self._kept
        return answer


def _names(context: CommitteeContext, headers: Sequence[Header]) -> bytes:
    names = b"".join(encode_index(header.sender) for header in headers)
    return digest(Usage.SURVIVORS, context.hash, names)


def opened_of_any(shared: bytes, hashed: bytes, sender: int, to: int, sealed: bytes) -> bytes:
    """The content of a seal, every client being tried as the sender."""
    for other in range(64):
        try:
            return unseal(shared, hashed, other, to, sealed)
        except ValueError:
            continue
    return unseal(shared, hashed, sender, to, sealed)


class _Unbound:
    """The secrets of an upload into whose derivation nothing goes that is uploaded."""

    def __init__(self, party: Any, state: Any, vector: Any) -> None:
        self._root: SecretSeed = state.root

    def derived(self, label: bytes, length: int) -> bytes:
        return derive(self._root.expose(), Usage.UPLOAD_SECRETS, length, label)


NamesClients = lacking(OneShotMember, (member_module, "survivors_digest", _names))
"""Signs a list of clients, and not of uploads."""
TakesAnySender = lacking(OneShotMember, (member_module, "unseal", opened_of_any))
"""Opens a seal whoever made it."""
BelievesHeaders = lacking(OneShotMember, (Header, "is_signed", lambda *_: True))
"""Does not verify who signed a header."""
SameKeyAgain = lacking(OneShotClient, (client_module, "UploadSecrets", _Unbound))
"""Derives the secrets of an upload from its fresh bytes alone."""


class _Watched(MemberNoise):
    """The product's memory; what was added and taken back in each context is told to a test."""

    _member: int
    _taken: AddedNoise | None = None
    _names: dict[bytes, int]
    used: dict[bytes, tuple[Draw, Draw | None]]

    def may_take_back(
        self, context: CommitteeContext, member: int, variance: float
    ) -> AddedNoise | None:
        """The product's answer, noted."""
        self._taken = super().may_take_back(context, member, variance)
        return self._taken

    def add(self, context: CommitteeContext, variance: float, seed: NoiseSeed) -> AddedNoise:
        """The product's step, noted."""
        added = super().add(context, variance, seed)
        taken = self._draw(self._taken) if self._taken else None
        self.used[context.hash] = (self._draw(added), taken)
        return added

    def _draw(self, noise: AddedNoise) -> Draw:
        number = self._names.setdefault(noise.seed, len(self._names))
        return Draw((self._member, number), noise.variance)


class WatchedNoise(_Watched):
    """A memory that lives as long as its process."""

    def __init__(self, member: int) -> None:
        super().__init__()
        self._member, self._names, self.used = member, {}, {}


class StoredNoise(_Watched, StoredMemberNoise):
    """A memory in a folder."""

    def __init__(self, folder: Path, before: WatchedNoise | StoredNoise) -> None:
        super().__init__(folder)
        self._member, self._names, self.used = before._member, before._names, before.used


class ForgetsLists(WatchedNoise):
    """Does not know which records it has signed for: takes every list."""

    def begin(self, context: CommitteeContext) -> None:
        """The product's step, for a member that has signed for nothing."""
        memory = self._read(context.session_id)
        self._write(context.session_id, msgspec.structs.replace(memory, records=0, head=b""))
        super().begin(context)


class ForgetsRounds(WatchedNoise):
    """Does not know which rounds it has begun, nor what it signed for in them."""

    def begin(self, context: CommitteeContext) -> None:
        """The product's step, for a member that has begun no round."""
        memory = self._read(context.session_id)
        others = tuple(each for each in memory.added if each.round_number != context.round_number)
        again = msgspec.structs.replace(memory, begun=-1, records=0, head=b"", added=others)
        self._write(context.session_id, again)
        super().begin(context)


class BelievesRecords(WatchedNoise):
    """Counts the numbers that may be skipped from the last record that it is shown."""

    def begin(self, context: CommitteeContext) -> None:
        """The product's step, for a member that has begun that round itself."""
        if context.records:
            memory = self._read(context.session_id)
            begun = max(memory.begun, context.records[-1].round_number)
            self._write(context.session_id, msgspec.structs.replace(memory, begun=begun))
        super().begin(context)


class SignsLate(WatchedNoise):
    """Signs for a round when it has begun a later one."""

    def require_last(self, context: CommitteeContext) -> None:
        """Every round will do."""

    def sign(self, context: CommitteeContext, record: RoundRecord) -> None:
        """The product's step for the round begun last, and none for others."""
        if self._read(context.session_id).begun == context.round_number:
            super().sign(context, record)


class TakesAnyTerms(WatchedNoise):
    """Is bound to a run's terms by its first signature only, and takes back noise of any law."""

    def begin(self, context: CommitteeContext) -> None:
        """The product's step; what was begun without a signature binds nobody."""
        memory = self._read(context.session_id)
        if not memory.records:
            self._write(context.session_id, msgspec.structs.replace(memory, head=b""))
        super().begin(context)

    def may_take_back(
        self, context: CommitteeContext, member: int, variance: float
    ) -> AddedNoise | None:
        """What was added in the round of the last record, whatever its law is."""
        uploads = context.member_uploads
        self._taken = None
        if uploads is not None and uploads.returning and uploads.records:
            last = uploads.records[-1]
            added = self._read(context.session_id).added
            known = {each.round_number: each for each in added}
            self._taken = known.get(last.round_number) if member in last.entered else None
        return self._taken
