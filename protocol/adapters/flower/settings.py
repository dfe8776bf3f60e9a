"""The server's settings, from the run's configuration: tables below `tool.flwr.app.config.veilsum`.

Flower flattens tables into dotted keys. Here they become tables again and are checked like any
configuration file. Whatever is wrong is said at once: an app on Flower takes half a minute to come
up, too long to hear of one mistake at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from protocol.adapters.evaluation import (
    EVALUATION_KEY,
    RECORDS,
    RECORDS_KEY,
    planned_survey,
    survey_of,
)
from protocol.adapters.flower.errors import SettingsError
from protocol.adapters.flower.remedy import SIMULATION_KEY, hyphened, mended, toml_table
from protocol.adapters.stage_times import CONNECT_SECONDS, FIRST_SECONDS, TRAINING_SECONDS
from protocol.allocation import Allocation
from protocol.errors import ConfigurationError, Remedy
from protocol.planning.configuration import (
    LIFETIME_SECONDS,
    Cohort,
    PlanTables,
    Sketch,
    build_plan,
    named_members,
    parse,
    problems_in,
    returned_noise,
    within,
)
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes import SCHEMES, Pairwise
from protocol.statistics.codebooks import MOST_TOKENS
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.survey import Survey
from protocol.training.private import configured_hiding
from secagg.checks import whole
from sketch.controllers import Controller

PREFIX = "veilsum."
LEDGER_KEY, REGISTRY_KEY, CLIENTS_KEY = "ledger", "registry", "simulated_clients"
COMMITTEE_KEY = "committee"
ANNOUNCER_KEY = "announcer"
SIMULATION_FOLDER = "~/.cache/veilsum/flower"
"""Of the clients of a simulation whose run names no other."""


class FlowerCohort(Cohort):
    """Who takes part in a round, how many may fail or collude, and how they are chosen."""

    choice: Literal["connected", "allocation"] = Field(
        default="connected",
        description="connected: as many as planned of those who are there; allocation: every "
        "client draws one round of each block of population / size, so that size is what is "
        "expected, and an outsider who is never told who came learns less",
    )
    population: Annotated[int | None, within("cohort")] = Field(
        default=None, description="with allocation: clients in the registry, no more and no fewer"
    )
    away: Annotated[int, within("tolerated_dropouts")] = Field(
        default=0, description="with allocation: how many of them may be away from a round"
    )


class FlowerTables(PlanTables):
    """What a plan on Flower is made of, but for its rounds."""

    cohort: FlowerCohort

    def allocation(self, rounds: int) -> Allocation | None:
        """Who comes when, if clients' own coins say so.

        Args:
            rounds: that any client takes part in: one of each block.
        """
        cohort, size = self.cohort, self.cohort.size
        if cohort.choice != "allocation":
            for key in ("population", "away"):
                if getattr(cohort, key):
                    valid = "left out, or cohort.choice = allocation"
                    raise ConfigurationError(f"cohort.{key}", "given", valid, Remedy.LEFT_OUT)
            return None
        population = cohort.population or 0
        if population % size or population < 2 * size:
            problem = f"value {cohort.population} with allocation and cohorts of {size}"
            valid = "twice cohort.size, or thrice, and so on: as many clients as the registry has"
            raise ConfigurationError("cohort.population", problem, valid)
        if cohort.away >= population:
            valid = f"fewer than cohort.population = {population}"
            raise ConfigurationError("cohort.away", f"value {cohort.away}", valid)
        block, lost = population // size, cohort.tolerated_dropouts
        delta, away = self.privacy.delta, cohort.away
        return Allocation.within(delta, population, block, rounds * block, 0.0, lost, away)

    def planned(self, rounds: int, lifetime_seconds: int, horizon: int | None) -> TrainingPlan:
        """The training plan of these tables; of `horizon` rounds where noise comes back."""
        plan = build_plan(self, rounds, lifetime_seconds, returned_noise(self, horizon))
        allocation = self.allocation(rounds)
        if allocation is not None:
            plan = configured_hiding(plan, allocation, "connected")
        _ = named_members(plan)
        return plan


class FlowerSettings(FlowerTables):
    """What the server side needs.

    `privacy`, `cohort`, `noise`, `scheme` and `sketch` are the tables of a configuration of
    `veilsum run`; `cohort` has more keys.
    """

    rounds: Annotated[int, within("rounds")] = Field(
        description="that any client takes part in, over all runs"
    )
    horizon: Annotated[int | None, within("rounds")] = Field(
        default=None,
        description='rounds of the whole run, where noise.kind = "returned"; noise.apart is then '
        "given as well",
    )
    sketch: Sketch = Sketch()
    ledger: str | None = Field(default=None, description="file that every release is written to")
    registry: str | None = Field(default=None, description="file of the clients' identity keys")
    committee: str | None = Field(
        default=None, description="file of the identity keys of a named committee's members"
    )
    announcer: str | None = Field(
        default=None,
        description="file of the key that signs every round; registry is then a signed one",
    )
    simulation_dir: str | None = Field(
        default=None, description="simulation only: folder for all clients of all runs"
    )
    simulated_clients: Annotated[int | None, within("cohort")] = Field(
        default=None,
        description="simulation only: how many; the cohort's size if left out",
    )
    allow_evaluation_in_the_clear: bool = Field(
        default=False, description="clients' answers to evaluations may be seen by the server"
    )
    allow_queries_in_the_clear: bool = Field(default=False, description="likewise, to queries")
    evaluation: dict[str, dict[str, Any]] = Field(
        default={}, description="metrics of private evaluations by name: see `Metric`"
    )
    evaluation_records: Annotated[int, within(whole(1, MOST_TOKENS))] = Field(
        default=RECORDS, description="examples that stand for a client in an evaluation"
    )
    stage_seconds: float | None = Field(
        default=None,
        gt=0,
        description="most that a stage waits for its nodes; by what it sends and how long a trip "
        "takes if left out",
    )
    training_seconds: float = Field(
        default=TRAINING_SECONDS, gt=0, description="the same, of the stage that training is in"
    )
    connect_seconds: float = Field(
        default=CONNECT_SECONDS, ge=0, description="most that a round waits for nodes to connect"
    )

    lifetime_seconds: Annotated[int, within("lifetime_seconds")] = Field(
        default=LIFETIME_SECONDS,
        description="most that a round lives, by the clients' clocks; 0 for ever",
    )

    def plan(self) -> TrainingPlan:
        """What stays the same over all rounds."""
        return self.planned(self.rounds, self.lifetime_seconds, self.horizon)

    @property
    def hidden(self) -> Allocation | None:
        """Who comes when, if clients' own coins say so."""
        return self.allocation(self.rounds)

    def clients(self, plan: TrainingPlan) -> int:
        """How many a simulation of the plan has."""
        fewest = self.cohort.population or plan.noise.population(plan) + plan.noise.adding(plan)
        return self.simulated_clients or fewest

    def survey(self) -> Survey | None:
        """What private evaluations ask, as it was declared; None if there are none."""
        return survey_of(self.evaluation, self.evaluation_records)

    def planned_survey(self, plan: TrainingPlan) -> PlannedSurvey | None:
        """The same with its weights.

        Raises:
            SettingsError: no round of the plan can have such a survey.
        """
        survey = self.survey()
        try:
            return planned_survey(survey, plan) if survey else None
        except ConfigurationError as error:
            raise SettingsError([_named(error)]) from None

    def controller(self) -> Controller:
        """What chooses the sketch of each round."""
        return self.sketch.build(self.rounds)

    def path(self, key: str) -> Path:
        """A path among the settings, of a key that is there."""
        return Path(getattr(self, key)).expanduser()


