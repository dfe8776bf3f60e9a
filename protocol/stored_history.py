"""What a client remembers from round to round, on disk: for hosts that restart their clients.

A round is marked as answered, and its charge is in the client's own ledger, before the bytes that
it stands for leave. Both are durable when the call returns, so a crash may count too much and never
too little. All hosts that may act for one identity must share one folder.

What this cannot stop: a host that rolls the folder back, or throws it away.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Self

from dp import Event, Ledger, LedgerError
from protocol.calibration import PrivacyGoal
from protocol.history import ClientHistory
from protocol.records import OWN_COINS, check_goal, goal_entry
from protocol.setup import RoundSetup
from secagg.storage import TokenFolder

_MARK_BYTES = 16


class StoredHistory(ClientHistory):
    """A `ClientHistory` in a folder, locked for this process until it is closed.

    A small empty file for every round answered, and a line of the ledger for every round charged.

    Args:
        folder: made if it does not exist; one for each identity.
        goal: as for `ClientHistory`. A folder keeps the goal, or the lack of one, that its first
            charge was made under: the part of delta that is set aside must be fixed before it.

    Raises:
        ParameterError: the folder has charges under another goal, or under none.
        LedgerError: the ledger in it was altered, or another process has it open.
    """

    def __init__(self, folder: Path, goal: PrivacyGoal | None = None) -> None:
        super().__init__(goal)
        _make_durably(folder)
        self._folder, self._process = folder, os.getpid()
        # A line without an end was being written when the host died: it was never acted upon.
        self._ledger = Ledger.open(folder / "charges.jsonl", recover=True)
        self._is_open = True
        try:
            self._marks = TokenFolder(folder / "answered")
            _sync(folder)
            for entry in self._ledger.entries():
                check_goal(entry.metadata, goal)
                if goal:
                    self._spent.compose(entry.event)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the folder. Closing twice is allowed."""
        self._is_open = False
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _enter(self, session_id: bytes, round_number: int) -> bool:
        self._check_ours()
        number = round_number.to_bytes(8, "little")
        return self._marks.consume(hashlib.sha256(session_id + number).digest()[:_MARK_BYTES])

    def _pay(self, event: Event, setup: RoundSetup) -> None:
        self._check_ours()
        session, number = setup.context.session_id.hex(), setup.context.round_number
        goal = goal_entry(self.goal) if self.goal else None
        own = {OWN_COINS: setup.own_coins}
        self._ledger.append(event, {"session": session, "round": number, "goal": goal, **own})

    def _check_ours(self) -> None:
        """A forked process has our lock, and a count that does not see what we go on to spend."""
        if not self._is_open or self._process != os.getpid():
            raise LedgerError(
                f"the history in {self._folder} is closed, or was opened before this process was "
                "forked: every process opens it for itself"
            )


def _make_durably(folder: Path) -> None:
    """Make a folder, and the names on the way to it last."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
