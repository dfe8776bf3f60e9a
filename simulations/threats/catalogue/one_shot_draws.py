"""A50 to A54, A70: committees that are drawn by lot, by a server that would rather choose.

But for A70, where a candidate attacks, every committee here is the server's own from the first
member to the last. A client with the product's policy must refuse it; one that takes it seals a
share to each member, and the server reads its upload alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from math import ceil, log2
from typing import Final

import numpy as np

from protocol.round import lottery
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import DrawPolicy
from protocol.round.lottery import Lottery
from secagg import ParameterError
from secagg.grinding import MOST_TRIES
from secagg.oneshot.committee import Committee, CommitteeKind, Member, lowest_quorum
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.sortition import CERTAIN, Draw, Places, Registry, ticket
from simulations.audits.base import Figures
from simulations.threats.attack import (
    Attack,
    Effort,
    Findings,
    either,
    rate,
    refused_with,
    tried,
    twins,
)
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.opened import read_alone
from simulations.threats.one_shot.parties import (
    SESSION,
    OneShotSetting,
    OneShotVictims,
    committee_of,
    entry_of,
    member_identity,
    member_key,
    small_inputs,
)

_REGISTERED, _CORRUPT = 120, 40
"""Identities in the registry; the corrupt ones are the first, and all of them check in."""
_ODDS: Final = CERTAIN // 16
_ROUND, _TARGET = 3, 0
_SEATED: Final = 40
_STRANGERS: Final = 1000
"""Where the numbers of identities begin that nobody has registered."""
_OLD_ROUNDS: Final = 200


@lru_cache(maxsize=1)
def _registry() -> Registry:
    return Registry([member_identity(j).public for j in range(_REGISTERED)])


def _places(members: Iterable[int], registry: Registry | None = None) -> Places:
    return (registry or _registry()).places([member_identity(j).public for j in members])


def _draw(**changes: object) -> Draw:
    terms = {"registry_root": _registry().root, "registry_size": _REGISTERED, "odds": _ODDS}
    return Draw(**{**terms, **changes})  # type: ignore[arg-type]


_check = DrawPolicy.check


def _policy() -> DrawPolicy:
    """What the target insists on."""
    return DrawPolicy(
        registry_root=_registry().root,
        registry_size=_REGISTERED,
        odds=_ODDS,
        corrupt_identities=_CORRUPT,
        smallest=2,
    )


@dataclass(frozen=True, slots=True)
class _Packed:
    """A committee of the server's own."""

    members: tuple[int, ...]
    draw: Draw
    places: Places
    corrupt: int
    session: bytes = SESSION

    def context(self) -> OneShotContext:
        size = len(self.members)
        committee = committee_of(
            size,
            self.corrupt,
            kind=CommitteeKind.DRAWN,
            members=tuple(entry_of(j, (0, 9), session_id=self.session) for j in self.members),
            quorum=lowest_quorum(size, self.corrupt),
            draw=self.draw,
        )
        return OneShotSetting().context(_ROUND, committee=committee, session_id=self.session)


def _read(packed: _Packed, policy: DrawPolicy, number: int, seed: int) -> bool:
    context = packed.context()
    CommitteePolicy(kind=CommitteeKind.DRAWN, draw=policy).check_committee(context, packed.places)
    rng = np.random.default_rng([seed, number])
    inputs = small_inputs(rng, context)
    upload = OneShotVictims(OneShotSetting(), context, rng.bytes(8)).upload(
        _TARGET, inputs[_TARGET]
    )
    needed = packed.members[: context.committee.threshold]
    read = read_alone(context, upload, {k: member_key(j) for k, j in enumerate(needed)})
    return read is not None and np.array_equal(read, inputs[_TARGET])


Maker = Callable[[int], _Packed]
"""The committee of a trial."""


def _played(make: Maker, trials: int, seed: int) -> Figures:
    policy = _policy()
    return tried(lambda number: _read(make(number), policy, number, seed), trials)


def _tolerated() -> int:
    """How many corrupt members the target wants tolerated."""
    return _policy().corrupt


# -- A50 ------------------------------------------------------------------------------------------


def _made_up(draw: Draw, wanted: int) -> tuple[int, ...]:
    """Identities that nobody registered, made up until their tickets are low enough."""
    seed, found = draw.seed(SESSION, _ROUND), list[int]()
    for j in count(_STRANGERS):
        if ticket(seed, member_identity(j).public) < draw.odds:
            found.append(j)
        if len(found) == wanted:
            return tuple(found)
    raise AssertionError("numbers do not end")


