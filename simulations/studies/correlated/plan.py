"""Tasks, arms, and the settings at which they are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.errors import ConfigurationError
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig

LAST_RATE: Final = 0.05  # learning rate of the last round over that of the first, where it falls
AVERAGED: Final = 0.5  # share of the rounds whose models are averaged, the last ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A task: what is trained, and how often clients come back."""

    title: str  # in words
    table: Mapping[str, Any]  # `[task]` of its configuration
    local: Mapping[str, Any]  # `[local]`
    rounds: int  # of a run
    cohort: int  # clients of a round
    clip: float  # of an update; most of them are longer
    first_power: int  # the server's rate at which the search begins, as a power of two
    plain_power: int  # the same without a clip and without noise


TASKS: Final[Mapping[str, TaskPlan]] = {
    "writers": TaskPlan(
        title="MNIST by its writers, logistic regression",
        table={
            "data": "mnist",
            "clients": "natural",
            "population": 536,
            "minimum_examples": 20,
            "model": "logistic",
        },
        local={"learning_rate": 0.3, "steps": 4, "batch_size": 16},
        rounds=60,
        cohort=107,
        clip=0.5,
        first_power=2,
        plain_power=0,
    ),
    "fashion": TaskPlan(
        title="Fashion-MNIST, few labels each, 16 hidden units",
        table={
            "data": "fashion-mnist",
            "clients": "dirichlet",
            "dirichlet_alpha": 1.0,
            "population": 800,
            "minimum_examples": 10,
            "model": "mlp",
            "hidden": 16,
        },
        local={"learning_rate": 0.1, "steps": 4, "batch_size": 16},
        rounds=60,
        cohort=80,
        clip=0.2,
        first_power=2,
        plain_power=2,
    ),
    "digits": TaskPlan(
        title="embedded digits, 8 hidden units",
        table={"data": "digits", "population": 96, "minimum_examples": 3, "hidden": 8},
        local={"learning_rate": 0.3, "steps": 4, "batch_size": 8},
        rounds=12,
        cohort=16,
        clip=0.25,
        first_power=3,
        plain_power=1,
    ),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """A kind of noise, and who adds it."""

    title: str  # in words
    aggregator: str  # where the sum comes from
    noise: str  # how the rounds are connected
    tuned_as: str  # the arm whose rates it takes over

    @property
    def private(self) -> bool:
        """Whether anything is hidden from anybody."""
        return self.aggregator != "plain"


ARMS: Final[Mapping[str, Arm]] = {
    "independent": Arm(
        "independent, nobody trusted", "ideal", "independent", "trusted-independent"
    ),
    "returned": Arm("returned, nobody trusted", "ideal", "returned", "trusted-returned"),
    "trusted-independent": Arm(
        "independent, a trusted server", "central", "independent", "trusted-independent"
    ),
    "trusted-returned": Arm(
        "returned, a trusted server", "central", "returned", "trusted-returned"
    ),
    "banded": Arm("banded matrix, a trusted server", "central", "banded", "banded"),
    "plain": Arm("no privacy", "plain", "independent", "plain"),
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a server does with its rate, and which model it hands out."""

    title: str  # in words
    falls: bool  # whether the rate falls linearly
    averaged: bool  # whether the mean of the last models is handed out


SCHEDULES: Final[Mapping[str, Schedule]] = {
    "constant": Schedule("constant rate", False, False),
    "decay": Schedule("falling rate", True, False),
    "average": Schedule("constant rate, last half averaged", False, True),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where an arm is run."""

    task: str
    arm: str
    epsilon: float | None
    schedule: str

    @property
    def of(self) -> Arm:
        """The kind of noise, by its name."""
        return ARMS[self.arm]

    @property
    def score(self) -> str:
        """The result of a run that counts."""
        return "averaged" if SCHEDULES[self.schedule].averaged else "accuracy"

    @property
    def title(self) -> str:
        """In words, as far as people tell settings apart by it."""
        epsilon = "" if self.epsilon is None else f" {self.epsilon:g}"
        # Averages are of the same runs.
        rate = "decay" if SCHEDULES[self.schedule].falls else "constant"
        return f"{self.task} {self.arm}{epsilon} {rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is varied."""

    tasks: tuple[str, ...] = ("writers", "fashion")  # names of `TASKS`
    # Names of `ARMS`; what trusts nobody takes its rates over from what trusts a server
    arms: tuple[str, ...] = ("independent", "returned", "banded", "plain")
    schedules: tuple[str, ...] = tuple(SCHEDULES)  # names of `SCHEDULES`
    epsilons: tuple[float, ...] = (2.0, 8.0)  # of a client over the whole run, equal for all arms
    delta: float = 1e-5  # of the same promise
    colluders: int = 1  # in a cohort, whose noise is not counted
    committee: int = 16  # members who add the noise that comes back, where nobody is trusted
    # corrupt, away: how many of them may collude, and be away
    corrupt: int = 1
    away: int = 1
    validation: float = 1 / 6  # share of the training examples on which rates are chosen
    climb: int = 4  # most steps of a search from where it begins, each a factor of two
    seeds: int = 5  # runs that count
    tuning_seeds: int = 2  # runs of a trial, with seeds of their own

    def settings(self) -> Iterator[Setting]:
        """Yield all settings; without privacy there is one epsilon."""
        for task in self.tasks:
            for schedule in self.schedules:
                for name in self.arms:
                    for epsilon in self.epsilons if ARMS[name].private else (None,):
                        yield Setting(task, name, epsilon, schedule)

    def config(self, setting: Setting, power: int, seed: int) -> RunConfig:
        """Return the configuration of one run at a rate of two to a power."""
        task, arm, rate = TASKS[setting.task], setting.of, 2.0**power
        raw: dict[str, Any] = {
            "seed": seed,
            "rounds": task.rounds,
            "task": dict(task.table),
            "local": dict(task.local),
            "server": {"learning_rate": rate, "average": AVERAGED},
            "privacy": {
                "epsilon": 1.0 if setting.epsilon is None else setting.epsilon,
                "delta": self.delta,
                "clip_l2": task.clip,
            },
            "cohort": {
                "size": task.cohort,
                "tolerated_dropouts": 0,
                "tolerated_colluders": self.colluders,
            },
            "noise": {"kind": arm.noise},
            "sketch": {"controller": "fixed", "rate": 1.0},
            "engine": {"aggregator": arm.aggregator, "workers": 1, "evaluate_every": task.rounds},
        }
        if SCHEDULES[setting.schedule].falls:
            raw["server"]["final_learning_rate"] = LAST_RATE * rate
        if arm.noise == "returned" and arm.aggregator == "ideal":
            committee = {"size": self.committee, "corrupt": self.corrupt, "away": self.away}
            raw["scheme"] = {"kind": "one-shot", "committee": {"kind": "named", **committee}}
        return parse(raw, RunConfig)

    def first_power(self, setting: Setting) -> int:
        """Return where the search of a setting begins."""
        task = TASKS[setting.task]
        return task.first_power if setting.of.private else task.plain_power

    def check(self) -> None:
        """Refuse names that nobody knows, with a `ConfigurationError`."""
        known = {"tasks": TASKS, "arms": ARMS, "schedules": SCHEDULES}
        for field, names in known.items():
            for name in getattr(self, field):
                if name not in names:
                    raise ConfigurationError(field, f"value {name!r}", ", ".join(names))


PRESETS: Final = {
    "usual": Plan(),
    # Embedded digits: says nothing, and says it within a minute.
    "quick": Plan(
        tasks=("digits",), arms=tuple(ARMS), epsilons=(8.0,), climb=1, seeds=2, tuning_seeds=1
    ),
}
