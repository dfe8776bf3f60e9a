"""How many rounds of one announcer a site joins in an hour and in a day, on disk."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ConfigurationError, PolicyError
from secagg.storage import replace_durably

HOUR, DAY = 3600, 24 * 3600


@dataclass(frozen=True, slots=True)
class Quota:
    """Times at which rounds were joined, as unix seconds of 8 little-endian bytes each.

    Whoever takes a place holds the lock of the site's history meanwhile.

    Args:
        path: of the announcer's file.
        per_hour: most rounds in an hour.
        per_day: most rounds in a day.
    """

    path: Path
    per_hour: int
    per_day: int

    def take(self, now: float) -> None:
        """Take a place at this unix time; it is on disk when this returns.

        Times that lie ahead count: a clock that is put back gives no place back.

        Raises:
            PolicyError: none is left.
            ConfigurationError: the file is damaged.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        if len(data) % 8:
            valid = "8 bytes for each round joined; without the file, none was"
            raise ConfigurationError(str(self.path), f"{len(data)} bytes", valid)
        times = [each for (each,) in struct.iter_unpack("<Q", data) if each > now - DAY]
        limits = ("joins_per_hour", HOUR, self.per_hour), ("rounds_per_day", DAY, self.per_day)
        for name, window, most in limits:
            joined = sum(each > now - window for each in times)
            if joined >= most:
                raise PolicyError(name, f"the {joined + 1}th round of its announcer", f"{most}")
        replace_durably(self.path, struct.pack(f"<{len(times) + 1}Q", *times, int(now)))
