"""What `veilsum reproduce sqsgd` trains: Figures 1 to 3 and 5, and a few runs beside them.

Figure 1 varies the levels K at one epsilon, Figure 2 epsilon at one K, Figure 3 compares with the
Piecewise Mechanism and vqSGD at equal bits: those of floor(epsilon/2.5) coordinates of 32 bits, as
which the paper counts the Piecewise Mechanism. Figure 5 varies K and how many coordinates are sent,
at the bits of Figure 2. Every run has a learning rate of its own. Beside them:

- the Piecewise Mechanism as published: no memory, coordinates scaled by d/k;
- vqSGD with its repetitions paid for: the paper gives each of them the whole epsilon;
- sqSGD with what theory says is better: a tenth of U, the best division of epsilon, eight levels.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Sections 3.1 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np
import torch

from dp.local import (
    CrossPolytope,
    Piecewise,
    PrivQuant,
    SampledCoordinates,
    best_priv_quant,
    sampled_piecewise,
)
from dp.local.base import shared_epsilon
from dp.local.calibration import printed_priv_quant, share_of_kappa
from dp.local.sampled import EPSILON_EACH, sampled_count
from protocol.errors import ConfigurationError
from simulations.learning.local_dp import LocalAlgorithm
from simulations.learning.local_dp.sqsgd import SqSgd, kept_count
from simulations.learning.local_dp.vectors import RandomizedVectors, clip_coordinates, clip_rows
from simulations.learning.models import Lenet5Task, Task, TinyCnnTask
from simulations.learning.models.residual import ResidualTask

FLOAT_BITS: Final = 32  # of a coordinate of the Piecewise Mechanism, as the paper counts it
NARROWER: Final = 0.1  # of U, in the run with a smaller one
BEST_LEVELS: Final = 8
# Of vqSGD where they are paid for: beyond it each has too little to say which vertex it is
MOST_REPEATS: Final = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run depends on beside its algorithm and its seed; see `Plan`."""

    data: str
    model: str
    clients: int
    batch: int
    epochs: int

    @property
    def task(self) -> Task:
        """Return the network."""
        return build_model(self.model)

    def rounds_of_epoch(self, examples: int) -> int:
        """Return in how many rounds as many examples are drawn as there are: 188 for 60,000."""
        return math.ceil(examples / (self.clients * self.batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A network, its data, and what is varied."""

    data: str = "mnist"  # a data set of pictures
    model: str = "lenet5"  # "lenet5", "resnet110", or "tiny" for 8 x 8 pixels
    clients: int = 10  # that share the examples equally; all take part in every round
    batch: int = 32  # examples of a client in a round
    # Of the server, the least that is tried; each of the others is 10^(1/2) times the last one
    rate: float = 0.001
    steps: int = 5  # of that kind
    bound: float = 10.0  # U, norm of an update and largest coordinate of a report
    ratio: float = 0.005  # r, coordinates that are sent, of all
    # Of every run; an epoch is as many rounds as it takes to see all examples once
    epochs: int = 10
    levels: tuple[int, ...] = (2, 8, 32)  # K of Figure 1
    epsilons: tuple[float, ...] = (200.0, 300.0, 400.0)  # of Figure 2
    middle: int = 16  # K of Figure 2
    compared: tuple[float, ...] = (200.0, 400.0)  # epsilons of Figure 3
    compared_levels: int = 16  # K of Figure 3
    traded: tuple[int, ...] = (2, 8, 32, 128)  # K of Figure 5
    seeds: int = 3  # runs of everything, each with first parameters, batches and noise of its own
    tuning_seeds: int = 1  # others, which choose the rates
    force: bool = False  # whether to train ResNet-110 without a GPU, which takes weeks

    @property
    def figure1_epsilon(self) -> float:
        """Return epsilon of Figure 1: 400 for LeNet-5, 2,000 for ResNet-110."""
        return 2000.0 if self.model == "resnet110" else max(self.epsilons)

    @property
    def setting(self) -> Setting:
        """Return what all runs have in common."""
        return Setting(self.data, self.model, self.clients, self.batch, self.epochs)

    def check(self) -> None:
        """Refuse an unknown network, and weeks of training, with a `ConfigurationError`."""
        build_model(self.model)
        if self.model == "resnet110" and not (self.force or torch.cuda.is_available()):
            problem = "resnet110 on a CPU takes weeks"
            raise ConfigurationError("model", problem, "a machine with a GPU, or --set force=true")


PRESETS = {
    "lenet5": Plan(),
    "resnet110": Plan(
        data="fashion-mnist",
        model="resnet110",
        epsilons=(1000.0, 2000.0, 3000.0),
        compared=(1000.0, 3000.0),
        compared_levels=128,
    ),
    "quick": Plan(
        data="digits",
        model="tiny",
        rate=0.2,
        bound=3.0,
        ratio=0.1,
        epochs=10,
        steps=1,
        levels=(2, 8),
        epsilons=(20.0, 60.0),
        compared=(60.0,),
        traded=(2, 8),
        seeds=2,
        tuning_seeds=1,
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One way to train."""

    name: str  # also that of its files
    figures: tuple[int, ...]  # of the paper to which it belongs
    algorithm: LocalAlgorithm | None  # of the clients; None for no privacy
    facts: Mapping[str, Any]  # what is known before: epsilon, bits, levels, error of a report


MODELS: Final[Mapping[str, Callable[[], Task]]] = {
    "lenet5": Lenet5Task,
    "resnet110": ResidualTask,
    "tiny": TinyCnnTask,
}


def build_model(name: str) -> Task:
    """Return a network."""
    if name not in MODELS:
        raise ConfigurationError("model", f"value {name!r}", ", ".join(MODELS))
    return MODELS[name]()


def runs(plan: Plan, dimension: int) -> list[Run]:
    """Return every run, each once, with the figures that it belongs to."""
    found: dict[str, Run] = {"plain": Run("plain", (1, 2, 3), None, _facts("plain", None))}
    kept = kept_count(dimension, plan.ratio)
    varied = [(1, levels, plan.figure1_epsilon) for levels in plan.levels]
    varied += [(2, plan.middle, epsilon) for epsilon in plan.epsilons]
    for figure, levels, epsilon in varied:
        run = _sqsgd(plan, dimension, kept, levels, epsilon, "sqsgd", (figure,))
        # One of Figure 2 may be of Figure 1, too.
        before = found[run.name].figures if run.name in found else ()
        found[run.name] = replace(run, figures=(*before, figure))
    for epsilon in plan.compared:
        found |= {run.name: run for run in _compared(plan, dimension, epsilon)}
    for levels in plan.traded:
        few = min(dimension, kept * bits_of(plan.middle) // bits_of(levels))
        run = _sqsgd(plan, dimension, few, levels, plan.figure1_epsilon, "traded-sqsgd", (5,))
        found[run.name] = run
    found |= {run.name: run for run in _beside(plan, dimension, max(plan.compared))}
    return list(found.values())


def bits_of(levels: int) -> int:
    """Return the bits of a coordinate with so many levels."""
    return (levels - 1).bit_length()


def equal_bits(epsilon: float, dimension: int) -> int:
    """Return the bits of Figure 3: floor(epsilon/2.5) floats."""
    return FLOAT_BITS * sampled_count(dimension, epsilon)


def _compared(plan: Plan, dimension: int, epsilon: float) -> Iterator[Run]:
    """Figure 3 at one epsilon: the same residual and the same bits for those who sample."""
    bits, levels = equal_bits(epsilon, dimension), plan.compared_levels
    kept = min(dimension, bits // bits_of(levels))
    yield _sqsgd(plan, dimension, kept, levels, epsilon, "equal-sqsgd", (3,))
    count = sampled_count(dimension, epsilon)
    each = Piecewise(shared_epsilon(epsilon, count))
    randomizer = SampledCoordinates(count, epsilon, count, each)
    piecewise = SqSgd(dimension, randomizer, plan.bound, rotated=False)
    error = plan.bound**2 * float(randomizer.variance(np.zeros(count)).sum())
    known = _facts("piecewise", piecewise, epsilon, bits=bits, kept=count, error=error)
    yield Run(f"equal-piecewise-{epsilon:g}", (3,), piecewise, known)
    repeats = max(1, bits // (2 * dimension - 1).bit_length())
    vertices = CrossPolytope(dimension, epsilon * repeats, repeats)
    yield _vqsgd(plan, vertices, epsilon, "equal-vqsgd", (3,))


def _beside(plan: Plan, dimension: int, epsilon: float) -> Iterator[Run]:
    """What the paper does not have."""
    sampled = sampled_piecewise(dimension, epsilon)
    whole = RandomizedVectors(sampled, clip_coordinates, plan.bound)
    error = plan.bound**2 * float(sampled.variance(np.zeros(dimension)).sum())
    bits = equal_bits(epsilon, dimension)
    known = _facts("piecewise-scaled", whole, epsilon, bits=bits, kept=sampled.sampled, error=error)
    yield Run(f"piecewise-scaled-{epsilon:g}", (), whole, known)
    most = min(MOST_REPEATS, max(1, math.floor(epsilon / EPSILON_EACH)))
    paid = min(
        (CrossPolytope(dimension, epsilon, repeats) for repeats in range(1, most + 1)),
        key=lambda each: each.worst_variance,
    )
    yield _vqsgd(plan, paid, epsilon, "vqsgd-paid", ())
    kept = kept_count(dimension, plan.ratio)
    narrow = replace(plan, bound=NARROWER * plan.bound)
    yield _sqsgd(narrow, dimension, kept, BEST_LEVELS, epsilon, "sqsgd-narrow", best=True)


def _sqsgd(
    plan: Plan,
    dimension: int,
    kept: int,
    levels: int,
    epsilon: float,
    way: str,
    figures: tuple[int, ...] = (),
    *,
    best: bool = False,
) -> Run:
    """sqSGD, by the paper's division of epsilon or by the best one."""
    calibrate = best_priv_quant if best else printed_priv_quant
    randomizer = calibrate(kept, levels, 1.0, epsilon)
    algorithm = SqSgd(dimension, randomizer, plan.bound)
    facts: dict[str, Any] = {
        "levels": levels,
        "bits": kept * randomizer.quantizer.bits,
        "kept": kept,
        "kappa": randomizer.kappa,
        "factor": randomizer.factor,
        "bound": plan.bound,
        "error": kept * plan.bound**2 * float(randomizer.variance(np.zeros(1))[0]),
    }
    known = _facts(way, algorithm, epsilon, **facts)
    return Run(f"{way}-k{levels}-{epsilon:g}", figures, algorithm, known)


def _vqsgd(
    plan: Plan, vertices: CrossPolytope, epsilon: float, way: str, figures: tuple[int, ...]
) -> Run:
    """vqSGD; epsilon is what the paper would say."""
    algorithm = RandomizedVectors(vertices, clip_rows, plan.bound)
    known = _facts(
        way,
        algorithm,
        epsilon,
        bits=int(vertices.report_bits),
        kept=vertices.repeats,
        error=plan.bound**2 * vertices.worst_variance,
    )
    return Run(f"{way}-{epsilon:g}", figures, algorithm, known)


def _facts(
    way: str, algorithm: LocalAlgorithm | None, epsilon: float | None = None, **more: Any
) -> dict[str, Any]:
    """Plain figures; ``epsilon`` is nominal, ``epsilon_report`` true."""
    known = dict.fromkeys(("levels", "bits", "kept", "kappa", "factor", "bound", "error"))
    true = None if algorithm is None else algorithm.epsilon
    return {"way": way, "epsilon": epsilon, "epsilon_report": true, **known, **more}


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
