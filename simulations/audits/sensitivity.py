"""How far one client can move a sum: measured along the direction that it pushes in.

A client sends an update far longer than the clip, through sketch and rotation. In integer units
its share of the released sum has at most the length that the event states, so the projection of
the sum on the client's own direction has a mean of at most that, and the variance of the noise.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np
from scipy import stats

from protocol import PrivacyGoal
from secagg.checks import require_int
from simulations.audits.base import ALPHA, Audit, Figures, derived_seed
from simulations.audits.paths import FAR_BEYOND, Mistake, PathSettings, WholePath
from sketch import Rotation, spec_for_size

_GOAL: Final = PrivacyGoal(4.4, 1e-5, 1)
_DIMENSION: Final = 400
_SIZE: Final = 120


def sensitivity_figures(path: WholePath, rounds: int, seed: int, alpha: float = ALPHA) -> Figures:
    """Measure the projection of sums on the direction of a client that sends far too much.

    With R rounds of noise variance V, and at most 1/4 from the rounding of the one vector that
    is not zero, the mean projection passes the stated length by more than
    zq(alpha) sqrt((V + 1/4)/R) with probability alpha at most (central limit).
    """
    require_int("rounds", rounds, 1)
    settings, parameters = path.settings, path.claimed.parameters
    update = np.random.default_rng(derived_seed(seed, "update")).normal(
        size=settings.sketch.dimension
    )
    update *= FAR_BEYOND * settings.clip_l2 / np.linalg.norm(update)
    sketched = settings.sketch.build(parameters.public_seed).encode(update)
    direction = Rotation(parameters.length, parameters.public_seed).forward(sketched)
    direction /= np.linalg.norm(direction)
    table = np.zeros((settings.cohort, settings.sketch.dimension))
    table[0] = update
    shifts = [float(path.released(number, table)[0] @ direction) for number in range(rounds)]
    variance = path.claimed_release(settings.cohort, colluders=False).noise_variance
    tolerance = float(stats.norm.isf(alpha)) * math.sqrt((variance + 0.25) / rounds)
    mean = float(np.mean(shifts))
    return {
        "rounds": rounds,
        "update_over_clip": FAR_BEYOND,
        "stated_l2_sensitivity": parameters.l2_bound,
        "measured_shift": mean,
        "tolerance": tolerance,
        "rejected": mean > parameters.l2_bound + tolerance,
    }


def audit_clip(rounds: int, seed: int) -> Audit:
    """No client moves a sum by more than the event says."""
    settings = PathSettings(spec_for_size(_DIMENSION, _SIZE, 5), _GOAL)
    path = WholePath(settings, seed)
    figures = partial(sensitivity_figures, rounds=rounds, seed=seed)
    promise = "No client moves a sum further than accounted"
    mutants = path.mutants(figures, Mistake.NO_CLIP)
    return Audit("privacy-sensitivity", promise, partial(figures, path), mutants)
