"""Configuration of a federated run: the protocol's sections and the simulation's own."""

from __future__ import annotations

import math
from pathlib import Path

import tomli_w
from pydantic import Field

from protocol.config import Cohort, Privacy, Section, Sketch, parse
from protocol.errors import ConfigurationError


class Task(Section):
    """The data split and the model."""

    population: int = Field(ge=2, description="clients that exist")
    dirichlet_alpha: float = Field(gt=0, description="small: every client has few labels")
    minimum_examples: int = Field(ge=1, description="examples of the poorest client")
    hidden: int = Field(ge=1, description="hidden units of the model")


class Local(Section):
    """Training on a client."""

    learning_rate: float = Field(gt=0)
    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)


class Server(Section):
    """What the server does with the mean update."""

    learning_rate: float = Field(gt=0)
    final_learning_rate: float = Field(gt=0, description="reached linearly in the last round")
    plain_learning_rate: float = Field(
        gt=0, description="of the baseline, whose updates are not clipped and so much longer"
    )
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def private_rate(self, number: int, rounds: int) -> float:
        """Learning rate of round `number` of a private run."""
        first, last = self.learning_rate, self.final_learning_rate
        return first + (last - first) * number / max(rounds - 1, 1)


class Faults(Section):
    """What goes wrong in every round."""

    dropout: float = Field(ge=0, lt=1, description="share of a cohort lost, at random stages")


class RunConfig(Section):
    """One federated run.

    `seed` fixes the data split, the initial model, the schedule of cohorts, batches and dropouts.
    Masks, coins and rounding are fresh secrets in every run.
    """

    seed: int = Field(ge=0)
    rounds: int = Field(ge=1)
    task: Task
    local: Local
    server: Server
    privacy: Privacy
    cohort: Cohort
    sketch: Sketch
    faults: Faults

    def check(self) -> None:
        """See that the sections fit together.

        Raises:
            ConfigurationError: names the key.
        """
        if self.cohort.size > self.task.population:
            raise ConfigurationError(
                "cohort.size", f"value {self.cohort.size}", f"at most {self.task.population}"
            )
        if self.lost_per_round > self.cohort.tolerated_dropouts:
            raise ConfigurationError(
                "faults.dropout",
                f"value {self.faults.dropout} loses {self.lost_per_round} of {self.cohort.size}",
                f"at most cohort.tolerated_dropouts = {self.cohort.tolerated_dropouts} of them",
            )

    @property
    def participations(self) -> int:
        """The most rounds that any client is invited to, with cohorts taking turns."""
        return math.ceil(self.rounds * self.cohort.size / self.task.population)

    @property
    def lost_per_round(self) -> int:
        """Clients lost in every round."""
        return round(self.faults.dropout * self.cohort.size)


def demo_config() -> RunConfig:
    """The demo: 192 clients share the bundled digits, 64 of them take part in each of 24 rounds."""
    return parse(
        {
            "seed": 1,
            "rounds": 24,
            "task": {
                "population": 192,
                "dirichlet_alpha": 1.0,
                "minimum_examples": 3,
                "hidden": 64,
            },
            "local": {"learning_rate": 0.3, "steps": 8, "batch_size": 8},
            "server": {
                "learning_rate": 6.0,
                "final_learning_rate": 2.0,
                "plain_learning_rate": 2.0,
            },
            "privacy": {"epsilon": 5.0, "delta": 1e-5, "clip_l2": 0.25},
            "cohort": {"size": 64, "tolerated_dropouts": 8, "tolerated_colluders": 2},
            "sketch": {"gamma": 0.1, "window": 5},
            "faults": {"dropout": 0.1},
        },
        RunConfig,
    )


def write_config(config: RunConfig, path: Path) -> Path:
    """Write a configuration as TOML that `protocol.config.load` reads back."""
    path.write_text(tomli_w.dumps(config.model_dump(exclude_none=True)))
    return path
