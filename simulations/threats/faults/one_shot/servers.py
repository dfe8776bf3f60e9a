"""Servers of one-shot rounds that deviate, by name: each tells members something else.

They are stories for `Split`, which shows and proposes to each member what it likes, and has
signatures of its own corrupt members for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from secagg import ProtocolError
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.header import Header
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Upload
from secagg.storage import StateKeys, resume, suspend
from secagg.tags import Usage
from simulations.threats.faults.behaviours import Verdict
from simulations.threats.faults.one_shot.contexts import random_setting
from simulations.threats.faults.one_shot.loot import WatchedVictims
from simulations.threats.faults.tally import Tally
from simulations.threats.game.contexts import Integers, Members, cohort_keys, identity_of
from simulations.threats.game.stored_keys import MemoryKeys
from simulations.threats.one_shot.parties import (
    MemberMaker,
    answer,
    delivery,
    member_identity,
    shown,
    signed,
    small_inputs,
)
from simulations.threats.one_shot.play import Split

Uploads = dict[int, Upload]


@dataclass(slots=True)
class Server:
    """A hostile server's means.

    Attributes:
        inputs: int64[clients, length].
    """

    victims: WatchedVictims
    inputs: Integers
    uploads: Uploads
    rng: np.random.Generator

    @property
    def everybody(self) -> Members:
        """The numbers of all clients."""
        return tuple(range(self.victims.context.size))

    @property
    def colluder(self) -> int:
        """A client of its own."""
        return max(self.victims.setting.own_clients)

    @property
    def target(self) -> int:
        """An honest client."""
        return int(self.rng.integers(min(self.victims.setting.own_clients)))

    def without(self, count: int) -> Members:
        """Everybody but so many, chosen at random."""
        lost = set(self.rng.permutation(len(self.everybody))[:count].tolist())
        return tuple(u for u in self.everybody if u not in lost)

    def halves(self) -> tuple[Members, Members]:
        """Two groups of honest members."""
        honest = self.rng.permutation(self.victims.honest_members).tolist()
        middle = len(honest) // 2
        return tuple(honest[:middle]), tuple(honest[middle:])

    def tell(
        self,
        sets: Mapping[int, Collection[int]],
        uploads: Mapping[int, Mapping[int, Upload]] | None = None,
        **how: Any,
    ) -> Split:
        """Show every member uploads, all of them unless told, and propose it a set."""
        split = Split(self.victims, uploads or dict.fromkeys(sets, self.uploads), sets, **how)
        split.shares()
        return split

    def signed_by(self, sender: int, upload: Upload, name: int) -> Upload:
        """An upload under some name, with the signature of `sender`."""
        changed = msgspec.structs.replace(upload, sender=name)
        parts = Header.of(changed).signed_parts(self.victims.context)
        signature = identity_of(sender).sign(Usage.UPLOAD, *parts)
        return msgspec.structs.replace(changed, signature=signature)


def _splits_survivors(server: Server) -> None:
    """Two sets, one for each half of the members; signatures are whatever there is."""
    one, other = server.halves()
    stories = server.without(1), server.without(int(server.rng.integers(2)))
    sets = {**dict.fromkeys(one, stories[0]), **dict.fromkeys(other, stories[1])}
    pooled, forged = (bool(server.rng.integers(2)) for _ in range(2))
    server.tell(sets, pooled=pooled, forged=forged)


def _asks_again(server: Server) -> None:
    """When all have answered, for another set, and for the same again."""
    members = server.victims.honest_members
    first = server.tell(dict.fromkeys(members, server.without(1)))
    for story in (server.without(1), first.sets[members[0]]):
        server.tell(dict.fromkeys(members, story), sessions=first.sessions)


def _restores_members(server: Server) -> None:
    """Members are stored before they sign, and a copy of what they stored is resumed later."""
    members, keys = server.victims.honest_members, kept_keys()
    sessions, copies = {}, {}
    for j in members:
        session = server.victims.member(j)
        if shown(server.victims, session, j, server.uploads) is None:
            continue
        party = session._party
        copies[j] = party, suspend(session, keys)
        sessions[j] = resume(type(session), copies[j][1], party, keys)
    server.tell(dict.fromkeys(sessions, server.without(1)), sessions=sessions)
    again: dict[int, OneShotMember] = {}
    for j, (party, stored) in copies.items():
        try:
            again[j] = resume(type(sessions[j]), stored, party, keys)
        except ProtocolError as error:
            server.victims.refused(error)
    server.tell(dict.fromkeys(again, server.without(1)), sessions=again)


def kept_keys() -> StateKeys:
    """Where members keep the keys of what they store."""
    return MemoryKeys()


def _thins_sets(server: Server) -> None:
    """Fewer uploads than a sum may have, in what is shown or in what is proposed."""
    fewest = server.victims.context.minimum_survivors
    size = int(server.rng.integers(1, fewest))
    left = server.without(len(server.everybody) - size)
    members = server.victims.honest_members
    shown_too = {u: server.uploads[u] for u in left} if server.rng.random() < 0.5 else None
    uploads = dict.fromkeys(members, shown_too) if shown_too else None
    server.tell(dict.fromkeys(members, left), uploads)


def _shows_another_cohort(server: Server) -> None:
    """An honest client is exchanged for an identity of the server's, with an upload of its own."""
    context, target = server.victims.context, server.target
    stranger = 40
    keys = list(cohort_keys(context.size))
    keys[target] = identity_of(stranger).public
    other = server.victims.upload(target, server.inputs[server.colluder])
    uploads = {**server.uploads, target: server.signed_by(stranger, other, target)}
    sessions = {}
    for j in server.victims.honest_members:
        sessions[j] = server.victims.member(j)
        server.victims.ask(sessions[j], delivery(context, j, uploads, keys))
    sets = dict.fromkeys(sessions, tuple(sorted(uploads)))
    server.tell(sets, dict.fromkeys(sessions, uploads), sessions=sessions)


