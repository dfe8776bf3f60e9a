"""What each system says about privacy when all of them make the same error.

n clients hold vectors of d coordinates and norms up to 1, and the sum is wanted. Every system is
set so that the mean squared error of a coordinate of the sum is z^2, rounding included: that of
Gaussian noise z. What differs is whom clients have to trust, the epsilon that a system's own
analysis gives, and the bits of a coordinate on the wire.

* a trusted server that adds Gaussian noise: the central model;
* binomial noise of the clients below a secure sum: this project, by Gaussian domination;
* the same release by cpSGD's Theorem 1, and cpSGD as printed, with its own levels and
  sensitivities (Theorem 4, Equation (10); neighbours replace a vector there);
* distributed discrete Gaussian and Skellam noise, by the bounds that they were published with;
* local randomisers: nobody is trusted with a sum, and every report has all the noise.

Sources: Agarwal et al. 2018 (arXiv 1805.10559), Kairouz, Liu and Steinke 2021 (arXiv 2102.06387),
Agarwal, Kairouz and Liu 2021 (arXiv 2110.04995); for the local ones docs/local-dp.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dp import (
    BinomialRelease,
    DiscreteGaussianRelease,
    GaussianRelease,
    LevelRelease,
    LocalRelease,
    SkellamRelease,
    epsilons,
)
from dp.local import CrossPolytope, best_priv_quant, sampled_piecewise
from dp.mechanisms.levels import rotated_clip
from dp.report import EpsilonReport, json_number
from dp.rounding import rounded_l2_bound
from dp.search import bracketed

FLOAT_BITS = 32

# Integer units of a unit vector, over sqrt(d): rounding adds about 1/64 to its squared norm
SCALE = 4.0

CLIP_PROBABILITY = 1e-5  # with which a rotated vector has any coordinate beyond the coordinate clip
WRAP_PROBABILITY = 1e-9  # with which any coordinate of a sum may leave its field
# Numbers of levels among which cpSGD has the best
LEVELS = tuple(1 << exponent for exponent in range(1, 16))

NEARLY = 1.02  # a number of levels is as good as the best within this factor of its epsilon
# Numbers of vertices among which vqSGD has the best
REPEATS = tuple(round(2.0 ** (exponent / 4.0)) for exponent in range(64))

LARGEST_EPSILON = 1e6  # no report with a larger one is tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The sum that everybody estimates."""

    clients: int = 100  # n
    dimension: int = 1 << 20  # d, a power of two: rotations need no padding then
    delta: float = 1e-5  # of all rounds together
    # z, root of the mean squared error of a coordinate of the sum, in units of the clip
    noise: float = 1.0
    rounds: tuple[int, ...] = (1, 100)  # after how many equal releases epsilon is asked for, each

    @property
    def coordinate_clip(self) -> float:
        """What no coordinate of a rotated unit vector exceeds, but with `CLIP_PROBABILITY`."""
        return rotated_clip(1.0, self.dimension, 1, CLIP_PROBABILITY)

    @property
    def report_error(self) -> float:
        """The expected squared error of one local report, all coordinates together."""
        return self.dimension * self.noise**2 / self.clients

    def reports(self, event: Any) -> list[EpsilonReport]:
        """Return what all accountants say after each number of rounds."""
        return [epsilons([(event, count)], self.delta) for count in self.rounds]

    def composed(self, event: Any, accountant: str) -> list[float]:
        """Return epsilon after each number of rounds, by one accountant."""
        return [report.by_accountant[accountant] for report in self.reports(event)]

    def best(self, event: Any) -> list[float]:
        """Return epsilon after each number of rounds, by the best bound."""
        return [report.epsilon for report in self.reports(event)]


def compared(task: Task) -> list[dict[str, Any]]:
    """Return a row for each system: its name, who is trusted, bits of a coordinate, epsilons.

    An epsilon is the text "inf" where a system cannot have so small an error.
    """
    rows = [*_sums(task), _cpsgd(task), *_local(task)]
    return [
        {"system": name, "trust": trust, "bits": bits, "epsilon": list(map(json_number, found))}
        for name, trust, bits, found in rows
    ]


_Row = tuple[str, str, float, Sequence[float]]


