"""Local privacy: every client makes its own report private, and trusts nobody.

A ``LocalRandomizer`` turns vectors into ``Reports``, each of which is (epsilon, 0)-private for
any two inputs of its client. Reports are unbiased: a server sums them and has the sum of the
vectors plus noise. What one report spent is a ``dp.events.LocalRelease``.

The baselines against which distributed privacy is measured: here every client's noise is the
whole noise, and there is no secure sum to hide in.
"""

from __future__ import annotations

from dp.local.base import LocalRandomizer, Reports
from dp.local.calibration import InfeasibleEpsilonError, best_priv_quant
from dp.local.cross_polytope import CrossPolytope
from dp.local.priv_quant import PrivQuant
from dp.local.reconstruction import ReconstructionProtection
from dp.local.sampled import SampledCoordinates, sampled_hybrid, sampled_piecewise
from dp.local.scalars import Duchi, Hybrid, Piecewise, ScalarRandomizer
from dp.local.selection import Selector, exponential, perturbed_encoding, perturbed_sampling
from dp.local.two_stage import selection_share_for, two_stage

__all__ = [
    "CrossPolytope",
    "Duchi",
    "Hybrid",
    "InfeasibleEpsilonError",
    "LocalRandomizer",
    "Piecewise",
    "PrivQuant",
    "ReconstructionProtection",
    "Reports",
    "SampledCoordinates",
    "ScalarRandomizer",
    "Selector",
    "best_priv_quant",
    "exponential",
    "perturbed_encoding",
    "perturbed_sampling",
    "sampled_hybrid",
    "sampled_piecewise",
    "selection_share_for",
    "two_stage",
]
