"""The only clock of this adapter: a transport has to give up on nodes that do not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that only go forward, a way to let some pass, and the time of day.

    The time of day is for the expiry of rounds. Tests pass clocks of their own.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    unix: Callable[[], float] = time.time


class Wait:
    """A bounded wait that looks again after pauses that grow while nothing happens.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.now() + seconds
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def left(self) -> float:
        """Seconds left; 0 once the time is up."""
        return max(self._end - self._clock.now(), 0.0)

    def again(self, until: float = 0.0) -> bool:
        """Let a pause pass; False, without one, if no more than `until` seconds are left."""
        left = self.left - until
        if left <= 0.0:
            return False
        self._clock.sleep(min(self._pause, left))
        self._pause = min(self._pause * _GROWTH, LONGEST_PAUSE_SECONDS)
        return True

    def stir(self) -> None:
        """Something happened: look again soon."""
        self._pause = FIRST_PAUSE_SECONDS
