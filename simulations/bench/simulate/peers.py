"""Flower's simulation and pfl's backend at the same work, each as its own examples use it.

Both are given the same module, the same examples and the same SGD. The first round of each warms
up and is not counted; neither clips, encodes or adds noise.

Source: flwr 1.41, `flwr.simulation.run_simulation` with the Message API; pfl 0.6,
`FederatedAveraging` on `SimulatedBackend`.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.bench.simulate.workload import LEARNING_RATE, plain_module, train_client, workload
from simulations.common.peers import NO_CALLS_HOME

Progress = Callable[[str], None]


def peer_figures(
    order: Order, rounds: int, ours: float, wanted: bool, progress: Progress
) -> dict[str, float | None]:
    """Client updates per second of other simulators, and ours over theirs; None if not measured."""
    figures: dict[str, float | None] = {}
    for name, seconds in (("flower", flower_seconds), ("pfl", pfl_seconds)):
        progress(name)
        taken = seconds(order, rounds) if wanted else None
        rate = None if taken is None else order.clients / taken
        figures[f"{name}_updates_per_second"] = rate
        figures[f"ratio_to_{name}"] = None if rate is None else ours / rate
    return figures


def _installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def flower_seconds(order: Order, rounds: int) -> float | None:
    """Seconds of a round of Flower's simulation on all cores; None without flwr or ray."""
    if not _installed("flwr", "ray"):
        return None
    for name, value in {**NO_CALLS_HOME, "RAY_DEDUP_LOGS": "0"}.items():
        os.environ.setdefault(name, value)
    client_app, server_app = import_module("flwr.clientapp"), import_module("flwr.serverapp")
    client, server, taken = client_app.ClientApp(), server_app.ServerApp(), list[float]()
    client.train()(flower_train)

    def main(grid: Any, context: Any) -> None:
        del context
        app, strategies = import_module("flwr.app"), import_module("flwr.serverapp.strategy")
        strategy = strategies.FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=order.clients
        )
        arrays = app.ArrayRecord(workload(order).module().state_dict())
        config = {**asdict(order), "model": order.model.value, "data_dir": order.data_dir or ""}
        for count in (1, rounds):
            start = time.perf_counter()
            strategy.start(
                grid=grid,
                initial_arrays=arrays,
                num_rounds=count,
                train_config=app.ConfigRecord(config),
            )
            taken.append((time.perf_counter() - start) / count)

    server.main()(main)
    import_module("flwr.simulation").run_simulation(
        server,
        client,
        num_supernodes=order.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"log_to_driver": False, "include_dashboard": False},
        },
    )
    return taken[1]


def flower_train(message: Any, context: Any) -> Any:
    """Train one client inside Flower's worker."""
    app = import_module("flwr.app")
    config = dict(message.content["config"])
    order = Order(
        model=SimulatedModel(config["model"]),
        clients=config["clients"],
        steps=config["steps"],
        batch=config["batch"],
        data_dir=config["data_dir"] or None,
    )
    work = workload(order)
    module = plain_module(order.model, work.classes)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train_client(module, work.client_batches(int(context.node_config["partition-id"])))
    content = app.RecordDict(
        {
            "arrays": app.ArrayRecord(module.state_dict()),
            "metrics": app.MetricRecord({"num-examples": order.steps * order.batch}),
        }
    )
    return app.Message(content=content, reply_to=message)


class _PflModule(nn.Module):
    """A module with the two methods that pfl asks for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy."""
        return nn.functional.cross_entropy(self.module(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        """Return no metrics: nothing is evaluated."""
        del inputs, labels
        return {}


def pfl_seconds(order: Order, rounds: int) -> float | None:
    """Seconds of a round of pfl's backend in this process; None if pfl is not installed."""
    if not _installed("pfl"):
        return None
    model = _pfl_model(order)
    _pfl_rounds(order, model, 1)
    start = time.perf_counter()
    _pfl_rounds(order, model, rounds)
    return (time.perf_counter() - start) / rounds


def _pfl_model(order: Order) -> Any:
    module = _PflModule(workload(order).module())
    return import_module("pfl.model.pytorch").PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )


def _pfl_rounds(order: Order, model: Any, rounds: int) -> None:
    """Run rounds with every client in each."""
    work = workload(order)
    users = {
        client: [torch.cat(parts) for parts in zip(*work.client_batches(client), strict=True)]
        for client in range(order.clients)
    }
    sampler = import_module("pfl.data.sampling").get_user_sampler("minimize_reuse", list(users))
    dataset, federated = (
        import_module("pfl.data.dataset"),
        import_module("pfl.data.federated_dataset"),
    )

    def make(client: int) -> Any:
        return dataset.Dataset(raw_data=users[client], user_id=str(client))

    data = federated.FederatedDataset(make, sampler)
    backend = import_module("pfl.aggregate.simulate").SimulatedBackend(
        training_data=data, val_data=data
    )
    base, hyper = import_module("pfl.algorithm.base"), import_module("pfl.hyperparam.base")
    import_module("pfl.algorithm.federated_averaging").FederatedAveraging().run(
        algorithm_params=base.NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=order.clients,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=hyper.NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=order.batch
        ),
        model_eval_params=hyper.NNEvalHyperParams(local_batch_size=order.batch),
        send_metrics_to_platform=False,
    )
