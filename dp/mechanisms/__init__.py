"""Mechanisms: how noise gets into a sum. What it is worth is for ``dp.accounting`` to say."""

from __future__ import annotations

from dp.mechanisms.base import Mechanism, Sensitivities
from dp.mechanisms.binomial import BinomialMechanism
from dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from dp.mechanisms.none import NoNoise
from dp.mechanisms.skellam import SkellamMechanism

__all__ = [
    "BinomialMechanism",
    "DiscreteGaussianMechanism",
    "Mechanism",
    "NoNoise",
    "Sensitivities",
    "SkellamMechanism",
]
