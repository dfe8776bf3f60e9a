"""The short way in: one call for each half of a Flower app.

    app = ClientApp(mods=[protect()])                                    # the client

    result = strategy.start(                                             # the server
        grid=protect(grid, context, strategy, epsilon=8.0, clip_l2=1.0), ...
    )

Both make what `secure_mod` and `SecureGrid` are, with defaults for all but the promise itself: how
much privacy (`epsilon`) and for how large a change (`clip_l2`) nobody can choose for somebody else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, overload

from flwr.app import Context, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from dp.mechanisms import MechanismName
from protocol.adapters.flower.client import CallNext, guarded
from protocol.adapters.flower.defaults import (
    ARGUMENTS,
    OF_THE_PLAN,
    Asked,
    filled,
    require_nodes,
)
from protocol.adapters.flower.folders import new_client
from protocol.adapters.flower.grid import SecureGrid
from protocol.adapters.flower.home import (
    HOME_KEY,
    IDENTITY,
    POLICY,
    SIMULATION_VARIABLE,
    ClientHome,
    ClientRules,
    home_of,
)
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.rounds import numbers_of
from protocol.adapters.flower.strategies import check_strategy, require_all_clients, require_metrics
from protocol.adapters.flower.waiting import Clock
from protocol.planning.configuration import parse
from protocol.planning.training_plan import TrainingPlan
from sketch.controllers import Controller

Policy = ClientRules | Mapping[str, Any]
Mod = partial[Message]

_SIMULATED_GRID: Final = "InMemoryGrid"
_SERVER: Final = "protect(grid, context, strategy, epsilon=..., clip_l2=...)"
_CLIENT: Final = "ClientApp(mods=[protect()])"


@overload
def protect(*, policy: Policy | None = None) -> Mod: ...


@overload
def protect(grid: Message, context: Context, strategy: CallNext, /) -> Message: ...


@overload
def protect(
    grid: Grid,
    context: Context,
    strategy: Strategy | None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    clip_l2: float | None = None,
    rounds: int | None = None,
    mechanism: MechanismName | None = None,
    cohort: int | None = None,
    tolerated_dropouts: int | None = None,
    tolerated_colluders: int | None = None,
    scheme: str | None = None,
    plan: TrainingPlan | None = None,
    controller: Controller | None = None,
    ledger: str | Path | None = None,
    registry: str | Path | None = None,
    allow_evaluation_in_the_clear: bool | None = None,
    allow_queries_in_the_clear: bool | None = None,
    evaluation: Mapping[str, Mapping[str, Any]] | None = None,
    evaluation_records: int | None = None,
    stage_seconds: float | None = None,
    training_seconds: float | None = None,
    connect_seconds: float | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
) -> SecureGrid: ...


def protect(
    grid: Any = None,
    context: Context | None = None,
    strategy: Any = None,
    *,
    policy: Policy | None = None,
    plan: TrainingPlan | None = None,
    controller: Controller | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> Any:
    """Make one half of a Flower app private: without a grid the client's, with one the server's.

    The client's, `ClientApp(mods=[protect()])`, is a mod as `secure_mod` is. It also makes the
    client's identity, in the folder that its node names, if there is none, and logs the public key
    for the registry. `mods=[protect]` is the same.

    The server's, `protect(grid, context, strategy, ...)`, is a `SecureGrid`. What is given here
    counts; what is not comes from the run's configuration (`veilsum.*`), and then from the
    defaults: `delta` 1e-5, `rounds` the run's `num-server-rounds`, a cohort of all simulated nodes
    or of all registered clients, of whom a fifth may vanish and a twentieth collude with the
    server; a sketch whose size follows the updates. In Flower's simulation, folders for all
    clients are made for each run below `~/.cache/veilsum/flower`, and the ledger lies beside them.
    A deployment names its own `ledger` and `registry`.

    Args:
        grid: Flower's own. Nothing, for the client's half.
        context: of the ServerApp.
        strategy: that will use the grid; None if your own code sends the messages.
        policy: the client's only: what it insists on, as `ClientRules` or its keys. A `policy.toml`
            in the folder that a node names counts instead; a simulation's clients have no operator,
            and always insist on this.
        plan: a `TrainingPlan`, in place of everything from `epsilon` to `scheme`.
        controller: chooses the sketch of each round.
        executor: optional, for unmasking.
        clock: of all waits.
        settings: `epsilon`, `delta` and `clip_l2` (of a client over all rounds; largest l2 norm of
            an update), `rounds`, `mechanism`, `cohort` (clients of a round), `tolerated_dropouts`,
            `tolerated_colluders`, `scheme` (`pairwise`; `one-shot`, in which a client sends one
            message and a committee of all clients opens the sum; or `validated`, in which that
            committee also leaves out vectors that are too long); `ledger` and `registry` (absolute
            paths);
            `allow_evaluation_in_the_clear`, `allow_queries_in_the_clear`; `evaluation` (metrics by
            name, which clients then evaluate in private rounds) and `evaluation_records` (examples
            that stand for a client in them); `stage_seconds`,
            `training_seconds`, `connect_seconds`, the longest waits.

    Raises:
        TypeError: arguments of the one half given for the other, or unknown ones.
        ConfigurationError: a policy that cannot be.
        SettingsError: no clip bound, no epsilon, or other settings that do not do: all of them,
            what is valid, and a table to be copied.
        StrategyError: the strategy needs more than a mean, asks clients to evaluate, invites fewer
            clients than a round is planned for, or reads metrics that no client sends.
        TooFewNodesError: fewer simulated nodes than the plan needs.
        LedgerError: the ledger was altered.
    """
    if isinstance(grid, Message):
        # Flower calls mods with a message, a context, and what to call next.
        return guarded(partial(_home, None), grid, context, strategy)
    server = {"plan": plan, "controller": controller, "executor": executor, "clock": clock}
    if grid is None:
        given = [name for name, value in {**server, **settings}.items() if value is not None]
        _refuse(given, f"settings of the server; valid: {_SERVER}")
        return _mod(policy)
    _refuse(["policy"] if policy is not None else [], f"the client's; valid: {_CLIENT}")
    _refuse(sorted(settings.keys() - ARGUMENTS.keys()), f"unknown; valid: {', '.join(ARGUMENTS)}")
    if not isinstance(context, Context):
        raise TypeError(f"context is {type(context).__name__}; valid: {_SERVER}")
    settings = {name: value for name, value in settings.items() if value is not None}
    if plan is not None:
        _refuse(sorted(settings.keys() & OF_THE_PLAN), "in the plan as well; valid: one of the two")
    asked = Asked(settings, plan, _is_simulated(grid), clock or Clock())
    return _grid(asked, grid, context, strategy, controller, executor)


def _refuse(names: list[str], why: str) -> None:
    if names:
        raise TypeError(f"protect: {', '.join(names)}: {why}")


def _mod(policy: Policy | None) -> Mod:
    if policy is not None and not isinstance(policy, ClientRules):
        policy = parse(dict(policy), ClientRules)
    return partial(guarded, partial(_home, policy))


def _home(rules: ClientRules | None, context: Context) -> ClientHome:
    """A client's folder, with an identity in it."""
    home = home_of(context)
    operated = context.node_config.get(HOME_KEY) is not None
    if operated and not (home.folder / IDENTITY).exists():
        public = new_client(home.folder).public.hex()
        warn(f"made an identity in {home.folder}; all registries need its public key: {public}")
    if rules is None or (operated and (home.folder / POLICY).exists()):
        return home
    return replace(home, other_rules=rules)


