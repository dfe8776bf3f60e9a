"""Benchmarks of whole rounds and of training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.errors import ConfigurationError
from protocol.round.losses import Stage, stages_of
from protocol.schemes import Pairwise
from secagg import Mode
from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.commands.bench.options import (
    Bits,
    CohortSize,
    Dropout,
    Rate,
    Repeats,
    Trust,
    exit_if_wrong,
    prose,
)
from simulations.common.committees import default_committee, numbers_of
from simulations.common.schemes import (
    AnyScheme,
    AnySchemeOption,
    CommitteeOption,
    Measures,
    SchemeChoice,
    SchemeOption,
    show_schemes,
)
from simulations.common.tables import JsonFlag, readable, show, show_rows

if TYPE_CHECKING:
    from simulations.learning.training import Strategy


class StrategyName(Enum):
    """Ways to train the clients of a chunk."""

    AUTO = "auto"
    VMAP = "vmap"
    LOOP = "loop"


def round_command(
    clients: CohortSize = 100,
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 100_000,
    dropout: Dropout = 0.1,
    bits: Bits = 24,
    mode: Trust = Mode.ACTIVE,
    scheme: AnySchemeOption = AnyScheme.PAIRWISE,
    committee: CommitteeOption = None,
    repeats: Annotated[
        int, typer.Option(help="Times a one-shot server works; the fastest counts.", min=1)
    ] = 1,
    as_json: JsonFlag = False,
) -> None:
    """One round of secure aggregation with real cryptography; exit status 1 if its sum is wrong."""
    from simulations.bench.one_shot_round import bench_one_shot_round
    from simulations.bench.round import bench_round
    from simulations.bench.validated_round import bench_validated_round

    def pairwise() -> Mapping[str, Any]:
        figures = bench_round(clients, dim, dropout, bits, mode)
        if scheme is AnyScheme.PAIRWISE:
            # Scripts read these figures: what is new is printed for the comparison only.
            return {name: value for name, value in figures.items() if "_cpu_" not in name}
        # Nothing is removable here, so nobody is asked to recover seeds.
        stages = set(stages_of(mode)) - {Stage.RECOVER}
        return {**figures, "round_trips": {"client": len(stages)}}

    measures: Measures = {
        "pairwise": pairwise,
        "one-shot": lambda: bench_one_shot_round(
            clients, dim, dropout, bits, numbers_of(committee), repeats
        ),
        "validated": lambda: bench_validated_round(
            clients, 0, dim, *(committee or default_committee())
        ),
    }
    compared = (
        "server_seconds",
        "client_seconds_median",
        "server_cpu_seconds",
        "client_cpu_seconds_median",
        "bytes_per_client",
    )
    for figures in show_schemes("round", scheme, measures, compared, as_json):
        exit_if_wrong(figures)


def validated_command(
    clients: CohortSize = 100,
    cheats: Annotated[int, typer.Option(help="Of them, who send -10 times a vector.", min=0)] = 10,
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 100_000,
    committee: Annotated[
        tuple[int, int, int],
        typer.Option(help="Members, corrupt ones, and honest ones that may be away."),
    ] = (50, 5, 5),
    honest: Annotated[
        int,
        typer.Option(
            help="In place of a round, so many honest uploads of extreme vectors in a small ring.",
            min=0,
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Fixes those uploads.", min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """One validated round, some cheat; status 1 if a cheat is in, or an honest client is not."""
    from simulations.bench.validated_round import bench_validated_round

    if honest:
        from rich.progress import Progress

        from simulations.bench.honest_uploads import bench_honest_uploads

        with Progress(console=prose) as progress:
            task = progress.add_task("uploads", total=honest)
            figures = bench_honest_uploads(honest, seed, lambda: progress.advance(task))
        show("honest uploads", figures, as_json)
        exit_if_wrong(figures)
        return
    if cheats > clients - 2:
        raise ConfigurationError(
            "cheats", f"value {cheats}", f"at most {clients - 2} of {clients} clients"
        )
    figures = bench_validated_round(clients, cheats, dim, *committee)
    show("validated round", figures, as_json)
    exit_if_wrong(figures)


def growth_command(
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 10_000,
    dropout: Dropout = 0.1,
    largest: Annotated[
        int,
        typer.Option(
            help="Largest cohort of the series; 64000 for one more, of one-shot rounds.", min=250
        ),
    ] = 8000,
    mode: Trust = Mode.SEMI_HONEST,
    plot: Annotated[
        Path | None, typer.Option(help="PNG file for the plot of pairwise rounds.")
    ] = None,
    scheme: SchemeOption = SchemeChoice.PAIRWISE,
    committee: CommitteeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Server time per client as cohorts grow from 250 clients; the largest takes minutes."""
    from simulations.bench import growth

    if plot is not None and scheme is SchemeChoice.ONE_SHOT:
        raise typer.BadParameter("shows pairwise rounds only", param_hint="--plot")

    def progress(figures: Mapping[str, Any]) -> None:
        prose.print(f"{figures['clients']} clients: {figures['server_seconds']:.2f} s")

    def sizes(series: tuple[int, ...]) -> list[int]:
        return [size for size in series if size <= largest]

    results: dict[str, Sequence[Mapping[str, Any]]] = {}
    # In this order, because a process never says that its peak of memory has gone down.
    if "one-shot" in scheme.names:
        results["one-shot"] = growth.bench_one_shot_growth(
            sizes(growth.ONE_SHOT_SIZES), dim, dropout, numbers_of(committee), progress
        )
    if "pairwise" in scheme.names:
        pairwise = growth.bench_growth(sizes(growth.SIZES), dim, dropout, mode, progress)
        results["pairwise"] = pairwise
    by_size = {
        name: {str(each["clients"]): each for each in results[name]} for name in scheme.names
    }
    if as_json:
        typer.echo(json.dumps(by_size if len(by_size) > 1 else by_size[scheme.names[0]]))
    else:
        for name, series in by_size.items():
            title = "growth" if scheme is SchemeChoice.PAIRWISE else f"growth, {name}"
            _show_growth(title, name, list(series.values()))
    # Last, so that a file that cannot be written does not cost minutes of figures.
    if plot is not None:
        growth.plot_growth(pairwise, plot)


