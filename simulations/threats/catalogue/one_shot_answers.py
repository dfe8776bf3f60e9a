"""A43 and A44: shares that are on no polynomial, from a dealer or from members who answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from secagg import ProtocolError
from secagg.errors import OpeningFailedError
from secagg.oneshot import opening, packed_sharing
from secagg.oneshot.layout import ShareLayout, decode_rows, encode_rows
from secagg.oneshot.member import answer_parts
from secagg.oneshot.messages import Answer
from secagg.shamir import PRIME
from secagg.tags import Usage
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, either, rate, twins
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.parties import OneShotSetting, member_identity
from simulations.threats.one_shot.play import Server, Trial, play

_SETTING: Final = OneShotSetting(
    members=8, corrupt=2, randomness=2, per_polynomial=2, length=64, colluders=1
)
"""T + l = 4 of 8 answers open a sum, and two wrong ones are corrected."""


# -- A43 ------------------------------------------------------------------------------------------


def _off_polynomial(server: Server) -> bool:
    """A colluder deals shares at random. It succeeds unless the round is lost, and it is named."""
    own, uploads = server.colluder, server.uploads

    def deal(layout: ShareLayout, *_: object) -> np.ndarray:
        return server.rng.integers(0, PRIME, (layout.members, layout.polynomials), np.uint32)

    with replaced((ShareLayout, "deal", deal)):
        end = server.end_of({**uploads, own: server.upload(own)})
    return not isinstance(end, OpeningFailedError) or end.dealers != (own,)


# -- A44 ------------------------------------------------------------------------------------------

Shift = Callable[[int], np.ndarray]
"""What a lying member adds to its share: by member, int64[polynomials]."""


def _alone(rng: np.random.Generator, width: int, honest: Sequence[int]) -> Shift:
    """Each something of its own."""
    return lambda j: rng.integers(1, PRIME, width)


def _together(rng: np.random.Generator, width: int, honest: Sequence[int]) -> Shift:
    """All the values of other polynomials, of the right degree."""
    factors = rng.integers(1, PRIME, (4, width))
    return lambda j: sum(row * pow(j + 1, k, PRIME) % PRIME for k, row in enumerate(factors))


def _framing(rng: np.random.Generator, width: int, honest: Sequence[int]) -> Shift:
    """The same, of polynomials that vanish at three honest members, so that others look wrong."""
    scale = rng.integers(1, PRIME, width)

    def shift(j: int) -> np.ndarray:
        value = 1
        for k in honest[:3]:
            value = value * (j - k) % PRIME
        return scale * value % PRIME

    return shift


def _lying(server: Server, plan: Callable[..., Shift], liars: int) -> bool:
    """Some members' sums are wrong: two give the exact sum and their names, more no wrong sum."""
    context = server.victims.context
    order = server.rng.permutation(context.committee.size).tolist()
    shift = plan(server.rng, context.layout.key_polynomials, order[liars:])

    def change(j: int, given: Answer, digest: bytes) -> Answer:
        if j not in order[:liars]:
            return given
        right = decode_rows(given.sums, 1, context.layout.key_polynomials)[0].astype(np.int64)
        sums = encode_rows(((right + shift(j)) % PRIME).astype(np.uint32))
        parts = answer_parts(context, j, digest, sums, given.seeds, given.checks)
        signature = member_identity(j).sign(Usage.ANSWER, *parts)
        return msgspec.structs.replace(given, sums=sums, signature=signature)

    within = liars <= context.committee.corrupt
    end = server.end_of(server.uploads, change)
    if isinstance(end, ProtocolError):
        return within
    named = end.wrong_members == tuple(sorted(order[:liars]))
    return not server.is_exact(end) or (within and not named)


_PLANS: Final = (_alone, _together, _framing)


def _answers(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(2, 25)
    within = [partial(_lying, plan=plan, liars=liars) for plan in _PLANS for liars in (1, 2)]
    beyond = [partial(_lying, plan=plan, liars=liars) for plan in _PLANS for liars in (3, 4, 5)]

    def played(stories: Sequence[Trial]) -> Figures:
        found = [play(story, _SETTING, trials, seed) for story in stories]
        won = sum(int(each["successes"]) for each in found)
        return rate(won, trials * len(found))

    real, lost = played(within), played(beyond)
    told = {"beyond_half_the_distance": lost["successes"], "of_rounds": lost["trials"]}
    with replaced((packed_sharing, "_find_wrong", lambda *_: ())):
        return Findings(either(real, lost, **told), played(within))


ATTACKS: Final = (
    Attack(
        id="A43",
        promise="P12",
        name="dealer off its polynomials",
        title="A dealer whose shares are on no polynomial spoils a round once, and is named",
        says="has a colluder deal shares that lie on no polynomial",
        stopped_by="masked combinations of every dealer's shares, given with the answers, name it; "
        "the round is lost",
        refused_with="OpeningFailedError",
        run=twins(
            partial(play, _off_polynomial, _SETTING),
            10,
            200,
            (opening, "wrong_shares", lambda *_: ()),
        ),
    ),
    Attack(
        id="A44",
        promise="P12",
        name="wrong answers",
        title="Wrong answers up to half the distance are corrected; more give no wrong sum",
        says="has members lie about their sums, each alone, together, or so that others look "
        "wrong, up to half the distance and beyond",
        stopped_by="Reed-Solomon decoding of answers; the test on the errors",
        run=_answers,
    ),
)
