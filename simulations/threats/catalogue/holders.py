"""A31: holders that lie about the shares of others, alone and together.

Rounds of 15 clients, so many that not every choice of t shares is tried. Of 15 answers with t = 9,
three wrong ones are within half of the distance; framing takes four liars where t = 11. More than
half of the distance agree on another secret: nobody can tell, and nobody is named.

The attack succeeds if an honest client is named or blamed, if a sum is wrong, or if liars whom the
shares give away end the round or stay unnamed. One twin takes the first t shares and blames the
owner of what they do not rebuild. The other names whoever is off, however many could have lied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from secagg import Reason, RemoteProtocolError, ServerSession, SessionContext
from secagg.pairwise.messages import UnmaskShares
from secagg.pairwise.rebuild import Rebuilt
from secagg.pairwise.roster import RoundRoster
from secagg.pairwise.surplus import SurplusSeeds
from secagg.shamir import LIMBS, PRIME, combine, decode_share, encode_share
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, rate
from simulations.threats.faults.behaviours import Lie, Tally, instead
from simulations.threats.faults.liars import Liar
from simulations.threats.faults.rounds import with_liars
from simulations.threats.game.games import Setting
from simulations.threats.game.weak_clients import replaced

_SIZE: Final = 15
_SETTING: Final = Setting(size=_SIZE, colluders=2)
_FRAMING: Final = Setting(size=_SIZE, colluders=5)

Falsify = Callable[[Liar, UnmaskShares], bytes]
"""What a liar sends in place of its shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Story:
    """One way to lie."""

    setting: Setting = _SETTING
    liars: int = 3  # how many of those that are asked first
    plan: Callable[[np.random.Generator, SessionContext, Sequence[int]], Falsify]
    outcome: str = "exact sum"
    named: bool = True


def _shifted(shift: Callable[[int, int], np.ndarray | None]) -> Falsify:
    """Adds something to a liar's share of an owner: shift(liar, owner) is uint64[LIMBS] or None."""

    def falsify(liar: Liar, message: UnmaskShares) -> bytes:
        owners = sorted(liar.held)
        shares = decode_share(message.shares, len(owners)).astype(np.uint64)
        for place, owner in enumerate(owners):
            added = shift(liar.index, owner)
            if added is not None:
                shares[place] = (shares[place] + added) % PRIME
        return encode_share(shares.astype(np.uint32))

    return falsify


