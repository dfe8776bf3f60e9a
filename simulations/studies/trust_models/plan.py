"""One task for all trust models, and every setting at which a method runs.

Each client holds one record and sends one report, unless reports are the knob. Clients, their
order, cohorts, model and local step are the same for all methods; a seed fixes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from protocol.planning.configuration import parse
from simulations.campaigns.seeds import evaluated, tried
from simulations.learning.configuration import RunConfig
from simulations.learning.run.overrides import changed
from simulations.studies.trust_models.methods import (
    BY_NAME,
    METHODS,
    SKETCHED,
    Candidate,
    Method,
    Trust,
)

DECAY = 0.1  # the server's last learning rate over its first, in all runs
SKETCH_ROWS = 3  # fewer than usual: sketches of this task have a few dozen cells


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a method is evaluated."""

    method: str  # its name
    epsilon: float | None  # of a client over the whole run; None without privacy
    knob: float  # value of the method's knob
    share: float = 1.0  # of the clients that there are; the others' records are not used

    @property
    def of(self) -> Method:
        """Return the method."""
        return BY_NAME[self.method]

    @property
    def name(self) -> str:
        """Of its files."""
        epsilon = "none" if self.epsilon is None else f"{self.epsilon:g}"
        return f"{self.method}-eps-{epsilon}-knob-{self.knob:g}-share-{self.share:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The task and what is varied."""

    data: str = "adult"  # a data set by name; two classes make the model a vector
    rounds: int = 100  # of a run in which every client reports once
    cohort: int = 325  # clients of a round
    # dropouts, colluders: tolerated, as shares of the cohort; nobody is lost here
    dropouts: float = 0.05
    colluders: float = 0.01
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)  # equal for all methods
    # Of cheap local methods, to see where they catch up
    more_epsilons: tuple[float, ...] = (16.0, 32.0, 64.0)
    byte_epsilon: float = 4.0  # at which bytes are compared
    # Of the clients, with which the distributed sum has to make do
    shares: tuple[float, ...] = (1 / 4, 1 / 16, 1 / 64)
    delta: float = 1e-5  # of the promises that have one
    seeds: int = 5  # runs of a setting; `slow_seeds` of slow methods
    slow_seeds: int = 3
    tuning_seeds: int = 2  # runs of a candidate; `slow_tuning_seeds` of slow methods
    slow_tuning_seeds: int = 1
    thrifty: bool = False  # try only the first two candidates of each method

    def settings(self) -> list[Setting]:
        """Return all settings, each once: by epsilon, by bytes, by clients."""
        return list(dict.fromkeys([*self.by_epsilon(), *self.by_bytes(), *self.by_clients()]))

    def by_epsilon(self) -> Iterator[Setting]:
        """Yield every method at every epsilon; the distributed sum also with a sketch."""
        for method in METHODS:
            if method.trust is Trust.EVERYBODY:
                yield Setting(method.name, None, method.knob.usual)
                continue
            knobs = (method.knob.usual, *([SKETCHED] if method.trust is Trust.COHORT else []))
            more = self.more_epsilons if method.extended else ()
            for epsilon in (*self.epsilons, *more):
                yield from (Setting(method.name, epsilon, knob) for knob in knobs)

    def by_bytes(self) -> Iterator[Setting]:
        """Yield every private method at all values of its knob."""
        for method in METHODS:
            if method.trust is not Trust.EVERYBODY:
                for value in method.knob.values:
                    yield Setting(method.name, self.byte_epsilon, value)

    def by_clients(self) -> Iterator[Setting]:
        """Yield the distributed sum with all clients and with fewer."""
        for method in METHODS:
            if method.trust is Trust.COHORT:
                for epsilon in self.epsilons:
                    for share in (1.0, *self.shares):
                        yield Setting(method.name, epsilon, method.knob.usual, share)

    def candidates(self, setting: Setting) -> list[Candidate]:
        """Return what is tried for a setting."""
        found = self.tuned(setting).of.candidates
        return found[:2] if self.thrifty else found

    def tuned(self, setting: Setting) -> Setting:
        """Return the setting whose trials decide for this one."""
        other = setting.of.tuned_as
        return setting if other is None else replace(setting, method=other)

    def evaluation_seeds(self, setting: Setting, first: int) -> tuple[int, ...]:
        """Return the seeds of its runs."""
        return evaluated(first, self.slow_seeds if setting.of.slow else self.seeds)

    def trial_seeds(self, setting: Setting, first: int) -> tuple[int, ...]:
        """Return the seeds with which its candidates are tried; no run is evaluated with them."""
        count = self.slow_tuning_seeds if self.tuned(setting).of.slow else self.tuning_seeds
        return tried(first, count)

    def config(self, setting: Setting, candidate: Candidate, seed: int) -> RunConfig:
        """Return the configuration of one run."""
        method, cohort = setting.of, max(2, round(self.cohort * setting.share))
        rate = candidate.reach / candidate.bound
        base: dict[str, Any] = {
            "seed": seed,
            "rounds": self.rounds,
            "task": {
                "data": self.data,
                "model": "logistic",
                "clients": "iid",
                "population": self.rounds * cohort,
            },
            "local": {"algorithm": "fedsgd"},
            "server": {"learning_rate": rate, "final_learning_rate": DECAY * rate},
            "privacy": {
                "epsilon": 1.0 if setting.epsilon is None else setting.epsilon,
                "delta": self.delta,
                "clip_l2": candidate.bound,
            },
            "cohort": {
                "size": cohort,
                "tolerated_dropouts": round(self.dropouts * cohort),
                "tolerated_colluders": round(self.colluders * cohort),
            },
            "noise": {"exact": False},
            "sketch": {"controller": "fixed", "rate": 1.0, "rows": SKETCH_ROWS},
            # Small updates: a cohort at once costs less than chunk by chunk.
            "engine": {"workers": 1, "chunk": cohort},
        }
        changes = [*method.changes, *method.knob.changes(setting.knob, self.rounds)]
        config = changed(parse(base, RunConfig), changes)
        return changed(config, [("engine.evaluate_every", config.rounds)])


PRESETS = {
    "usual": Plan(),
    # Embedded digits, few clients, few values: says nothing, and says it within seconds.
    "quick": Plan(
        data="digits",
        rounds=10,
        cohort=48,
        epsilons=(2.0, 8.0),
        more_epsilons=(32.0,),
        byte_epsilon=8.0,
        shares=(1 / 4,),
        seeds=2,
        slow_seeds=2,
        tuning_seeds=1,
        thrifty=True,
    ),
}
