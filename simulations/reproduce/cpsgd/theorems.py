"""cpSGD's Theorems 3 and 4 against simulation: the error of a mean on k levels with coins.

Three figures for one case. *Measured*: the mechanism itself, run many times. *Exact*: its error
given the vectors and the rotation, which is a sum of independent parts,

    |mean of what the clips cut off|^2
    + (w / n)^2 sum over clients and coordinates of f (1 - f)      f: the fraction that is rounded
    + (d / n) w^2 m p (1 - p)                                      w: the distance of two levels

averaged over the rotations that were drawn. *Printed*: the theorem's bound, which has 1/4 for
f (1 - f). Vectors of zeros lie halfway between two levels if k is even, and reach it.

This project's own mechanism is run as it is, too, against the error that is claimed for it:
rotation, coordinate clip, conditional rounding, coins, the stages of the real encoder. What the
closed form leaves out is the bias of rounding again; a simulation has it.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Theorems 3 and 4.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import BinomialMechanism, Bounded, NoiseSeed, clip_l2, quantize
from dp.mechanisms.levels import LevelMechanism, level_mse_bound, rotated_clip
from simulations.campaigns.claims import half_width
from simulations.campaigns.seeds import spawned
from simulations.reproduce.cpsgd.mean_estimation import Conditional, Setting
from sketch import PublicSeed, Rotation

NORM = 1.0  # D; errors are in units of D^2
DELTA = 1e-9  # of Theorem 4, as in the paper's Section 5
FloatArray = NDArray[np.float64]


class Inputs(enum.StrEnum):
    """What the clients hold."""

    ZEROS = "zeros"
    SPHERE = "sphere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulated mean."""

    clients: int  # n
    dimension: int  # d, a power of two if rotated
    levels: int  # k
    coins: int  # m of one client, per coordinate
    probability: float = 0.5  # p of one coin
    rotated: bool = False  # Theorem 4 instead of Theorem 3
    inputs: Inputs = Inputs.SPHERE  # zeros, or independent directions of norm D
    # Theorem 4 with the X printed above it, sqrt(2) times the X of its constants
    printed_clip: bool = False

    @property
    def clip(self) -> float:
        """X, at which coordinates are clipped."""
        if not self.rotated:
            return NORM
        wider = math.sqrt(2.0) if self.printed_clip else 1.0
        return wider * rotated_clip(NORM, self.dimension, self.clients, DELTA)

    @property
    def mechanism(self) -> LevelMechanism:
        """The mechanism that is run."""
        sizes = (self.levels, self.coins, self.probability)
        return LevelMechanism(NORM, self.clip, *sizes, self.rotated)

    @property
    def printed_bound(self) -> float:
        """The mean squared error that the theorem allows, as printed."""
        variance = self.coins * self.probability * (1.0 - self.probability)
        if self.rotated:
            return theorem4_bound(self.clients, self.dimension, self.levels, variance, DELTA)
        return theorem3_bound(self.clients, self.dimension, self.levels, variance)

    @property
    def worst(self) -> float:
        """The largest error of vectors that the clip does not touch: 1/4 for every f (1 - f)."""
        return level_mse_bound(self.mechanism, self.dimension, self.clients)

    @property
    def name(self) -> str:
        """Everything that tells two cases apart, in words."""
        theorem = "Theorem 4" if self.rotated else "Theorem 3"
        return f"{theorem}, printed X" if self.printed_clip else theorem


def theorem3_bound(clients: int, dimension: int, levels: int, variance: float) -> float:
    """Evaluate d D^2/(n (k-1)^2) + (d/n) 4 m p (1-p) D^2/(k-1)^2."""
    return dimension / clients * (1.0 + 4.0 * variance) * (NORM / (levels - 1)) ** 2


def theorem4_bound(
    clients: int, dimension: int, levels: int, variance: float, delta: float
) -> float:
    """Evaluate ln(2nd/delta) (2 + 8 m p (1-p)) D^2/(n (k-1)^2) + 4 D^2 delta^2."""
    logarithm = math.log(2.0 * clients * dimension / delta)
    spread = logarithm * (2.0 + 8.0 * variance) * (NORM / (levels - 1)) ** 2 / clients
    return spread + 4.0 * (NORM * delta) ** 2


