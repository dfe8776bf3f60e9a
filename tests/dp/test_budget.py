"""Replay of a ledger, and the guard that stops a round before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp.accounting import DominationAccountant, Theorem1Accountant
from dp.budget import Budget, replay
from dp.errors import BudgetExceededError, UnsupportedEventError
from dp.events import BinomialRelease, Composition, NonPrivateRelease
from dp.ledger import Ledger

FIRST = BinomialRelease(14272, 16.0, 16, 1000)
SECOND = Composition((BinomialRelease(30000, 8.5, 4, 500), FIRST))


def test_replay_by_an_independent_accountant(tmp_path: Path) -> None:
    direct = DominationAccountant()
    direct.compose(FIRST)
    direct.compose(SECOND)
    with Ledger.open(tmp_path / "privacy.jsonl") as ledger:
        for event in (FIRST, SECOND, NonPrivateRelease()):
            ledger.append(event)
        replayed = replay(list(ledger.events())[:2], DominationAccountant())
        other = replay(ledger.events(), Theorem1Accountant())
    assert replayed.epsilon(1e-5) == direct.epsilon(1e-5)
    assert other.epsilon(1e-5) == float("inf")


class TestBudget:
    """The guard that stops a round before it starts."""

    def test_a_round_within_the_budget_passes_and_changes_nothing(self) -> None:
        accountant = DominationAccountant()
        requested = Budget(1.0, 1e-5).check(accountant, FIRST)
        assert 0.99 < requested <= 1.0
        assert accountant.releases == 0

    def test_the_next_round_is_refused_with_all_figures(self) -> None:
        accountant = DominationAccountant()
        accountant.compose(FIRST)
        with pytest.raises(BudgetExceededError) as caught:
            Budget(1.0, 1e-5).check(accountant, FIRST)
        assert caught.value.spent == accountant.epsilon(1e-5)
        assert caught.value.requested > 1.0 == caught.value.budget
        assert accountant.releases == 1

    def test_an_infinite_budget_is_how_an_ablation_runs(self) -> None:
        assert Budget(float("inf"), 0.5).check(
            DominationAccountant(), NonPrivateRelease()
        ) == float("inf")

    def test_a_noiseless_release_never_fits_a_finite_budget(self) -> None:
        with pytest.raises(BudgetExceededError):
            Budget(1e9, 0.5).check(DominationAccountant(), NonPrivateRelease())

    def test_unknown_events_are_refused(self) -> None:
        with pytest.raises(UnsupportedEventError):
            Budget(1.0, 1e-5).check(DominationAccountant(), "round")  # type: ignore[arg-type]
