"""What FedSel's theory says, computed: noise by dimension, what is kept, and the time of a choice.

*Table 1, Theorem 3.* A mean of m reports has noise with deviation sqrt(p E zeta^2 / m) in a
coordinate that a report has with probability p, as far as values are small; zeta is a randomised
value. Of d of them the largest is about sqrt(2 ln(2 d / beta)) as large. Flat reports have p = k/d
and are scaled up by d/k; two-stage reports have p of about 1/d and are not, so what they bring of a
gradient is smaller by d as well. So both are shown: the noise, and the noise over the share of the
gradient that is left.

*Theorem 2.* Var[alpha s*] against Var[(alpha s)*], of the Piecewise Mechanism.

Source: Liu et al. 2020 (arXiv 2003.10637), Sections 3.3 and 4.2.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

import numpy as np

from dp import NoiseSeed
from dp.local.sampled import sampled_count
from dp.local.scalars import Piecewise
from simulations.campaigns.seeds import bytes_of, rng_of
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.reproduce.fedsel.plan import HONEST, Arm, Plan, Selection, flat, staged

FAILURE: Final = 0.05  # beta
CLIENTS: Final = 1000  # m
_ROWS, _TIMES = 64, 9


def noises(plan: Plan) -> list[dict[str, Any]]:
    """Return a row for each dimension and arm: the largest noise, and the gradient that is left."""
    arms = [flat("PM", plan.epsilon), *(staged(s, "PM", plan.epsilon) for s in HONEST)]
    return [_noise(arm, dimension) for dimension in plan.dimensions for arm in arms]


def _noise(arm: Arm, dimension: int) -> dict[str, Any]:
    selector = arm.selector(dimension)
    if selector is None:
        count = sampled_count(dimension, arm.value_epsilon)
        value, scale = Piecewise(arm.value_epsilon / count), dimension / count
        most = mean = count / dimension
    else:
        value, scale, law = Piecewise(arm.value_epsilon), 1.0, selector.law
        most = float(law.words.max()) / law.total
        mean = float(law.sizes @ law.words.astype(np.float64)) / law.total / dimension
    of_all = math.sqrt(2.0 * math.log(2.0 * dimension / FAILURE))
    noise = scale * of_all * math.sqrt(most * value.variance(0.0) / CLIENTS)
    # Of a gradient whose entries are all alike, on average over its ranks
    left = scale * mean
    row = {"dimension": dimension, "arm": arm.name, "most": most * dimension}
    return {**row, "noise": noise, "left": left, "relative": noise / left}


def theorem2() -> dict[str, Any]:
    """Return the largest ratio of both variances over rates, values and epsilons, and the least."""
    ratios = [
        rate**2 * Piecewise(epsilon).variance(value) / Piecewise(epsilon).variance(rate * value)
        for rate in (0.01, 0.1, 0.5, 0.9)
        for value in (0.0, 0.25, 0.5, 1.0)
        for epsilon in (0.1, 1.0, 4.0)
    ]
    return {"largest": max(ratios), "least": min(ratios)}


def times(study: Study[Plan]) -> list[dict[str, Any]]:
    """Return seconds of a choice by dimension, several measurements each."""
    given = [(selection, d) for d in study.plan.dimensions for selection in HONEST]
    cells = [Cell(f"time of {s}, d = {d}", timed, (s, d, study.seed)) for s, d in given]
    return study.results(cells)


def timed(selection: Selection, dimension: int, seed: int) -> dict[str, Any]:
    """Measure the choices of one client after another; what depends on d alone is ready."""
    selector = Arm(selection, selection, "exact", 1.0).selector(dimension)
    assert selector is not None  # noqa: S101 - it is one of those that choose
    rows = rng_of(seed, "times", dimension).standard_normal((_ROWS, 1, dimension))
    noise = [NoiseSeed(bytes_of("times", seed, place)) for place in range(_ROWS)]
    seconds = []
    for _ in range(_TIMES + 1):
        start = time.perf_counter()
        for row, word in zip(rows, noise, strict=True):
            selector.select(np.abs(row), word)
        seconds.append((time.perf_counter() - start) / _ROWS)
    return {"arm": selection, "dimension": dimension, "seconds": seconds[1:]}
