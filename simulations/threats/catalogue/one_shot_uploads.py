"""A39 to A42: uploads of one-shot rounds that are made twice, or of another's parts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from secagg import ProtocolError
from secagg.oneshot import opening
from secagg.oneshot.header import Header
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.messages import Upload
from secagg.oneshot.wire import Ciphertext, decode
from secagg.tags import Usage
from simulations.threats.attack import Attack, Effort, Findings
from simulations.threats.game.contexts import Integers, identity_of
from simulations.threats.game.victims import refusal
from simulations.threats.one_shot.opened import difference
from simulations.threats.one_shot.parties import OneShotSetting, OneShotVictims
from simulations.threats.one_shot.play import Split, honest_round, play
from simulations.threats.one_shot.weak import (
    NamesClients,
    SameKeyAgain,
    TakesAnySender,
    replaced,
)

_SETTING: Final = OneShotSetting()
_LONG: Final = OneShotSetting(length=64)
"""Long enough for errors of a wrong key to be told from others."""
_TARGET: Final = 0


# -- A39 ------------------------------------------------------------------------------------------


def _two_uploads(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """A client that lost its history uploads twice; each half of the committee gets one of both."""
    context = victims.context
    first = victims.uploads(inputs)
    again = -inputs[_TARGET] + 1
    later = OneShotVictims(victims.setting, context, rng.bytes(8))
    second = {**first, _TARGET: later.upload(_TARGET, again)}
    members = rng.permutation(victims.honest_members).tolist()
    half = -(-len(members) // 2)
    shown = {j: first if k < half else second for k, j in enumerate(members)}
    sets = {j: range(context.size) for j in members}
    sums: list[Integers] = []
    # What the halves of a twin have signed is the same, so its signatures are shown to all.
    for pooled in (False, True):
        opened = Split(victims, shown, sets, pooled=pooled).run()
        sums = max(sums, [total for _, total in opened], key=len)
    return len(sums) == 2 and np.array_equal(abs(sums[0] - sums[1]), abs(inputs[_TARGET] - again))


def _uploaded_twice(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 100)
    return Findings(
        play(_two_uploads, _SETTING, trials, seed),
        play(_two_uploads, _SETTING, trials, seed, member=NamesClients),
    )


# -- A40 ------------------------------------------------------------------------------------------


def _set_back(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """A machine is set back to before its upload, draws the same bytes, and has another vector.

    In the same context, and in another one of the same round.
    """
    first = victims.upload(_TARGET, inputs[_TARGET])
    again = -inputs[_TARGET] + 1
    other = replace(victims.context, application_digest=b"\1" * 32)
    seconds = [victims.upload(_TARGET, again), victims.upload(_TARGET, again, other)]
    wanted = inputs[_TARGET] - again
    return any(np.array_equal(difference(victims.context, first, x), wanted) for x in seconds)


def _same_key(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)
    return Findings(
        play(_set_back, _SETTING, trials, seed),
        play(_set_back, _SETTING, trials, seed, client=SameKeyAgain),
    )


# -- A41 ------------------------------------------------------------------------------------------


def _another_name(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """A colluder sends the target's upload once more, signed in its own name."""
    uploads = victims.uploads(inputs)
    own = max(victims.setting.own_clients)
    uploads[own] = _signed(victims, uploads[_TARGET], own)
    members = victims.honest_members
    sets = {j: range(victims.context.size) for j in members}
    # The corrupt members have no share of it that opens; the honest ones are enough.
    victims.setting = replace(victims.setting, corrupt=0)
    opened = Split(victims, {j: uploads for j in members}, sets).run()
    twice = inputs[:own].sum(axis=0) + inputs[_TARGET]
    return any(np.array_equal(total, twice) for _, total in opened)


def _signed(victims: OneShotVictims, upload: Upload, sender: int, **changes: Any) -> Upload:
    """An upload with another sender or content, and that sender's signature."""
    changed = msgspec.structs.replace(upload, sender=sender, **changes)
    parts = Header.of(changed).signed_parts(victims.context)
    signature = identity_of(sender).sign(Usage.UPLOAD, *parts)
    return msgspec.structs.replace(changed, signature=signature)


def _replayed(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 100)
    return Findings(
        play(_another_name, _SETTING, trials, seed),
        play(_another_name, _SETTING, trials, seed, member=TakesAnySender),
    )


# -- A42 ------------------------------------------------------------------------------------------


def _copied(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """A colluder adds the target's ciphertext to its own, and shares the key of its own part."""
    uploads: dict[int, Upload] = victims.uploads(inputs)
    own = max(victims.setting.own_clients)
    context, packing = victims.context, victims.context.packing
    total = Accumulator(packing, context.length)
    for u in (_TARGET, own):
        total.add(decode(packing, context.length, uploads[u].ciphertext))
    both = Ciphertext(packing, context.length, total.residues()).encode()
    uploads[own] = _signed(victims, uploads[own], own, ciphertext=both)
    return _releases(victims, uploads)


def _releases(victims: OneShotVictims, uploads: Mapping[int, Upload]) -> bool:
    """Whether a server of the product releases a sum of these uploads; here none is right."""
    try:
        honest_round(victims, uploads)
    except ProtocolError as error:
        victims.refusals[refusal(error)] += 1
        return False
    return True


def _copies(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)

    def run(careless: bool) -> dict[str, Any]:
        lax = replaced(opening, "largest_mean_square", lambda *_: float("inf"))
        with lax if careless else nullcontext():
            return play(_copied, _LONG, trials, seed)

    return Findings(run(False), run(True))


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
        run=_uploaded_twice,
    ),
    Attack(
        id="A40",
        promise="P11",
        name="one key for two vectors",
        title="A client that is set back never masks two vectors with one key",
        says="sets a client back, which draws the same bytes again, and subtracts both uploads",
        stopped_by="keys derived from what is uploaded, and from the context",
        run=_same_key,
    ),
    Attack(
        id="A41",
        promise="P12",
        name="seals under another name",
        title="No upload counts twice under another name",
        says="a colluder sends the target's ephemeral key, ciphertext and seals as its own",
        stopped_by="the sender in the key and the associated data of every seal",
        refused_with="RemoteProtocolError SET_NOT_NESTED",
        run=_replayed,
    ),
    Attack(
        id="A42",
        promise="P12",
        name="copied ciphertext",
        title="A copied ciphertext is in no sum that is released",
        says="a colluder adds the target's ciphertext to its own, and shares the key of its "
        "own part",
        stopped_by="the test on the errors that are left when the summed key is taken off",
        refused_with="OpeningFailedError",
        run=_copies,
    ),
)
