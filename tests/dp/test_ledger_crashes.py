"""A process is killed at random moments while it releases results: nothing is ever missing.

The child appends an event, then "releases" by writing the event's number to another file, both
without pause. It is killed by SIGKILL, which no handler sees. After each kill the ledger must hold
every number that was released; it may hold one more, for a result that never went out.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from waiting import until

from dp.events import BinomialRelease
from dp.ledger import Ledger
from dp.ledger_reader import read_ledger

KILLS = 40

CHILD = """
import os, sys
from dp.events import BinomialRelease
from dp.ledger import Ledger

ledger_path, released_path = sys.argv[1:]
released = os.open(released_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
lines = sys.stdin
for line in lines:
    pid = os.fork()
    if pid == 0:
        ledger = Ledger.open(ledger_path, recover=True)
        number = sum(1 for _ in ledger.events())
        print(os.getpid(), flush=True)
        while True:
            ledger.append(BinomialRelease(100 + 2 * number, 2.0, 2, 3), {"number": number})
            os.write(released, b"%d\\n" % number)
            number += 1
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""


def _kill_once(child: subprocess.Popen[str], pause: float, released: Path | None) -> None:
    """Start a releasing process, kill it after a moment, and wait until it is gone.

    With a file, the moment begins when something more was released.
    """
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    before = released.stat().st_size if released else 0
    pid = int(child.stdout.readline())
    if released:
        until(lambda: released.stat().st_size > before)
    time.sleep(pause)
    os.kill(pid, signal.SIGKILL)
    assert child.stdout.readline() == "gone\n"


def test_no_released_result_is_missing_after_a_kill(tmp_path: Path) -> None:
    ledger_path, released_path = tmp_path / "ledger.jsonl", tmp_path / "released"
    # The parent of the killed processes loads the package once; each killed process is a fork.
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", CHILD, str(ledger_path), str(released_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    moments = random.Random(17)
    counts = []
    try:
        for kill in range(KILLS):
            _kill_once(child, moments.uniform(0.0, 0.03), released_path if kill % 2 else None)
            with Ledger.open(ledger_path, recover=True) as ledger:
                events = list(ledger.events())
            released = [int(line) for line in released_path.read_text().split()]
            assert released == sorted(set(released))
            # Never under-counted: every released number is on record, as what it was.
            assert all(number < len(events) for number in released)
            assert all(e == BinomialRelease(100 + 2 * i, 2.0, 2, 3) for i, e in enumerate(events))
            counts.append((len(events), len(released)))
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(timeout=300)
        if child.stdout is not None:
            child.stdout.close()
    assert len(counts) == KILLS
    # The test is about something: results were released, and the second reader agrees.
    assert counts[-1][1] >= KILLS // 2
    assert len(read_ledger(ledger_path)) == counts[-1][0]
    # Over-counted at most once for each kill.
    assert 0 <= counts[-1][0] - counts[-1][1] <= KILLS


def test_a_cut_at_every_byte_of_the_last_line_loses_no_earlier_one(tmp_path: Path) -> None:
    """What a power failure may leave: any prefix of the line being written."""
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(BinomialRelease(100, 2.0, 2, 3))
        before = path.stat().st_size
        ledger.append(BinomialRelease(102, 2.0, 2, 3))
    whole = path.read_bytes()
    for size in range(before, len(whole)):
        path.write_bytes(whole[:size])
        with Ledger.open(path, recover=True) as ledger:
            assert [event for event in ledger.events()] == [BinomialRelease(100, 2.0, 2, 3)]
