"""The privacy ledger: what was released, on disk *before* it is released.

A ledger is a text file of one JSON object per line. Each line carries the SHA-256 of the line
before it, and its own over that hash and its canonical content. ``append`` returns only after
the line is flushed and the file is synchronised to disk. The order is always: append, then
release. A crash in between counts a release that never happened: the ledger may over-count and
never under-counts.

What the chain catches: an edited, inserted, removed or reordered line anywhere but at the end.
What it cannot catch alone: somebody who removes whole lines at the end, or who rewrites the
file from some line on and computes new hashes (there is no key). Keep ``Ledger.head`` elsewhere
and pass it to ``Ledger.open`` as ``expected_head`` to catch these too.

A crash in mid-write leaves a last line without its newline. Its ``append`` never returned, so
its result was never released. Opening such a file is refused unless the caller asks for
recovery, which cuts the fragment off and records that it did, with the fragment's length and
hash.

One process at a time has a file open, which a lock of the system ensures. Threads may share an open
ledger. A forked process has the lock of its parent and does not see what the parent goes on to
write, so an inherited ledger is refused there: every process opens the file for itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final, NoReturn, Self

from dp.errors import LedgerError
from dp.event_kinds import Event
from dp.events import Adjacency
from dp.records import canonical_json, decode_event, encode_event

try:
    import fcntl
except ModuleNotFoundError as error:
    raise ImportError(
        "veilsum does not run on Windows: ledgers and histories need POSIX locks and folders "
        "that are synchronised to disk; use Linux, macOS or the Windows Subsystem for Linux",
        name="fcntl",
    ) from error

FORMAT: Final = "veilsum-ledger"
VERSION: Final = 1
GENESIS: Final = hashlib.sha256(f"{FORMAT}/{VERSION}".encode()).hexdigest()
"""The "previous hash" of the first line."""

MAX_LINE_BYTES: Final = 1 << 20
"""Longest line accepted: an event is a few hundred bytes, the rest is room for metadata."""

_KINDS: Final = ("header", "event", "recovery")
_KEYS: Final = frozenset({"hash", "index", "kind", "content", "previous"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One event with the public remarks written beside it.

    Attributes:
        index: line number from zero; line 0 is the header.
        event: what was released.
        metadata: JSON values, for people; accounting never reads them.
    """

    index: int
    event: Event
    metadata: Mapping[str, Any]


def _line_hash(previous: str, index: int, kind: str, content: object) -> str:
    """Return the hash of a line, bound to the hash before it."""
    body = canonical_json({"index": index, "kind": kind, "content": content})
    return hashlib.sha256(bytes.fromhex(previous) + body).hexdigest()


def _header() -> dict[str, Any]:
    """Return the content of the first line."""
    return {"adjacency": str(Adjacency.ZERO_OUT), "format": FORMAT, "version": VERSION}


def _parse_line(raw: bytes, index: int, previous: str) -> dict[str, Any]:
    """Return a line's object if it is whole and continues the chain."""
    where = f"ledger line {index + 1}"
    if len(raw) > MAX_LINE_BYTES:
        raise LedgerError(f"{where} is longer than {MAX_LINE_BYTES} bytes")
    try:
        line = json.loads(raw)
        canonical = canonical_json(line) == raw
    except (ValueError, RecursionError) as error:
        # ValueError covers bad UTF-8, bad JSON, NaN, and numbers that overflow.
        raise LedgerError(f"{where} is not JSON: it was altered") from error
    if not canonical:
        raise LedgerError(f"{where} is not in canonical form: it was altered")
    if not isinstance(line, dict) or set(line) != _KEYS or line["kind"] not in _KINDS:
        raise LedgerError(f"{where} is not a ledger line: it was altered")
    # The type is compared as well: True equals 1 in Python.
    numbered = type(line["index"]) is int and line["index"] == index
    if not numbered or line["previous"] != previous:
        raise LedgerError(f"{where} does not follow the line before it: lines were altered")
    if line["hash"] != _line_hash(previous, index, line["kind"], line["content"]):
        raise LedgerError(f"{where} does not match its hash: it was altered")
    return line


