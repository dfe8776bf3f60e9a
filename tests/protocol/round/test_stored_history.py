"""A client's memory on disk: whatever restarts, a round is answered once and paid for once."""

from __future__ import annotations

import math
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from round_kit import IDENTITIES, MODEL, make_client, make_setup, updates

from dp import Ledger, LedgerError, NonPrivateRelease
from protocol import Stage
from protocol.errors import PolicyError
from protocol.exchange.aggregators import UpdateSource
from protocol.exchange.remote import RemoteAggregator, RemoteClient, answer_or_refuse
from protocol.exchange.stages import Outbound
from protocol.goal import PrivacyGoal
from protocol.round.history import ClientHistory, Failure
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory, _mark_of
from secagg import ParameterError
from tests.doubles.refused import refused

SETUPS = [make_setup(coins=20_000, round_number=number) for number in range(5)]
"""Rounds that differ in their number only."""
GOAL = PrivacyGoal(SETUPS[0].released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, 3)), 1e-5, 3)
"""Enough for three of them."""


def take_part(history: ClientHistory, setup: RoundSetup) -> None:
    history.answer(setup)
    history.charge(setup)


def member(index: int, updates: UpdateSource, history: StoredHistory | None = None) -> RemoteClient:
    """One client of a round, with its history or none."""
    return RemoteClient(make_client(index, history), MODEL, lambda _: updates(index))


def party(updates: UpdateSource) -> list[RemoteClient]:
    """All clients of a round, without histories."""
    return [member(index, updates) for index in range(len(IDENTITIES))]


class TestRestart:
    """What another process finds."""

    def test_a_round_is_answered_once(self, tmp_path: Path) -> None:
        """Also one that failed: the process died before it came to an update."""
        with StoredHistory(tmp_path) as history:
            assert member(0, updates, history).answer(SETUPS[0].announce())
        with StoredHistory(tmp_path) as history:
            with refused(PolicyError, "round_number"):
                member(0, updates, history).answer(SETUPS[0].announce())
            assert history.epsilon == 0.0
            history.answer(SETUPS[1])

    def test_the_budget_counts_across_processes(self, tmp_path: Path) -> None:
        spent = []
        for setup in SETUPS[:3]:
            with StoredHistory(tmp_path, GOAL) as history:
                take_part(history, setup)
                spent.append(history.epsilon)
        memory = ClientHistory(GOAL)
        for setup in SETUPS[:3]:
            take_part(memory, setup)
        assert spent == sorted(set(spent)) and spent[-1] == memory.epsilon
        with StoredHistory(tmp_path, GOAL) as history:
            assert history.epsilon == spent[-1]
            with pytest.raises(PolicyError, match="epsilon"):
                history.answer(SETUPS[3])
            with pytest.raises(PolicyError, match="epsilon"):
                history.charge(SETUPS[3])
            assert history.epsilon == spent[-1]

    def test_another_session_is_another_round(self, tmp_path: Path) -> None:
        folder = tmp_path / "h"
        with StoredHistory(folder) as history:
            assert history._enter(b"\1" * 16, 256, Failure(0.0))
            assert history._enter(b"\1" * 16, 1, Failure(0.0))
            assert history._enter(b"\2" * 16, 1, Failure(0.0))
        with StoredHistory(folder) as history:
            assert not history._enter(b"\1" * 16, 256, Failure(0.0))
            assert not history._enter(b"\2" * 16, 1, Failure(0.0))
            assert history._enter(b"\2" * 16, 256, Failure(0.0))


