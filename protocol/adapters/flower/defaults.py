"""What `protect` settles for its caller: settings that neither it nor the run's configuration has.

A promise has no default. How many clients there are is looked up: in a simulation they are the
nodes that the engine makes, in a deployment those in the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flwr.serverapp import Grid

from protocol.adapters.evaluation import EVALUATION_KEY, RECORDS_KEY
from protocol.adapters.flower.errors import TooFewNodesError
from protocol.adapters.flower.places import known_clients
from protocol.adapters.flower.remedy import DEPLOYMENT, EXAMPLE, SIMULATION_KEY
from protocol.adapters.flower.settings import (
    ANNOUNCER_KEY,
    CLIENTS_KEY,
    LEDGER_KEY,
    REGISTRY_KEY,
    SIMULATION_FOLDER,
    FlowerSettings,
    settings_from,
    values_of,
)
from protocol.adapters.flower.waiting import Clock, Wait
from protocol.adapters.stage_times import CONNECT_SECONDS
from protocol.errors import ConfigurationError
from protocol.planning.training_plan import TrainingPlan

DELTA: Final = 1e-5
ROUNDS_KEY: Final = "num-server-rounds"
"""Where apps made by `flwr new` keep their number of rounds."""
_DROPOUT_SHARE: Final = 5
_COLLUDER_SHARE: Final = 20
_SETTLED_SECONDS: Final = 1.0
"""An engine registers its nodes one after the other, while the server's program starts."""
_FEWEST: Final = 2

OF_THE_PLAN: Final[Mapping[str, tuple[str, ...]]] = {
    "epsilon": ("privacy", "epsilon"),
    "delta": ("privacy", "delta"),
    "clip_l2": ("privacy", "clip_l2"),
    "mechanism": ("noise", "mechanism"),
    "rounds": ("rounds",),
    "cohort": ("cohort", "size"),
    "tolerated_dropouts": ("cohort", "tolerated_dropouts"),
    "tolerated_colluders": ("cohort", "tolerated_colluders"),
    "scheme": ("scheme", "kind"),
}
_PLAIN: Final = (
    *(LEDGER_KEY, REGISTRY_KEY),
    *("allow_evaluation_in_the_clear", "allow_queries_in_the_clear"),
    *(EVALUATION_KEY, RECORDS_KEY),
    *("stage_seconds", "training_seconds", "connect_seconds"),
)
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    **OF_THE_PLAN,
    **{name: (name,) for name in _PLAIN},
}
"""Where an argument of `protect` stands in the tables of settings."""