def _parse_entry(line: Mapping[str, Any]) -> Entry:
    """Return the entry of an event line."""
    content = line["content"]
    if not isinstance(content, dict) or set(content) != {"event", "metadata"}:
        raise LedgerError(f"ledger line {line['index'] + 1} is not an event with metadata")
    return Entry(line["index"], decode_event(content["event"]), content["metadata"])


class Ledger:
    """An open ledger file, locked for this process. Use ``Ledger.open``, then ``append``.

    Any failure or interruption while it writes closes the ledger: what the disk then holds is not
    known, and the next ``open`` will find out. Threads may share it; it is neither copied nor
    pickled.
    """

    __slots__ = (
        "_descriptor",
        "_entries",
        "_head",
        "_is_writing",
        "_lines",
        "_one_writer",
        "_process",
        "path",
    )

    def __init__(self, path: Path, descriptor: int) -> None:
        """Wrap an open descriptor; callers use ``Ledger.open``."""
        self.path = path
        self._descriptor: int | None = descriptor
        self._entries: list[Entry] = []
        self._head = GENESIS
        self._lines = 0
        self._is_writing = False
        self._process = os.getpid()
        # A line carries the hash of the one before it: two at once would both follow the same.
        self._one_writer = RLock()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: two objects would each write lines that follow the same one."""
        raise TypeError("a ledger cannot be copied or pickled: open its file instead")

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], recover: bool = False, expected_head: str | None = None
    ) -> Self:
        """Open a ledger, verifying every line, or start a new one.

        Args:
            path: the file; created (mode 600) if it does not exist.
            recover: cut off an unfinished last line and record that this was done.
            expected_head: ``head`` as kept elsewhere by the caller. Some line must have it: the
                file may have grown since, but not shrunk or changed. None skips this check.

        Raises:
            LedgerError: altered or unfinished content, the expected head is missing, or another
                process has the file open.
        """
        location = Path(path)
        descriptor = os.open(location, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        ledger = cls(location, descriptor)
        try:
            ledger._lock()
            ledger._load(recover, expected_head)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def head(self) -> str:
        """Return the hash of the last line, in hexadecimal.

        Raises:
            LedgerError: as ``entries``.
        """
        self.require_own_process()
        return self._head

    def events(self) -> Iterator[Event]:
        """Yield every event, oldest first.

        Raises:
            LedgerError: as ``entries``.
        """
        return (entry.event for entry in self.entries())

    def entries(self) -> tuple[Entry, ...]:
        """Return every event with its metadata, oldest first; also of a closed ledger.

        Raises:
            LedgerError: it was opened before this process was forked; there may be more by now.
        """
        self.require_own_process()
        return tuple(self._entries)

    def append(
        self,
        event: Event,
        metadata: Mapping[str, Any] | None = None,
        expected_head: str | None = None,
    ) -> Entry:
        """Write one event and return when it is on disk. Only then may its result be released.

        Args:
            event: what is about to be released.
            metadata: JSON values to keep beside it; public, never secrets or private values.
            expected_head: ``head`` when the caller decided that this event may be released. The
                event is written if nothing else was in the meantime: looking and writing are one
                step, whoever else writes. None writes in any case.

        Raises:
            LedgerError: the head is another one by now, the ledger is closed, being written by
                this very thread, or was opened before this process was forked, the line is too
                long, or writing failed.
            UnsupportedEventError: the event has no tag.
            TypeError, ValueError: the metadata are not JSON.
        """
        content = {"event": encode_event(event), "metadata": dict(metadata or {})}
        self.require_own_process()
        with self._one_writer:
            if expected_head not in (None, self._head):
                raise LedgerError(
                    f"another run has written to the ledger {self.path}: its head is {self._head}, "
                    f"and was {expected_head} when the event was checked"
                )
            self._append_line("event", content)
            return self._entries[-1]

    def require_own_process(self) -> None:
        """See that the ledger was opened by this process.

        It comes before any lock: in a forked process, a thread that is not there may hold it.

        Raises:
            LedgerError: it was opened before this process was forked.
        """
        if self._process != os.getpid():
            raise LedgerError(
                f"ledger {self.path} was opened before this process was forked: each process must "
                "open it itself"
            )

    def close(self) -> None:
        """Release the file and its lock. Closing twice is allowed."""
        if self._process != os.getpid():
            # The file stays locked for the process that opened it, and nobody else writes here.
            self._close_descriptor()
            return
        with self._one_writer:
            self._close_descriptor()

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(self, *details: object) -> None:
        """Close the ledger."""
        self.close()

    def _close_descriptor(self) -> None:
        """Close the file, if it is open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open_descriptor(self) -> int:
        """Return the descriptor, or raise ``LedgerError`` if the ledger is closed."""
        if self._descriptor is None:
            raise LedgerError(f"ledger {self.path} is closed")
        return self._descriptor

    def _lock(self) -> None:
        """Take the file for this process: two writers would fork the chain."""
        try:
            fcntl.flock(self._open_descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LedgerError(f"ledger {self.path} is in use by another process") from error

    def _load(self, recover: bool, expected_head: str | None) -> None:
        """Read and verify the file; start it if it is empty."""
        complete, fragment = self._read()
        heads = {GENESIS}
        for raw in complete:
            self._accept(raw)
            heads.add(self._head)
        if expected_head is not None and expected_head not in heads:
            raise LedgerError(f"ledger {self.path} has no line with the hash {expected_head}")
        if fragment:
            self._cut(fragment, sum(len(raw) + 1 for raw in complete), recover)
        if self._lines == 0:
            self._append_line("header", _header())
            self._sync_directory()
        if fragment:
            digest = hashlib.sha256(fragment).hexdigest()
            self._append_line("recovery", {"cut_bytes": len(fragment), "cut_sha256": digest})

    def _read(self) -> tuple[list[bytes], bytes]:
        """Return the complete lines and what follows the last newline."""
        with open(self._open_descriptor(), "rb", closefd=False) as stream:
            *complete, fragment = stream.read().split(b"\n")
        return complete, fragment

    def _accept(self, raw: bytes) -> None:
        """Verify one line read from the file and take it in."""
        line = _parse_line(raw, self._lines, self._head)
        if (line["kind"] == "header") != (self._lines == 0):
            raise LedgerError(f"ledger line {self._lines + 1}: a header belongs on line 1 only")
        if line["kind"] == "header" and line["content"] != _header():
            raise LedgerError(f"ledger {self.path} has another format, version or adjacency")
        self._take_in(line)

    def _take_in(self, line: Mapping[str, Any]) -> None:
        """Go on from a line that is in the file."""
        if line["kind"] == "event":
            self._entries.append(_parse_entry(line))
        # The head comes last: whoever has read it finds all entries up to it.
        self._head = line["hash"]
        self._lines += 1

    def _cut(self, fragment: bytes, keep_bytes: int, recover: bool) -> None:
        """Remove an unfinished last line, or refuse to."""
        if not recover:
            raise LedgerError(
                f"ledger line {self._lines + 1} is unfinished ({len(fragment)} bytes without a "
                "newline): a write was interrupted. Its result was never released; open with "
                "recover=True to cut it off and record that"
            )
        os.ftruncate(self._open_descriptor(), keep_bytes)

    def _append_line(self, kind: str, content: Mapping[str, Any]) -> None:
        """Write one line durably; close the ledger if that fails or is interrupted."""
        if self._is_writing:
            # By a signal handler of the thread that writes: its line would follow the same one.
            raise LedgerError(f"ledger {self.path} is already being written by this thread")
        digest = _line_hash(self._head, self._lines, kind, content)
        fields = {"content": content, "index": self._lines, "kind": kind}
        raw = canonical_json({**fields, "hash": digest, "previous": self._head})
        if len(raw) > MAX_LINE_BYTES:
            raise LedgerError(
                f"a ledger line may have at most {MAX_LINE_BYTES} bytes, got {len(raw)}"
            )
        try:
            self._is_writing = True
            self._write(raw + b"\n")
            # Decoded again, so that what this process sees is what a replay will see.
            self._take_in(json.loads(raw))
        except BaseException:
            # The line may be in the file, and the next one would not follow it.
            self.close()
            raise
        finally:
            self._is_writing = False

    def _write(self, data: bytes) -> None:
        """Write all of ``data`` and wait until it is on disk."""
        descriptor = self._open_descriptor()
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError("short write")
            os.fsync(descriptor)
        except OSError as error:
            raise LedgerError(f"ledger {self.path} could not be written: {error}") from error

    def _sync_directory(self) -> None:
        """Make the file's name durable as well, after creating it."""
        directory = os.open(self.path.resolve().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
