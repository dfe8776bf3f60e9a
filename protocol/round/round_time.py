"""One party's time in one round: what its own clock has shown, and it only goes forward.

A round with a lifetime ends by the clock of whoever is in it. A clock that is put back must not
lengthen it, and neither must a host that stores the round between two messages: the latest time
that was shown counts, and is stored with the round, under its seal.
"""

from __future__ import annotations

import math

import msgspec

from protocol.round.rings import UnixClock, require_under_way
from secagg.storage import StoredStateError
from secagg.terms import RoundTerms


class RoundTime:
    """The latest time that a party's clock has shown in a round.

    Args:
        clock: tells unix seconds; None for a party that keeps no time, to which no round ends.
        seen: what it has shown before, in seconds.
    """

    def __init__(self, clock: UnixClock | None, seen: float | None = None) -> None:
        self._clock = clock
        self._seen = seen

    @property
    def keeps_time(self) -> bool:
        """Whether there is a clock."""
        return self._clock is not None

    @property
    def seen(self) -> float | None:
        """Latest unix time, in seconds; None if none was kept, for want of a clock or of an end."""
        return self._seen

    @property
    def covered(self) -> bytes:
        """What the seal of a stored round covers beside its context."""
        return msgspec.msgpack.encode(self._seen)

    def check(self, terms: RoundTerms) -> None:
        """See that a round is under way."""
        now = self._latest(terms)
        if now is not None:
            require_under_way(terms, now)
            self._seen = now

    def look(self, terms: RoundTerms) -> None:
        """Look at the clock once more, before the round is stored, whether it is over or not."""
        now = self._latest(terms)
        if now is not None and not math.isnan(now):
            self._seen = now

    def resumed(self, seen: float | None) -> RoundTime:
        """Our time in a stored round, in which our clock had shown `seen`."""
        if seen is not None and self._clock is None:
            raise StoredStateError(
                "the stored round was joined with a clock and expires by it, but there is none "
                "here: pass `clock` and resume the same round, which is not used up"
            )
        return RoundTime(self._clock, seen)

    def _latest(self, terms: RoundTerms) -> float | None:
        """The latest time; None without a clock or an end to keep."""
        if self._clock is None or terms.lifetime_seconds == 0:
            return None
        now = float(self._clock())
        return self._seen if self._seen is not None and self._seen > now else now
