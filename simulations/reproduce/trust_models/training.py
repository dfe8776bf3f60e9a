"""The cells of the campaign: runs of the federated engine, and the bytes of the real protocol.

The distributed sum is the ideal one: the integers of the real protocol without its messages, whose
bytes are added from the deployment's plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset, Split
from simulations.reproduce.engine.federated import data_of, run_of
from simulations.reproduce.engine.seeds import rng_of

_STREAM = 7  # tells the choice of records apart from the engine's own streams of a seed


def run(config: RunConfig) -> dict[str, Any]:
    """Run a configuration with one record for each client."""
    last = run_of(config, one_each(data_of(config), config.task.population, config.seed)).last
    return {
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        "parameters": last["dimension"],
        "sketch_size": last["sketch_size"],
        "bytes": last["bytes_per_client"],
        "epsilon_server": last["epsilons"]["server"],
        "epsilon_outsider": last["epsilons"].get("outsider", "inf"),
    }


def one_each(data: Dataset, clients: int, seed: int) -> Dataset:
    """Return the data with as many training records as there are clients, chosen by the seed."""
    train = data.train
    if clients > len(train):
        raise ValueError(f"{clients} clients with one record each, but {len(train)} records")
    chosen = rng_of(seed, _STREAM).permutation(len(train))[:clients]
    return replace(data, train=Split(train.inputs[chosen], train.labels[chosen]))
