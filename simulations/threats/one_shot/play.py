"""Rounds of an attack on the one-shot protocol: servers that tell members different things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from secagg import ProtocolError
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Answer, Upload
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.tags import Usage
from simulations.audits.base import Figures
from simulations.threats.game.contexts import Integers, Members, identity_of
from simulations.threats.game.rates import rate
from simulations.threats.game.victims import refused_with
from simulations.threats.one_shot.opened import added, key_sum, vector_sum
from simulations.threats.one_shot.parties import (
    ClientMaker,
    MemberMaker,
    OneShotSetting,
    OneShotVictims,
    answer,
    held,
    member_identity,
    shown,
    signed,
    small_inputs,
)

T = TypeVar("T")

Trial = Callable[["Server"], bool]
"""One round of a hostile server: whether its attack succeeded."""


Sums = list[tuple[tuple[Upload, ...], Integers]]
"""Sums that were opened: the uploads, and the sum of their vectors."""


def play(
    trial: Trial,
    setting: OneShotSetting,
    trials: int,
    seed: int,
    client: ClientMaker = OneShotClient,
    member: MemberMaker = OneShotMember,
    change: Callable[[OneShotContext], OneShotContext] | None = None,
) -> Figures:
    """Play many rounds."""
    won = 0
    refusals: Counter[str] = Counter()
    for number in range(trials):
        rng = np.random.default_rng([seed, number])
        context = setting.context(number)
        inputs = small_inputs(rng, context)
        victims = OneShotVictims(
            setting, change(context) if change else context, rng.bytes(8), client, member
        )
        won += trial(Server(victims, inputs, rng))
        refusals += victims.refusals
    return {**rate(won, trials), **refused_with(refusals)}


def together(played: Sequence[Figures]) -> Figures:
    """Several games of one attack, counted together, with the first one's refusal."""
    won, trials = (sum(int(each[name]) for each in played) for name in ("successes", "trials"))
    return {**played[0], **rate(won, trials), "stories": len(played)}


@dataclass(slots=True)
class Split:
    """A server that shows and proposes to each honest member what it likes.

    Its corrupt members sign everything and give up what they hold.
    """

    victims: OneShotVictims
    uploads: Mapping[int, Mapping[int, Upload]]
    sets: Mapping[int, Collection[int]]
    # Whether a signature is shown to everybody, on whatever set it is; otherwise to those members
    # alone that were asked to sign the same uploads.
    pooled: bool = False
    forged: bool = False  # whether signatures on other sets fill up a quorum
    sessions: dict[int, OneShotMember] = field(default_factory=dict)

    def run(self) -> Sums:
        """The sums that open: the uploads, and the sum of their vectors."""
        shares = self.shares()
        return [
            (uploads, total)
            for uploads, of_members in shares.items()
            if (total := self._opened(uploads, of_members)) is not None
        ]

    def shares(self) -> dict[tuple[Upload, ...], dict[int, NDArray[np.uint32]]]:
        """By set of uploads, the honest members' shares of the sum of its keys."""
        context = self.victims.context
        by_set: dict[tuple[Upload, ...], dict[int, NDArray[np.uint32]]] = {}
        signatures: dict[int, bytes] = {}
        for j, survivors in self.sets.items():
            if j not in self.sessions:
                self.sessions[j] = self.victims.member(j)
                if shown(self.victims, self.sessions[j], j, self.uploads[j]) is None:
                    continue
            signature = signed(self.victims, self.sessions[j], survivors)
            if signature is not None:
                signatures[j] = signature
        for j in signatures:
            chosen = self._chosen(j)
            own = {k: signatures[k] for k in signatures if self.pooled or self._chosen(k) == chosen}
            if not self.pooled:
                own |= self._corrupt(context, chosen)
            if self.forged:
                own = {**signatures, **own}
            given = answer(self.victims, self.sessions[j], own)
            if given is not None:
                by_set.setdefault(chosen, {})[j] = given
        return by_set

    def _chosen(self, j: int) -> tuple[Upload, ...]:
        return tuple(self.uploads[j][u] for u in sorted(self.sets[j]))

    def _corrupt(self, context: OneShotContext, chosen: tuple[Upload, ...]) -> dict[int, bytes]:
        digest = survivors_digest(context, [Header.of(upload) for upload in chosen])
        return {
            j: member_identity(j).sign(Usage.SURVIVORS, digest)
            for j in self.victims.setting.own_members
            if j not in self.sets
        }

    def _opened(
        self, uploads: tuple[Upload, ...], of_members: Mapping[int, NDArray[np.uint32]]
    ) -> Integers | None:
        context = self.victims.context
        shares = dict(of_members)
        for j in self.victims.setting.own_members:
            if j not in self.sets:
                shares[j] = added(context, [held(context, upload, j) for upload in uploads])
        return vector_sum(context, uploads, key_sum(context, shares))


