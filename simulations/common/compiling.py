"""How long numba compiled: the first round of a machine's first run waits for it, no other does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core.event import TimingListener, install_listener


class CompileTimer:
    """What was compiled while it listened; compiled code that is read from a file is not."""

    def __init__(self) -> None:
        # numba has no types.
        self._listener = TimingListener()  # type: ignore[no-untyped-call]

    @property
    def seconds(self) -> float:
        """Time spent compiling so far."""
        return float(self._listener.duration) if self._listener.done else 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while the block runs, to all threads of this process: they compile in turn."""
        with install_listener("numba:compile", self._listener):
            yield
