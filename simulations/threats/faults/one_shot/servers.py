"""Servers of one-shot rounds that deviate, by name: each tells members something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from secagg import ProtocolError
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.member import OneShotMember
from secagg.storage import StateKeys, resume, suspend
from secagg.tags import Usage
from simulations.threats.faults.behaviours import Tally, Verdict, looked_at
from simulations.threats.faults.one_shot.parties import random_setting
from simulations.threats.faults.one_shot.transcript import WatchedVictims
from simulations.threats.game.contexts import MemoryKeys, cohort_keys, identity_of
from simulations.threats.one_shot.parties import (
    MemberMaker,
    answer,
    delivery,
    member_identity,
    shown,
    signed,
    small_inputs,
)
from simulations.threats.one_shot.play import Server


def _splits_survivors(server: Server) -> None:
    """Two sets, one for each half of the members; signatures are whatever there is."""
    honest = server.halved(0, 1)
    stories = server.without(1), server.without(int(server.rng.integers(2)))
    sets = {j: stories[half] for j, half in honest.items()}
    pooled, forged = (bool(server.rng.integers(2)) for _ in range(2))
    server.ask_each(sets, pooled=pooled, forged=forged).shares()


def _asks_again(server: Server) -> None:
    """When all have answered, for another set, and for the same again."""
    story = server.without(1)
    first = server.ask_all(story)
    first.shares()
    for again in (server.without(1), story):
        server.ask_all(again, sessions=first.sessions).shares()


def _restores_members(server: Server) -> None:
    """Members are stored before they sign, and a copy of what they stored is resumed later."""
    victims, keys = server.victims, kept_keys()
    sessions, copies = {}, {}
    for j in victims.honest_members:
        session = victims.member(j)
        if shown(victims, session, j, server.uploads) is None:
            continue
        party = session._party
        copies[j] = party, suspend(session, keys)
        sessions[j] = resume(type(session), copies[j][1], party, keys)
    server.ask_each(dict.fromkeys(sessions, server.without(1)), sessions=sessions).shares()
    again: dict[int, OneShotMember] = {}
    for j, (party, stored) in copies.items():
        try:
            again[j] = resume(type(sessions[j]), stored, party, keys)
        except ProtocolError as error:
            victims.refused(error)
    server.ask_each(dict.fromkeys(again, server.without(1)), sessions=again).shares()


def kept_keys() -> StateKeys:
    """Where members keep the keys of what they store."""
    return MemoryKeys()


def _shrinks_sets(server: Server) -> None:
    """Fewer uploads than a sum may have, in what is shown or in what is proposed."""
    fewest = server.victims.context.minimum_survivors
    size = int(server.rng.integers(1, fewest))
    left = server.without(len(server.everybody) - size)
    shown_too = {u: server.uploads[u] for u in left} if server.rng.random() < 0.5 else None
    server.ask_all(left, shown_too).shares()


def _shows_another_cohort(server: Server) -> None:
    """An honest client is exchanged for an identity of the server's, with an upload of its own."""
    victims, target, stranger = server.victims, server.somebody(), 40
    keys = list(cohort_keys(victims.context.size))
    keys[target] = identity_of(stranger).public
    other = victims.upload(target, server.inputs[server.colluder])
    uploads = {**server.uploads, target: server.signed_by(stranger, other, target)}
    sessions = {j: victims.member(j) for j in victims.honest_members}
    for j, session in sessions.items():
        victims.ask(session, delivery(victims.context, j, uploads, keys))
    server.ask_all(uploads=uploads, sessions=sessions).shares()


def _substitutes_uploads(server: Server) -> None:
    """An upload of the server's own in an honest client's name, sealed to the members."""
    target = server.somebody()
    other = server.victims.upload(target, server.inputs[server.colluder])
    forged = server.signed_by(server.colluder, other, target)
    server.ask_all(uploads={**server.uploads, target: forged}).shares()


def _repeats_uploads(server: Server) -> None:
    """An honest upload, once more under a colluder's name and with its signature."""
    server.ask_all(uploads=server.copied(server.somebody())).shares()


def _shows_two_uploads(server: Server) -> None:
    """One client of the server's has two uploads, one for each half of the members."""
    honest = server.halved(0, 1)
    second = server.victims.upload(server.colluder, -server.inputs[server.colluder])
    both = server.uploads, {**server.uploads, server.colluder: second}
    told = {j: both[half] for j, half in honest.items()}
    server.ask_each(dict.fromkeys(told, server.everybody), told, pooled=True).shares()


def _shows_too_few_signatures(server: Server) -> None:
    """All sign one set, and are shown fewer signatures than a quorum, or random ones beside."""
    victims, committee = server.victims, server.victims.context.committee
    story, sessions = server.without(1), server.sessions()
    made = {j: signed(victims, session, story) for j, session in sessions.items()}
    signatures = [(j, signature) for j, signature in made.items() if signature is not None]
    few = dict(signatures[: committee.quorum - 1])
    if server.rng.random() < 0.5:
        for j in range(committee.size):
            if len(few) < committee.quorum:
                few.setdefault(j, member_identity(j).sign(Usage.SURVIVORS, server.rng.bytes(32)))
    for session in sessions.values():
        answer(victims, session, few)


def _is_honest(server: Server) -> None:
    """One set for all; what members give up is looked at."""
    server.ask_all(server.without(int(server.rng.integers(2)))).shares()


Story = Callable[[Server], None]

SERVERS: Mapping[str, Story] = {
    "looks at honest answers": _is_honest,
    "splits survivors": _splits_survivors,
    "asks again": _asks_again,
    "restores members": _restores_members,
    "shrinks sets": _shrinks_sets,
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
    server = Server(victims, inputs, rng)
    victims.transcript.uploaded(server.uploads)
    story(server)
    return looked_at(victims.transcript.broken(), victims.transcript.released)
