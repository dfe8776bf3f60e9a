"""Mechanisms: how noise gets into a sum. What it is worth is for ``dp.accounting`` to say."""

from __future__ import annotations

from dp.mechanisms.base import Mechanism, Sensitivities
from dp.mechanisms.binomial import BinomialMechanism
from dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from dp.mechanisms.distributed import (
    MECHANISMS,
    DistributedMechanism,
    MechanismName,
    mechanism_of,
)
from dp.mechanisms.skellam import SkellamMechanism

__all__ = [
    "MECHANISMS",
    "BinomialMechanism",
    "DiscreteGaussianMechanism",
    "DistributedMechanism",
    "Mechanism",
    "MechanismName",
    "Sensitivities",
    "SkellamMechanism",
    "mechanism_of",
]
