"""Attacks on what clients and servers remember: what they report, and each defence taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from dp import Ledger
from protocol import ClientHistory, ClientPolicy, RoundClient
from protocol.training.records import Records
from secagg import Identity, storage
from secagg.storage import StorableParty, TokenFolder
from simulations.audits.base import Check
from simulations.threats.attack import Effort
from simulations.threats.catalogue import goals, old_copies, shared_records

SEED = 1


class TestUncountedGoal:
    """A26: more rounds than a client's goal allows."""

    def test_every_history_without_the_goal_is_refused(
        self, quick_check: Callable[[str], Check]
    ) -> None:
        check = quick_check("A26")
        told = check.with_defence["refused_with"]
        assert told.count("ParameterError (history)") == len(goals.UNCOUNTED)
        assert check.with_defence["updates_when_counted"] == 1
        assert check.without_defence["updates"] == 5

    def test_a_client_that_does_not_look_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = RoundClient.__init__

        def unlooking(
            self: RoundClient,
            identity: Identity,
            registry: tuple[bytes, ...],
            policy: ClientPolicy,
            history: ClientHistory | None = None,
            **others: Callable[..., Any],
        ) -> None:
            make(self, identity, registry, policy, ClientHistory(policy.goal), **others)
            self._history = history or self._history

        monkeypatch.setattr(RoundClient, "__init__", unlooking)
        found = goals.uncounted_goal(Effort.QUICK, SEED).real
        assert found["succeeded"] and found["successes"] == len(goals.UNCOUNTED)


@contextmanager
def unlocked(
    self: Records | shared_records.SlowHistory | shared_records.SlowSession,
) -> Iterator[None]:
    yield


class TestSharedBooks:
    """A28: two rounds at once on the same history."""

    def test_one_racer_is_told_why(self, quick_check: Callable[[str], Check]) -> None:
        real, twin = quick_check("A28").with_defence, quick_check("A28").without_defence
        for name in ("ledger", "history", "session"):
            assert real[f"{name}_through"] == 1 and twin[f"{name}_through"] == 2
        for told in ("LedgerError", "PolicyError", "RemoteProtocolError UNEXPECTED_MESSAGE"):
            assert told in real["refused_with"]
        assert real["ledger_opens"] and not twin["ledger_opens"]

    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Enough for the other thread to come, if nothing keeps it out."""
        for slow in (
            shared_records.SlowLedger,
            shared_records.SlowHistory,
            shared_records.SlowSession,
        ):
            monkeypatch.setattr(slow, "patience", 5.0)

    def test_a_charge_that_does_not_say_what_it_was_checked_with(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append = Ledger.append
        monkeypatch.setattr(
            Ledger, "append", lambda self, event, metadata, head=None: append(self, event, metadata)
        )
        monkeypatch.setattr(shared_records.SlowLedger, "patience", shared_records.SOON)
        setups, goal = shared_records.two_rounds(SEED)
        found = shared_records.race_for_a_ledger(shared_records.SlowLedger, Records, setups, goal)
        # One after the other, into a file that is whole: and still beyond the goal.
        assert found.is_lost and found.is_readable

    def test_a_ledger_and_books_without_locks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = Ledger.__init__

        def unlocked_ledger(self: Ledger, path: Path, descriptor: int) -> None:
            make(self, path, descriptor)
            self._one_writer = nullcontext()

        monkeypatch.setattr(Ledger, "__init__", unlocked_ledger)
        unnoticed = property(lambda self: False, lambda self, value: None)
        monkeypatch.setattr(Ledger, "_is_writing", unnoticed)
        monkeypatch.setattr(Records, "_alone", unlocked)
        setups, goal = shared_records.two_rounds(SEED)
        found = shared_records.race_for_a_ledger(shared_records.SlowLedger, Records, setups, goal)
        assert found.is_lost and not found.is_readable


class TestOldCopies:
    """A30: old copies of what a client keeps."""

    def test_every_change_of_a_history_is_refused(
        self, quick_check: Callable[[str], Check]
    ) -> None:
        check = quick_check("A30")
        told = check.with_defence["refused_with"]
        assert told.count("LedgerError") == len(old_copies.CHANGES) and "PolicyError" not in told
        assert check.with_defence["uploads_opened"] == 0
        assert check.with_defence["uploads_recorded"] > 0
        assert check.without_defence["histories_let_through"] == len(old_copies.CHANGES)

    def test_a_key_that_follows_from_the_identity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cipher, same = storage._cipher, bytes(storage.STATE_KEY_BYTES)

        def of_identity(
            party: StorableParty, role: bytes, token: bytes, key: bytes, beside: bytes
        ) -> tuple[AESSIV, bytes]:
            return cipher(party, role, token, same, beside)

        monkeypatch.setattr(storage, "_cipher", of_identity)
        found = old_copies.old_copies(Effort.QUICK, SEED).real
        assert found["succeeded"] and found["uploads_opened"] == found["uploads_recorded"]

    def test_keys_that_are_marked_and_not_destroyed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TokenFolder, "consume", lambda self, token: True)
        found = old_copies.old_copies(Effort.QUICK, SEED).real
        assert found["succeeded"] and found["uploads_opened"] == found["uploads_recorded"]
