"""`veilsum demo`: options, and what is said before and after; `simulations.reports.demo` runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from simulations.common.tables import JsonFlag

if TYPE_CHECKING:
    from simulations.learning.configuration import RunConfig
    from simulations.reports.demo import DemoSummary

SERVER_IN = {
    "active": "the server may deviate at will",
    "semi_honest": "the server is trusted to follow the protocol, and only looks at what it sees",
}


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("veilsum-demo"),
    config: Annotated[
        Path | None, typer.Option(help="TOML file to use instead of the built-in configuration.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the configuration's seed.")] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print neither progress nor the table.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a small network on real digits: real cryptography, dropouts, noise, a tuned sketch."""
    from protocol.planning.configuration import load
    from simulations.learning.configuration import RunConfig, demo_config
    from simulations.reports.demo import run_demo
    from simulations.reports.outcome import show_outcome
    from simulations.reports.run import read_run

    chosen = load(config, RunConfig) if config else demo_config()
    if seed is not None:
        chosen = chosen.model_copy(update={"seed": seed})
    console = Console(stderr=True, quiet=quiet)
    console.print(
        f"{chosen.task.population} clients, {chosen.cohort.size} of them in each of "
        f"{chosen.rounds} rounds; mode {chosen.scheme.mode}: {SERVER_IN[chosen.scheme.mode]}, with "
        f"{chosen.cohort.tolerated_colluders} colluders; {chosen.lost_per_round} clients drop out "
        "of every round." + ("" if config else " It takes about a minute on two cores."),
        soft_wrap=True,
    )
    summary = run_demo(chosen, out, console)
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    elif not quiet:
        _explain(chosen, summary, console)
        run = read_run(out)
        show_outcome(console, run.config, run.records)
        console.print(
            f"Report: {summary.page}, a page for any browser; its data are in the same folder.",
            soft_wrap=True,
            highlight=False,
        )


def _explain(config: RunConfig, summary: DemoSummary, console: Console) -> None:
    """What the demo showed, in words."""
    schemes = (f"private, {summary.scheme}", f"private, {summary.other_scheme}")
    table = Table("", *schemes, "plain averaging", title="after the last round", box=SIMPLE_HEAD)
    accuracies = (summary.accuracy, summary.other_accuracy, summary.accuracy_baseline)
    table.add_row("accuracy", *(f"{each:.1%}" for each in accuracies))
    sizes = (summary.bytes_per_client, summary.other_bytes_per_client, summary.bytes_baseline)
    table.add_row("kB each round", *(f"{each / 1000:.1f}" for each in sizes))
    guaranteed = f"{summary.epsilons.guaranteed:.2f}"
    table.add_row("epsilon", guaranteed, guaranteed, "inf")
    console.print(table)
    console.print(
        "kB: all messages of a client in a round, both ways, without the model. The update is "
        f"compressed {summary.average_compression:.1f} times on average, "
        f"{summary.compression_second_half:.1f} times in the second half of the rounds. "
        f"Pairwise: every client answers in every stage. One-shot: a client uploads once, and "
        "the members of a committee open the sum. Plain averaging: no clipping, "
        f"noise or compression, and a learning rate of its own.\n"
        f"delta = {summary.epsilons.delta:g}; {summary.epsilons.adjacency}. No amplification by "
        f"sampling is claimed: the server knows who takes part. A client takes part in at most "
        f"{config.participations} rounds. {summary.dropped} times a client dropped out of a round. "
        f"{summary.seconds:.0f} s.",
        soft_wrap=True,
        highlight=False,
    )
