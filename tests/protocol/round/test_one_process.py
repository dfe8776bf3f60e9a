"""What counts or remembers is refused to a forked process, and to whoever interrupts its thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import one_shot_rounds as kit
import pytest
from round_kit import make_setup

from dp import Ledger, LedgerError, NoiseSeed
from protocol.goal import PrivacyGoal
from protocol.round.history import ClientHistory
from protocol.round.member_noise import MemberNoise, StoredMemberNoise
from protocol.round.stored_history import StoredHistory
from protocol.training.records import Records
from secagg import LocalProtocolError
from secagg.oneshot.records import RoundRecord

GOAL = PrivacyGoal(epsilon=50.0, delta=1e-6, rounds=2)
SETUP = make_setup(coins=40_000)
CONTEXT = kit.adding(kit.uploads())
Uses = list[Callable[[], object]]


def of_history(history: ClientHistory) -> tuple[Any, Uses]:
    uses: Uses = [lambda: history.answer(SETUP), lambda: history.charge(SETUP)]
    return history, [*uses, lambda: history.enter(bytes(16), 9), lambda: history.epsilon]


def of_records(ledger: Ledger) -> tuple[Any, Uses]:
    records = Records(ledger, GOAL)
    charge = records.prepare(SETUP, 0, None)
    uses: Uses = [lambda: records.prepare(SETUP, 1, None), lambda: charge(range(6))]
    return records, [*uses, lambda: records.epsilons(1)]


def of_noise(noise: MemberNoise) -> tuple[Any, Uses]:
    record = RoundRecord(CONTEXT.round_number, 5, (0, 1, 2, 3), ())
    uses: Uses = [lambda: noise.begin(CONTEXT), lambda: noise.add(CONTEXT, 20.0, NoiseSeed.fresh())]
    return noise, [*uses, lambda: noise.sign(CONTEXT, record)]


KINDS: dict[str, Callable[[Path], tuple[Any, Uses]]] = {
    "history without a goal": lambda _: of_history(ClientHistory()),
    "history": lambda _: of_history(ClientHistory(GOAL)),
    "stored history": lambda folder: of_history(StoredHistory(folder, GOAL)),
    "records": lambda folder: of_records(Ledger.open(folder / "ledger.jsonl")),
    "noise": lambda _: of_noise(MemberNoise()),
    "stored noise": lambda folder: of_noise(StoredMemberNoise(folder)),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_two_that_count_at_once_would_each_see_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], tuple[Any, Uses]]
) -> None:
    counting, uses = kind(tmp_path)
    ours = os.getpid()
    forked = LocalProtocolError if isinstance(counting, MemberNoise) else LedgerError
    with ThreadPoolExecutor(1) as pool, counting._lock:
        for use in uses:
            # A signal handler would wait for its own thread for ever.
            with pytest.raises(LedgerError, match="by this thread"):
                use()
        # As in a fork: another process, and a lock that somebody who is not there may hold.
        monkeypatch.setattr(os, "getpid", lambda: ours + 1)
        for use in uses:
            with pytest.raises(forked, match="forked"):
                pool.submit(use).result(60)
        monkeypatch.undo()
    for use in uses:
        use()
    if hasattr(counting, "close"):
        counting.close()
