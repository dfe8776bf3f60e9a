"""Mean estimation with sketches that tune themselves, against an untrusted server and as published.

Source: arXiv 2307.10999, section 3; docs/mean-estimation.md.
"""

from __future__ import annotations

from protocol.estimation.adapt_norm import AdaptNorm
from protocol.estimation.adapt_tail import AdaptTail
from protocol.estimation.base import (
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
from protocol.estimation.central import CentralMeans, GaussianRule, Neighbours
from protocol.estimation.distributed import DistributedMeans
from protocol.estimation.doubling import Doubling
from protocol.estimation.fixed import FixedRate

__all__ = [
    "AdaptNorm",
    "AdaptTail",
    "Algorithm",
    "Bar",
    "CentralMeans",
    "DistributedMeans",
    "Doubling",
    "Estimate",
    "FixedRate",
    "GaussianRule",
    "MeanTask",
    "Neighbours",
    "NoisyMeans",
    "NormReading",
    "Released",
    "Step",
    "Trial",
]
