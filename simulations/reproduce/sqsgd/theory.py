"""What the settings of sqSGD's figures mean, without any training: kappa, m, variance.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Sections 3.1 and 4.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from dp.local import PrivQuant, best_priv_quant
from dp.local.calibration import printed_priv_quant, share_of_kappa
from simulations.learning.local_dp.sqsgd import kept_count
from simulations.reproduce.sqsgd.plan import Plan


def theory(plan: Plan, dimension: int) -> list[dict[str, Any]]:
    """Return what the settings of a plan mean for a gradient of so many numbers.

    Two lengths of a report: k = floor(r d), and the power of two of Algorithm 2. Variances are of a
    coordinate that is zero, in U^2.
    """
    kept = kept_count(dimension, plan.ratio)
    lengths = (kept, 1 << (kept - 1).bit_length())
    levels = sorted({*plan.levels, plan.middle})
    return [_setting(*each) for each in product(lengths, plan.epsilons, levels)]


def _setting(length: int, epsilon: float, levels: int) -> dict[str, Any]:
    printed = printed_priv_quant(length, levels, 1.0, epsilon)
    return {
        "kept": length,
        "epsilon": epsilon,
        "levels": levels,
        "printed": _measures(printed),
        "best": _measures(best_priv_quant(length, levels, 1.0, epsilon)),
        "kappa_in_printed_range": printed.kappa >= 0,
    }


def _measures(randomizer: PrivQuant) -> dict[str, Any]:
    return {
        "kappa": randomizer.kappa,
        "epsilon": randomizer.epsilon,
        "factor": randomizer.factor,
        "variance": float(randomizer.variance(np.zeros(1))[0]),
        "share": share_of_kappa(randomizer),
    }
