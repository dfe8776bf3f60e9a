"""Honest uploads of validated rounds in a small ring: however extreme, all have to be in."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.oneshot.gaussian import CUT
from secagg.oneshot.layout import reader_of
from secagg.validated.check import answer, decide
from secagg.validated.parameters import Parameters
from secagg.validated.proof import Challenges, Functional, Rows, witness
from secagg.validated.ring import PrimeRing, Residues
from secagg.validated.sharing import at_member, deal, packed

_DEGREE, _LENGTH = 16, 2000
_ROUND = Parameters(
    ring=PrimeRing(_DEGREE, 46),
    blocks=2,
    members=7,
    corrupt=1,
    away=0,
    randomness=1,
    per_polynomial=2,
    bound=_LENGTH**2,
)
Integers = NDArray[np.int64]


def bench_honest_uploads(
    uploads: int, seed: int, progress: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Make uploads, answer and decide on each; `correct` says that all members agreed on all.

    Vectors take turns: exactly at the bound, in random directions, on one coordinate or on all;
    nothing; and so do keys: as long as they can be, drawn, nothing, uniform modulo q. One upload in
    so many could be silent for its rows, 2^-101 of them (`docs/validated.md`, S1).
    """
    rng = np.random.default_rng(seed)
    p, ring = _ROUND, _ROUND.ring
    elements = ring.elements(rng.bytes(16), 0, p.blocks)
    squares = ring.square(elements)
    # Four kinds of keys and five of vectors: every pair has its turn.
    keys, vectors = cycle(_KEYS), cycle(_VECTORS)
    accepted, start = 0, time.perf_counter()
    for _ in range(uploads):
        key, vector = next(keys)(rng), next(vectors)(rng)
        accepted += _agreed(p, elements, squares, key, vector, rng) == frozenset(range(p.members))
        progress()
    return {
        "uploads": uploads,
        "seed": seed,
        "accepted": accepted,
        "seconds": time.perf_counter() - start,
        "correct": accepted == uploads,
    }


def _agreed(
    p: Parameters,
    elements: Residues,
    squares: Residues,
    key: Residues,
    vector: Integers,
    rng: np.random.Generator,
) -> frozenset[int] | None:
    """The members who agree on one upload."""
    ring, half, rand = p.ring, p.ring.degree // 2, reader_of(rng.bytes(16))
    secret = ring.forward(key)[0]
    masks = ring.multiply(elements, secret)
    ciphertext = (masks + ring.reduce(vector.reshape(masks.shape))) % ring.q
    sides = secret[:half], ring.by(squares[:half], secret[: half - 1 : -1])
    slots = np.concatenate([packed(side, p.per_polynomial) for side in sides])
    first = deal(p, slots, p.share_degree, rand)
    rows = Rows(p, rng.bytes(32))
    second = witness(p, p.bound - int(vector @ vector), rows.products(vector), rand)
    challenges = Challenges.of(p, rng.bytes(32))
    found = Functional.of(p, elements, squares, ciphertext, rows, challenges, p.bound)
    answers: dict[int, Residues | None] = {}
    for j in range(p.members):
        mine = at_member(p, found.coefficients, j)
        answers[j] = answer(p, j, first[j], second[j], mine, found.constants, challenges)
    return decide(p, answers)


def _drawn(rng: np.random.Generator) -> Integers:
    """A random direction, nearly as long as allowed."""
    drawn = rng.normal(size=_ROUND.blocks * _DEGREE)
    return (drawn * _LENGTH / np.linalg.norm(drawn)).astype(np.int64)


def _spike(rng: np.random.Generator) -> Integers:
    """All of the bound on one coordinate."""
    vector = np.zeros(_ROUND.blocks * _DEGREE, np.int64)
    vector[rng.integers(vector.size)] = rng.choice([-_LENGTH, _LENGTH])
    return vector


def _flat(rng: np.random.Generator) -> Integers:
    """Sixteen coordinates of the same size, exactly at the bound."""
    vector = np.zeros(_ROUND.blocks * _DEGREE, np.int64)
    chosen = rng.choice(vector.size, 16, replace=False)
    vector[chosen] = rng.choice([-_LENGTH // 4, _LENGTH // 4], 16)
    return vector


def _nothing(rng: np.random.Generator) -> Integers:
    del rng
    return np.zeros(_ROUND.blocks * _DEGREE, np.int64)


def _one(rng: np.random.Generator) -> Integers:
    """The shortest vector that is not zero."""
    return np.sign(_spike(rng))


_VECTORS = (_drawn, _spike, _flat, _nothing, _one)
_KEYS: tuple[Callable[[np.random.Generator], Residues], ...] = (
    lambda rng: _ROUND.ring.reduce(rng.choice([-CUT, CUT], (1, _DEGREE))),
    lambda rng: _ROUND.ring.reduce(np.rint(rng.normal(0.0, 6.4, (1, _DEGREE))).astype(np.int64)),
    lambda _: np.zeros((1, _DEGREE), np.uint64),
    lambda rng: rng.integers(0, _ROUND.ring.modulus, (1, _DEGREE), np.uint64),
)
