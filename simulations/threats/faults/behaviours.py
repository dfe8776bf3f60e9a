"""What schedules of every protocol are made of: lies, what is counted, and how a schedule ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from simulations.threats.game.contexts import Wanted

HANG_SECONDS = 120
"""A schedule that takes longer is a hang. An honest one takes some hundredths of a second, the very
first of a process some seconds, for compiled kernels."""


class HangError(Exception):
    """A schedule or a decoder did not come to an end."""


@dataclass(slots=True)
class Tally:
    """Counts of one campaign, filled while it runs."""

    refusals: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def refused(self, error: Exception) -> None:
        """Count a refusal by its reason, or by its type if it has none."""
        reason = getattr(error, "reason", None)
        name = reason.name if reason else type(error).__name__
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def injected(self, kind: str) -> None:
        """Count one fault of this kind."""
        self.faults[kind] = self.faults.get(kind, 0) + 1


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

Edit = Callable[[Any, Any], Iterable[tuple[int, Any]]]
"""Makes of a liar and its honest message those that are sent instead, each with the party that the
transport says it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """One way to lie."""

    edits: Mapping[type, Edit] = field(default_factory=dict)
    wanted: Wanted = field(default_factory=Wanted)
    leaves_before: type | None = None
    company_leaves_before: type | None = None
    bearable: bool = False