def values_of(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Our part of a run's configuration, as tables. Hyphens, as Flower likes them, are allowed.

    An empty string is a key left out: a run may override only keys that its app has.
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
                raise ConfigurationError(key, f"{parent} is a value", "either a value or a table")
        table[last] = run_config[key]
    return tables


def declared_survey(run_config: Mapping[str, Any]) -> Survey | None:
    """What the evaluations of a run ask, if its configuration declares any."""
    values = values_of(run_config)
    return survey_of(values.get(EVALUATION_KEY, {}), values.get(RECORDS_KEY, RECORDS))


def read_settings(run_config: Mapping[str, Any]) -> FlowerSettings:
    """The settings of a run, of which a plan and a controller can be made."""
    values = values_of(run_config)
    if not values:
        valid = "a table [tool.flwr.app.config.veilsum] in the app's pyproject.toml"
        nothing = ConfigurationError("", "no such keys in the run's configuration", valid)
        raise _wrong([nothing], values, {})
    return settings_from(values)


def settings_from(
    values: dict[str, Any],
    missing: Collection[ConfigurationError] = (),
    example: Mapping[str, Any] | None = None,
) -> FlowerSettings:
    """Settings of tables, of which a plan and a controller can be made."""
    reported = {problem.key for problem in missing}
    others = [each for each in _problems(values) if not (reported and _follows(each, reported))]
    if missing or others:
        raise _wrong([*missing, *others], values, example or {})
    return parse(values, FlowerSettings)


def _follows(problem: ConfigurationError, reported: Collection[str]) -> bool:
    """Whether a problem is only what others follow from: a key, or the table, that it is in."""
    if problem.key == SIMULATION_KEY:
        return LEDGER_KEY in reported or REGISTRY_KEY in reported
    return problem.key in reported or any(key.startswith(problem.key + ".") for key in reported)


def _wrong(
    problems: Collection[ConfigurationError], values: dict[str, Any], example: Mapping[str, Any]
) -> SettingsError:
    table = toml_table(mended({**example, **values}, _problems), values)
    return SettingsError([_named(problem) for problem in problems], table)


def _problems(values: dict[str, Any]) -> list[ConfigurationError]:
    """Everything that is wrong with settings; what files hold is looked at by who reads them."""
    found = problems_in(values, FlowerSettings)
    wrong = {problem.key.partition(".")[0] for problem in found}
    if wrong.isdisjoint({"rounds", "horizon", *PlanTables.model_fields}):
        tables = {name: values[name] for name in PlanTables.model_fields if name in values}
        parsed = parse(tables, FlowerTables)
        lifetime = 0 if "lifetime_seconds" in wrong else _value(values, "lifetime_seconds")
        horizon = _value(values, "horizon")
        found += _raised(lambda: parsed.planned(values["rounds"], lifetime, horizon))
        if parsed.cohort.choice == "allocation" and values.get(EVALUATION_KEY):
            problem = "given with cohort.choice = allocation: an evaluation would use up turns"
            found.append(ConfigurationError(EVALUATION_KEY, problem, "left out", Remedy.LEFT_OUT))
    if wrong.isdisjoint({"rounds", "sketch"}):
        sketch = parse(values.get("sketch", {}), Sketch)
        found += _raised(lambda: sketch.build(values["rounds"]))
        if _returns(values) and sketch.controller != "fixed":
            problem = f"value {sketch.controller!r}: noise of another sketch does not cancel"
            found.append(ConfigurationError("sketch.controller", problem, "fixed", "fixed"))
    if wrong.isdisjoint({EVALUATION_KEY, RECORDS_KEY}):
        given = _value(values, EVALUATION_KEY), _value(values, RECORDS_KEY)
        found += _raised(lambda: survey_of(*given))
        if _returns(values) and given[0]:
            problem = "given where noise comes back: integers are summed with noise that stays"
            found.append(ConfigurationError(EVALUATION_KEY, problem, "left out", Remedy.LEFT_OUT))
    if wrong.isdisjoint({"lifetime_seconds", "stage_seconds", "training_seconds", "scheme"}):
        found += _lifetime(values)
    if wrong.isdisjoint({SIMULATION_KEY, LEDGER_KEY, REGISTRY_KEY, COMMITTEE_KEY, ANNOUNCER_KEY}):
        found += _places(values)
    if wrong.isdisjoint({SIMULATION_KEY, CLIENTS_KEY, "cohort"}):
        found += _clients(values)
    return found


def _returns(values: Mapping[str, Any]) -> bool:
    table = values.get("noise", {})
    return isinstance(table, dict) and table.get("kind") == "returned"


def _raised(make: Callable[[], object]) -> list[ConfigurationError]:
    try:
        make()
    except ConfigurationError as error:
        return [error]
    return []


def _value(values: Mapping[str, Any], key: str) -> Any:
    return values.get(key, FlowerSettings.model_fields[key].default)


def _lifetime(values: Mapping[str, Any]) -> Iterator[ConfigurationError]:
    lifetime, stage = _value(values, "lifetime_seconds"), _value(values, "stage_seconds")
    scheme = SCHEMES[values.get("scheme", {}).get("kind", Pairwise.KIND)]
    short = scheme.SHORT_STAGES + _returns(values)
    waits = short * (stage or FIRST_SECONDS) + _value(values, "training_seconds")
    if 0 < lifetime < waits:
        problem = f"value {lifetime}, and the stages of a round may take {waits:g}"
        valid = f"at least {math.ceil(waits)}, or 0 for ever"
        yield ConfigurationError("lifetime_seconds", problem, valid)


def _places(values: Mapping[str, Any]) -> Iterator[ConfigurationError]:
    """Where records are kept. A ServerApp has no folder of its own that a path could start from."""
    for key in (SIMULATION_KEY, LEDGER_KEY, REGISTRY_KEY, COMMITTEE_KEY, ANNOUNCER_KEY):
        if key in values and not Path(values[key]).expanduser().is_absolute():
            yield ConfigurationError(key, f"value {values[key]!r}", "an absolute path")
    if SIMULATION_KEY in values:
        if ANNOUNCER_KEY in values:
            valid = "left out: nobody signs in a simulation"
            yield ConfigurationError(ANNOUNCER_KEY, "given", valid, Remedy.LEFT_OUT)
        return
    missing = [key for key in (LEDGER_KEY, REGISTRY_KEY) if key not in values]
    if len(missing) == 2:
        yield ConfigurationError(
            SIMULATION_KEY,
            "missing, and so are ledger and registry",
            "in a simulation, an absolute path of a folder for everybody's folders; in a "
            "deployment, ledger and registry in its place",
        )
    else:
        for key in missing:
            valid = "an absolute path of a file; in a simulation, simulation-dir in its place"
            yield ConfigurationError(key, "missing", valid)


def _clients(values: Mapping[str, Any]) -> Iterator[ConfigurationError]:
    clients, size = values.get(CLIENTS_KEY), values["cohort"]["size"]
    population = values["cohort"].get("population")
    if clients is None:
        return
    if SIMULATION_KEY not in values:
        valid = "left out, or simulation-dir beside it: clients of a deployment are in its registry"
        yield ConfigurationError(CLIENTS_KEY, f"value {clients!r}", valid)
    elif clients < size:
        valid = f"at least cohort.size = {size}, and as many as num-supernodes; left out, {size}"
        yield ConfigurationError(CLIENTS_KEY, f"value {clients!r}", valid)
    elif population not in (None, clients):
        valid = f"cohort.population = {population}, and as many as num-supernodes"
        yield ConfigurationError(CLIENTS_KEY, f"value {clients!r}", valid)


def _named(error: ConfigurationError) -> ConfigurationError:
    """An error with the key as it stands in the app's file."""
    valid = hyphened(error.valid) if error.problem == "unknown key" else error.valid
    return ConfigurationError(hyphened(PREFIX + error.key).rstrip("."), error.problem, valid)
