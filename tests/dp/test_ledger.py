"""The ledger: durable before release, every alteration noticed, crashes recoverable."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from dp import ledger as ledger_module
from dp.errors import LedgerError, UnsupportedEventError
from dp.event_kinds import Event
from dp.events import BinomialRelease, Composition, NonPrivateRelease
from dp.ledger import GENESIS, MAX_LINE_BYTES, Ledger
from dp.records import canonical_json

FIRST = BinomialRelease(14272, 16.0, 16, 1000)
SECOND = Composition((BinomialRelease(30000, 8.5, 4, 500), FIRST))
EVENTS: list[Event] = [FIRST, SECOND, NonPrivateRelease()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of three events."""
    location = tmp_path / "privacy.jsonl"
    with Ledger.open(location) as ledger:
        for number, event in enumerate(EVENTS):
            ledger.append(event, {"round": number})
    return location


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_events_come_back_in_order(path: Path) -> None:
    with Ledger.open(path) as ledger:
        assert list(ledger.events()) == EVENTS
        assert [entry.metadata["round"] for entry in ledger.entries()] == [0, 1, 2]
        assert [entry.index for entry in ledger.entries()] == [1, 2, 3]


def test_the_chain_can_be_recomputed_by_hand(path: Path) -> None:
    previous = hashlib.sha256(b"veilsum-ledger/1").hexdigest()
    assert previous == GENESIS
    for raw in _lines(path):
        line = json.loads(raw)
        body = {key: line[key] for key in ("content", "index", "kind")}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(bytes.fromhex(previous) + text.encode()).hexdigest()
        assert (line["previous"], line["hash"]) == (previous, digest)
        previous = digest


def test_the_file_states_its_adjacency_and_is_private(path: Path) -> None:
    header = json.loads(_lines(path)[0])
    assert header["content"]["adjacency"].startswith("zero-out")
    assert path.stat().st_mode & 0o077 == 0


