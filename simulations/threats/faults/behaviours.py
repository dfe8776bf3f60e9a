"""What schedules of every protocol are made of: lies, a wire, counts, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np

from secagg import FieldSum
from simulations.threats.game.contexts import Integers, Wanted

HANG_SECONDS = 120
"""A schedule that takes longer is a hang. An honest one takes some hundredths of a second, the very
first of a process some seconds, for compiled kernels."""


class HangError(Exception):
    """A schedule or a decoder did not come to an end."""


@dataclass(slots=True)
class Tally:
    """Counts of one campaign, filled while it runs."""

    refusals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def refused(self, error: Exception) -> None:
        """Count a refusal by its reason, or by its type if it has none."""
        reason = getattr(error, "reason", None)
        self.refusals[reason.name if reason else type(error).__name__] += 1


@contextmanager
def no_hang(seconds: int = HANG_SECONDS) -> Iterator[None]:
    """Interrupt what does not end."""
    import signal
    import threading

    watched = hasattr(signal, "SIGALRM") and (threading.current_thread() is threading.main_thread())
    if not watched:
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise HangError(f"not finished within {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a schedule ended, and what is wrong with that, if anything is."""

    outcome: str
    problem: str | None = None


Play = Callable[[np.random.Generator, int, float, Tally], Verdict]
"""Runs one schedule: (rng, number, rate of faults on the wire, counts)."""


def on_half(rng: np.random.Generator, rate: float) -> float:
    """The rate on half of the schedules, none on the others."""
    return rate if rng.random() < 0.5 else 0.0


def must_end_well(verdict: Verdict, bearable: bool, what: str) -> Verdict:
    """The verdict; a round that had to bear something and gave no sum is a failure."""
    if not bearable or verdict.outcome == "exact sum" or verdict.problem:
        return verdict
    return replace(verdict, problem=f"{what} ended the round: {verdict.outcome}")


def looked_at(broken: str | None, released: int) -> Verdict:
    """The verdict on a hostile server, by what it broke and how many parties answered it."""
    if broken is not None:
        return Verdict("promise broken", broken)
    return Verdict("one set answered" if released else "nothing given up")


def wrong_sum(total: FieldSum, inputs: Mapping[int, Integers], least: int) -> str | None:
    """Whether a sum is not that of its survivors' inputs, or is of too few."""
    if len(total.survivors) < least:
        return f"a sum over {len(total.survivors)} clients was released"
    chosen = [inputs[u] for u in total.survivors if u in inputs]
    plain = np.sum([each.astype(object) for each in chosen], axis=0)
    exact = np.array_equal(total.vector.elements, plain % total.vector.field.modulus)
    if not exact or len(chosen) != len(total.survivors):
        return f"wrong sum over {total.survivors}"
    return None


# -- lies ------------------------------------------------------------------------------------------

Edit = Callable[[Any, Any], Iterable[tuple[int, Any]]]
"""Makes of a liar and its honest message those that are sent instead, each with the party that the
transport says it came from."""

Change = Callable[[Any, Any], Any]
"""Makes of a liar and its honest message another one, not yet signed."""


def instead(change: Change) -> Edit:
    """One message of the liar, signed, instead of the honest one."""
    return lambda liar, message: [(liar.number, liar.signed(change(liar, message)))]


def and_then(change: Change) -> Edit:
    """The honest message, and another one of the same kind."""

    def sending(liar: Any, message: Any) -> Iterator[tuple[int, Any]]:
        yield liar.number, message
        yield liar.number, liar.signed(change(liar, message))

    return sending


def in_two_names(liar: Any, message: Any, other: int, forged: Any) -> Iterator[tuple[int, Any]]:
    """The liar's own message, and one in another's name, whoever the wire says sent it."""
    yield liar.number, message
    yield other, forged
    yield liar.number, forged


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """One way to lie."""

    edits: Mapping[type, Edit] = field(default_factory=dict)
    wanted: Wanted = field(default_factory=Wanted)
    leaves_before: type | None = None
    company_leaves_before: type | None = None
    bearable: bool = False


FAULTS = ("drop", "double", "delay", "flip", "cut", "extend", "exchange")

Sent = list[tuple[int, bytes]]
"""Messages on their way: the client they come from or go to, and their bytes."""


class Wire:
    """Carries messages, each with some probability of a fault."""

    def __init__(
        self, rng: np.random.Generator, rate: float, tally: Tally, old: Sequence[bytes] = ()
    ) -> None:
        self._rng = rng
        self.rate = rate
        self._tally = tally
        self._old = list(old)
        self._late: Sent = []

    def carry(self, sent: Sent) -> Sent:
        """What arrives of these messages, after what was delayed before."""
        arriving, self._late = self._late, []
        for party, data in sent:
            arriving += self._fault(party, data)
            self._old.append(data)
        return [arriving[i] for i in self._rng.permutation(len(arriving))]

    def _fault(self, party: int, data: bytes) -> Sent:
        if self._rng.random() >= self.rate:
            return [(party, data)]
        kind = FAULTS[self._rng.integers(len(FAULTS))]
        self._tally.faults[kind] += 1
        if kind == "drop":
            return []
        if kind == "double":
            return [(party, data), (party, data)]
        if kind == "delay":
            self._late.append((party, data))
            return []
        return [(party, self._damaged(kind, data))]

    def _damaged(self, kind: str, data: bytes) -> bytes:
        place = int(self._rng.integers(len(data)))
        if kind == "flip":
            flipped = data[place] ^ (1 << int(self._rng.integers(8)))
            return data[:place] + bytes([flipped]) + data[place + 1 :]
        if kind == "cut":
            return data[:place]
        if kind == "extend":
            return data + self._rng.bytes(1 + place % 40)
        return self._old[self._rng.integers(len(self._old))] if self._old else b""
