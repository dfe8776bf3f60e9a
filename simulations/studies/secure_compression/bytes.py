"""What a client of the real protocol sends and receives in a round, and sketches as dear as that.

All of it follows from public parameters: the announcement, vectors, keys, shares, confirmations,
unmasking. PowerSGD takes two sums a round, and so pays for all of it twice. The
model that a server sends is not counted, nor are PowerSGD's bases, which are told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dp.search import smallest
from protocol.planning.configuration import build_plan
from protocol.planning.deployment import DeploymentPlan
from protocol.training.power import SUMS
from simulations.campaigns.wire import deployed
from simulations.learning.configuration import RunConfig
from simulations.studies.secure_compression.plan import Arm, Family, Plan, Point
from sketch import SketchSpec, spec_for_size
from sketch.factors import FactorShapes
from sketch.layers import LayerShapes

BASIS_BYTES = 8  # of an entry of a basis: a double


@dataclass(frozen=True, slots=True)
class RoundBytes:
    """Of one client in one round, both directions."""

    numbers: int  # of all vectors
    vectors: int  # messages with a masked vector
    handshakes: int  # all other messages
    bases: int = 0  # what a server sends beside, for PowerSGD
    sums: int = 1  # secure sums, each with a handshake of its own

    @property
    def total(self) -> int:
        """Return all messages of the protocol."""
        return self.vectors + self.handshakes

    def figures(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {**asdict(self), "total": self.total}


Measure = Callable[[RoundBytes], int]

# What a sketch and PowerSGD may have in common
EQUAL: dict[str, Measure] = {
    "all messages": lambda cost: cost.total,
    "vectors alone": lambda cost: cost.vectors,
}


def round_bytes(config: RunConfig, layers: LayerShapes) -> RoundBytes:
    """Return the bytes of a round of a configuration."""
    if config.powersgd is not None:
        return _power_bytes(config, FactorShapes(layers, config.powersgd.rank))
    dimension = layers.dimension + (config.clipping is not None)
    prior = build_plan(config, config.participations).prior
    spec = config.sketch.build(config.rounds).initial(dimension, prior).spec
    return _sum_bytes([deployed(config, spec)])


def _power_bytes(config: RunConfig, shapes: FactorShapes) -> RoundBytes:
    sizes = (shapes.first_size, shapes.second_size)
    sums = [deployed(config, SketchSpec.identity(size), SUMS) for size in sizes]
    whole = sum(place.stop - place.start for place, _ in shapes.whole())
    return _sum_bytes(sums, BASIS_BYTES * (sum(sizes) - whole))


def _sum_bytes(sums: list[DeploymentPlan], bases: int = 0) -> RoundBytes:
    numbers = sum(each.parameters.length for each in sums)
    vectors = sum(each.bytes_each["vector"] for each in sums)
    others = sum(each.bytes_per_client for each in sums) - vectors
    return RoundBytes(numbers, vectors, others, bases, len(sums))


def matched_sketches(plan: Plan, layers: LayerShapes, seed: int) -> list[Arm]:
    """Return, for every rank, the largest sketches that are no dearer, by either measure."""
    found = []
    for rank in plan.ranks:
        config = plan.config(Point(Arm(Family.POWER, float(rank))), 1.0, seed)
        power = round_bytes(config, layers)
        plain = plan.config(Point(Arm(Family.SKETCH, 1.0)), 1.0, seed)
        for what, measure in EQUAL.items():
            size = _largest_within(plain, layers.dimension, measure, power)
            # Half a number more, so that rounding down gives this size.
            rate = 1.0 if size == layers.dimension else layers.dimension / (size + 0.5)
            found.append(Arm(Family.SKETCH, rate, f"{what}, rank {rank}"))
    return found


def _largest_within(config: RunConfig, dimension: int, measure: Measure, most: RoundBytes) -> int:
    """Return the size of the largest sketch that is no dearer; 1 if there is none."""

    def cost(size: int) -> RoundBytes:
        spec = spec_for_size(dimension, size, config.sketch.rows)
        return _sum_bytes([deployed(config, spec)])

    if measure(cost(dimension)) <= measure(most):
        return dimension
    near = cost(most.numbers)
    more = (measure(most) - measure(near)) * near.numbers / near.vectors
    first = smallest(
        lambda size: measure(cost(size)) > measure(most), most.numbers + round(more), dimension
    )
    return dimension if first is None else max(1, first - 1)
