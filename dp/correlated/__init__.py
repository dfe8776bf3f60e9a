"""Noise of which a part comes back in the next round: charges, theorem, planner."""

from __future__ import annotations

from dp.correlated.charge import Charge, RoundNoise
from dp.correlated.planning import NoisePlan, Schedule, plan_noise
from dp.correlated.theorem import Promises, correlated_epsilon, largest_mu

__all__ = [
    "Charge",
    "NoisePlan",
    "Promises",
    "RoundNoise",
    "Schedule",
    "correlated_epsilon",
    "largest_mu",
    "plan_noise",
]
