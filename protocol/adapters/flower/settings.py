"""The server's settings, from the run's configuration: tables below `tool.flwr.app.config.veilsum`.

Flower flattens tables into dotted keys. Here they become tables again and are checked like any
configuration file, so every error names the key, its value and what is valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from protocol.conduct import Stage
from protocol.config import (
    LIFETIME_SECONDS,
    Cohort,
    Privacy,
    Section,
    Sketch,
    build_plan,
    parse,
)
from protocol.errors import ConfigurationError
from protocol.training_plan import TrainingPlan
from secagg.grinding import LARGEST_LIFETIME_SECONDS
from sketch.controllers import Controller

PREFIX = "veilsum."
SIMULATION_KEY = "simulation_dir"
DEFAULT_STAGE_SECONDS = 60.0


class FlowerSettings(Section):
    """What the server side needs.

    `privacy`, `cohort` and `sketch` are the tables of a configuration of `veilsum run`.
    """

    rounds: int = Field(ge=1, description="that any client takes part in, over all runs")
    privacy: Privacy
    cohort: Cohort
    sketch: Sketch = Sketch()
    ledger: str | None = Field(default=None, description="file that every release is written to")
    registry: str | None = Field(default=None, description="file of the clients' identity keys")
    simulation_dir: str | None = Field(
        default=None, description="simulation only: folder for all clients of all runs"
    )
    simulated_clients: int | None = Field(
        default=None, ge=2, description="simulation only: how many; the cohort's size if left out"
    )
    stage_seconds: float = Field(
        default=DEFAULT_STAGE_SECONDS, gt=0, description="most that a stage waits for its nodes"
    )
    training_seconds: float = Field(
        default=3600.0, gt=0, description="the same, of the stage that training is in"
    )
    connect_seconds: float = Field(
        default=60.0, ge=0, description="most that a round waits for nodes to connect"
    )

    lifetime_seconds: int = Field(
        default=LIFETIME_SECONDS,
        ge=0,
        le=LARGEST_LIFETIME_SECONDS,
        description="most that a round lives, by the clients' clocks; 0 for ever",
    )

    def plan(self) -> TrainingPlan:
        """What stays the same over all rounds.

        Raises:
            ConfigurationError: the figures do not fit together.
        """
        waits = (len(Stage) - 1) * self.stage_seconds + self.training_seconds
        if 0 < self.lifetime_seconds < waits:
            problem = f"value {self.lifetime_seconds}, and the stages of a round may take {waits:g}"
            raise ConfigurationError(
                f"{PREFIX}lifetime_seconds", problem, f"at least {math.ceil(waits)}, or 0 for ever"
            )
        try:
            return build_plan(self.privacy, self.cohort, self.rounds, self.lifetime_seconds)
        except ConfigurationError as error:
            raise _prefixed(error) from None

    def controller(self) -> Controller:
        """What chooses the sketch of each round.

        Raises:
            ConfigurationError: values that do not fit together.
        """
        try:
            return self.sketch.build(self.rounds)
        except ConfigurationError as error:
            raise _prefixed(error) from None

    def path(self, key: str) -> Path:
        """A path among the settings.

        Raises:
            ConfigurationError: it is left out, or relative: a ServerApp has no folder of its own.
        """
        value = getattr(self, key)
        path = Path(value).expanduser() if value else None
        if path is None or not path.is_absolute():
            problem = "missing" if value is None else f"value {value!r}"
            raise ConfigurationError(PREFIX + key, problem, "an absolute path")
        return path


def values_of(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Our part of a run's configuration, as tables. Hyphens, as Flower likes them, are allowed.

    An empty string is a key left out: a run may override only keys that its app has.

    Raises:
        ConfigurationError: a key is both a value and a table.
    """
    tables: dict[str, Any] = {}
    for key in sorted(run_config):
        if not key.startswith(PREFIX) or run_config[key] == "":
            continue
        *parents, last = key.removeprefix(PREFIX).replace("-", "_").split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ConfigurationError(key, f"{parent} is a value", "one of value and table")
        table[last] = run_config[key]
    return tables


def read_settings(run_config: Mapping[str, Any]) -> FlowerSettings:
    """The settings of a run.

    Raises:
        ConfigurationError: a key is unknown or missing, or a value out of range.
    """
    values = values_of(run_config)
    if not values:
        valid = "a table [tool.flwr.app.config.veilsum] in the app's pyproject.toml"
        raise ConfigurationError("veilsum", "no such keys in the run's configuration", valid)
    try:
        return parse(values, FlowerSettings)
    except ConfigurationError as error:
        raise _prefixed(error) from None


def _prefixed(error: ConfigurationError) -> ConfigurationError:
    if error.valid == "field required":
        return ConfigurationError(PREFIX + error.key, "missing", "a value: it has no default")
    return ConfigurationError(PREFIX + error.key, error.problem, error.valid)