def _elements(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(1, PRIME, LIMBS, np.uint64)


def _alone(rng: np.random.Generator, context: SessionContext, liars: Sequence[int]) -> Falsify:
    return _shifted(lambda liar, owner: _elements(rng))


def _together(rng: np.random.Generator, context: SessionContext, liars: Sequence[int]) -> Falsify:
    """Shares of another secret for each owner."""
    other = [_elements(rng) for _ in range(context.size)]
    return _shifted(lambda liar, owner: other[owner])


def _about_some(rng: np.random.Generator, context: SessionContext, liars: Sequence[int]) -> Falsify:
    """Each about its part of the owners."""
    part = {liar: place for place, liar in enumerate(liars)}
    return _shifted(
        lambda liar, owner: _elements(rng) if owner % len(liars) == part[liar] else None
    )


def _framing(rng: np.random.Generator, context: SessionContext, liars: Sequence[int]) -> Falsify:
    """Polynomials that vanish at 0 and at all honest holders but the first two."""
    honest = [u for u in range(context.size) if u not in liars]
    agreeing = honest[len(honest) - (context.threshold - 2) :]
    scale = [_elements(rng) for _ in range(context.size)]

    def shift(liar: int, owner: int) -> np.ndarray:
        value = liar + 1
        for holder in agreeing:
            value = value * (liar - holder) % PRIME
        return scale[owner] * np.uint64(value) % PRIME

    return _shifted(shift)


def _no_elements(
    rng: np.random.Generator, context: SessionContext, liars: Sequence[int]
) -> Falsify:
    return lambda liar, message: b"\xff" * len(message.shares)


def _too_few(rng: np.random.Generator, context: SessionContext, liars: Sequence[int]) -> Falsify:
    return lambda liar, message: message.shares[: int(rng.integers(len(message.shares)))]


_STORIES: Final[Mapping[str, _Story]] = {
    "alone": _Story(plan=_alone),
    "together": _Story(plan=_together),
    "about_some_owners": _Story(plan=_about_some),
    "framing": _Story(setting=_FRAMING, liars=4, plan=_framing, named=False),
    "too_many": _Story(liars=5, plan=_together, outcome="WrongSharesError", named=False),
    "outside_the_field": _Story(plan=_no_elements, named=False),
    "of_another_length": _Story(plan=_too_few, named=False),
}


def _rebuild_first(server: ServerSession, roster: RoundRoster, _: SurplusSeeds) -> Rebuilt:
    """Rebuild from the first t shares, and blame the owner of what does not fit."""
    secrets = {}
    for owner in server._participants:
        first = [h for h in roster.graph.holders(owner) if h in server._shares][: roster.threshold]
        shares = np.array([[server._shares[holder][owner]] for holder in first])
        (secret,) = combine(shares, first)
        if secret is None or not server._is_committed(owner, secret):
            raise RemoteProtocolError(owner, Reason.BAD_SHARE)
        secrets[owner] = secret
    return Rebuilt(secrets, {})


_FIRST_SHARES: Final = (ServerSession, "_rebuild", _rebuild_first)
_NO_MARGIN: Final = (SessionContext, "corrupt_holders", lambda *_: 0)
"""Liars are named as if no client could work together with another."""


def _went_wrong(story: _Story, number: int, rng: np.random.Generator) -> bool:
    """Play a round; whether it ended otherwise than the product promises."""
    context = story.setting.context(number)
    # Of those that are asked first, so that every lie is met; the framed two come before the rest.
    first = range(2 if story.plan is _framing else 0, context.threshold)
    liars = sorted(int(u) for u in rng.choice(first, story.liars, replace=False))
    falsify = story.plan(rng, context, liars)

    def falsified(liar: Liar, message: UnmaskShares) -> UnmaskShares:
        return msgspec.structs.replace(message, shares=falsify(liar, message))

    lie = Lie(edits={UnmaskShares: instead(falsified)})
    played = with_liars(context, lie, liars, rng, 0.0, Tally())
    verdict = played.verdict()
    named = set() if played.total is None else set(played.total.culprits)
    expected = set(liars) if story.named else set()
    return verdict.problem is not None or (verdict.outcome, named) != (story.outcome, expected)


def _wrong(name: str, trials: int, seed: int) -> int:
    """In how many rounds of one story the attack came through."""
    place = list(_STORIES).index(name)
    return sum(
        _went_wrong(_STORIES[name], number, np.random.default_rng([seed, place, number]))
        for number in range(trials)
    )


def _played(trials: int, seed: int) -> Figures:
    wrong = {name: _wrong(name, trials, seed) for name in _STORIES}
    return {**rate(sum(wrong.values()), trials * len(_STORIES)), **wrong}


def _lying_holders(effort: Effort, seed: int) -> Findings:
    """A31: play every way to lie against the product and against both twins."""
    trials = effort.choose(1, 40)
    with replaced(_FIRST_SHARES):
        twin = _played(trials, seed)
    with replaced(_NO_MARGIN):
        framed = _wrong("framing", trials, seed)
    # Each twin must be beaten in all that its defence is there for.
    beaten = [twin["alone"], twin["together"], twin["about_some_owners"], framed]
    return Findings(
        _played(trials, seed),
        {
            **twin,
            "framing_without_margin": framed,
            "succeeded": bool(twin["succeeded"]) and beaten == [trials] * len(beaten),
        },
    )


ATTACKS = (
    Attack(
        id="A31",
        promise="P7",
        name="lying holders",
        title="Holders that lie end no round that their shares can save, and get nobody else named",
        says="has holders lie about shares, alone or together, about some owners only, so that "
        "honest holders look like liars",
        stopped_by="Reed-Solomon decoding of shares; nobody is named whom all corrupt clients "
        "could have framed",
        see=("security.md#lies-about-shares",),
        run=_lying_holders,
    ),
)
