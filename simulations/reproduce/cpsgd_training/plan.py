"""What `veilsum reproduce cpsgd-mnist` trains, and the noise of every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from simulations.reproduce.cpsgd import mean_estimation
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.estimators import (
    ByScale,
    Estimator,
    Gaussian,
    OnLevels,
    Plain,
)

WAYS: Final = ("paper", "coupled", "conditional")
"""Whose coins are used: see `mean_estimation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained.

    Attributes:
        setting: clients of a step, padded dimension, delta of a step.
        levels: k.
        epsilons: of a step.
        steps: of every run.
        clip: gradient norm D of the private runs.
        rate: learning rate of the private runs, falling linearly to a tenth.
        plain_rate: the same of the baseline, whose gradients are not clipped.
        checked: whether one step of all mechanisms, and one epoch of one of them, are also taken
            client by client, and compared.
    """

    setting: Setting = field(default_factory=Setting)
    levels: tuple[int, ...] = (2, 4, 16, 64)
    epsilons: tuple[float, ...] = (2.0, 4.0)
    steps: int = 120
    clip: float = 1.0
    rate: float = 1.0
    plain_rate: float = 0.05
    checked: bool = True

    @classmethod
    def quick(cls) -> Plan:
        """For the embedded digits: 1,000 clients a step."""
        return cls(setting=Setting(clients=1000, dimension=8192), levels=(4,), steps=40)

    def changed(
        self, steps: int | None, levels: Sequence[int] | None, epsilons: Sequence[float] | None
    ) -> Plan:
        """Return the plan with what is given in place of its own."""
        return replace(
            self,
            steps=steps or self.steps,
            levels=tuple(levels or self.levels),
            epsilons=tuple(epsilons or self.epsilons),
        )

    @property
    def points(self) -> int:
        """How many pairs of k and epsilon there are."""
        return len(self.levels) * len(self.epsilons)


@dataclass(frozen=True, slots=True)
class Run:
    """One network to train.

    Attributes:
        name: also that of its file.
        estimator: of the mean gradient.
        figures: what is known before: k, epsilon, m, bits, predicted error.
    """

    name: str
    estimator: Estimator
    figures: Mapping[str, Any]

    @property
    def clipped(self) -> bool:
        """Whether gradients are clipped."""
        return self.name != "plain"


def runs(plan: Plan, advance: Callable[[], None] = lambda: None) -> list[Run]:
    """Solve for the noise of every run; combinations that have none are left out."""
    setting = plan.setting
    plain = {"way": "plain", "levels": None, "epsilon": None, "bits": 32.0, "error": 0.0}
    mean = Plain(setting.clients)
    found = [Run("plain", mean, plain), Run("clipped", mean, {**plain, "way": "clipped"})]
    for epsilon in plan.epsilons:
        gaussian = {"way": "gaussian", "levels": None, "epsilon": epsilon, "bits": 32.0}
        # Of as many coordinates as the others have: all errors are of the padded vector.
        gaussian["error"] = setting.gaussian_error(epsilon)
        found.append(Run(f"gaussian-{epsilon:g}", Gaussian(setting, epsilon), gaussian))
        for levels in plan.levels:
            point = mean_estimation.point(setting, levels, epsilon)
            found += [_run(setting, point, way) for way in WAYS if point["ways"].get(way)]
            advance()
    return found


def _run(setting: Setting, point: Mapping[str, Any], way: str) -> Run:
    """Make the run of one way of one point."""
    figures = point["ways"][way]
    coins, levels = figures["coins"], point["levels"]
    estimator: Estimator
    if way == "conditional":
        estimator = ByScale(setting, coins, figures["scale"])
    else:
        estimator = OnLevels(setting, coins, levels)
    known = {"way": way, "levels": levels, "epsilon": point["epsilon"], **figures}
    known["levels"] = levels
    return Run(f"{way}-k{levels}-{point['epsilon']:g}", estimator, known)
