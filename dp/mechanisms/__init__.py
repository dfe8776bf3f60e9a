"""Mechanisms: how noise gets into a sum. What it is worth is for ``dp.accounting`` to say."""

from __future__ import annotations

from dp.mechanisms.base import Mechanism, Sensitivities
from dp.mechanisms.binomial import BinomialMechanism
from dp.mechanisms.central import CentralGaussianMechanism
from dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from dp.mechanisms.distributed import (
    MECHANISMS,
    DistributedMechanism,
    MechanismName,
    mechanism_of,
)
from dp.mechanisms.levels import (
    LevelMechanism,
    Levels,
    NoisedLevels,
    level_mse_bound,
    rotated_clip,
    rotated_level_mse_bound,
)
from dp.mechanisms.skellam import SkellamMechanism

__all__ = [
    "MECHANISMS",
    "BinomialMechanism",
    "CentralGaussianMechanism",
    "DiscreteGaussianMechanism",
    "DistributedMechanism",
    "LevelMechanism",
    "Levels",
    "Mechanism",
    "MechanismName",
    "NoisedLevels",
    "Sensitivities",
    "SkellamMechanism",
    "level_mse_bound",
    "mechanism_of",
    "rotated_clip",
    "rotated_level_mse_bound",
]
