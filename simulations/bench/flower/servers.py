"""The three servers, each as its own documentation builds it, round by round."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import Ledger
from protocol.adapters.flower import Patience, SecureGrid
from protocol.adapters.flower.folders import new_network, rules_of
from protocol.adapters.flower.home import simulated_network
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes.pairwise import pairwise_of
from simulations.bench.flower.clients import MODEL, WEIGHTS
from simulations.bench.flower.order import FlowerOrder
from simulations.bench.flower.processors import tree_seconds
from simulations.bench.flower.tally import TallyGrid
from simulations.common.peers import Peer, load
from sketch.controllers import FixedRate

flower = load("flwr.app", Peer.FLOWER)
common = load("flwr.common", Peer.FLOWER)
strategies = load("flwr.serverapp.strategy", Peer.FLOWER)
legacy = load("flwr.server", Peer.FLOWER)
legacy_strategies = load("flwr.server.strategy", Peer.FLOWER)
workflows = load("flwr.server.workflow", Peer.FLOWER)
MAIN_PARAMS_RECORD = load("flwr.server.workflow.constant", Peer.FLOWER).MAIN_PARAMS_RECORD

PATIENCE = Patience(stage=600.0, training=600.0)
"""Nobody is silent here: clients that vanish answer with an error."""


@dataclass
class Rounds:
    """What was seen of the rounds of a system."""

    order: FlowerOrder  # what is measured
    seconds: list[float] = field(default_factory=list)  # of each round, from the first
    # of each round, of all processes of the system
    processor_seconds: list[float] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)  # seconds of each stage, by round
    # what all rounds together added to the model, on average over its coordinates
    moved: float = 0.0
    bytes_down: dict[int, int] = field(default_factory=dict)  # by node, in the last round
    bytes_up: dict[int, int] = field(default_factory=dict)  # the same, from the nodes

    @contextmanager
    def timed(self, grid: TallyGrid) -> Iterator[None]:
        """One round, from before the server chooses clients to after it has the new model."""
        grid.new_round()
        grid.counts = len(self.seconds) == self.order.all_rounds - 1
        worked, start = tree_seconds(os.getpid()), time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)
        self.processor_seconds.append(tree_seconds(os.getpid()) - worked)
        self.stages.append(grid.stages.seconds)
        self.bytes_down, self.bytes_up = dict(grid.bytes_down), dict(grid.bytes_up)


Server = Callable[[Rounds, Any, Any], None]
"""Runs all rounds of an order over Flower's grid, with a run's context."""


def plain(rounds: Rounds, grid: Any, context: Any) -> None:
    """Stock FedAvg, Message API."""
    del context
    _start(rounds, TallyGrid(grid), None, _fedavg(rounds.order))


def ours(
    rounds: Rounds,
    grid: Any,
    context: Any,
    *,
    plan: TrainingPlan,  # of the order
    root: Path,  # for everybody's folders
    rate: float,  # compression, 1 for none
    workers: int,  # threads for unmasking
) -> None:
    """The same strategy over a `SecureGrid`."""
    order, tally, strategy = rounds.order, TallyGrid(grid), _fedavg(rounds.order)
    network = simulated_network(root, context.run_id)
    registry = new_network(network, order.clients, rules_of(plan)).registry
    with (
        ThreadPoolExecutor(workers) as executor,
        SecureGrid(
            tally,
            plan,
            FixedRate(rate),
            Ledger.open(root / "ledger.jsonl"),
            registry,
            strategy=strategy,
            patience=PATIENCE,
            executor=executor,
        ) as secure,
    ):
        _start(rounds, tally, secure, strategy)


def secaggplus(rounds: Rounds, grid: Any, context: Any) -> None:
    """Flower's SecAgg+ around its older FedAvg, on our graph and with our threshold."""
    order, tally = rounds.order, TallyGrid(grid)
    plan = order.plan()
    degree, threshold = pairwise_of(plan).graph(plan)
    secure = workflows.SecAggPlusWorkflow(
        num_shares=degree + 1 if degree else 1.0, reconstruction_threshold=threshold
    )

    def fit(grid: Any, context: Any) -> None:
        with rounds.timed(tally):
            secure(grid, context)

    strategy = legacy_strategies.FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=order.clients,
        min_available_clients=order.clients,
        initial_parameters=common.ndarrays_to_parameters([_zeros(order)]),
    )
    config = legacy.ServerConfig(num_rounds=order.all_rounds)
    held = legacy.LegacyContext(context, config, strategy)
    workflows.DefaultWorkflow(fit_workflow=fit)(tally, held)
    (array,) = held.state.array_records[MAIN_PARAMS_RECORD].values()
    rounds.moved = float(np.mean(array.numpy(), dtype=np.float64))


def _start(rounds: Rounds, tally: TallyGrid, secure: SecureGrid | None, strategy: Any) -> None:
    """All rounds of the Message API: a strategy goes on with the model that it returned."""
    arrays = flower.ArrayRecord({WEIGHTS: flower.Array(_zeros(rounds.order))})
    for _ in range(rounds.order.all_rounds):
        with rounds.timed(tally):
            arrays = strategy.start(
                grid=secure or tally, initial_arrays=arrays, num_rounds=1
            ).arrays
    rounds.moved = float(np.mean(arrays[WEIGHTS].numpy(), dtype=np.float64))


def _fedavg(order: FlowerOrder) -> Any:
    return strategies.FedAvg(
        fraction_evaluate=0.0,
        min_train_nodes=order.clients,
        min_available_nodes=order.clients,
        arrayrecord_key=MODEL,
    )


def _zeros(order: FlowerOrder) -> NDArray[np.float32]:
    return np.zeros(order.dim, np.float32)
