"""Noise of which a part comes back in the next round: charges, theorem, accountant, planner."""

from __future__ import annotations

from dp.correlated.accountant import CorrelatedAccountant
from dp.correlated.charge import Charge, RoundNoise
from dp.correlated.event import CorrelatedRelease
from dp.correlated.parts import Parts, RoundParts
from dp.correlated.theorem import Promises, correlated_epsilon, largest_mu

__all__ = [
    "Charge",
    "CorrelatedAccountant",
    "CorrelatedRelease",
    "Parts",
    "Promises",
    "RoundNoise",
    "RoundParts",
    "correlated_epsilon",
    "largest_mu",
]