def _strangers(number: int) -> _Packed:
    """With the places of registered candidates, or with those in a tree of their own."""
    draw = _draw()
    members = _made_up(draw, _SEATED)
    keys = [member_identity(j).public for j in members]
    own = Registry(keys).places(keys)
    others = _registry().places(list(_registry().keys[:_SEATED]))
    return _Packed(members, draw, own if number % 2 else others, _tolerated())


# -- A51 ------------------------------------------------------------------------------------------


def _own_registry(number: int) -> _Packed:
    """Those who checked in, says the server: its own, drawn by the rules."""
    first = _STRANGERS * (number + 2)
    registered = range(first, first + 16 * 2 * _SEATED)
    registry = Registry([member_identity(j).public for j in registered])
    draw = _draw(registry_root=registry.root, registry_size=len(registry))
    seed = draw.seed(SESSION, _ROUND)
    low = [j for j in registered if ticket(seed, member_identity(j).public) < _ODDS]
    members = tuple(low[:_SEATED])
    places = _places(members, registry)
    return _Packed(members, draw, places, _tolerated())


def _any_registry(policy: DrawPolicy, context: OneShotContext, places: Places | None) -> None:
    """The twin: takes the server's word for who is registered."""
    announced = context.committee.draw or _draw()
    root, size = announced.registry_root, announced.registry_size
    _check(replace(policy, registry_root=root, registry_size=size), context, places)


# -- A52 ------------------------------------------------------------------------------------------


def _all_corrupt(draw: Draw, session: bytes = SESSION) -> _Packed:
    """Every corrupt identity of the registry, with its right place."""
    members = tuple(range(_CORRUPT))
    places = _places(members)
    return _Packed(members, draw, places, _tolerated(), session)


def _at_high_odds(number: int) -> _Packed:
    return _all_corrupt(_draw(odds=CERTAIN - 1 - number))


def _any_odds(policy: DrawPolicy, context: OneShotContext, places: Places | None) -> None:
    """The twin: takes the server's word for the odds, and computes with its own."""
    announced = context.committee.draw or _draw()
    # Nobody is counted as corrupt here: the bound was compared before, with the own odds.
    _check(replace(policy, odds=announced.odds, corrupt_identities=0), context, places)


# -- A53 ------------------------------------------------------------------------------------------


def _of_other_rounds(number: int) -> _Packed:
    """All corrupt identities, each of which was drawn in some round of this session or another."""
    draw = _draw()
    session = bytes([number % 2]) * len(SESSION)
    seeds = [draw.seed(SESSION, old) for old in range(_OLD_ROUNDS)]
    drawn = {
        j
        for j in range(_CORRUPT)
        if any(ticket(seed, member_identity(j).public) < _ODDS for seed in seeds)
    }
    packed = _all_corrupt(draw, session)
    members = tuple(sorted(drawn))
    places = _places(members)
    return replace(packed, members=members, places=places)


# -- A54 ------------------------------------------------------------------------------------------


def _on_average(policy: DrawPolicy) -> int:
    """The twin's bound, for a server that tries nothing: as many corrupt members as on average."""
    return ceil(policy.corrupt_identities * policy.odds / CERTAIN)


def _candidates(draw: Draw, session: bytes) -> tuple[int, ...]:
    seed = draw.seed(session, _ROUND)
    tickets = ((j, ticket(seed, _registry().keys[j])) for j in range(_CORRUPT))
    return tuple(j for j, drawn in tickets if drawn < draw.odds)


def _best(draw: Draw, sessions: Sequence[bytes]) -> tuple[bytes, tuple[int, ...]]:
    """The session with the most corrupt candidates, and who they are."""
    found = ((session, _candidates(draw, session)) for session in sessions)
    return max(found, key=lambda each: len(each[1]))


def _ground(effort: Effort, seed: int) -> Findings:
    trials, tries = effort.choose(2, 10), effort.choose(1 << 9, 1 << 14)
    draw, most = _draw(), list[int]()

    def sessions(number: int) -> list[bytes]:
        return [bytes(np.random.default_rng([seed, number, i]).bytes(16)) for i in range(tries)]

    def ground(number: int) -> _Packed:
        session, members = _best(draw, sessions(number))
        most.append(len(members))
        places = _places(members)
        # It has to be told that fewer are corrupt, or nobody could be honest.
        corrupt = min(_on_average(_policy()), len(members) - 1)
        return _Packed(members, draw, places, corrupt, session)

    policy = _policy()
    real = _played(ground, trials, seed)
    beacon = _draw(beacon=bytes(32))
    under_one = {_candidates(beacon, session) for session in sessions(0)[:64]}
    beyond = max(most) > policy.corrupt or len(under_one) > 1
    figures: Figures = {
        "sessions_tried": tries,
        "most_corrupt_candidates": max(most),
        "tolerated": policy.corrupt,
        "draws_under_one_beacon": len(under_one),
        "log2_chance_after_all_tries": log2(MOST_TRIES) - policy.bits,
    }
    with replaced((DrawPolicy, "corrupt", property(_on_average))):
        return Findings(either(real, beyond, **figures), _played(ground, trials, seed))


