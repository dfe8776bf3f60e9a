"""What a client remembers from round to round, on disk: for hosts that restart their clients.

A round is marked as answered, and a charge is in the client's own ledger, before the bytes that it
stands for leave. Both are durable when the call returns, so a crash may count too much and never
too little. All hosts that may act for one identity must share one folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from dp import Event, Ledger
from protocol.calibration import PrivacyGoal
from protocol.history import ClientHistory
from protocol.records import check_goal, goal_entry
from protocol.setup import RoundSetup
from secagg.storage import TokenFolder

_MARK_BYTES = 16


class StoredHistory(ClientHistory):
    """A `ClientHistory` in a folder, locked for this process until it is closed.

    Args:
        folder: made if it does not exist; one for each identity.
        goal: as for `ClientHistory`. A folder keeps the goal that it was begun with: the part of
            delta that is set aside must be fixed before the first round.

    Raises:
        ParameterError: the folder was begun with another goal, or with none.
        LedgerError: the ledger in it was altered, or another process has it open.
    """

    def __init__(self, folder: Path, goal: PrivacyGoal | None = None) -> None:
        super().__init__(goal)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._marks = TokenFolder(folder / "answered")
        # A line without an end was being written when the host died: it was never acted upon.
        self._ledger = Ledger.open(folder / "charges.jsonl", recover=True)
        try:
            for entry in self._ledger.entries():
                check_goal(entry.metadata, goal)
                self._spent.compose(entry.event)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the folder. Closing twice is allowed."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _enter(self, session_id: bytes, round_number: int) -> bool:
        number = round_number.to_bytes(8, "little")
        return self._marks.consume(hashlib.sha256(session_id + number).digest()[:_MARK_BYTES])

    def _pay(self, event: Event, setup: RoundSetup) -> None:
        if self.goal is None:
            return
        session, number = setup.context.session_id.hex(), setup.context.round_number
        goal = goal_entry(self.goal)
        self._ledger.append(event, {"session": session, "round": number, "goal": goal})
