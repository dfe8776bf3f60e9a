"""Rounds to attack: who takes part, under which parameters, with which secrets and inputs.

Everything follows from the numbers of a schedule, so that a schedule can be run again by itself.
None of it is secret: identities and randomness are hashes of public numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg import (
    CapacityError,
    ClientSession,
    Identity,
    Mode,
    ParameterError,
    SessionContext,
    lowest_threshold,
)
from secagg.shamir import Rand

Integers = NDArray[Any]
Members = tuple[int, ...]
T = TypeVar("T")

LARGEST = 11
"""Most clients of a random round: few enough that every choice of t shares is tried."""
MOST_LOST = 3
"""Most clients that a random round may lose: rounds are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a behaviour needs of its round; None means either."""

    mode: Mode | None = None
    removable: bool | None = None
    colluders: int = 0
    spare: int = 0
    corrupt: int = 0


@lru_cache(maxsize=64)
def identity_of(u: int) -> Identity:
    """The identity of client u, the same in every round."""
    return Identity.from_private_bytes(hashlib.sha256(b"fault campaign %d" % u).digest())


def counter_rand(seed: bytes) -> Rand:
    """A deterministic source, so that a schedule can be run again."""
    used = 0

    def rand(count: int) -> bytes:
        nonlocal used
        used += 1
        return hashlib.shake_256(seed + b"|%d" % used).digest(count)

    return rand


def until_it_fits(draw: Callable[..., T], *arguments: Any) -> T:
    """What is drawn: figures that do not go together are drawn again, a few times."""
    while True:
        try:
            return draw(*arguments)
        except (ParameterError, CapacityError):
            continue


def random_context(
    rng: np.random.Generator, number: int, wanted: Wanted | None = None
) -> SessionContext:
    """Complete and sparse graphs, both modes, with and without colluders and removable seeds."""
    return until_it_fits(_random_context, rng, number, wanted or Wanted())


def _random_context(rng: np.random.Generator, number: int, wanted: Wanted) -> SessionContext:
    size = int(rng.integers(4 + 2 * wanted.colluders, LARGEST + 1))
    mode = wanted.mode or (Mode.ACTIVE if rng.random() < 0.6 else Mode.SEMI_HONEST)
    degree = int(rng.choice([4, 6])) if size > 6 and rng.random() < 0.6 else 0
    colluders = max(wanted.colluders, int(rng.random() < 0.4))
    threshold = lowest_threshold(size, colluders, mode, degree)
    lost = int(rng.integers(wanted.spare, MOST_LOST + 1))
    lost = lost if degree else min(size - threshold, lost)
    removable = rng.random() < 0.5 if wanted.removable is None else wanted.removable
    if lost < wanted.spare:
        raise ParameterError("lost", lost, f"at least {wanted.spare}")
    return SessionContext(
        session_id=number.to_bytes(16, "little"),
        round_number=number,
        cohort=cohort_keys(size),
        threshold=threshold,
        minimum_survivors=size - lost,
        mode=mode,
        tolerated_colluders=colluders,
        degree=degree,
        # Never empty, so that a round with removable seeds has some to give up.
        removal=tuple(int(m) for m in rng.integers(1, 8, lost + 1)) if removable else (),
        bits=int(rng.choice([8, 16, 24, 32, 61])),
        length=int(rng.integers(1, 20)),
        application_digest=bytes(32),
    )


def cohort_keys(size: int) -> tuple[bytes, ...]:
    """The registered keys of the first clients."""
    return tuple(identity_of(u).public for u in range(size))


def random_inputs(rng: np.random.Generator, context: SessionContext) -> Integers:
    """One vector for each client: `field.dtype`[size, length]."""
    shape = (context.size, context.length)
    drawn = rng.integers(0, context.field.modulus, shape, np.uint64)
    return drawn.astype(context.field.dtype)


def new_session(context: SessionContext, u: int, salt: bytes) -> ClientSession:
    """A session of client u with repeatable secrets, other ones for another salt."""
    return ClientSession(context, u, identity_of(u), counter_rand(b"%d|" % u + salt))


class MemoryKeys:
    """Keys of stored states, in memory, each used once."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def keep(self, token: bytes, key: bytes) -> None:
        """Remember a key."""
        self._kept[token] = key

    def key(self, token: bytes) -> bytes | None:
        """The key of a state that was not resumed."""
        return self._kept.get(token)

    def consume(self, token: bytes) -> bool:
        """Destroy a key; whether it was there."""
        return self._kept.pop(token, None) is not None


class KeptKeys(MemoryKeys):
    """Keys that are never destroyed: a stored state can be resumed again and again."""

    def consume(self, token: bytes) -> bool:
        """Keep the key."""
        return True
