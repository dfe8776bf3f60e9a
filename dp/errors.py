"""Errors of the privacy layer.

A bad argument from our own caller is a ``ValueError`` or ``TypeError``. The classes below
are for the other case: the call is well formed, but carrying it out would break, or could
not be shown to keep, a promise of privacy.
"""

from __future__ import annotations

import math


class PrivacyError(Exception):
    """Base of every refusal made for the sake of privacy."""


class NonFiniteUpdateError(PrivacyError):
    """A vector holds NaN or infinity, for which no sensitivity bound can be stated."""


class SensitivityExceededError(PrivacyError):
    """A vector is larger than the bound that its type claims."""


class CopiedSecretError(PrivacyError, TypeError):
    """A secret seed was to be pickled or copied, and would have left its process unnoticed."""


class UnsupportedEventError(PrivacyError):
    """An accountant was given an event that it has no theorem for."""


class LedgerError(PrivacyError):
    """The privacy ledger is damaged, was altered, or cannot be written."""


class BudgetExceededError(PrivacyError):
    """The next event would take the total above the budget.

    Attributes:
        spent: epsilon of the events composed so far, at the budget's delta.
        requested: epsilon if the refused event were composed as well.
        budget: the epsilon that may not be exceeded.
    """

    def __init__(self, spent: float, requested: float, budget: float) -> None:
        """Store the three figures and build a message that shows all of them."""
        super().__init__(
            f"privacy budget exceeded: epsilon {spent:.6g} is spent, the next event would make "
            f"it {requested:.6g}, the budget is {budget:.6g}"
        )
        self.spent = spent
        self.requested = requested
        self.budget = budget

    def __reduce__(self) -> tuple[type[BudgetExceededError], tuple[float, float, float]]:
        """Rebuild from the three figures, so that the error survives process boundaries."""
        return type(self), (self.spent, self.requested, self.budget)


class RoundsUsedUpError(BudgetExceededError):
    """A client has taken part as often as its goal says: delta was split for so many releases.

    Attributes:
        rounds: releases of the goal, all of them made.
    """

    def __init__(self, spent: float, budget: float, rounds: int) -> None:
        """Store the figures; no epsilon can be stated for one release more."""
        super().__init__(spent, math.inf, budget)
        self.args = (
            f"a client of this cohort has taken part {rounds} times, as often as its goal says "
            f"(epsilon {spent:.6g} of {budget:.6g} is spent): invite others, or begin a new "
            "run with more rounds in its goal",
        )
        self.rounds = rounds

    def __reduce__(self) -> tuple[type[RoundsUsedUpError], tuple[float, float, int]]:
        """Rebuild from the figures that it was made of."""
        return type(self), (self.spent, self.budget, self.rounds)
