"""A45 to A47: terms of a one-shot round that no client may agree to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import e, log2, pi
from typing import Final

import numpy as np

from secagg import Identity, ParameterError, ProtocolError
from secagg.oneshot import context as context_module
from secagg.oneshot.committee import Committee, CommitteeKind, Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.packing import Packing
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, either, tried, twins
from simulations.threats.game.contexts import Integers
from simulations.threats.game.weak_clients import replaced, weakened
from simulations.threats.one_shot.opened import read_alone
from simulations.threats.one_shot.parties import (
    SESSION,
    OneShotSetting,
    OneShotVictims,
    committee_of,
    entry_of,
    member_key,
    small_inputs,
)
from simulations.threats.one_shot.play import Server, play

_SIGMA = 3.2
"""Width of secret and errors that the proof is left with."""
_BITS_PER_BLOCK = 0.292
_SMALLEST_BLOCK = 50
"""Below it the formula for the quality of a reduced basis does not hold."""


def core_svp(degree: int, modulus_bits: float) -> float:
    """Bits of the primal attack on ring-LWE with any number of samples.

    Source: Alkim, Ducas, Poeppelmann and Schwabe 2016, section 6.3.
    """
    step = max(degree // 64, 1)
    blocks = (
        _smallest_block(degree, samples, modulus_bits)
        for samples in range(degree // 2, 3 * degree, step)
    )
    return _BITS_PER_BLOCK * min(blocks)


def _smallest_block(degree: int, samples: int, modulus_bits: float) -> int:
    """The smallest block size with which a short vector of so many samples is found."""
    dimension = samples + degree + 1
    low, high = _SMALLEST_BLOCK, dimension
    while low < high:
        block = (low + high) // 2
        found = log2(_SIGMA) + log2(block) / 2
        if found <= _shortest_seen(block, dimension) + samples * modulus_bits / dimension:
            high = block
        else:
            low = block + 1
    return low


def _shortest_seen(block: int, dimension: int) -> float:
    """log2 of the length below which the last block's vector is noticed, without the volume."""
    root = ((pi * block) ** (1 / block) * block / (2 * pi * e)) ** (1 / (2 * (block - 1)))
    return (2 * block - dimension - 1) * log2(root)


_SETTING: Final = OneShotSetting()
_TARGET: Final = 0


# -- A45 ------------------------------------------------------------------------------------------

_FEWEST_BITS: Final = 100.0
"""Of core-SVP, below which a ring counts as broken here; those of the table have more."""
_RINGS: Final = ((1024, 2), (1024, 3), (2048, 3), (2048, 5), (4096, 4), (4096, 6))


def _rings_taken() -> tuple[Figures, str]:
    """How many weak rings clients take, and how weak those are."""
    taken: list[str] = []

    def attempt(number: int) -> bool:
        degree, limbs = _RINGS[number]
        bits = core_svp(degree, log2(_SETTING.context(0, degree=degree, limbs=limbs).ring.modulus))
        if bits < _FEWEST_BITS:
            taken.append(f"{degree} x {limbs}: {bits:.0f} bits")
        return bits < _FEWEST_BITS

    return tried(attempt, len(_RINGS)), "; ".join(taken)


def _weak_rings(effort: Effort, seed: int) -> Findings:
    real, _ = _rings_taken()
    with replaced((context_module, "check_ring", lambda *_, **__: None)):
        twin, taken = _rings_taken()
    return Findings(real, {**twin, "taken": taken})


# -- A46 ------------------------------------------------------------------------------------------

_SHORT: Final = OneShotSetting(length=64, bits=8)
"""Two coordinates in a coefficient."""


class EvenPacking(Packing):
    """Packs with the next base, which is even."""

    __slots__ = ()

    @property
    def base(self) -> int:
        """B, one more than it should be."""
        return 2 * self.largest + 2


def _even(context: OneShotContext) -> OneShotContext:
    packing = context.packing
    return weakened(context, packing=EvenPacking(packing.ring, packing.largest, packing.clients))


