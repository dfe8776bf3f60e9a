"""What schedules of every protocol are made of: lies, what is counted, and how a schedule ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