@dataclass
class Server:
    """A hostile server of one round: its victims, what it has of them, and what it can do.

    An attack of the catalogue says what it does; a fault campaign draws that from `rng`.
    """

    victims: OneShotVictims
    inputs: Integers  # int64[clients, length]
    rng: np.random.Generator
    target: int = 0

    @cached_property
    def uploads(self) -> dict[int, Upload]:
        """What all clients sent."""
        return self.victims.uploads(self.inputs)

    @property
    def everybody(self) -> Members:
        """The numbers of all clients."""
        return tuple(range(self.victims.context.size))

    @property
    def others(self) -> Members:
        """Everybody but the target."""
        return tuple(u for u in self.everybody if u != self.target)

    @property
    def colluder(self) -> int:
        """A client of its own."""
        return max(self.victims.setting.own_clients)

    def somebody(self) -> int:
        """An honest client, chosen at random."""
        return int(self.rng.integers(min(self.victims.setting.own_clients)))

    def without(self, count: int) -> Members:
        """Everybody but so many, chosen at random."""
        lost = set(self.rng.permutation(len(self.everybody))[:count].tolist())
        return tuple(u for u in self.everybody if u not in lost)

    def halved(self, one: T, other: T, more: int = 0) -> dict[int, T]:
        """By honest member, one of two things; of an odd number, `more` have the first one."""
        honest = self.rng.permutation(self.victims.honest_members).tolist()
        middle = (len(honest) + more) // 2
        return {**dict.fromkeys(honest[:middle], one), **dict.fromkeys(honest[middle:], other)}

    def upload(self, u: int, context: OneShotContext | None = None) -> Upload:
        """A client's upload once more, or what it sends when it is told of another context."""
        return self.victims.upload(u, self.inputs[u], context)

    def signed_by(self, sender: int, upload: Upload, name: int, **changes: Any) -> Upload:
        """An upload under some name, with other content or not, and the signature of `sender`."""
        changed = msgspec.structs.replace(upload, sender=name, **changes)
        parts = Header.of(changed).signed_parts(self.victims.context)
        signature = identity_of(sender).sign(Usage.UPLOAD, *parts)
        return msgspec.structs.replace(changed, signature=signature)

    def copied(self, u: int) -> dict[int, Upload]:
        """All uploads; in the colluder's place that of client u, under its name and signature."""
        own = self.colluder
        return {**self.uploads, own: self.signed_by(own, self.uploads[u], own)}

    def ask_each(
        self,
        sets: Mapping[int, Collection[int]],
        shown_to: Mapping[int, Mapping[int, Upload]] | None = None,
        **how: Any,
    ) -> Split:
        """Show members uploads, all of them unless told, and ask each for a set of clients."""
        return Split(self.victims, shown_to or dict.fromkeys(sets, self.uploads), sets, **how)

    def ask_all(
        self,
        chosen: Collection[int] | None = None,
        uploads: Mapping[int, Upload] | None = None,
        **how: Any,
    ) -> Split:
        """Show all honest members the same uploads, and ask all of them for the same clients."""
        members = self.victims.honest_members
        sets = dict.fromkeys(members, self.everybody if chosen is None else chosen)
        return self.ask_each(sets, dict.fromkeys(members, uploads or self.uploads), **how)

    def sessions(self, uploads: Mapping[int, Upload] | None = None) -> dict[int, OneShotMember]:
        """Honest members' sessions that were shown uploads."""
        found = {j: self.victims.member(j) for j in self.victims.honest_members}
        for j, session in found.items():
            shown(self.victims, session, j, uploads or self.uploads)
        return found

    def end_of(
        self,
        uploads: Mapping[int, Upload],
        change: Callable[[int, Answer, bytes], Answer] | None = None,
    ) -> ProtocolError | OpenedSum:
        """What a round with the product's own server ends in; how it is lost is counted."""
        victims = self.victims
        server = OneShotServer(victims.context, victims.cohort)
        sessions = {j: victims.member(j) for j in range(victims.context.committee.size)}
        try:
            for u in sorted(uploads):
                server.receive(uploads[u])
            for _ in range(3):
                for j, message in list(server.close_round()):
                    given = sessions[j].receive(message)
                    if isinstance(given, Answer) and change is not None:
                        headers = [Header.of(uploads[u]) for u in server.survivors]
                        given = change(j, given, survivors_digest(victims.context, headers))
                    server.receive(given)
            opened = server.open()
        except ProtocolError as error:
            victims.refused(error)
            return error
        assert isinstance(opened, OpenedSum)  # noqa: S101 - what a one-shot server opens
        return opened

    def is_exact(self, opened: OpenedSum) -> bool:
        """Whether a sum is that of what all clients put in."""
        expected = np.mod(self.inputs.sum(axis=0), self.victims.context.field.modulus)
        return np.array_equal(opened.vector.elements.astype(np.int64), expected)


def difference_is(opened: Sums, wanted: Integers) -> bool:
    """Whether two sums opened that differ by this vector."""
    sums = [total for _, total in opened]
    return any(np.array_equal(a - b, wanted) for a in sums for b in sums if a is not b)


def has(opened: Sums, wanted: Integers) -> bool:
    """Whether one of the sums that opened is this vector."""
    return any(np.array_equal(total, wanted) for _, total in opened)
