"""A39 to A44: uploads made twice or of another's parts, and shares that are on no polynomial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from secagg.oneshot.wire import Ciphertext
from secagg.shamir import PRIME
from secagg.tags import Usage
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, either, rate, twins
from simulations.threats.game.contexts import Integers
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.opened import difference, summed
from simulations.threats.one_shot.parties import OneShotSetting, OneShotVictims, member_identity
from simulations.threats.one_shot.play import Server, Trial, has, play
from simulations.threats.one_shot.weak import NamesClients, SameKeyAgain, TakesAnySender

_SETTING: Final = OneShotSetting()
_LONG: Final = OneShotSetting(length=64)
"""Long enough for errors of a wrong key to be told from others."""


# -- A39 ------------------------------------------------------------------------------------------


def _two_uploads(server: Server) -> bool:
    """A client that lost its history uploads twice; each half of the committee gets one of both."""
    victims, target = server.victims, server.target
    again = -server.inputs[target] + 1
    later = OneShotVictims(victims.setting, victims.context, server.rng.bytes(8))
    second = {**server.uploads, target: later.upload(target, again)}
    shown = server.halved(server.uploads, second, more=1)
    sets = dict.fromkeys(shown, server.everybody)
    sums: list[Integers] = []
    # What the halves of a twin have signed is the same, so its signatures are shown to all.
    for pooled in (False, True):
        opened = server.ask_each(sets, shown, pooled=pooled).run()
        sums = max(sums, [total for _, total in opened], key=len)
    wanted = abs(server.inputs[target] - again)
    return len(sums) == 2 and np.array_equal(abs(sums[0] - sums[1]), wanted)


# -- A40 ------------------------------------------------------------------------------------------


def _set_back(server: Server) -> bool:
    """A machine is set back to before its upload, draws the same bytes, and has another vector.

    In the same context, and in another one of the same round.
    """
    victims, target = server.victims, server.target
    again = -server.inputs[target] + 1
    other = replace(victims.context, application_digest=b"\1" * 32)
    first, wanted = server.upload(target), server.inputs[target] - again
    seconds = [victims.upload(target, again), victims.upload(target, again, other)]
    return any(np.array_equal(difference(victims.context, first, x), wanted) for x in seconds)


# -- A41 ------------------------------------------------------------------------------------------


def _another_name(server: Server) -> bool:
    """A colluder sends the target's upload once more, signed in its own name."""
    own = server.colluder
    asked = server.ask_all(uploads=server.copied(server.target))
    # The corrupt members have no share of it that opens; the honest ones are enough.
    server.victims.setting = replace(server.victims.setting, corrupt=0)
    return has(asked.run(), server.inputs[:own].sum(axis=0) + server.inputs[server.target])


# -- A42 ------------------------------------------------------------------------------------------


def _copied(server: Server) -> bool:
    """A colluder adds the target's ciphertext to its own, and shares the key of its own part.

    It succeeds if the product's server releases a sum of these uploads: none is right.
    """
    own, context = server.colluder, server.victims.context
    total = summed(context, (server.uploads[u] for u in (server.target, own)))
    both = Ciphertext(context.packing, context.length, total.residues()).encode()
    uploads = {
        **server.uploads,
        own: server.signed_by(own, server.uploads[own], own, ciphertext=both),
    }
    return not isinstance(server.end_of(uploads), ProtocolError)


_DECODING: Final = OneShotSetting(
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
        found = [play(story, _DECODING, trials, seed) for story in stories]
        won = sum(int(each["successes"]) for each in found)
        return rate(won, trials * len(found))

    real, lost = played(within), played(beyond)
    told = {"beyond_half_the_distance": lost["successes"], "of_rounds": lost["trials"]}
    with replaced((packed_sharing, "_find_wrong", lambda *_: ())):
        return Findings(either(real, lost, **told), played(within))


ATTACKS: Final = (
    Attack(
        id="A39",
        promise="P11",
        name="a client that uploads twice",
        title="A client that uploads twice does not give two sums under one signed set",
        says="has two uploads of a client that lost its history, and shows one to each half of "
        "the committee",
        stopped_by="a signed set that names uploads, not clients",
        see=("span.md#one-shot-rounds",),
        run=twins(partial(play, _two_uploads, _SETTING), 5, 100, member=NamesClients),
    ),
    Attack(
        id="A40",
        promise="P11",
        name="one key for two vectors",
        title="A client that is set back never masks two vectors with one key",
        says="rolls a client back, which draws the same bytes again, and subtracts both uploads",
        stopped_by="keys derived from what is uploaded, and from the context",
        run=twins(partial(play, _set_back, _SETTING), 10, 200, client=SameKeyAgain),
    ),
    Attack(
        id="A41",
        promise="P12",
        name="seals under another name",
        title="No upload counts twice under another name",
        says="a colluder sends the target's ephemeral key, ciphertext and seals as its own",
        stopped_by="the sender in the key and the associated data of every seal",
        refused_with="RemoteProtocolError SET_NOT_NESTED",
        run=twins(partial(play, _another_name, _SETTING), 5, 100, member=TakesAnySender),
    ),
    Attack(
        id="A42",
        promise="P12",
        name="copied ciphertext",
        title="A copied ciphertext is in no sum that is released",
        says="has a colluder add the target's ciphertext to its own, and share the key of its own "
        "part",
        stopped_by="the test on the errors left when the summed key is removed",
        refused_with="OpeningFailedError",
        run=twins(
            partial(play, _copied, _LONG),
            10,
            200,
            (opening, "largest_mean_square", lambda *_: float("inf")),
        ),
    ),
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
            partial(play, _off_polynomial, _DECODING),
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
