"""Where the server's side keeps its records, and, in a simulation, where everybody does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from protocol.adapters.flower.errors import SettingsError
from protocol.adapters.flower.folders import (
    known_network,
    new_network,
    rules_of,
)
from protocol.adapters.flower.home import REGISTRY, read_known, simulated_network
from protocol.adapters.flower.remedy import SIMULATION_KEY, hyphened
from protocol.adapters.flower.settings import (
    ANNOUNCER_KEY,
    COMMITTEE_KEY,
    LEDGER_KEY,
    PREFIX,
    REGISTRY_KEY,
    FlowerSettings,
)
from protocol.adapters.flower.waiting import Clock
from protocol.adapters.private_files import read_identity
from protocol.authority.registry import read_file
from protocol.authority.session import Announcer
from protocol.errors import ConfigurationError
from protocol.planning.configuration import named_members
from protocol.planning.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Places:
    """The server's ledger, whom it knows, and who is on a named committee."""

    ledger: Path
    registry: frozenset[bytes]
    committee: frozenset[bytes] = frozenset()


def places_of(settings: FlowerSettings, plan: TrainingPlan, run_id: int) -> Places:
    """The places that the settings name; a simulation's are made here."""
    simulated = settings.simulation_dir is not None
    return _simulated(settings, plan, run_id) if simulated else _deployed(settings, plan)


def _deployed(settings: FlowerSettings, plan: TrainingPlan) -> Places:
    ledger, path = settings.path(LEDGER_KEY), settings.path(REGISTRY_KEY)
    problems, registry = [], frozenset[bytes]()
    if not ledger.parent.is_dir():
        problems.append(_problem(LEDGER_KEY, f"no folder {ledger.parent}", "a file in a folder"))
    try:
        registry = read_known(path)
    except ConfigurationError as error:
        problems.append(_unreadable(path, error))
    else:
        if len(registry) < plan.cohort:
            found = f"{path} has {len(registry)} identities"
            valid = f"at least cohort.size = {plan.cohort} of them, a line each"
            problems.append(_problem(REGISTRY_KEY, found, valid))
    committee = frozenset[bytes]()
    if named_members(plan):
        try:
            committee = _committee(settings, plan)
        except ConfigurationError as error:
            problems.append(error)
    if problems:
        raise SettingsError(problems)
    return Places(ledger, registry, committee)


def _committee(settings: FlowerSettings, plan: TrainingPlan) -> frozenset[bytes]:
    valid = f"a file of {named_members(plan)} identity keys, a line each: the plan's committee"
    if settings.committee is None:
        raise _problem(COMMITTEE_KEY, "missing", valid)
    path = settings.path(COMMITTEE_KEY)
    try:
        found = read_known(path, "member")
    except ConfigurationError as error:
        raise _problem(COMMITTEE_KEY, f"{path}: {error.problem}", error.valid) from None
    if len(found) != named_members(plan):
        raise _problem(COMMITTEE_KEY, f"{path} has {len(found)} identities", valid)
    return found


def known_clients(registry: object) -> int:
    """How many clients a registry has; 0 if no path is given."""
    if not isinstance(registry, str) or not Path(registry).expanduser().is_absolute():
        return 0  # the settings' own checks say so
    try:
        return len(read_known(Path(registry).expanduser()))
    except ConfigurationError as error:
        raise SettingsError([_unreadable(Path(registry), error)]) from None


def announcer_of(settings: FlowerSettings, run: Any, clock: Clock) -> Announcer | None:
    """Who signs the rounds of a run, with the settings' key; None if they name none.

    Args:
        run: Flower's own record of the run.
    """
    if settings.announcer is None:
        return None
    try:
        key = read_identity(settings.path(ANNOUNCER_KEY), "the announcer's key")
        read = partial(read_file, settings.path(REGISTRY_KEY))
        app = bytes.fromhex(run.fab_hash)
        return Announcer(key, read, str(run.run_id), app, clock.unix)
    except ConfigurationError as error:
        raise SettingsError([_problem(ANNOUNCER_KEY, str(error), error.valid)]) from None
    except ValueError:
        problem = f"Flower says that the app's file is {run.fab_hash!r}"
        raise SettingsError([_problem(ANNOUNCER_KEY, problem, "a SHA-256, 64 digits")]) from None


def _unreadable(path: Path, error: ConfigurationError) -> ConfigurationError:
    return _problem(REGISTRY_KEY, f"{path}: {error.problem}", error.valid)


def _simulated(settings: FlowerSettings, plan: TrainingPlan, run_id: int) -> Places:
    own = simulated_network(settings.path(SIMULATION_KEY), run_id)
    members = named_members(plan)
    clients, hidden = settings.clients(plan), settings.hidden
    rules = rules_of(
        plan,
        block=hidden.block if hidden else None,
        allow_evaluation_in_the_clear=settings.allow_evaluation_in_the_clear,
        allow_queries_in_the_clear=settings.allow_queries_in_the_clear,
        name_refused_clauses=True,
        evaluations=[survey.digest.hex()] if (survey := settings.survey()) else [],
    )
    try:
        if (own / REGISTRY).exists():
            network = known_network(own, clients, rules)
        else:
            network = new_network(own, clients, rules, members)
    except FileExistsError as error:
        problem = f"{own} has this run's clients, created with different settings: {error.filename}"
        valid = "the same settings in each protect call of a ServerApp, with rounds of all together"
        raise SettingsError([_problem(SIMULATION_KEY, problem, valid)]) from None
    except OSError as error:
        problem = f"{error.filename or own}: {error.strerror or 'cannot be written'}"
        valid = "a folder of ours, new or without this run's clients"
        raise SettingsError([_problem(SIMULATION_KEY, problem, valid)]) from None
    ledger = settings.path(LEDGER_KEY) if settings.ledger else own / "ledger.jsonl"
    return Places(ledger, network.registry, network.committee)


def _problem(key: str, problem: str, valid: str) -> ConfigurationError:
    return ConfigurationError(PREFIX + hyphened(key), problem, valid)