def _wrong_sum(server: Server) -> bool:
    """A round of honest parties, whose sum is not that of their inputs."""
    end = server.end_of(server.uploads)
    return not isinstance(end, ProtocolError) and not server.is_exact(end)


# -- A47 ------------------------------------------------------------------------------------------

_ROUND: Final = 7
_OLD: Final = (0, 4)
"""Rounds of an epoch whose keys have leaked since."""

Entry = Callable[[int], Member]


def _old(j: int) -> Member:
    """A key that its member signed for rounds that are over."""
    return entry_of(j, _OLD, sealing_key=member_key(j, 1).public)


def _early(j: int) -> Member:
    """One for rounds to come."""
    return entry_of(j, (_ROUND + 1, _ROUND + 9), sealing_key=member_key(j, 1).public)


def _stretched(j: int) -> Member:
    """An old one whose range the server has changed."""
    return replace(_old(j), last_round=1 << 32)


def _of_another_session(j: int) -> Member:
    return entry_of(j, sealing_key=member_key(j, 1).public, session_id=b"\1" * len(SESSION))


def _by_the_server(j: int) -> Member:
    """A key of the server's own under the member's identity, with the server's signature."""
    server = Identity.from_private_bytes(b"\7" * 32)
    forged = entry_of(j, identity=server, sealing_key=member_key(j, 1).public)
    return replace(forged, identity=entry_of(j).identity)


_ENTRIES: Final = (_old, _early, _stretched, _of_another_session, _by_the_server)


def _read(entry: Entry, inputs: Integers, salt: bytes) -> bool:
    """A server with the private halves of such keys reads the target's upload alone."""
    members = tuple(entry(j) for j in range(_SETTING.members))
    context = _SETTING.context(
        _ROUND, committee=committee_of(_SETTING.members, _SETTING.corrupt, members=members)
    )
    upload = OneShotVictims(_SETTING, context, salt).upload(_TARGET, inputs[_TARGET])
    read = read_alone(context, upload, {j: member_key(j, 1) for j in range(2)})
    return read is not None and np.array_equal(read, inputs[_TARGET])


def _strange_keys(trials: int, seed: int) -> Figures:
    def attempt(number: int) -> bool:
        rng = np.random.default_rng([seed, number])
        inputs = small_inputs(rng, _SETTING.context(_ROUND))
        return _read(_ENTRIES[number % len(_ENTRIES)], inputs, rng.bytes(8))

    return tried(attempt, trials)


def _not_the_cohort() -> str:
    """How a committee of everybody who is invited is refused that is somebody else."""
    committee = committee_of(_SETTING.clients, 1, kind=CommitteeKind.EVERYONE)
    try:
        _SETTING.context(_ROUND, committee=committee)
    except ParameterError as error:
        return f"ParameterError {error.argument}"
    return "taken"


def _epochs(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)
    others = _not_the_cohort()
    real = _strange_keys(trials, seed)
    real = either(real, others == "taken", everyone_but_others=others)
    with replaced((Committee, "check_keys", lambda *_: None)):
        return Findings(real, _strange_keys(trials, seed))


ATTACKS: Final = (
    Attack(
        id="A45",
        promise="P11",
        name="weak ring",
        title="No client masks in a ring beyond the security table",
        says="announces rings in which the lattice problem is easy",
        stopped_by="the security table, which every context is checked against",
        refused_with="ParameterError ring",
        run=_weak_rings,
    ),
    Attack(
        id="A46",
        promise="P12",
        name="even base of digits",
        title="Packed sums come out as what was put in",
        says="does nothing: the twin packs with the next base",
        stopped_by="an odd base",
        run=twins(partial(play, _wrong_sum, _SHORT), 10, 200, change=_even),
    ),
    Attack(
        id="A47",
        promise="P11",
        name="sealing keys of another epoch",
        title="Nothing is sealed to a key of another epoch, session or owner",
        says="has private halves that leaked after their rounds, or signs keys itself: for other "
        "rounds, another session, a changed range, another identity",
        stopped_by="a member's signature over session, sealing key and its rounds",
        refused_with="ParameterError sealing_key",
        run=_epochs,
    ),
)