# -- A70 ------------------------------------------------------------------------------------------

_FEW: Final = 4
"""Seats, fewer than there are candidates."""


def _spoiled(number: int) -> Callable[[bytes], Member | None]:
    """Who has checked in; the first candidate's entry is unsigned, or has the second's key."""
    entries = {member_identity(j).public: entry_of(j) for j in range(_REGISTERED)}
    first, second = Lottery(_registry(), _ODDS, _FEW).candidates(SESSION, _ROUND)[:2]
    entries[first] = replace(entries[first], signature=bytes(64))
    if number % 2:
        identity = member_identity(_registry().keys.index(first))
        entries[first] = entry_of(0, identity=identity, sealing_key=entries[second].sealing_key)
    return entries.get


def _ended(trials: int, seed: int) -> Figures:
    """How often a candidate's entry ends the round that it is drawn for."""
    del seed
    won, refusals = 0, Counter[str]()
    for number in range(trials):
        drawn = Lottery(_registry(), _ODDS, _FEW).seat(SESSION, _ROUND, _spoiled(number))
        kind, members = CommitteeKind.DRAWN, drawn.members
        try:
            committee = committee_of(_FEW, 1, kind=kind, members=members, draw=drawn.draw)
            OneShotSetting().context(_ROUND, committee=committee)
        except ParameterError as error:
            won += 1
            refusals[f"ParameterError {error.argument}"] += 1
    return {**rate(won, trials), **refused_with(refusals)}


ATTACKS: Final = (
    Attack(
        id="A50",
        promise="P11",
        name="an unregistered member on a drawn committee",
        title="Nobody is on a drawn committee who is not in the client's registry",
        says="makes up identities with low tickets, and shows the places of registered ones, or "
        "its own tree",
        stopped_by="a joint path from all members to the root in the client's policy",
        refused_with="PolicyError committee",
        run=twins(partial(_played, _strangers), 4, 40, (Places, "hold", lambda *_: True)),
    ),
    Attack(
        id="A51",
        promise="P11",
        name="a draw from another registry",
        title="No committee is drawn from a registry of the server's own",
        says="draws by the rules from identities of its own, as those who checked in",
        stopped_by="the registry's root and size in the client's policy",
        refused_with="PolicyError registry_root",
        run=twins(partial(_played, _own_registry), 2, 20, (DrawPolicy, "check", _any_registry)),
    ),
    Attack(
        id="A52",
        promise="P11",
        name="raised odds",
        title="No committee is drawn at other odds than the client's",
        says="draws every corrupt identity of the right registry",
        stopped_by="the odds in the client's policy",
        refused_with="PolicyError odds",
        run=twins(partial(_played, _at_high_odds), 3, 40, (DrawPolicy, "check", _any_odds)),
    ),
    Attack(
        id="A53",
        promise="P11",
        name="candidates of other rounds",
        title="Whoever was drawn in another round or session is no candidate in this one",
        says="seats corrupt identities drawn in other rounds, in this session and in another",
        stopped_by="tickets that depend on session and round, or on their beacon, checked by "
        "every context",
        refused_with="ParameterError members",
        run=twins(
            partial(_played, _of_other_rounds), 4, 40, (Committee, "check_draw", lambda *_: None)
        ),
    ),
    Attack(
        id="A54",
        promise="P11",
        name="grinding the session of a draw",
        title="No session can be found whose draw breaks a committee",
        says="tries thousands of sessions, or beacons, and takes the one with the most corrupt "
        "candidates",
        stopped_by="a bound on corrupt members that covers every try: 2^60 of them leave 2^-68; a "
        "beacon in place of session and round",
        refused_with="PolicyError corrupt",
        run=_ground,
    ),
    Attack(
        id="A70",
        promise="P14",
        name="a candidate that spoils its draw",
        title="No candidate ends the round that it is drawn for",
        says="hands over an entry without its signature, or with another's sealing key, which "
        "ends the round for everybody",
        stopped_by="such entries are skipped when seats are given",
        run=twins(_ended, 2, 10, (lottery, "_is_valid", lambda *_: True)),
    ),
)
