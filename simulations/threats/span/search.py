"""What both exhaustive checks have in common: spaces gone through, counts, and what is broken."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from simulations.threats.span.algebra import PRIME

Broken = TypeVar("Broken")
Numbers = TypeVar("Numbers")


class Sized(Protocol):
    """A space of schedules."""

    @property
    def size(self) -> int:
        """The number of schedules, or of combinations that may be some."""


Space = TypeVar("Space", bound=Sized)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[Broken]):
    """What was explored, and the first broken schedule."""

    mutant: Any  # the defence that was taken away; None for the product's parties
    parameters: int  # choices of the other numbers gone through
    schedules: int  # those that the parties accept; those of the last batch included
    systems: int  # systems of equations solved
    opened: int  # schedules, or systems in the one-shot check, in which the server gets a sum
    broken: Broken  # the first broken schedule, with which the check stops; false if every one held
    seconds: float  # wall time

    @property
    def held(self) -> bool:
        """Whether no schedule is broken."""
        return not self.broken


class Search(ABC, Generic[Numbers, Space, Broken]):
    """Counts, and the first broken schedule.

    Args:
        strict: whether a sum must be over the set that was shown: for all but mutants.
    """

    at_once = 1 << 17
    """Schedules of one batch."""

    def __init__(self, strict: bool, nothing: Broken) -> None:
        self.strict = strict
        self.schedules = self.systems = self.opened = 0
        self.broken = nothing

    @abstractmethod
    def look(self, space: Space, start: int, stop: int) -> None:
        """Go through some schedules of a space, and note the first broken one."""

    def walk(
        self,
        parameters: Iterable[Numbers],
        spaces: Callable[[Numbers], Iterator[Space]],
        progress: Callable[[Numbers, int], None] | None = None,
    ) -> dict[str, Any]:
        """Go through all schedules until one is broken; the counts of a `Report`."""
        started, explored = time.perf_counter(), 0
        for p in parameters:
            explored += 1
            for space, start in ((s, k) for s in spaces(p) for k in range(0, s.size, self.at_once)):
                self.look(space, start, min(start + self.at_once, space.size))
                if self.broken:
                    break
            if progress is not None:
                progress(p, self.schedules)
            if self.broken:
                break
        counted = {name: getattr(self, name) for name in ("schedules", "systems", "opened")}
        seconds = time.perf_counter() - started
        return {"parameters": explored, "broken": self.broken, "seconds": seconds, **counted}


def combination(terms: Iterable[tuple[int, str]], times: str = "") -> str:
    """A linear combination in words, with coefficients of least magnitude: "x_0 - 2x_1"."""
    words = []
    for element, name in terms:
        factor = element if element <= PRIME // 2 else element - PRIME
        number = "" if abs(factor) == 1 else f"{abs(factor)}{times}"
        words.append(f"{'-' if factor < 0 else '+'} {number}{name}")
    return " ".join(words).removeprefix("+ ")
