"""Mean estimation with sketches that tune themselves, against an untrusted server and as published.

Source: arXiv 2307.10999, section 3; docs/mean-estimation.md.
"""

from __future__ import annotations

from simulations.reproduce.adaptive_mean.estimation.adapt_norm import AdaptNormMean
from simulations.reproduce.adaptive_mean.estimation.adapt_tail import AdaptTailMean
from simulations.reproduce.adaptive_mean.estimation.base import (
    Algorithm,
    Bar,
    Estimate,
    MeanTask,
    NoisyMeans,
    NormReading,
    Released,
    Step,
    Trial,
)
from simulations.reproduce.adaptive_mean.estimation.central import (
    CentralMeans,
    GaussianRule,
    Neighbours,
)
from simulations.reproduce.adaptive_mean.estimation.distributed import DistributedMeans
from simulations.reproduce.adaptive_mean.estimation.doubling import Doubling
from simulations.reproduce.adaptive_mean.estimation.fixed import FixedRateMean

__all__ = [
    "AdaptNormMean",
    "AdaptTailMean",
    "Algorithm",
    "Bar",
    "CentralMeans",
    "DistributedMeans",
    "Doubling",
    "Estimate",
    "FixedRateMean",
    "GaussianRule",
    "MeanTask",
    "Neighbours",
    "NoisyMeans",
    "NormReading",
    "Released",
    "Step",
    "Trial",
]
