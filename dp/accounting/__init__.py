"""Accountants: events in, epsilon out. What all of them say of a run is in `dp.report`."""

from __future__ import annotations

from dp.accounting.accountant import DominationAccountant, FailureReserve, GaussianReference
from dp.accounting.base import Accountant
from dp.accounting.contraction import ContractionAccountant
from dp.accounting.cpsgd import Theorem1Accountant
from dp.accounting.domination import effective_sigma
from dp.accounting.exact import ExactAccountant
from dp.accounting.failing_gaussian import FailingGaussian
from dp.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from dp.accounting.laws import BinomialNoise
from dp.accounting.local import LocalAccountant
from dp.accounting.moments import (
    MomentsAccountant,
    renyi_to_epsilon,
    reserved_accountant,
)
from dp.accounting.outsider import OutsiderAccountant
from dp.accounting.published import PublishedAccountant
from dp.accounting.theorem1 import Theorem1Parameters, theorem1_epsilon

__all__ = [
    "Accountant",
    "BinomialNoise",
    "ContractionAccountant",
    "DominationAccountant",
    "ExactAccountant",
    "FailingGaussian",
    "FailureReserve",
    "GaussianReference",
    "LocalAccountant",
    "MomentsAccountant",
    "OutsiderAccountant",
    "PublishedAccountant",
    "Theorem1Accountant",
    "Theorem1Parameters",
    "effective_sigma",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "renyi_to_epsilon",
    "reserved_accountant",
    "theorem1_epsilon",
]