def test_appending_after_reopening_continues_the_chain(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.append(FIRST)
    with Ledger.open(path) as ledger:
        assert list(ledger.events()) == [*EVENTS, FIRST]


def test_append_is_on_disk_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(path.stat().st_size)
        real(descriptor)

    with Ledger.open(path) as ledger:
        monkeypatch.setattr(ledger_module.os, "fsync", recording)
        ledger.append(FIRST)
        # One sync, and it happened when the whole line was in the file.
        assert synced == [path.stat().st_size]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_any_changed_byte_is_noticed_and_its_line_named(path: Path, number: int) -> None:
    lines = _lines(path)
    for position in range(0, len(lines[number]) - 1, 7):
        altered = bytearray(lines[number])
        altered[position] ^= 0x01
        path.write_bytes(b"".join([*lines[:number], bytes(altered), *lines[number + 1 :]]))
        with pytest.raises(LedgerError, match=f"line {number + 1}|format"):
            Ledger.open(path)


@pytest.mark.parametrize(
    "order", [[0, 2, 1, 3], [0, 1, 3], [0, 1, 1, 2, 3], [1, 2, 3], [0, 1, 2, 3, 0]]
)
def test_moved_removed_and_repeated_lines_are_noticed(path: Path, order: list[int]) -> None:
    lines = _lines(path)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(LedgerError, match="line"):
        Ledger.open(path)


def test_lost_lines_at_the_end_need_the_head_kept_elsewhere(path: Path) -> None:
    with Ledger.open(path) as ledger:
        head = ledger.head
    Ledger.open(path, expected_head=head).close()
    lines = _lines(path)
    path.write_bytes(b"".join(lines[:-1]))
    Ledger.open(path).close()  # documented limit: the chain alone cannot see this
    with pytest.raises(LedgerError, match=head):
        Ledger.open(path, expected_head=head)


def test_an_older_head_is_still_found_after_growth(path: Path) -> None:
    with Ledger.open(path) as ledger:
        head = ledger.head
        ledger.append(FIRST)
    Ledger.open(path, expected_head=head).close()


def test_every_possible_cut_of_the_last_line(path: Path) -> None:
    whole = path.read_bytes()
    lines = _lines(path)
    start = len(whole) - len(lines[-1])
    for cut in [*range(start + 1, len(whole), 23), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(LedgerError, match=r"line 4 is unfinished.*recover=True"):
            Ledger.open(path)
        assert path.read_bytes() == whole[:cut]  # refusing changes nothing
        with Ledger.open(path, recover=True) as ledger:
            assert list(ledger.events()) == EVENTS[:-1]
        note = json.loads(_lines(path)[-1])
        digest = hashlib.sha256(whole[start:cut]).hexdigest()
        assert note["kind"] == "recovery"
        assert note["content"] == {"cut_bytes": cut - start, "cut_sha256": digest}
        Ledger.open(path).close()


def test_a_crash_in_the_very_first_line(tmp_path: Path) -> None:
    location = tmp_path / "new.jsonl"
    location.write_bytes(b'{"content":{"adj')
    with pytest.raises(LedgerError, match="unfinished"):
        Ledger.open(location)
    with Ledger.open(location, recover=True) as ledger:
        ledger.append(FIRST)
    with Ledger.open(location) as ledger:
        assert list(ledger.events()) == [FIRST]


def test_recovery_of_a_sound_file_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    Ledger.open(path, recover=True).close()
    assert path.read_bytes() == before


def test_recovery_does_not_excuse_tampering(path: Path) -> None:
    lines = _lines(path)
    path.write_bytes(b"".join([lines[0], lines[2], b'{"cut']))
    with pytest.raises(LedgerError, match="line 2"):
        Ledger.open(path, recover=True)


@pytest.mark.parametrize("text", [b"\n", b"[]\n", b"null\n", b"\xff\xfe\n", b"[" * 9000 + b"\n"])
def test_foreign_files_are_refused(tmp_path: Path, text: bytes) -> None:
    location = tmp_path / "foreign"
    location.write_bytes(text)
    with pytest.raises(LedgerError, match="line 1"):
        Ledger.open(location)
    assert location.read_bytes() == text


def test_two_writers_are_refused(path: Path) -> None:
    with Ledger.open(path), pytest.raises(LedgerError, match="in use"):
        Ledger.open(path)
    Ledger.open(path).close()


def test_a_failed_write_closes_the_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger.open(path)
    monkeypatch.setattr(ledger_module.os, "fsync", full)
    with pytest.raises(LedgerError, match="No space left"):
        ledger.append(FIRST)
    assert list(ledger.events()) == EVENTS
    with pytest.raises(LedgerError, match="closed"):
        ledger.append(FIRST)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("where", ["before the line is synced", "after", "before it is taken in"])
def test_an_interrupted_write_closes_the_ledger_and_the_line_is_found_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException], where: str
) -> None:
    real = os.fsync

    def interrupted(*arguments: int) -> None:
        if where == "after":
            real(*arguments)
        raise interrupt

    ledger = Ledger.open(path)
    head = ledger.head
    with monkeypatch.context() as patch:
        if where == "before it is taken in":
            patch.setattr(Ledger, "_take_in", lambda self, line: interrupted())
        else:
            patch.setattr(ledger_module.os, "fsync", interrupted)
        with pytest.raises(interrupt):
            ledger.append(FIRST)
    with pytest.raises(LedgerError, match="closed"):
        ledger.append(SECOND)
    with Ledger.open(path, expected_head=head) as again:
        assert list(again.events()) == [*EVENTS, FIRST]
        again.append(SECOND)
    with Ledger.open(path) as last:
        assert list(last.events()) == [*EVENTS, FIRST, SECOND]


