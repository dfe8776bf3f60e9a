"""Measuring: interleaved repetitions, so that a drifting machine hits all candidates alike."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

Figures = dict[str, int | float | bool | str]
"""What a benchmark found, by name, in the order in which it is shown."""


def interleaved_seconds(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each candidate over `repeats` turns, after one turn that warms up.

    The candidates take turns, A B A B ..., so their ratio holds when the machine's speed drifts.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    for turn in range(repeats + 1):
        for name, work in candidates.items():
            start = clock()
            work()
            if turn:
                taken[name].append(clock() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


class PartyClock:
    """Adds up the time of each party's own work; -1 is the server.

    Attributes:
        seconds: on the wall.
        cpu_seconds: of this process, which other processes lengthen far less.
    """

    def __init__(self) -> None:
        self.seconds: dict[int, float] = defaultdict(float)
        self.cpu_seconds: dict[int, float] = defaultdict(float)

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Do the work and charge its time to the party."""
        start, cpu_start = time.perf_counter(), time.process_time()
        try:
            return work()
        finally:
            self.seconds[party] += time.perf_counter() - start
            self.cpu_seconds[party] += time.process_time() - cpu_start


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
