"""One task, the ways to release its mean update, and what is varied.

All ways spend the same epsilon against the same server. Clients, their data, the first model, the
cohorts and batches of a seed are the same for all; noise is fresh in every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig
from simulations.learning.run.overrides import changed

TESTED_EVERY = 2  # rounds between tests; accuracy is the mean of those in the last fifth of a run
Changes = tuple[tuple[str, Any], ...]


class Family(Enum):
    """A way to release a mean; ways of a family differ in one number."""

    SKETCH = "sketch"
    POWER = "powersgd"
    CLIP = "clip"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to release a mean."""

    family: Family  # of its ways
    value: float  # rate of the sketch, rank, or the (first) clip over the right one
    role: str = ""  # of a sketch that is as dear as PowerSGD of a rank: what is equal, and the rank

    @property
    def name(self) -> str:
        """Return what tells it apart."""
        return f"{self.family.value}-{self.value:.6g}"

    @property
    def title(self) -> str:
        """Return what people are told."""
        titles = {
            Family.SKETCH: f"sketch, rate {self.value:.3g}",
            Family.POWER: f"PowerSGD, rank {self.value:g}",
            Family.CLIP: f"clip, {times(self.value)} the right one",
            Family.FOLLOWING: f"following clip, first {times(self.value)} the right one",
        }
        if self.family is Family.SKETCH and self.value == 1.0:
            return "no compression, right clip"
        return titles[self.family]


def times(value: float) -> str:
    """Return a factor in words."""
    return f"{value:g} times" if value >= 1.0 else f"1/{1.0 / value:g} of"


UNCOMPRESSED = Arm(Family.SKETCH, 1.0)  # the right clip as well


@dataclass(frozen=True, slots=True)
class Average:
    """What the server does over time with the means that it released."""

    kind: str = "none"  # "none", "momentum" of the server's own, or "denoise"
    momentum: float = 0.0  # of the average

    @property
    def name(self) -> str:
        """Return what tells it apart."""
        return self.kind if self.kind == "none" else f"{self.kind}-{self.momentum:g}"

    def changes(self, step: float) -> Changes:
        """Return what it means for a configuration.

        The step is by which the model moves along a mean, over all rounds in which it counts.
        """
        rate = ("server.learning_rate", step)
        if self.kind == "denoise":
            return (rate, ("denoise.momentum", self.momentum), ("denoise.rate", 1.0))
        # Momentum adds up 1 / (1 - b) of what Denoise averages.
        rate = ("server.learning_rate", step * (1.0 - self.momentum))
        return (rate, ("server.momentum", self.momentum))


ALONE = Average()


