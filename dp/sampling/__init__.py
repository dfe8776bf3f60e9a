"""Exact samplers: integer laws, their certified distribution functions, and inversion.

Knows seeds and keystreams only; what the draws are good for is the business of
``dp.mechanisms``.
"""

from __future__ import annotations

from dp.sampling.inversion import accumulate_law, sample_law
from dp.sampling.laws import (
    BinomialLaw,
    DiscreteGaussianLaw,
    Law,
    RoundedGaussianLaw,
    SkellamLaw,
)

__all__ = [
    "BinomialLaw",
    "DiscreteGaussianLaw",
    "Law",
    "RoundedGaussianLaw",
    "SkellamLaw",
    "accumulate_law",
    "sample_law",
]