def _is_simulated(grid: Grid) -> bool:
    """Whether this process plays the nodes too: Flower's simulation has a grid of its own."""
    names = [each.__name__ for each in type(grid).__mro__]
    return _SIMULATED_GRID in names or os.environ.get(SIMULATION_VARIABLE) == "1"


def _grid(
    asked: Asked,
    grid: Grid,
    context: Context,
    strategy: Strategy | None,
    controller: Controller | None,
    executor: Executor | None,
) -> SecureGrid:
    evaluates = getattr(strategy, "fraction_evaluate", 1.0) != 0.0
    settings, clients = filled(asked, grid, context.run_config, evaluates=evaluates)
    plan, hidden = asked.plan or settings.plan(), settings.hidden
    _, needed = numbers_of(plan, hidden)
    cohort = needed if hidden else plan.cohort
    if asked.simulated:
        require_nodes(clients, cohort)
    if strategy is not None:
        # Before folders are made, and a ledger opened.
        declared = bool(settings.evaluation)
        check_strategy(strategy, settings.allow_evaluation_in_the_clear, declared)
        for step in ("train", "evaluate") if declared else ("train",):
            require_all_clients(strategy, clients, cohort, step)
        require_metrics(strategy, hidden=hidden is not None)
    secure = SecureGrid.from_settings(
        grid, context, strategy, settings, plan, executor, controller, asked.clock
    )
    survey = settings.survey()
    evaluated = f"; evaluation {survey.digest.hex()}" if survey else ""
    simulated = "; a simulation, which protects nobody" if asked.simulated else ""
    who, told = str(plan.cohort), ""
    if hidden is not None:
        who = f"{hidden.fewest} to {hidden.most} of {hidden.population}"
        outsider = hidden.epsilon(plan.goal, hidden.rounds, integers=True)
        told = f", {outsider:.4g} for somebody who is never told who came (not the server)"
    warn(
        f"private rounds of {who} clients, {plan.minimum_survivors} of whom must stay; "
        f"epsilon {plan.goal.epsilon:g} at delta {plan.goal.delta:g} over {plan.goal.rounds} "
        f"rounds{told}; updates clipped to {plan.clip_l2:g}; ledger {secure.ledger}{evaluated}"
        f"{simulated}"
    )
    return secure