def _substitutes_uploads(server: Server) -> None:
    """An upload of the server's own in an honest client's name, sealed to the members."""
    target = server.target
    other = server.victims.upload(target, server.inputs[server.colluder])
    forged = server.signed_by(server.colluder, other, target)
    uploads = {**server.uploads, target: forged}
    members = server.victims.honest_members
    server.tell(dict.fromkeys(members, server.everybody), dict.fromkeys(members, uploads))


def _repeats_uploads(server: Server) -> None:
    """An honest upload, once more under a colluder's name and with its signature."""
    copied = server.signed_by(server.colluder, server.uploads[server.target], server.colluder)
    uploads = {**server.uploads, server.colluder: copied}
    members = server.victims.honest_members
    server.tell(dict.fromkeys(members, server.everybody), dict.fromkeys(members, uploads))


def _shows_two_uploads(server: Server) -> None:
    """One client of the server's has two uploads, one for each half of the members."""
    one, other = server.halves()
    second = server.victims.upload(server.colluder, -server.inputs[server.colluder])
    uploads = {**server.uploads, server.colluder: second}
    told = {**dict.fromkeys(one, server.uploads), **dict.fromkeys(other, uploads)}
    server.tell(dict.fromkeys(told, server.everybody), told, pooled=True)


def _shows_too_few_signatures(server: Server) -> None:
    """All sign one set, and are shown fewer signatures than a quorum, or random ones beside."""
    victims, context = server.victims, server.victims.context
    story = server.without(1)
    sessions = {j: victims.member(j) for j in victims.honest_members}
    signatures = {}
    for j, session in sessions.items():
        shown(victims, session, j, server.uploads)
        signature = signed(victims, session, story)
        if signature is not None:
            signatures[j] = signature
    few = dict(list(signatures.items())[: context.committee.quorum - 1])
    if server.rng.random() < 0.5:
        for j in range(context.committee.size):
            if len(few) < context.committee.quorum:
                few.setdefault(j, member_identity(j).sign(Usage.SURVIVORS, server.rng.bytes(32)))
    for session in sessions.values():
        answer(victims, session, few)


def _is_honest(server: Server) -> None:
    """One set for all; what members give up is looked at."""
    members = server.victims.honest_members
    server.tell(dict.fromkeys(members, server.without(int(server.rng.integers(2)))))


Story = Callable[[Server], None]

SERVERS: Mapping[str, Story] = {
    "looks at honest answers": _is_honest,
    "splits survivors": _splits_survivors,
    "asks again": _asks_again,
    "restores members": _restores_members,
    "thins sets": _thins_sets,
    "shows another cohort": _shows_another_cohort,
    "substitutes uploads": _substitutes_uploads,
    "repeats uploads": _repeats_uploads,
    "shows two uploads of one client": _shows_two_uploads,
    "shows too few signatures": _shows_too_few_signatures,
}
"""Every hostile server by its name in reports."""


def play_server(
    story: Story,
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    member: MemberMaker = OneShotMember,
) -> Verdict:
    """One round with a hostile server; it delivers all of its messages, so `rate` is not used."""
    setting = random_setting(rng)
    spare = setting.clients - fewest_survivors(setting.clients, setting.colluders)
    removal = tuple(int(m) for m in rng.integers(1, 8, spare + 1))
    context = setting.context(number, removal=removal if rng.random() < 0.5 else ())
    inputs = small_inputs(rng, context)
    victims = WatchedVictims(setting, context, rng.bytes(8), member=member, refused=tally.refused)
    server = Server(victims, inputs, victims.uploads(inputs), rng)
    victims.loot.uploaded(server.uploads)
    story(server)
    problem = victims.loot.broken()
    if problem is not None:
        return Verdict("promise broken", problem)
    return Verdict("one set answered" if victims.loot.released else "nothing given up")
