"""This project's binomial mechanism run as it is, against the error that is claimed for it.

Rotation, coordinate clip, conditional rounding, coins: the stages of the real encoder. What the
closed form leaves out is the bias of rounding again; a simulation has it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp import BinomialMechanism, NoiseSeed, clip_l2, quantize
from simulations.reproduce.cpsgd.mean_estimation import NORM, Conditional, Setting
from simulations.reproduce.engine.seeds import spawned
from sketch import PublicSeed, Rotation

SCALE = 24.0
COINS = 64


def measure_conditional(setting: Setting, repeats: int, seed: int, number: int) -> dict[str, Any]:
    """Measure the error of a mean of random directions of norm D, at least twice."""
    ours, rng = Conditional(setting, SCALE), spawned(seed, number)
    errors = np.array([_run_once(ours, rng) for _ in range(repeats)])
    bound = ours.error(COINS)
    return {
        "clients": setting.clients,
        "dimension": setting.dimension,
        "scale": SCALE,
        "linf": ours.linf,
        "coins": COINS,
        "repeats": repeats,
        "measured": float(errors.mean()),
        "standard_error": float(errors.std(ddof=1)) / math.sqrt(repeats),
        "coins_alone": setting.dimension / setting.clients * COINS / (4.0 * SCALE**2),
        "bound": bound,
        "bound_over_measured": bound / float(errors.mean()),
    }


def _run_once(ours: Conditional, rng: np.random.Generator) -> float:
    """Return the squared error of one mean."""
    setting = ours.setting
    mechanism = BinomialMechanism(COINS)
    rotation = Rotation(setting.dimension, PublicSeed(rng.bytes(32)))
    total = np.zeros(setting.dimension, np.int64)
    truth = np.zeros(setting.dimension)
    for _ in range(setting.clients):
        vector = rng.standard_normal(setting.dimension)
        vector *= NORM / np.linalg.norm(vector)
        bounded = clip_l2(vector, NORM).map_isometry(rotation.forward)
        seed = NoiseSeed(rng.bytes(32))
        integers = quantize(bounded, ours.scale, ours.linf, seed)
        total += mechanism.add_noise(integers, seed).values
        truth += vector
    centred = total.astype(np.float64) - setting.clients * mechanism.residual_offset
    estimate = rotation.inverse(centred * (1.0 / (ours.scale * setting.clients)))
    return float(np.sum((estimate - truth / setting.clients) ** 2))
