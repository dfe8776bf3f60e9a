"""Privacy errors: one base class, and a budget error that carries its figures."""

from __future__ import annotations

import pickle

import pytest

from dp import errors


@pytest.mark.parametrize(
    "kind",
    [
        errors.NonFiniteUpdateError,
        errors.SensitivityExceededError,
        errors.BudgetExceededError,
        errors.UnsupportedEventError,
        errors.LedgerError,
    ],
)
def test_every_error_is_a_privacy_error(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.PrivacyError)
    assert not issubclass(kind, ValueError | TypeError)


def test_budget_error_shows_and_keeps_its_figures() -> None:
    error = errors.BudgetExceededError(1.5, 2.5, 2.0)
    assert (error.spent, error.requested, error.budget) == (1.5, 2.5, 2.0)
    assert "1.5" in str(error)
    assert "2.5" in str(error)


def test_budget_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.BudgetExceededError(1.5, 2.5, 2.0)))  # noqa: S301
    assert (error.spent, error.requested, error.budget) == (1.5, 2.5, 2.0)