_CHOOSE: Final[Mapping[tuple[str, str], str]] = {
    ("privacy", "clip_l2"): "the largest l2 norm that a client's update may have, in the units of "
    "the model; longer ones are shortened. 1.0 is a start",
    ("privacy", "epsilon"): "what all rounds together may reveal of one client, 8.0 for instance; "
    "less is more private, and noisier",
    ("", "rounds"): f"how many rounds any one client takes part in; or {ROUNDS_KEY} in the app's "
    "configuration",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller of `protect` asks for.

    Attributes:
        settings: by name, those of `ARGUMENTS`; none is None.
        plan: in place of those of `OF_THE_PLAN`.
        simulated: whether this process plays the nodes too.
        clock: of all waits.
    """

    settings: Mapping[str, Any]
    plan: TrainingPlan | None
    simulated: bool
    clock: Clock


def filled(
    asked: Asked, grid: Grid, run_config: Mapping[str, Any], *, evaluates: bool = True
) -> tuple[FlowerSettings, int]:
    """All settings of a run, and how many clients there are.

    Args:
        evaluates: whether a declared evaluation is asked for, in rounds of its own.
    """
    values = values_of(run_config)
    for name, value in asked.settings.items():
        _put(values, ARGUMENTS[name], str(value) if name in (LEDGER_KEY, REGISTRY_KEY) else value)
    if asked.plan is not None:
        values |= _tables_of(asked.plan)
    _put(values, ("privacy", "delta"), DELTA, weak=True)
    if ROUNDS_KEY in run_config and not _is_hidden(values):
        each = 2 if evaluates and values.get(EVALUATION_KEY) else 1
        _put(values, ("rounds",), run_config[ROUNDS_KEY] * each, weak=True)
    if asked.simulated:
        for key in (REGISTRY_KEY, ANNOUNCER_KEY):
            values.pop(key, None)  # of the deployment of the same app
        _put(values, (SIMULATION_KEY,), SIMULATION_FOLDER, weak=True)
        clients = _nodes(grid, Wait(asked.clock, CONNECT_SECONDS), asked.clock)
    else:
        values.pop(SIMULATION_KEY, None)
        values.pop(CLIENTS_KEY, None)
        clients = known_clients(values.get(REGISTRY_KEY))
    size = _fill_cohort(values, clients)
    if asked.simulated:
        # As many as there are: a strategy may invite any of them. Too few are counted later.
        _put(values, (CLIENTS_KEY,), max(clients, size), weak=True)
    missing = list(_missing(values, asked.simulated))
    settings = settings_from(values, missing, {} if asked.simulated else DEPLOYMENT)
    return settings, clients


def _is_hidden(values: Mapping[str, Any]) -> bool:
    """Whether a client takes part in fewer rounds than the app has: one of each block."""
    cohort = values.get("cohort")
    return isinstance(cohort, dict) and cohort.get("choice") == "allocation"


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any, weak: bool = False) -> None:
    """Set a key in its table; a `weak` value only if there is none. What is no table stays."""
    *tables, key = path
    table: Any = values
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            return
    if not weak or key not in table:
        table[key] = value


def _fill_cohort(values: dict[str, Any], clients: int) -> int:
    """The size of a cohort, with defaults for those of it that are lost or collude.

    Where there is no registry yet, it is an example's: the registry is what is told about.
    """
    _put(values, ("cohort", "size"), clients or EXAMPLE["cohort"]["size"], weak=True)
    cohort = values["cohort"]
    size = cohort.get("size") if isinstance(cohort, dict) else None
    if not isinstance(size, int):
        return 0  # the settings' own checks say so
    _put(values, ("cohort", "tolerated_dropouts"), size // _DROPOUT_SHARE, weak=True)
    _put(values, ("cohort", "tolerated_colluders"), size // _COLLUDER_SHARE, weak=True)
    return size


def _missing(values: Mapping[str, Any], simulated: bool) -> Iterator[ConfigurationError]:
    """What has no default, with what it means; not only its name."""
    for (table, key), meaning in _CHOOSE.items():
        found = values.get(table, {}) if table else values
        if not isinstance(found, dict) or key in found:
            continue
        if key == "epsilon" and "noise_multiplier" in found:
            continue
        name = f"{table}.{key}".lstrip(".")
        yield ConfigurationError(name, "missing", f"protect(..., {key}=...) or this key: {meaning}")
    for key in (LEDGER_KEY, REGISTRY_KEY):
        if not simulated and key not in values:
            problem = "missing, and this is no simulation"
            yield ConfigurationError(
                key,
                problem,
                f"protect(..., {key}=...) or this key: a file's "
                "absolute path on the machine of the SuperLink",
            )


def _nodes(grid: Grid, wait: Wait, clock: Clock) -> int:
    """How many nodes an engine has made, once it is through."""
    count, since = 0, clock.now()
    while count < _FEWEST or clock.now() - since < _SETTLED_SECONDS:
        found = len(list(grid.get_node_ids()))
        if found != count:
            count, since = found, clock.now()
        if not wait.again():
            break
    return count


def require_nodes(nodes: int, cohort: int) -> None:
    """See that a simulation has a whole cohort: no further node will ever connect."""
    if nodes < cohort:
        raise TooFewNodesError(
            f"{nodes} simulated nodes, and a round is planned for {cohort}; valid: flwr run "
            f"--federation-config num-supernodes={cohort}, or a cohort of at most {nodes}"
        )


def _tables_of(plan: TrainingPlan) -> dict[str, Any]:
    """What settings have of a plan: its own figures count, and these need only agree with them."""
    goal = plan.goal
    privacy = {name: getattr(goal, name) for name in ("epsilon", "delta", "moment_order")}
    privacy |= {
        name: getattr(plan, name) for name in ("clip_l2", "error_share", "wrap_probability")
    }
    return {
        "rounds": goal.rounds,
        "lifetime_seconds": plan.lifetime_seconds,
        "privacy": {name: value for name, value in privacy.items() if value is not None},
        "cohort": {
            "size": plan.cohort,
            "tolerated_dropouts": plan.tolerated_dropouts,
            "tolerated_colluders": plan.tolerated_colluders,
        },
        "noise": {"mechanism": plan.noise.mechanism, **_given("exact", plan.noise.exact)},
        "scheme": plan.scheme.table(),
    }


def _given(name: str, value: object) -> dict[str, object]:
    return {} if value is None else {name: value}
