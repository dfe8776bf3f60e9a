"""`veilsum bench simulate`: client updates per second of simulated training."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simulations.tables import show


class ModelName(Enum):
    """Models that can be chosen; `simulations.bench.workload`, without its imports."""

    LOGISTIC = "logistic"
    MLP = "mlp"
    MLP60 = "mlp60"
    TINY = "tiny"
    LENET5 = "lenet5"
    CNN = "cnn"


class StrategyName(Enum):
    """Ways to train the clients of a chunk."""

    AUTO = "auto"
    VMAP = "vmap"
    LOOP = "loop"


def simulate_command(
    model: Annotated[ModelName, typer.Option(help="What the clients train.")] = ModelName.MLP,
    clients: Annotated[int, typer.Option(help="Size of the cohort.", min=2)] = 64,
    steps: Annotated[int, typer.Option(help="SGD steps of a client.", min=1)] = 5,
    batch: Annotated[int, typer.Option(help="Examples of a step.", min=1)] = 20,
    strategy: Annotated[
        StrategyName, typer.Option(help="All clients at once, or one after another.")
    ] = StrategyName.AUTO,
    workers: Annotated[
        int | None, typer.Option(help="Threads that train and encode; all cores if left out.")
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Of this process, for the plain loop and pfl too.", min=1)
    ] = 1,
    repeats: Annotated[int, typer.Option(help="Counted repetitions.", min=1)] = 3,
    peers: Annotated[
        bool, typer.Option(help="Measure Flower and pfl too, where they are installed.")
    ] = True,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST; made-up pixels if left out.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """Simulated training with secure encoding, beside a plain loop, Flower and pfl."""
    from simulations.bench.simulate import bench_simulate
    from simulations.bench.workload import Order, SimulatedModel

    order = Order(
        model=SimulatedModel(model.value),
        clients=clients,
        steps=steps,
        batch=batch,
        data_dir=None if data_dir is None else str(data_dir),
    )
    figures = bench_simulate(
        order,
        strategy=strategy.value,
        workers=workers or os.cpu_count() or 1,
        threads=threads,
        repeats=repeats,
        peers=peers,
        progress=Console(stderr=True).print,
    )
    show("simulate", figures, as_json)
