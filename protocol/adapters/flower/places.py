"""Where the server's side keeps its books, and, in a simulation, where everybody does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.adapters.flower.folders import new_network, rules_of
from protocol.adapters.flower.home import read_registry, simulated_network
from protocol.adapters.flower.settings import SIMULATION_KEY, FlowerSettings
from protocol.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Places:
    """The server's ledger, and whom it knows."""

    ledger: Path
    registry: frozenset[bytes]


def places_of(settings: FlowerSettings, plan: TrainingPlan, run_id: int) -> Places:
    """The places that the settings name; a simulation's are made here.

    Raises:
        ConfigurationError: a path is missing, relative, or holds no registry.
    """
    if settings.simulation_dir is None:
        return Places(settings.path("ledger"), read_registry(settings.path("registry")))
    own = simulated_network(settings.path(SIMULATION_KEY), run_id)
    clients = settings.simulated_clients or settings.cohort.size
    registry = new_network(own, clients, rules_of(plan))
    return Places(settings.path("ledger") if settings.ledger else own / "ledger.jsonl", registry)
