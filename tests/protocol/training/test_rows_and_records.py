"""What one announcement may cost a client in time, and who counts when rounds are not equal."""

from __future__ import annotations

import copy
import dataclasses
import gc
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from round_kit import make_client, make_setup

from dp import BinomialMechanism, LedgerError
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round import setup as setups
from protocol.round.account import IndependentAccount
from protocol.round.history import ClientHistory
from protocol.round.parameters import MAX_SKETCH_ROWS
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from secagg import ParameterError
from sketch import SketchKind, SketchSpec

GOAL = PrivacyGoal(epsilon=5.0, delta=1e-6, rounds=2)


class TestRows:
    """Every row of a sketch is a pass over the update, and a server names the rows."""

    @pytest.mark.parametrize(
        "spec",
        [
            SketchSpec(SketchKind.COUNT_MEAN, 100_000, MAX_SKETCH_ROWS + 1, 1),
            SketchSpec(SketchKind.COUNT_MEDIAN, 100_000, 1, 1, copies=MAX_SKETCH_ROWS + 1),
            SketchSpec(SketchKind.COUNT_MEDIAN, 100_000, 99, 2, copies=99),
        ],
    )
    def test_no_round_has_more_than_some_thousand(self, spec: SketchSpec) -> None:
        with pytest.raises(ParameterError, match=r"sketch = .*at most 4096 rows"):
            make_setup(sketch=spec)

    @pytest.mark.parametrize(
        "spec",
        [
            SketchSpec(SketchKind.COUNT_MEAN, 200, 30, 2),
            SketchSpec(SketchKind.COUNT_MEDIAN, 200, 2, 2, copies=15),
        ],
    )
    def test_a_client_takes_fewer(self, spec: SketchSpec) -> None:
        setup = make_setup(sketch=spec)
        ClientPolicy(minimum_noise_multiplier=0.0, largest_rows=30).check(setup)
        with pytest.raises(PolicyError, match=r"sketch_rows = 30, .* at most 29"):
            ClientPolicy(minimum_noise_multiplier=0.0, largest_rows=29).check(setup)


class TestUncountedGoal:
    """A goal that nothing counts against bounds nothing, however alike the rounds are."""

    POLICY = ClientPolicy(minimum_noise_multiplier=0.0, goal=GOAL)

    @pytest.mark.parametrize("equal", [True, False])
    @pytest.mark.parametrize(
        "other",
        [
            None,
            dataclasses.replace(GOAL, epsilon=50.0),
            dataclasses.replace(GOAL, delta=1e-7),
            dataclasses.replace(GOAL, rounds=3),
        ],
        ids=["none", "epsilon", "delta", "rounds"],
    )
    def test_every_history_without_that_very_goal_is_refused(
        self, tmp_path: Path, other: PrivacyGoal | None, equal: bool
    ) -> None:
        policy = dataclasses.replace(self.POLICY, equal_rounds=equal)

        class Custom(ClientHistory):
            def __bool__(self) -> bool:
                # What a history says about itself must not make it look like none.
                return False

        with StoredHistory(tmp_path, other) as stored:
            for history in (None, ClientHistory(other), stored, Custom(other)):
                with pytest.raises(ParameterError, match=r"^history = .*epsilon=5\.0"):
                    make_client(0, history, policy)

    def test_a_history_with_the_goal_is_taken_and_a_policy_without_one_asks_for_none(
        self, tmp_path: Path
    ) -> None:
        with StoredHistory(tmp_path, dataclasses.replace(GOAL)) as stored:
            for history in (stored, ClientHistory(GOAL)):
                make_client(0, history, self.POLICY)
        without = ClientPolicy(minimum_noise_multiplier=0.0)
        for history in (None, ClientHistory(), ClientHistory(GOAL)):
            make_client(0, history, without)


class TestOverlap:
    """Rounds of one client that overlap each see what the others spent."""

    def test_charges_in_threads_stay_within_the_goal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rounds = [make_setup(coins=3000, round_number=number) for number in range(8)]
        one = rounds[0].released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-6, 1))
        goal = PrivacyGoal(2.5 * one, 1e-6, 2)
        history = ClientHistory(goal)
        check = IndependentAccount.check

        def slowly(self: IndependentAccount, setup: RoundSetup, apart: int = 1) -> float:
            found = check(self, setup, apart)
            # Whoever does not wait for the others passes the check now.
            time.sleep(0.02)
            return found

        monkeypatch.setattr(IndependentAccount, "check", slowly)

        def charge(setup: RoundSetup) -> bool:
            try:
                history.charge(setup)
            except PolicyError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            paid = sum(pool.map(charge, rounds))
        assert 0 < paid < 8
        assert history.epsilon <= goal.epsilon

    def test_one_round_is_answered_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        history, setup = ClientHistory(), make_setup()
        check = IndependentAccount.check
        monkeypatch.setattr(
            IndependentAccount, "check", lambda self, *what: (time.sleep(0.02), check(self, *what))
        )

        def answer(_: int) -> bool:
            try:
                history.answer(setup)
            except PolicyError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(answer, range(4))) == 1


class TestSignalsAndCopies:
    """Two counts of one budget would each see half of what is spent."""

    def test_a_signal_handler_is_refused_while_its_thread_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would wait for its own thread for ever; another thread waits for its turn."""
        goal, setup = dataclasses.replace(GOAL, epsilon=50.0), make_setup(coins=20_000)
        real, told = os.fsync, []
        with StoredHistory(tmp_path, goal) as history, ThreadPoolExecutor(2) as pool:

            def signalled(descriptor: int) -> None:
                with pytest.raises(LedgerError, match="by this thread"):
                    _ = history.epsilon
                if not told:
                    told.append(pool.submit(lambda: history.epsilon))
                real(descriptor)

            history.answer(setup)
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", signalled)
                # In a thread of its own, so that a test that hangs ends.
                pool.submit(history.charge, setup).result(60)
            assert told[0].result(60) == history.epsilon > 0.0

    def test_a_copy_would_count_by_itself(self, tmp_path: Path) -> None:
        with StoredHistory(tmp_path, GOAL) as stored:
            for history in (ClientHistory(GOAL), stored):
                for copying in (copy.copy, copy.deepcopy, pickle.dumps):
                    with pytest.raises(TypeError, match="cannot be copied or pickled"):
                        copying(history)


class TestSharedReading:
    """Clients of one process read an announcement once, and forget it with the last of them."""

    def test_the_same_object_while_somebody_uses_it(self) -> None:
        data = make_setup().announce()
        first = RoundSetup.from_announcement(data, bytes(32))
        assert RoundSetup.from_announcement(bytearray(data), bytes(32)) is first
        with pytest.raises(ParameterError, match="digest"):
            RoundSetup(
                first.context, dataclasses.replace(first.parameters, mechanism=BinomialMechanism(7))
            )
        other = RoundSetup.from_announcement(data, bytes([1]) * 32)
        assert other.parameters.model_digest != first.parameters.model_digest

    def test_nothing_is_kept_of_what_was_refused(self) -> None:
        gc.collect()
        before = len(setups._SETUPS)
        policy = ClientPolicy(minimum_noise_multiplier=1e9)
        # Of a round that no other test reads, or it might be kept from there already.
        announcement = make_setup(round_number=7741).announce()
        with pytest.raises(PolicyError):
            make_client(policy=policy).join(announcement, bytes(32))
        gc.collect()
        assert len(setups._SETUPS) == before
