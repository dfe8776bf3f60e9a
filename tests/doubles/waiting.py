"""Waits that end when something has happened: how busy the machine is decides nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something holds; it is asked a hundred times a second."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.01)
