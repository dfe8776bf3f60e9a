"""What `veilsum reproduce cpsgd-mnist` trains, and the noise of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.estimators import (
    ByScale,
    Estimator,
    Gaussian,
    OnLevels,
    Plain,
    Rounded,
)

WAYS: Final = ("paper", "coupled", "conditional")
"""Whose coins are used: see `mean_estimation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained."""

    data: str = "mnist"  # pictures, by name
    # Clients of a step, padded dimension, delta of a step
    setting: Setting = field(default_factory=Setting)
    levels: tuple[int, ...] = (2, 4, 16, 64)  # k
    epsilons: tuple[float, ...] = (2.0, 4.0)  # of a step
    steps: int = 120  # of every run
    clip: float = 1.0  # gradient norm D of the private runs
    rate: float = 1.0  # learning rate of the private runs, falling linearly to a tenth
    plain_rate: float = 0.05  # the same of the baseline, whose gradients are not clipped
    # Whether one step of all mechanisms, and one epoch of one of them, are also taken client by
    # client, and compared
    checked: bool = True

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what has no noise."""
        if self.steps < 1 or min(self.levels) < 2:
            raise ValueError(f"steps >= 1, levels >= 2: got {self.steps}, {self.levels}")
        if not all(0.01 <= epsilon <= 8.0 for epsilon in self.epsilons):
            raise ValueError(f"epsilons must be in 0.01 .. 8, got {self.epsilons}")

    @property
    def of_a_run(self) -> Plan:
        """Return what a run depends on, beside its estimator and seed; the rest as usual."""
        usual = Plan()
        return replace(self, levels=usual.levels, epsilons=usual.epsilons, checked=usual.checked)


@dataclass(frozen=True, slots=True)
class Run:
    """One network to train."""

    name: str  # of its row and of its noise
    estimator: Estimator  # of the mean gradient
    figures: Mapping[str, Any]  # what is known before: k, epsilon, m, bits, predicted error

    @property
    def clipped(self) -> bool:
        """Whether gradients are clipped."""
        return self.name != "plain"

    @property
    def rounds(self) -> bool:
        """Whether clients round to integers."""
        return isinstance(self.estimator, Rounded)


def runs(plan: Plan, points: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Return all runs, from `mean_estimation.point` at every epsilon and k that has noise."""
    setting = plan.setting
    plain = {"way": "plain", "levels": None, "epsilon": None, "bits": 32.0, "error": 0.0}
    mean = Plain(setting.clients)
    found = [Run("plain", mean, plain), Run("clipped", mean, {**plain, "way": "clipped"})]
    for epsilon in plan.epsilons:
        # Of as many coordinates as the others have: all errors are of the padded vector.
        error = setting.gaussian_error(epsilon)
        known = {**plain, "way": "gaussian", "epsilon": epsilon, "error": error}
        found.append(Run(f"gaussian-{epsilon:g}", Gaussian(setting, epsilon), known))
        mine = [point for point in points if point["epsilon"] == epsilon]
        found += [_run(setting, p, way) for p in mine for way in WAYS if p["ways"].get(way)]
    return found


def _run(setting: Setting, point: Mapping[str, Any], way: str) -> Run:
    """Make the run of one way of one point."""
    figures, levels = point["ways"][way], point["levels"]
    coins, epsilon = figures["coins"], point["epsilon"]
    estimator: Estimator = OnLevels(setting, coins, levels)
    if way == "conditional":
        estimator = ByScale(setting, coins, figures["scale"])
    known = {"way": way, **figures, "levels": levels, "epsilon": epsilon}
    return Run(f"{way}-k{levels}-{epsilon:g}", estimator, known)
