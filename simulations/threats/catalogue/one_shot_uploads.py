"""A39 to A42: uploads of one-shot rounds that are made twice, or of another's parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from secagg import ProtocolError
from secagg.oneshot import opening
from secagg.oneshot.wire import Ciphertext
from simulations.threats.attack import Attack, twins
from simulations.threats.game.contexts import Integers
from simulations.threats.one_shot.opened import difference, summed
from simulations.threats.one_shot.parties import OneShotSetting, OneShotVictims
from simulations.threats.one_shot.play import Server, has, play
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
)