@dataclass(frozen=True, slots=True)
class Point:
    """A way to release and what follows it."""

    arm: Arm
    average: Average = ALONE

    @property
    def name(self) -> str:
        """Return what tells it apart."""
        return f"{self.arm.name}-{self.average.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The task and what is varied."""

    data: str = "mnist"  # a data set by name
    hidden: int = 12  # units of the one hidden layer
    rounds: int = 20  # of a run, in which every client takes part once
    cohort: int = 48  # clients of a round; all of them survive
    least: int = 5  # examples of the poorest client
    # epsilon, delta: against the server, over all rounds
    epsilon: float = 5.0
    delta: float = 1e-5
    clip: float = 0.3  # the right one: about the median norm of an update
    rates: tuple[float, ...] = (1.0, 4.0, 16.0)  # of count sketches, with 1
    ranks: tuple[int, ...] = (1, 2, 4)  # of PowerSGD
    # Fixed ones, over the right one; beside it
    clips: tuple[float, ...] = (1 / 16, 1 / 4, 4.0, 16.0)
    # First clips of those that follow, over the right one
    starts: tuple[float, ...] = (1 / 16, 1.0, 16.0)
    momenta: tuple[float, ...] = (0.5, 0.9)  # of Denoise and of the server
    seeds: int = 5  # runs of a point
    tuning_seeds: int = 2  # runs of a learning rate that is tried
    validation: float = 1 / 6  # share of the training examples on which it is tried
    climb: int = 6  # most steps of a factor of two from the first rate that is tried, each way

    @property
    def averages(self) -> tuple[Average, ...]:
        """Return all that may follow a release; nothing comes first."""
        pairs = ((kind, b) for b in self.momenta for kind in ("momentum", "denoise"))
        return (ALONE, *(Average(*pair) for pair in pairs))

    def arms(self) -> list[Arm]:
        """Return the ways to release, without the sketches that PowerSGD is compared with."""
        return [
            *(Arm(Family.SKETCH, rate) for rate in sorted({1.0, *self.rates})),
            *(Arm(Family.POWER, float(rank)) for rank in self.ranks),
            *(Arm(Family.CLIP, clip) for clip in self.clips),
            *(Arm(Family.FOLLOWING, start) for start in self.starts),
        ]

    def points(self, matched: list[Arm]) -> Iterator[Point]:
        """Yield everything that gets a learning rate of its own; what follows nothing first."""
        arms = self.arms()
        for arm in dict.fromkeys([*arms, *(Arm(a.family, a.value) for a in matched)]):
            yield Point(arm)
        for average in self.averages[1:]:
            for arm in arms:
                yield Point(arm, average)

    def first_exponent(self, arm: Arm) -> int:
        """Return the power of two that is tried first as a learning rate of a release alone."""
        if arm.family is Family.CLIP:
            # Below the right clip all updates are as long as the clip; above, noise limits steps.
            depth = -math.log2(arm.value)
            return 1 + round(depth if depth > 0 else depth / 2.0)
        return 4 if arm.family is Family.FOLLOWING else 1

    def config(self, point: Point, step: float, seed: int) -> RunConfig:
        """Return the configuration of one run; what a momentum adds up is in the step."""
        base = parse(
            {
                "seed": seed,
                "rounds": self.rounds,
                "task": {
                    "data": self.data,
                    "model": "mlp",
                    "hidden": self.hidden,
                    "clients": "dirichlet",
                    "dirichlet_alpha": 1.0,
                    "population": self.rounds * self.cohort,
                    "minimum_examples": self.least,
                },
                "local": {"learning_rate": 0.1, "steps": 4, "batch_size": 8},
                "server": {"learning_rate": step},
                "privacy": {"epsilon": self.epsilon, "delta": self.delta, "clip_l2": self.clip},
                "cohort": {"size": self.cohort, "tolerated_dropouts": 0, "tolerated_colluders": 0},
                "engine": {"aggregator": "ideal", "workers": 1, "evaluate_every": TESTED_EVERY},
            },
            RunConfig,
        )
        return changed(base, [*self.released_by(point.arm), *point.average.changes(step)])

    def released_by(self, arm: Arm) -> Changes:
        """Return what a way to release means for a configuration."""
        fixed = ("sketch.controller", "fixed")
        if arm.family is Family.POWER:
            return (("powersgd.rank", round(arm.value)),)
        if arm.family is Family.SKETCH:
            return (fixed, ("sketch.rate", arm.value))
        whole = (fixed, ("sketch.rate", 1.0))
        if arm.family is Family.CLIP:
            return (*whole, ("privacy.clip_l2", arm.value * self.clip))
        # A controller may go four times beyond all fixed clips.
        reach = 4.0 * max(*self.clips, *self.starts, 1.0)
        least = min(*self.clips, *self.starts, 1.0) / 4.0
        return (
            *whole,
            ("privacy.clip_l2", reach * self.clip),
            ("clipping.first", arm.value * self.clip),
            ("clipping.smallest", least * self.clip),
        )


# The quick one says nothing, and says it within seconds
PRESETS = {
    "mnist": Plan(),
    "quick": Plan(
        data="digits",
        rounds=5,
        cohort=16,
        least=3,
        epsilon=4.0,
        rates=(1.0, 4.0),
        ranks=(1,),
        clips=(1 / 16,),
        starts=(1 / 16,),
        momenta=(0.5,),
        seeds=2,
        tuning_seeds=1,
        climb=1,
    ),
}