def measure(case: Case, repeats: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Run a case, at least twice, each time with fresh vectors, rotation and noise.

    Returns the squared error of each repetition, and its expectation given vectors and rotation.
    """
    errors, exact = np.array([_run_once(case, rng) for _ in range(repeats)]).T
    return errors, exact


def measured(case: Case, repeats: int, seed: int, number: int) -> dict[str, Any]:
    """Run a case with one of the streams of a seed; return plain values."""
    errors, expected = measure(case, repeats, spawned(seed, number))
    mean, exact = float(errors.mean()), float(expected.mean())
    names = ("clients", "dimension", "levels", "coins", "probability", "inputs", "clip")
    return {
        "theorem": case.name,
        **{name: getattr(case, name) for name in names},
        "repeats": repeats,
        "measured": mean,
        "confidence_half_width": half_width(errors),
        "exact": exact,
        "worst": case.worst,
        "printed_bound": case.printed_bound,
        "bound_over_measured": case.printed_bound / mean,
        "measured_over_exact": mean / exact,
    }


def _run_once(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    mechanism = case.mechanism
    vectors = _vectors(case, rng)
    rotation = Rotation(case.dimension, PublicSeed(rng.bytes(32))) if case.rotated else None
    total = np.zeros(case.dimension, np.int64)
    rounding = np.zeros(case.dimension)
    lost = np.zeros(case.dimension)
    for vector in vectors:
        bounded = clip_l2(vector, NORM)
        if rotation is not None:
            bounded = bounded.map_isometry(rotation.forward)
        seed = NoiseSeed(rng.bytes(32))
        total += mechanism.add_noise(mechanism.quantize(bounded, seed), seed).values
        variances, cut = _rounding(bounded, mechanism)
        rounding += variances
        lost += cut
    estimate = mechanism.estimate(total, case.clients)
    if rotation is not None:
        estimate = rotation.inverse(estimate)
    error = float(np.sum((estimate - vectors.mean(axis=0)) ** 2))
    noise = case.clients * case.dimension * mechanism.variance
    spread = mechanism.width**2 * (float(rounding.sum()) + noise)
    return error, (spread + float(np.sum(lost**2))) / case.clients**2


def _vectors(case: Case, rng: np.random.Generator) -> FloatArray:
    """Return float64[n, d] of norm at most D."""
    if case.inputs is Inputs.ZEROS:
        return np.zeros((case.clients, case.dimension))
    normal = rng.standard_normal((case.clients, case.dimension))
    lengths = np.linalg.norm(normal, axis=1, keepdims=True)
    return np.asarray(NORM * normal / lengths, np.float64)


def _rounding(bounded: Bounded, mechanism: LevelMechanism) -> tuple[FloatArray, FloatArray]:
    """Return f (1 - f) of every coordinate, and what the clip cuts off it."""
    clipped = np.clip(bounded.values, -mechanism.clip, mechanism.clip)
    place = (clipped + mechanism.clip) / mechanism.width
    fraction = place - np.floor(place)
    return fraction * (1.0 - fraction), bounded.values - clipped


SMALL = Case(clients=100, dimension=256, levels=2, coins=0)
WIDE = Case(clients=10, dimension=4096, levels=2, coins=0)


def cases(quick: bool) -> list[tuple[Case, int]]:
    """Return what is run, and how often."""
    zeros = Inputs.ZEROS
    if quick:
        return [
            (Case(clients=10, dimension=256, levels=4, coins=8, inputs=zeros), 40),
            (Case(clients=10, dimension=256, levels=4, coins=8, rotated=True, inputs=zeros), 40),
            (Case(clients=10, dimension=256, levels=16, coins=4, rotated=True), 40),
        ]
    halfway = [
        (replace(SMALL, levels=2, coins=16, inputs=zeros), 200),
        (replace(WIDE, levels=16, coins=64, inputs=zeros), 400),
    ]
    spread = [
        (replace(SMALL, levels=16, coins=4), 200),
        (replace(WIDE, levels=17, coins=1, probability=0.25), 400),
    ]
    rotated = [(replace(case, rotated=True), repeats) for case, repeats in halfway + spread]
    wider = replace(WIDE, levels=16, coins=64, rotated=True, printed_clip=True)
    return [*halfway, *spread, *rotated, (replace(wider, inputs=zeros), 400), (wider, 400)]


OUR_SCALE = 24.0
OUR_COINS = 64


def measure_conditional(setting: Setting, repeats: int, seed: int, number: int) -> dict[str, Any]:
    """Measure the error of a mean of random directions of norm D, at least twice."""
    ours, rng = Conditional(setting, OUR_SCALE), spawned(seed, number)
    errors = np.array([_run_ours(ours, rng) for _ in range(repeats)])
    bound = ours.error(OUR_COINS)
    return {
        "clients": setting.clients,
        "dimension": setting.dimension,
        "scale": OUR_SCALE,
        "linf": ours.linf,
        "coins": OUR_COINS,
        "repeats": repeats,
        "measured": float(errors.mean()),
        "standard_error": float(errors.std(ddof=1)) / math.sqrt(repeats),
        "coins_alone": setting.dimension / setting.clients * OUR_COINS / (4.0 * OUR_SCALE**2),
        "bound": bound,
        "bound_over_measured": bound / float(errors.mean()),
    }


def _run_ours(ours: Conditional, rng: np.random.Generator) -> float:
    setting = ours.setting
    mechanism = BinomialMechanism(OUR_COINS)
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
