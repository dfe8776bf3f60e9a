"""What a client remembers from round to round, on disk: for hosts that restart their clients.

A round is marked as answered, and its charge is in the client's own ledger, before the bytes that
it stands for leave. Both are durable when the call returns, so a crash may count too much and never
too little. All hosts that may act for one identity must share one folder.

Marks and charges are held against each other when the folder is opened: a charge has a mark, and a
mark that says so has a charge. A ledger that was deleted, cut at the end or put back to an earlier
copy is noticed by the marks, marks that vanished or are old by the ledger.

What this cannot stop: a host that rolls the whole folder back, or throws it away. And a mark
without a charge may vanish unseen, or the bytes of any mark be overwritten, and with them what the
ring or draw of its round was counted with. Where a mark vanished, no update has left in that round,
and one that leaves when it is answered again is charged.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dp import Entry, Event, Ledger, LedgerError
from dp.correlated import CorrelatedRelease
from protocol.checks import of_kind
from protocol.goal import PrivacyGoal, check_goal, goal_entry
from protocol.round.account import IndependentAccount
from protocol.round.history import ClientHistory, Failure
from protocol.round.run_account import RunAccount
from protocol.round.setup import RoundEncoding, noise_entry
from secagg import LocalProtocolError
from secagg.storage import sync_folder, write_durably

_MARK_BYTES = 16
_CHARGED = ".charged"
_CHARGES, _ANSWERED = "charges.jsonl", "answered"
_RING, _DRAW = struct.Struct("<d"), struct.Struct("<d?")
"""A failure in a mark. If only a part of a draw's is written, it is counted as a ring's."""


class StoredHistory(ClientHistory):
    """A `ClientHistory` in a folder, locked for this process until it is closed.

    A file for every round answered, whose name says whether the round was charged, and whose bytes
    what its ring or its draw may fail with; and a line of the ledger for every round charged.

    Args:
        folder: made if it does not exist; one for each identity.
        goal: as for `ClientHistory`. A folder keeps the goal, or the lack of one, that its first
            charge was made under: the part of delta that is set aside must be fixed before it.
        earlier: as for `ClientHistory`; it is not stored, so every opening is told.
        before_entry: called when a round is about to be entered that was not before, and all else
            is in order; what it raises keeps the round out.

    Raises:
        ParameterError: the folder has charges under another goal, or under none.
        LedgerError: the ledger in it was altered, marks and charges do not belong together, or
            another process has it open.
    """

    def __init__(
        self,
        folder: Path,
        goal: PrivacyGoal | None = None,
        earlier: int = 0,
        before_entry: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(goal, earlier)
        self._before_entry = before_entry
        _make_durably(folder)
        self._folder = folder
        # A line without an end was being written when the host died: it was never acted upon.
        self._ledger = Ledger.open(folder / _CHARGES, recover=True)
        self._is_open = True
        try:
            self._marks = _Marks(folder / _ANSWERED)
            sync_folder(folder)
            for entry in self._ledger.entries():
                check_goal(entry.metadata, goal)
                self._restore(entry)
            self._check_marks()
            share = goal.reserve.aggregation if goal else 0.0
            for failure in self._marks.failures(share):
                self._count(failure)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has a history, a new one if need be; it is not opened."""
        return (folder / _CHARGES).is_file() and (folder / _ANSWERED).is_dir()

    def close(self) -> None:
        """Let another process have the folder. Closing twice is allowed."""
        self._is_open = False
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _enter(self, session_id: bytes, round_number: int, failure: Failure) -> bool:
        self._check_open()
        mark = _mark_of(session_id, round_number)
        if self._before_entry is not None and not self._marks.has(mark):
            self._before_entry()
        return self._marks.answer(mark, failure)

    def _has(self, session_id: bytes, round_number: int) -> bool:
        self._check_open()
        return self._marks.has(_mark_of(session_id, round_number))

    def _pay(self, setup: RoundEncoding, event: Event, remembered: Mapping[str, Any]) -> None:
        self._check_open()
        session, number = setup.context.session_id, setup.context.round_number
        goal = goal_entry(self.goal) if self.goal else None
        entry = {
            "session": session.hex(),
            "round": number,
            "goal": goal,
            **noise_entry(setup.own_noise, "own"),
            **remembered,
        }
        # The mark last: then one that speaks of a charge always has it, wherever we are killed.
        self._ledger.append(event, entry)
        self._marks.charge([_mark_of(session, number)])

    def _restore(self, entry: Entry) -> None:
        """Take in a charge of an earlier process."""
        of_run = isinstance(entry.event, CorrelatedRelease)
        kind = RunAccount if of_run else IndependentAccount
        # Without a goal, charges of one kind may come before those of the other.
        if not isinstance(self._account, kind) and not (self._account and self._account.has_spent):
            self._account = kind(self.goal)
        try:
            of_kind("charge", self._account, kind).restore(entry)
        except (KeyError, TypeError, ValueError, LocalProtocolError):
            raise LedgerError(
                f"ledger line {entry.index + 1} is no charge of a run with returned noise"
            ) from None

    def _check_marks(self) -> None:
        """Hold marks and charges against each other."""
        charges = {_charged_mark(entry) for entry in self._ledger.entries()}
        answered, charged = self._marks.read()
        unmarked, uncharged = charges - answered - charged, charged - charges
        if unmarked or uncharged:
            raise LedgerError(
                f"the history in {self._folder} was altered: {len(uncharged)} rounds are marked as "
                f"charged and not in charges.jsonl, {len(unmarked)} charges have no mark in "
                "answered; restore the latest version of both, or take a new identity"
            )
        # We were killed between a charge and its mark, or an earlier version has written it.
        self._marks.charge(sorted(charges - charged))

    def _check_open(self) -> None:
        if not self._is_open:
            raise LedgerError(f"the history in {self._folder} is closed")