def test_a_signal_handler_of_the_thread_that_writes_does_not_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, real = Ledger.open(path), os.fsync

    def signalled(descriptor: int) -> None:
        with pytest.raises(LedgerError, match="by this thread"):
            ledger.append(SECOND)
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module.os, "fsync", signalled)
        ledger.append(FIRST)
    ledger.append(SECOND)
    ledger.close()
    with Ledger.open(path) as again:
        assert list(again.events()) == [*EVENTS, FIRST, SECOND]


def test_a_short_write_is_an_error_and_recoverable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    ledger = Ledger.open(path)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module.os, "write", lambda fd, data: real(fd, data[:40]))
        with pytest.raises(LedgerError, match="short write"):
            ledger.append(FIRST)
    with Ledger.open(path, recover=True) as recovered:
        assert list(recovered.events()) == EVENTS


def test_a_closed_ledger_refuses_and_closing_twice_is_fine(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.append(FIRST)


@pytest.mark.parametrize("metadata", [{"x": float("nan")}, {"x": object()}])
def test_metadata_must_be_json(path: Path, metadata: dict[str, object]) -> None:
    before = path.read_bytes()
    with Ledger.open(path) as ledger:
        with pytest.raises((TypeError, ValueError)):
            ledger.append(FIRST, metadata)
        ledger.append(FIRST)
    assert path.read_bytes().startswith(before)


def test_huge_lines_are_refused_before_they_are_written(path: Path) -> None:
    before = path.read_bytes()
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="bytes"):
        ledger.append(FIRST, {"x": "y" * MAX_LINE_BYTES})
    assert path.read_bytes() == before


def test_unknown_events_are_refused(path: Path) -> None:
    with Ledger.open(path) as ledger, pytest.raises(UnsupportedEventError):
        ledger.append("release")  # type: ignore[arg-type]


def _forged(kind: str, content: object, previous: str, index: int) -> bytes:
    """A line with a correct hash, as somebody without scruples would write it."""
    digest = ledger_module._line_hash(previous, index, kind, content)
    fields = {"content": content, "hash": digest, "index": index, "kind": kind}
    return canonical_json({**fields, "previous": previous}) + b"\n"


