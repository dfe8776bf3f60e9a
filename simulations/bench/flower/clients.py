"""The clients: they add a constant to the model and call it training.

Ray's actors import this module, so it brings in nothing but Flower and what the client needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.adapters.flower import secure_mod
from protocol.adapters.flower.home import HOME_KEY, client_folder, simulated_network
from simulations.bench.flower.order import FlowerOrder
from simulations.common.peers import Peer, load

flower = load("flwr.app", Peer.FLOWER)
ClientApp = load("flwr.clientapp", Peer.FLOWER).ClientApp
NumPyClient: Any = load("flwr.client", Peer.FLOWER).NumPyClient
secaggplus_mod = load("flwr.client.mod", Peer.FLOWER).secaggplus_mod

MODEL, WEIGHTS = "arrays", "weights"
WEIGHT = 1000
"""Of every client, in Flower's own systems. It is SecAgg+'s largest weight: with a smaller one its
integers would be coarser."""

CallNext = Callable[[Any, Any], Any]


class VanishedError(RuntimeError):
    """Raised by clients that are to be lost: Flower answers for them, at once, with an error."""


def moved(order: FlowerOrder, partition: int, weights: NDArray[Any]) -> NDArray[np.float32]:
    """In place of training: float32[d]."""
    if order.vanishes(partition):
        raise VanishedError(f"client {partition} vanishes")
    return (weights + np.float32(order.shift(partition))).astype(np.float32, copy=False)


def plain_client(order: FlowerOrder) -> Any:
    """A client of stock FedAvg."""
    app = ClientApp()
    app.train()(partial(_train, order))
    return app


def our_client(order: FlowerOrder, root: Path) -> Any:
    """The same, behind `secure_mod`."""
    app = ClientApp(mods=[partial(_at_home, root), secure_mod])
    app.train()(partial(_train, order))
    return app


def secaggplus_client(order: FlowerOrder) -> Any:
    """A client of Flower's SecAgg+: the older interface, the only one that it works with."""

    def make(context: Any) -> Any:
        return _Legacy(order, _partition(context)).to_client()

    return ClientApp(client_fn=make, mods=[secaggplus_mod])


def _train(order: FlowerOrder, message: Any, context: Any) -> Any:
    weights = message.content[MODEL][WEIGHTS].numpy()
    content = flower.RecordDict(
        {
            MODEL: flower.ArrayRecord(
                {WEIGHTS: flower.Array(moved(order, _partition(context), weights))}
            ),
            "metrics": flower.MetricRecord({"num-examples": WEIGHT}),
        }
    )
    return flower.Message(content, reply_to=message)


def _at_home(root: Path, message: Any, context: Any, call_next: CallNext) -> Any:
    """Say where a client's folder is: `run_simulation` gives an app no configuration."""
    home = client_folder(simulated_network(root, context.run_id), _partition(context))
    context.node_config[HOME_KEY] = str(home)
    return call_next(message, context)


def _partition(context: Any) -> int:
    return int(context.node_config["partition-id"])


class _Legacy(NumPyClient):  # type: ignore[misc]
    def __init__(self, order: FlowerOrder, partition: int) -> None:
        self._order = order
        self._partition = partition

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """The same constant, and no metrics."""
        return [moved(self._order, self._partition, parameters[0])], WEIGHT, {}