def _show_growth(title: str, scheme: str, results: Sequence[Mapping[str, Any]]) -> None:
    columns = ["server_seconds", "server_seconds_per_client", "correct"]
    if scheme == Pairwise.KIND:
        columns = ["degree", "threshold", *columns]
    else:
        columns[2:2] = ["server_cpu_seconds_per_client", "ratio_to_first"]
        columns += ["member_seconds_median", "peak_rss_bytes"]
    rows = [
        (str(each["clients"]), *(readable(each[column]) for column in columns)) for each in results
    ]
    show_rows(title, ("clients", *columns), rows)


def controller_command(
    clients: CohortSize = 32,
    dim: Annotated[int, typer.Option(help="Coordinates of an update.", min=100)] = 1 << 20,
    rate: Rate = 64.0,
    repeats: Repeats = 3,
    as_json: JsonFlag = False,
) -> None:
    """What a controller and its second sketch add to the time of a real round."""
    from simulations.bench.controller import bench_controller

    show("controller", bench_controller(clients, dim, rate, repeats), as_json)


def flower_command(
    clients: Annotated[int, typer.Option(help="Size of the cohort.", min=4)] = 50,
    dim: Annotated[int, typer.Option(help="Elements of an update.", min=100)] = 1_000_000,
    lost: Annotated[
        int, typer.Option(help="Clients that share their keys and never upload.", min=0)
    ] = 0,
    rounds: Annotated[int, typer.Option(help="Timed rounds of each system.", min=1)] = 5,
    mode: Annotated[Mode, typer.Option(help="How far our server is trusted.")] = Mode.ACTIVE,
    epsilon: Annotated[float, typer.Option(help="Epsilon of all our rounds together.")] = 8.0,
    exact_noise: Annotated[
        bool, typer.Option(help="Remove the noise that was added for dropouts that did not happen.")
    ] = True,
    rate: Annotated[
        float, typer.Option(help="Compression rate of one more row; 1 leaves the row out.", min=1.0)
    ] = 8.0,
    scheme: SchemeOption = SchemeChoice.BOTH,
    cores: Annotated[
        int | None, typer.Option(help="Processors for Ray. Default: all.", min=1)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Seconds per round on Flower's simulation: plain, ours and Flower's SecAgg+; no training."""
    from simulations.bench.flower import FlowerOrder, bench_flower

    order = FlowerOrder(
        clients=clients,
        dim=dim,
        lost=lost,
        rounds=rounds,
        mode=mode,
        epsilon=epsilon,
        exact_noise=exact_noise,
        rate=rate,
        protocols=scheme.names,
    )
    figures = bench_flower(
        order,
        cores=cores or os.cpu_count() or 1,
        sketched=rate > 1.0,
        progress=prose.print,
    )
    show("flower", figures, as_json)


def simulate_command(
    model: Annotated[
        SimulatedModel, typer.Option(help="What the clients train.")
    ] = SimulatedModel.MLP,
    clients: CohortSize = 64,
    steps: Annotated[int, typer.Option(help="SGD steps per client.", min=1)] = 5,
    batch: Annotated[int, typer.Option(help="Examples per step.", min=1)] = 20,
    strategy: Annotated[
        StrategyName, typer.Option(help="All clients at once, or one after another.")
    ] = StrategyName.AUTO,
    workers: Annotated[
        int | None, typer.Option(help="Threads that train and encode. Default: one per core.")
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Threads of this process, also for the plain loop and pfl.", min=1)
    ] = 1,
    ranks: Annotated[
        str | None,
        typer.Option(
            help="Numbers of ranks, such as 1,2: processes of torchrun with one thread each, "
            "beside as many bare loops of torch. Exit status 1 if they do not release the same sum."
        ),
    ] = None,
    repeats: Repeats = 3,
    peers: Annotated[
        bool, typer.Option(help="Also measure Flower and pfl, if they are installed.")
    ] = True,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST. Default: made-up pixels.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulated training with secure encoding, compared with a plain loop, Flower and pfl."""
    from simulations.bench.simulate.measure import bench_simulate

    order = Order(
        model=model,
        clients=clients,
        steps=steps,
        batch=batch,
        data_dir=None if data_dir is None else str(data_dir),
    )
    if ranks is not None:
        _simulate_on_ranks(order, ranks, strategy.value, repeats, peers, as_json)
        return
    figures = bench_simulate(
        order,
        strategy=strategy.value,
        workers=workers or os.cpu_count() or 1,
        threads=threads,
        repeats=repeats,
        peers=peers,
        progress=prose.print,
    )
    show("simulate", figures, as_json)


def _simulate_on_ranks(
    order: Order, ranks: str, strategy: Strategy, repeats: int, peers: bool, as_json: bool
) -> None:
    from simulations.bench.simulate.ranks import bench_ranks

    try:
        counts = [int(count) for count in ranks.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > order.clients:
        valid = f"numbers from 1 to {order.clients} with commas between, such as 1,2"
        raise ConfigurationError("ranks", f"value {ranks!r}", valid)
    figures = bench_ranks(
        order, counts, strategy=strategy, repeats=repeats, peers=peers, progress=prose.print
    )
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        runs = figures.pop("runs")
        show("simulate", figures, False)
        show_rows("ranks", list(runs[0]), [[*map(readable, run.values())] for run in runs])
    exit_if_wrong(figures)
