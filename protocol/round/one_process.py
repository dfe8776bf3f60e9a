"""One process and one thread at a time: threads wait for each other, and a thread never for itself.

A forked process has a copy, which does not see what its parent counts, and is refused.

A signal handler runs in the middle of what its thread does. If it asked for a lock that this thread
holds, it would wait for ever; if it were let in, it would find things half done.
"""

from __future__ import annotations

import os
from threading import RLock

from dp import LedgerError


class OneProcess:
    """A lock, for `with`, that a forked process and the thread that holds it are refused."""

    def __init__(self, what: str, forked: type[Exception] = LedgerError) -> None:
        self._what = what
        self._forked = forked
        self._lock = RLock()
        self._is_taken = False
        self._process = os.getpid()

    def __enter__(self) -> None:
        """Wait for other threads."""
        # Before the lock: in a forked process, a thread that is not there may hold it.
        if self._process != os.getpid():
            raise self._forked(
                f"{self._what} cannot be used in a process that was forked after it was made or "
                "opened: the parent process still uses it"
            )
        self._lock.acquire()
        if self._is_taken:
            self._lock.release()
            raise LedgerError(
                f"{self._what} is already in use by this thread: a signal handler or a callback "
                "must not use it while it reads or counts"
            )
        self._is_taken = True

    def __exit__(self, *details: object) -> None:
        self._is_taken = False
        self._lock.release()