class _Marks:
    """A file for each answered round. Whatever comes back True or without an error is on disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def has(self, mark: str) -> bool:
        """Whether a round was marked, charged or not."""
        return any((self._folder / (mark + end)).exists() for end in ("", _CHARGED))

    def answer(self, mark: str, failure: Failure) -> bool:
        """Mark a round, and what it may fail with; False if it was marked before."""
        if (self._folder / (mark + _CHARGED)).exists():
            return False
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            descriptor = os.open(self._folder / mark, flags, 0o600)
        except FileExistsError:
            return False
        data = _RING.pack(failure.probability)
        if failure.beacon is not None:
            data = _DRAW.pack(failure.probability, failure.beacon)
        write_durably(descriptor, data)
        sync_folder(self._folder)
        return True

    def charge(self, marks: Sequence[str]) -> None:
        """Write down that answered rounds were charged; nothing if there are none."""
        for mark in marks:
            (self._folder / mark).touch(0o600)
            (self._folder / mark).rename(self._folder / (mark + _CHARGED))
        if marks:
            sync_folder(self._folder)

    def read(self) -> tuple[set[str], set[str]]:
        """Rounds that were answered only, and those that were charged."""
        names = {path.name for path in self._folder.iterdir()}
        charged = {name for name in names if name.endswith(_CHARGED)}
        return names - charged, {name.removesuffix(_CHARGED) for name in charged}

    def failures(self, share: float) -> Iterator[Failure]:
        """What every round may fail with; a ring with `share` where a mark does not say.

        Earlier versions said nothing, and a host may be killed before the bytes are written.
        """
        for path in self._folder.iterdir():
            data = path.read_bytes()
            layout = {_RING.size: _RING, _DRAW.size: _DRAW}.get(len(data))
            failure = Failure(*layout.unpack(data)) if layout else Failure(share)
            valid = math.isfinite(failure.probability) and failure.probability >= 0.0
            yield failure if valid else Failure(share)


def _mark_of(session_id: bytes, round_number: int) -> str:
    """A name that says nothing: 32 hex digits."""
    number = round_number.to_bytes(8, "little")
    return hashlib.sha256(session_id + number).digest()[:_MARK_BYTES].hex()


def _charged_mark(entry: Entry) -> str:
    """The mark of the round that an entry is about."""
    try:
        session, number = bytes.fromhex(entry.metadata["session"]), entry.metadata["round"]
        return _mark_of(session, number)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise LedgerError(
            f"ledger line {entry.index + 1} is not about a round: this is not a history's ledger"
        ) from None


def _make_durably(folder: Path) -> None:
    """Make a folder, and the names on the way to it last."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)
