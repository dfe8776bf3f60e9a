"""cpSGD's theory run again: `veilsum reproduce cpsgd`.

Three parts: the errors of Theorems 3 and 4 against simulation; Figure 1 with two accountants side
by side; the private mean on k levels, at equal epsilon and at equal error. All figures are plain
values; `report` and `plot` make tables and plots of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from simulations.reproduce.cpsgd import conditional, mean_estimation, scales, theorems
from simulations.reproduce.cpsgd.refutation import FlatShift, lemma1_limit

Row = dict[str, Any]

CURVE_EPSILONS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Below the epsilon at which Lemma 1, and Theorem 1 with it, stops being true: 9.6 at 1e-9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is computed.

    Attributes:
        epsilons: of all curves.
        inverse_scales: 1/s of Figure 1.
        levels: k of the mean.
        quick: few and small simulations.
    """

    epsilons: tuple[float, ...] = CURVE_EPSILONS
    inverse_scales: tuple[int, ...] = (1, 4, 16, 64, 256)
    levels: tuple[int, ...] = (2, 4, 16, 64)
    quick: bool = False

    @classmethod
    def chosen(cls, quick: bool) -> Plan:
        """The full plan, or a few seconds' worth of it."""
        if not quick:
            return cls()
        return cls(epsilons=(1.0, 4.0), inverse_scales=(1, 16), levels=(2, 16), quick=True)

    @property
    def simulations(self) -> list[tuple[theorems.Case, int]]:
        """Cases of the theorems, and how often each is run."""
        return theorems.cases(self.quick)

    @property
    def conditional_repeats(self) -> int:
        """How often our own mechanism is run."""
        return 20 if self.quick else 200

    @property
    def steps(self) -> int:
        """How often progress is reported."""
        points = len(self.epsilons) * (len(self.inverse_scales) + len(self.levels))
        repeats = sum(repeats for _, repeats in self.simulations)
        return points + repeats + self.conditional_repeats


def reproduce(plan: Plan, seed: int, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Compute everything.

    Args:
        plan: what.
        seed: fixes vectors, rotations and noise of all simulations.
        advance: called ``plan.steps`` times.
    """
    query, setting = scales.Query(), mean_estimation.Setting()
    small = mean_estimation.Setting(clients=20, dimension=4096)
    streams = iter(np.random.default_rng(seed).spawn(len(plan.simulations) + 1))
    measured = [
        theorems.measure(case, repeats, next(streams), advance)
        for case, repeats in plan.simulations
    ]

    def curves(point: Callable[[int, float], Row], values: Iterable[int]) -> Iterator[Row]:
        """Yield the points of one curve for each value, from epsilon to epsilon."""
        for value, epsilon in product(values, plan.epsilons):
            yield point(value, epsilon)
            advance()

    return {
        "seed": seed,
        "quick": plan.quick,
        "adjacency": "one client's vector replaced by another, as in the paper",
        "theorems": [measurement.figures() for measurement in measured],
        "conditional": conditional.measure_conditional(
            small, plan.conditional_repeats, next(streams), advance
        ),
        "figure1": {
            **asdict(query),
            "points": list(curves(partial(scales.point, query), plan.inverse_scales)),
        },
        "mean_estimation": {
            **asdict(setting),
            "clip": setting.levels(2, 0).clip,
            "points": list(curves(partial(mean_estimation.point, setting), plan.levels)),
        },
        "theorem1_refuted": FlatShift().figures(),
        "lemma1_holds_below_epsilon": {f"{delta:g}": lemma1_limit(delta) for delta in (1e-9, 1e-5)},
    }