def _head_of(path: Path) -> str:
    return str(json.loads(_lines(path)[-1])["hash"])


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("header", {}, "header belongs on line 1"),
        ("event", {"event": {"tag": "non-private"}}, "not an event with metadata"),
        ("event", [], "not an event with metadata"),
        ("event", {"event": {"tag": "pickle"}, "metadata": {}}, "unknown event tag"),
        ("remark", {}, "not a ledger line"),
    ],
)
def test_forged_lines_with_good_hashes_are_refused(
    path: Path, kind: str, content: object, message: str
) -> None:
    line = _forged(kind, content, _head_of(path), 4)
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(LedgerError, match=message):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"content":NaN,"hash":"","index":4,"kind":"event","previous":""}', "is not JSON"),
        (b'{"content":1e999,"hash":"","index":4,"kind":"event","previous":""}', "is not JSON"),
        (b"9" * 5000, "is not JSON"),
        (b" " * (MAX_LINE_BYTES + 1), "is longer"),
    ],
    ids=["NaN", "overflow", "digits", "endless"],
)
def test_lines_that_no_ledger_has_are_refused(path: Path, text: bytes, words: str) -> None:
    path.write_bytes(path.read_bytes() + text + b"\n")
    with pytest.raises(LedgerError, match=f"line 5 {words}"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("index", "words"), [(b"true", "line 2 does not follow"), (b" 1", "canonical")]
)
def test_an_index_that_only_equals_the_number_is_refused(
    path: Path, index: bytes, words: str
) -> None:
    lines = _lines(path)
    lines[1] = lines[1].replace(b'"index":1,', b'"index":' + index + b",")
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match=words):
        Ledger.open(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    location = tmp_path / "future.jsonl"
    header = {**ledger_module._header(), "version": 2}
    location.write_bytes(_forged("header", header, GENESIS, 0))
    with pytest.raises(LedgerError, match="another format, version or adjacency"):
        Ledger.open(location)


class TestSharing:
    """Threads share a ledger; a process that was forked has only seen a part of it."""

    def test_threads_that_append_at_once_leave_one_chain(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside = Barrier(2)
        met: list[bool] = []
        write = Ledger._write

        def meeting(self: Ledger, data: bytes) -> None:
            # Whoever writes waits for another that is about to write after the same line.
            try:
                inside.wait(0.3)
                met.append(True)
            except BrokenBarrierError:
                met.append(False)
            write(self, data)

        with Ledger.open(path) as ledger:
            monkeypatch.setattr(Ledger, "_write", meeting)
            with ThreadPoolExecutor(2) as pool:
                entries = list(pool.map(lambda _: ledger.append(FIRST), range(2)))
        assert met == [False, False]
        assert sorted(entry.index for entry in entries) == [4, 5]
        with Ledger.open(path) as ledger:
            assert list(ledger.events()) == [*EVENTS, FIRST, FIRST]

    def test_an_event_is_written_under_the_head_that_it_was_checked_with(self, path: Path) -> None:
        with Ledger.open(path) as ledger:
            head = ledger.head
            ledger.append(FIRST, expected_head=head)
            for old in (head, GENESIS, ""):
                with pytest.raises(LedgerError, match="another run has written"):
                    ledger.append(SECOND, expected_head=old)
            ledger.append(SECOND, expected_head=ledger.head)
        with Ledger.open(path) as ledger:
            assert list(ledger.events()) == [*EVENTS, FIRST, SECOND]

    def test_whoever_has_read_the_head_finds_every_entry_up_to_it(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[str, int]] = []
        parse = ledger_module._parse_entry

        def looking(line: dict[str, object]) -> object:
            seen.append((ledger.head, len(ledger.entries())))
            return parse(line)

        with Ledger.open(path) as ledger:
            before = ledger.head
            monkeypatch.setattr(ledger_module, "_parse_entry", looking)
            ledger.append(FIRST)
        assert seen == [(before, len(EVENTS))]

    def test_a_forked_process_neither_writes_nor_reads_and_ours_goes_on(self, path: Path) -> None:
        """In an interpreter of its own: there a fork while a thread holds the lock is harmless."""
        script = (
            "import os, sys, threading\n"
            "from dp import BinomialRelease, LedgerError\n"
            "from dp.ledger import Ledger\n"
            "ledger = Ledger.open(sys.argv[1])\n"
            "event = BinomialRelease(100, 2.0, 2, 3)\n"
            "held, done = threading.Event(), threading.Event()\n"
            "def hold():\n"
            "    with ledger._one_writer: held.set(); done.wait()\n"
            "thread = threading.Thread(target=hold); thread.start(); held.wait()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    for use in (lambda: ledger.append(event), ledger.entries, ledger.events,\n"
            "                lambda: ledger.head):\n"
            "        try: use()\n"
            "        except LedgerError as error: print(error, flush=True)\n"
            "    ledger.close()\n"
            "    os._exit(0)\n"
            "status = os.waitpid(pid, 0)[1]; done.set(); thread.join()\n"
            "ledger.append(event); ledger.close()\n"
            "sys.exit(status)\n"
        )
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("each process must open it itself") == 4
        with Ledger.open(path) as ledger:
            assert len(ledger.entries()) == len(EVENTS) + 1

    def test_a_copy_would_be_a_second_writer(self, path: Path) -> None:
        with Ledger.open(path) as ledger:
            for copying in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled"):
                    copying(ledger)

    def test_a_closed_ledger_can_still_be_read(self, path: Path) -> None:
        with Ledger.open(path) as ledger:
            pass
        assert list(ledger.events()) == EVENTS
        with pytest.raises(LedgerError, match="closed"):
            ledger.append(FIRST)
