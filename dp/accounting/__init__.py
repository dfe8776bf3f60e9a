"""Accountants: events in, epsilon out."""

from __future__ import annotations

from dp.accounting.accountant import (
    Accountant,
    DominationAccountant,
    FailureReserve,
    GaussianReference,
    Theorem1Accountant,
)
from dp.accounting.domination import effective_sigma
from dp.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from dp.accounting.theorem1 import (
    Theorem1Parameters,
    Theorem1Result,
    theorem1,
    theorem1_epsilon,
)

__all__ = [
    "Accountant",
    "DominationAccountant",
    "FailureReserve",
    "GaussianReference",
    "Theorem1Accountant",
    "Theorem1Parameters",
    "Theorem1Result",
    "effective_sigma",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "theorem1",
    "theorem1_epsilon",
]