class TestGoals:
    """A folder keeps the goal that it was charged under."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda goal: PrivacyGoal(goal.epsilon * 2, goal.delta, goal.rounds),
            lambda goal: PrivacyGoal(goal.epsilon, goal.delta * 2, goal.rounds),
            lambda goal: PrivacyGoal(goal.epsilon, goal.delta, goal.rounds + 1),
            lambda goal: None,
        ],
        ids=["epsilon", "delta", "rounds", "none"],
    )
    def test_another_goal_is_refused(self, tmp_path: Path, change: Callable[..., Any]) -> None:
        with StoredHistory(tmp_path, GOAL) as history:
            take_part(history, SETUPS[0])
        with pytest.raises(ParameterError, match="goal"):
            StoredHistory(tmp_path, change(GOAL))
        # And the folder is not left locked.
        StoredHistory(tmp_path, GOAL).close()

    @pytest.mark.parametrize("coins", [20_000, 0])
    def test_rounds_without_a_goal_are_not_forgotten_under_one(
        self, tmp_path: Path, coins: int
    ) -> None:
        setup = make_setup(coins=coins)
        with StoredHistory(tmp_path) as history:
            take_part(history, setup)
            assert history.epsilon == 0.0
        with pytest.raises(ParameterError, match="goal"):
            StoredHistory(tmp_path, GOAL)
        with StoredHistory(tmp_path) as history, pytest.raises(PolicyError):
            history.answer(setup)

    def test_a_folder_without_charges_takes_any_goal(self, tmp_path: Path) -> None:
        with StoredHistory(tmp_path) as history:
            history.answer(SETUPS[0])
        with StoredHistory(tmp_path, GOAL) as history:
            assert history.goal == GOAL


class TestDamage:
    """What was altered is refused; what a crash cut off is not."""

    @pytest.fixture
    def charged(self, tmp_path: Path) -> Path:
        with StoredHistory(tmp_path, GOAL) as history:
            take_part(history, SETUPS[0])
            take_part(history, SETUPS[1])
        return tmp_path / "charges.jsonl"

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text.replace(b'"coins":', b'"coins":9', 1),
            lambda text: b"".join(text.splitlines(keepends=True)[:1] + text.splitlines(True)[2:]),
            lambda text: text[:-2] + b"x\n",
            lambda text: b"\n" + text,
            lambda text: text + bytes(4096) + b"\n",
        ],
        ids=["more coins", "a line less", "another end", "an empty line", "zeros"],
    )
    def test_an_altered_ledger_is_refused(self, charged: Path, change: Callable[..., Any]) -> None:
        before = charged.read_bytes()
        changed = change(before)
        assert changed != before
        charged.write_bytes(changed)
        for _ in range(2):
            with pytest.raises(LedgerError):
                StoredHistory(charged.parent, GOAL)
        charged.write_bytes(before)
        StoredHistory(charged.parent, GOAL).close()

    def test_a_line_that_was_being_written_did_not_count(self, charged: Path) -> None:
        """Its charge never returned, so its update never left."""
        with StoredHistory(charged.parent, GOAL) as history:
            two = history.epsilon
            take_part(history, SETUPS[2])
            assert history.epsilon > two
        lines = charged.read_bytes().splitlines(keepends=True)
        charged.write_bytes(b"".join(lines[:-1]) + lines[-1][:-20])
        # Nor was its mark touched yet.
        context = SETUPS[2].context
        mark = charged.parent / "answered" / _mark_of(context.session_id, context.round_number)
        mark.with_suffix(".charged").rename(mark)
        with StoredHistory(charged.parent, GOAL) as history:
            assert history.epsilon == two
            # It was answered all the same.
            with pytest.raises(PolicyError, match="round_number"):
                history.answer(SETUPS[2])

    @pytest.mark.parametrize("content", [b"", b"\0" * 7, struct.pack("<d", math.nan)])
    def test_a_mark_that_does_not_say_counts_as_a_whole_share(
        self, tmp_path: Path, content: bytes
    ) -> None:
        """That of an earlier version, or of a host that was killed in between."""
        with StoredHistory(tmp_path, GOAL) as history:
            history.answer(SETUPS[0])
            assert history._rings == 0  # on the complete graph nothing can be tried
        (mark,) = (tmp_path / "answered").iterdir()
        mark.write_bytes(content)
        with StoredHistory(tmp_path, GOAL) as history:
            assert history._rings == GOAL.reserve.aggregation

    def test_files_and_a_new_folder_are_private(self, charged: Path, tmp_path: Path) -> None:
        StoredHistory(tmp_path / "a" / "b").close()
        marks = (charged.parent / "answered").iterdir()
        for path in (charged, *marks, tmp_path / "a" / "b"):
            assert os.stat(path).st_mode & 0o077 == 0


def marks_of(folder: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in (folder / "answered").iterdir() if path.suffix == suffix)


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def answered(charges: Path) -> Path:
    """The marks beside these charges."""
    return charges.with_name("answered")


def put_back(old: Path | None, now: Path) -> None:
    """A folder becomes an older one, or is gone."""
    shutil.rmtree(now)
    if old is not None:
        shutil.copytree(old, now)


class TestMarksAndCharges:
    """Each is held against the other: what is gone of one is seen in the other."""

    @pytest.fixture
    def before(self, tmp_path: Path) -> Path:
        """The folder after one charged round, kept aside."""
        with StoredHistory(tmp_path / "h", GOAL) as history:
            take_part(history, SETUPS[0])
        return shutil.copytree(tmp_path / "h", tmp_path / "before")

    @pytest.fixture
    def folder(self, tmp_path: Path, before: Path) -> Path:
        """The same folder, two charged rounds later."""
        with StoredHistory(tmp_path / "h", GOAL) as history:
            take_part(history, SETUPS[1])
            take_part(history, SETUPS[2])
        return tmp_path / "h"

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda now, old: now.write_bytes(b"".join(lines(now)[:-1])), "1 rounds are marked"),
            (lambda now, old: shutil.copy(old, now), "2 rounds are marked"),
            (lambda now, old: now.write_bytes(b""), "3 rounds are marked"),
            (lambda now, old: now.unlink(), "3 rounds are marked"),
            (lambda now, old: put_back(None, answered(now)), "3 charges have no mark"),
            (lambda now, old: put_back(answered(old), answered(now)), "2 charges have no mark"),
            (
                lambda now, old: marks_of(now.parent, ".charged")[0].unlink(),
                "1 charges have no mark",
            ),
        ],
        ids=["cut", "old charges", "empty", "no charges", "no marks", "old marks", "a mark less"],
    )
    def test_what_is_gone_of_one_is_noticed_by_the_other(
        self, folder: Path, before: Path, tmp_path: Path, change: Callable[..., Any], told: str
    ) -> None:
        whole = shutil.copytree(folder, tmp_path / "whole")
        change(folder / "charges.jsonl", before / "charges.jsonl")
        for _ in range(2):
            with pytest.raises(LedgerError, match=told):
                StoredHistory(folder, GOAL)
        StoredHistory(whole, GOAL).close()

    def test_another_clients_ledger_is_none_of_ours(self, folder: Path, tmp_path: Path) -> None:
        with StoredHistory(tmp_path / "other", GOAL) as other:
            take_part(other, make_setup(coins=20_000, round_number=99))
        shutil.copy(tmp_path / "other" / "charges.jsonl", folder / "charges.jsonl")
        with pytest.raises(LedgerError, match=r"3 rounds are marked .* 1 charges have no mark"):
            StoredHistory(folder, GOAL)

    def test_a_ledger_of_something_else_is_refused(self, tmp_path: Path) -> None:
        with Ledger.open(tmp_path / "charges.jsonl") as ledger:
            ledger.append(NonPrivateRelease(), {"goal": None, "round": "first"})
        with pytest.raises(LedgerError, match="line 2 is not about a round"):
            StoredHistory(tmp_path)

    def test_a_charge_whose_mark_was_not_reached_is_marked_by_the_next(self, folder: Path) -> None:
        """We were killed between the two, or an earlier version did not write it."""
        for mark in marks_of(folder, ".charged"):
            mark.rename(mark.with_suffix(""))
        with StoredHistory(folder, GOAL) as history:
            with pytest.raises(PolicyError, match="round_number"):
                history._account = None
                history.answer(SETUPS[0])
        assert len(marks_of(folder, ".charged")) == 3
        (folder / "charges.jsonl").unlink()
        with pytest.raises(LedgerError, match="3 rounds are marked"):
            StoredHistory(folder, GOAL)

    def test_answered_rounds_without_a_charge_are_no_alarm(self, tmp_path: Path) -> None:
        with StoredHistory(tmp_path, GOAL) as history:
            history.answer(SETUPS[0])
            history.answer(SETUPS[1])
            history.charge(SETUPS[1])
        for _ in range(2):
            with StoredHistory(tmp_path, GOAL) as history, pytest.raises(PolicyError):
                history.answer(SETUPS[0])


class TestOneProcess:
    """Two counts of one budget would each see half of what is spent."""

    def test_an_open_folder_is_locked(self, tmp_path: Path) -> None:
        with StoredHistory(tmp_path, GOAL), pytest.raises(LedgerError, match="another process"):
            StoredHistory(tmp_path, GOAL)
        StoredHistory(tmp_path, GOAL).close()

    def test_a_closed_history_answers_and_charges_nothing(self, tmp_path: Path) -> None:
        history = StoredHistory(tmp_path)
        history.close()
        history.close()
        with pytest.raises(LedgerError, match="closed"):
            history.answer(SETUPS[0])
        with pytest.raises(LedgerError, match="closed"):
            history.charge(SETUPS[0])
        # Nothing was marked: another process may have the folder by now.
        with StoredHistory(tmp_path) as again:
            again.answer(SETUPS[0])


class TestCrashes:
    """Killed anywhere, it counts too much and never too little."""

    def test_marks_and_charges_are_on_disk_before_the_call_returns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every write is followed by a sync of what was written, and of the folder it is in."""
        synced = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        folder = tmp_path / "new" / "history"
        with StoredHistory(folder, GOAL) as history:
            assert {tmp_path, tmp_path / "new", folder} <= set(synced)
            synced.clear()
            history.answer(SETUPS[0])
            context = SETUPS[0].context
            mark = _mark_of(context.session_id, context.round_number)
            assert synced == [folder / "answered" / mark, folder / "answered"]
            synced.clear()
            history.charge(SETUPS[0])
            assert synced == [folder / "charges.jsonl", folder / "answered"]

    @pytest.mark.parametrize("call", range(5))
    def test_dying_at_any_write_never_counts_too_little(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
    ) -> None:
        """A client dies at its n-th sync of a round; what left before, the next knows.

        Out of the process go advertisement, shares and masked update; the first must not leave
        unmarked, the last not uncharged.
        """
        left, real, seen = [], os.fsync, []

        class KilledError(BaseException):
            """The process was killed; nothing in it may catch that."""

        def fsync(descriptor: int) -> None:
            if len(seen) == call:
                raise KilledError
            seen.append(descriptor)
            real(descriptor)

        def exchange(stage: Stage, messages: Outbound) -> Iterator[tuple[int, bytes]]:
            for index, data in messages:
                if index:
                    yield index, answer_or_refuse(others[index], data)[0]
                    continue
                try:
                    left.append(remote.answer(data))
                except KilledError:
                    continue
                yield index, left[-1]

        others = party(updates)
        (tmp_path / "h").mkdir()
        StoredHistory(tmp_path / "h", GOAL).close()
        history = StoredHistory(tmp_path / "h", GOAL)
        remote = member(0, updates, history)
        monkeypatch.setattr(os, "fsync", fsync)
        total = RemoteAggregator(exchange).run(SETUPS[0]).total
        monkeypatch.undo()
        history.close()
        with StoredHistory(tmp_path / "h", GOAL) as history:
            is_charged = history.epsilon > 0
            is_marked = not history._enter(SETUPS[0].context.session_id, 0, Failure(0.0))
        # Advertisement, shares, update: the third to leave is the one that costs.
        assert is_marked or not left
        assert is_charged or len(left) < 3
        assert (0 in total.survivors) == (len(left) >= 3)
        assert [len(left), is_marked, is_charged] == EXPECTED[call]

    def test_a_charge_that_cannot_be_written_keeps_the_update(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> NoReturn:
            raise OSError("disk full")

        with StoredHistory(tmp_path, GOAL) as history:
            history.answer(SETUPS[0])
            monkeypatch.setattr(os, "write", full)
            with pytest.raises(LedgerError, match="disk full"):
                history.charge(SETUPS[0])
            monkeypatch.undo()
            # What is on disk is not known any more: this object is of no use.
            with pytest.raises(LedgerError):
                history.charge(SETUPS[0])
        with StoredHistory(tmp_path, GOAL) as history:
            assert history.epsilon == 0.0


EXPECTED = [
    # Killed at the sync of its mark, or of the folder: nothing left, and it was marked.
    [0, True, False],
    [0, True, False],
    # At the sync of its charge: keys and shares left, the update did not, the charge stays.
    [2, True, True],
    # At the sync of what the mark says of the charge: the same.
    [2, True, True],
    # Not killed: mark, charge, and the mark that says so, are all the syncs of a round.
    [5, True, True],
]
