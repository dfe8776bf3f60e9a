"""Random rounds for the campaign: who takes part, under which parameters, with which secrets.

Everything follows from the numbers of a schedule, so that a schedule can be run again by itself.
None of it is secret: identities and randomness are hashes of public numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np

from secagg import Identity, Mode, ParameterError, SessionContext, lowest_threshold
from secagg.shamir import Rand

LARGEST = 11
"""Most clients of a random round: few enough that the search for wrong shares tries all choices."""
MOST_LOST = 3
"""Most clients that a random round may lose: rounds are small."""

HANG_SECONDS = 120
"""A schedule that takes longer is a hang. An honest one takes some hundredths of a second, the very
first of a process some seconds, for compiled kernels."""


class HangError(Exception):
    """A schedule or a decoder did not come to an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a behaviour needs of its round; None means either.

    Args:
        mode: what the server is trusted with.
        removable: whether there are removable seeds.
        colluders: fewest tolerated colluders.
        spare: fewest clients that may be lost.
    """

    mode: Mode | None = None
    removable: bool | None = None
    colluders: int = 0
    spare: int = 0


@dataclass(slots=True)
class Tally:
    """Counts of one campaign, filled while it runs.

    Attributes:
        refusals: messages refused, by reason.
        faults: faults injected on the wire, by kind.
    """

    refusals: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def refused(self, error: Exception) -> None:
        """Count a refusal by its reason, or by its type if it has none."""
        reason = getattr(error, "reason", None)
        name = reason.name if reason else type(error).__name__
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def injected(self, kind: str) -> None:
        """Count a fault."""
        self.faults[kind] = self.faults.get(kind, 0) + 1


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


def random_context(
    rng: np.random.Generator, number: int, wanted: Wanted | None = None
) -> SessionContext:
    """Complete and sparse graphs, both modes, with and without colluders and removable seeds."""
    wanted = wanted or Wanted()
    while True:
        try:
            return SessionContext(**_random_parameters(rng, number, wanted))
        except ParameterError:
            # These figures do not go together; a few draws find some that do.
            continue


def _random_parameters(rng: np.random.Generator, number: int, wanted: Wanted) -> dict[str, Any]:
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
    return {
        "session_id": number.to_bytes(16, "little"),
        "round_number": number,
        "cohort": cohort_keys(size),
        "threshold": threshold,
        "minimum_survivors": size - lost,
        "mode": mode,
        "tolerated_colluders": colluders,
        "degree": degree,
        # Never empty, so that a round with removable seeds has some to give up.
        "removal": tuple(int(m) for m in rng.integers(1, 8, lost + 1)) if removable else (),
        "bits": int(rng.choice([8, 16, 24, 32, 61])),
        "length": int(rng.integers(1, 20)),
        "application_digest": bytes(32),
    }


def cohort_keys(size: int) -> tuple[bytes, ...]:
    """The registered keys of the first clients."""
    return tuple(identity_of(u).public for u in range(size))


def changed_context(context: SessionContext, changes: Mapping[str, Any]) -> SessionContext:
    """The same round with other parameters, for messages that do not belong to it."""
    names = [name for name in SessionContext.__dataclass_fields__ if name != "hash"]
    return SessionContext(**{**{name: getattr(context, name) for name in names}, **changes})


@contextmanager
def no_hang(seconds: int = HANG_SECONDS) -> Iterator[None]:
    """Interrupt what does not end.

    Raises:
        HangError: after so many seconds. Where a process has no alarm signal, or this is not its
            main thread, nothing is watched.
    """
    import signal
    import threading

    watched = hasattr(signal, "SIGALRM") and (threading.current_thread() is threading.main_thread())
    if not watched:
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise HangError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