def _sums(task: Task) -> Iterator[_Row]:
    """A trusted server's noise, and that of clients whose integers are added up."""
    n, d = task.clients, task.dimension
    gaussian = task.best(GaussianRelease(task.noise, 1.0))
    yield "Gaussian noise of the server", "the server", FLOAT_BITS, gaussian
    scale = SCALE * math.sqrt(d)
    norm, largest = rounded_l2_bound(scale, d), math.ceil(scale * task.coordinate_clip)
    variance = (task.noise * scale) ** 2 - n / 4.0
    deviations = NormalDist().inv_cdf(1.0 - WRAP_PROBABILITY / (2.0 * d))
    bits = math.ceil(math.log2(2.0 * (n * largest + deviations * math.sqrt(variance)) + 1.0))
    ours = BinomialRelease(2 * round(2.0 * variance), norm, largest, d)
    reports = task.reports(ours)
    for name, accountant in (
        ("veilsum: binomial, domination", "domination"),
        ("the same, by cpSGD's Theorem 1", "theorem1"),
    ):
        yield name, "nobody", bits, [each.by_accountant[accountant] for each in reports]
    discrete = DiscreteGaussianRelease(variance / n, n, norm, largest, d)
    skellam = SkellamRelease(variance, norm, largest, d)
    yield "discrete Gaussian, as published", "nobody", bits, task.composed(discrete, "published")
    yield "Skellam, as published", "nobody", bits, task.composed(skellam, "published")


def _cpsgd(task: Task) -> _Row:
    """CpSGD with the fewest levels that have next to the least epsilon."""
    n, clip = task.clients, rotated_clip(1.0, task.dimension, task.clients, task.delta / 3.0)
    ways = []
    for levels in LEVELS:
        width = 2.0 * clip / (levels - 1)
        coins = math.floor((4.0 * (task.noise / width) ** 2 - n) / n)
        if coins > 0:
            event = LevelRelease(n * coins, 0.5, levels, 1.0 / clip, task.dimension, rotated=True)
            bits = math.ceil(math.log2(n * (levels - 1 + coins) + 1.0))
            ways.append((bits, task.composed(event, "theorem1")))
    least = min(found[0] for _, found in ways)
    bits, found = next(way for way in ways if way[1][0] <= NEARLY * least)
    return "cpSGD as printed", "nobody", bits, found


def _local(task: Task) -> Iterator[_Row]:
    """Randomisers whose reports have the error that is left to each of n."""
    d, bound = task.dimension, task.coordinate_clip
    flat = np.full(d, 1.0 / math.sqrt(d))

    def of_levels(epsilon: float) -> tuple[float, float]:
        """PrivQuant with two levels: every coordinate of a report is U/m or -U/m."""
        found = best_priv_quant(d, 2, bound, epsilon)
        return d * (bound / found.factor) ** 2, found.report_bits

    def of_vertices(epsilon: float) -> tuple[float, float]:
        """Vertices of the cross-polytope, as many as are best."""
        ways = (CrossPolytope(d, epsilon, repeats) for repeats in REPEATS)
        return min((float(way.variance(flat).sum()), way.report_bits) for way in ways)

    def of_coordinates(epsilon: float) -> tuple[float, float]:
        """The multi-dimensional Piecewise Mechanism on a rotated vector."""
        found = sampled_piecewise(d, epsilon)
        return bound**2 * float(found.variance(flat / bound).sum()), found.report_bits

    for name, way in (
        ("sqSGD's PrivQuant, 2 levels", of_levels),
        ("vqSGD, repeats paid for", of_vertices),
        ("Piecewise Mechanism", of_coordinates),
    ):
        if way(LARGEST_EPSILON)[0] > task.report_error:
            yield name, "nobody", 0.0, [math.inf] * len(task.rounds)
        else:
            epsilon = _least(way, task.report_error)
            yield name, "nobody", way(epsilon)[1] / d, task.best(LocalRelease(epsilon))


def _least(way: Callable[[float], tuple[float, float]], error: float) -> float:
    """Return the epsilon, to one in a thousand, from which on a report's error is small enough."""
    nearly = 1.0 - 1.0 / 1.001
    enough = bracketed(lambda x: way(x)[0] <= error, 1.0, LARGEST_EPSILON, nearly, geometric=True)
    return enough[1]
