"""The cells of the campaign: runs of the federated engine, and the bytes of the real protocol.

The distributed sum is the ideal one: the integers of the real protocol without its messages, whose
bytes are added from the deployment's plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from simulations.campaigns.federated import data_of, run_of
from simulations.campaigns.seeds import rng_of
from simulations.campaigns.tuning import split_off
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset, Split

VALIDATION: Final = 1 / 3  # share of the test records on which figures are chosen, and nothing else
_STREAM = 7  # tells the choice of records apart from the engine's own streams of a seed


def run(config: RunConfig, trial: bool) -> dict[str, Any]:
    """Run a configuration with one record for each client."""
    data = data_of(config)
    # Not a part of the training records: nearly all of them have a client.
    tried, tested = split_off(data.test, VALIDATION)
    data = one_each(data, config.task.population, config.seed)
    last = run_of(config, replace(data, test=tried if trial else tested)).last
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
