"""The `veilsum` command: reads arguments, runs, prints. `--json` prints one object on standard
output; progress and prose go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp import Adjacency
from protocol.errors import ConfigurationError
from secagg import Mode
from secagg.graph_parameters import Adversary
from simulations.bench.peers import Peer

if TYPE_CHECKING:
    from simulations.config import RunConfig
    from simulations.demo import Summary

app = typer.Typer(
    name="veilsum",
    help="Private sums from an untrusted server, for federated learning.",
    no_args_is_help=True,
    add_completion=False,
)
bench = typer.Typer(help="Measure speed beside its physical limit.", no_args_is_help=True)
app.add_typer(bench, name="bench")

prose = Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
SERVER_IN = {
    "active": "the server may deviate at will",
    "semi_honest": "the server is trusted to follow the protocol and only looks",
}
BitsOption = Annotated[int, typer.Option(help="Bits of a field element, 8 to 62.")]
RepeatsOption = Annotated[int, typer.Option(help="Counted repetitions.", min=1)]


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Report folder.")] = Path("veilsum-demo"),
    config: Annotated[
        Path | None, typer.Option(help="TOML file to use instead of the built-in configuration.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the configuration's seed.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a small network on real digits: real cryptography, dropouts, noise, a tuned sketch."""
    from protocol.config import load
    from simulations.config import RunConfig, demo_config
    from simulations.demo import run_demo

    chosen = load(config, RunConfig) if config else demo_config()
    if seed is not None:
        chosen = chosen.model_copy(update={"seed": seed})
    console = Console(stderr=True, quiet=quiet)
    console.print(
        f"{chosen.task.population} clients, {chosen.cohort.size} of them in each of "
        f"{chosen.rounds} rounds; mode {chosen.cohort.mode}: {SERVER_IN[chosen.cohort.mode]}, "
        f"with {chosen.cohort.tolerated_colluders} colluders; "
        f"{chosen.lost_per_round} clients are lost in every round. One core, about a minute.",
        soft_wrap=True,
    )
    summary = run_demo(chosen, out, console)
    if as_json:
        typer.echo(json.dumps(asdict(summary)))
    elif not quiet:
        explain(chosen, summary, out, console)


@app.command("plan")
def plan_command(
    clients: Annotated[int, typer.Option(help="Size of the cohort.", min=2)],
    corrupt: Annotated[float, typer.Option(help="Share that may work for the server.")] = 0.05,
    dropout: Annotated[float, typer.Option(help="Share that may vanish.")] = 0.05,
    adversary: Annotated[
        Adversary, typer.Option(help="Whether the server may deviate after keys are exchanged.")
    ] = Adversary.SEMI_MALICIOUS,
    graph: Annotated[
        str, typer.Option(help="auto (complete up to 200 clients), sparse or complete.")
    ] = "sparse",
    dim: Annotated[int, typer.Option(help="Elements of a vector, for the bytes.", min=1)] = 100_000,
    bits: BitsOption = 24,
    as_json: JsonFlag = False,
) -> None:
    """What a deployment needs: the graph, its threshold, the bytes of every client."""
    from protocol.plan import plan_graph

    choices = {"auto": None, "sparse": True, "complete": False}
    if graph not in choices:
        raise ConfigurationError("graph", f"value {graph!r}", ", ".join(choices))
    plan = plan_graph(
        clients, corrupt, dropout, adversary, sparse=choices[graph], length=dim, bits=bits
    )
    total = sum(plan.bytes_each.values())
    figures = {
        "clients": clients,
        "adversary": adversary.value,
        "graph": {"degree": plan.degree or clients - 1, "threshold": plan.threshold},
        "colluders": plan.colluders,
        "minimum_survivors": plan.minimum_survivors,
        "bytes_per_client": total,
        "bytes_ratio": total / plan.bytes_each["vector"],
        "bytes_each": plan.bytes_each,
    }
    show("plan", figures, as_json)


@bench.command("growth")
def bench_growth_command(
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 10_000,
    dropout: Annotated[float, typer.Option(help="Share that never uploads.", min=0, max=0.9)] = 0.1,
    largest: Annotated[int, typer.Option(help="Largest cohort of the series.", min=250)] = 8000,
    mode: Annotated[Mode, typer.Option(help="What the server is trusted with.")] = Mode.SEMI_HONEST,
    plot: Annotated[Path | None, typer.Option(help="PNG file for a plot.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Server time for each client as cohorts grow from 250 clients; minutes for the largest."""
    from simulations.bench.growth import SIZES, bench_growth, plot_growth

    sizes = [size for size in SIZES if size <= largest]
    results = bench_growth(
        sizes,
        dim,
        dropout,
        mode,
        lambda figures: prose.print(
            f"{figures['clients']} clients: {float(figures['server_seconds']):.2f} s"
        ),
    )
    figures = {str(each["clients"]): each for each in results}
    if plot is not None:
        plot_growth(results, plot)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    columns = ("degree", "threshold", "server_seconds", "server_seconds_per_client", "correct")
    table = Table("clients", *columns, title="growth")
    for each in results:
        table.add_row(str(each["clients"]), *(readable(each[column]) for column in columns))
    Console().print(table)


@bench.command("faults")
def bench_faults_command(
    schedules: Annotated[int, typer.Option(help="Rounds to run.", min=1)] = 2000,
    rate: Annotated[float, typer.Option(help="Faults for each message.", min=0, max=1)] = 0.05,
    seed: Annotated[int, typer.Option(help="Fixes every schedule.", min=0)] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Rounds on a hostile wire; exit status 1 at a wrong sum or an untyped error."""
    from rich.progress import Progress

    from simulations.bench.faults import run_campaign

    with Progress(console=prose) as progress:
        task = progress.add_task("schedules", total=schedules)
        campaign = run_campaign(schedules, seed, rate, lambda: progress.advance(task))
    figures = {
        "schedules": schedules,
        "seed": seed,
        "rate": rate,
        "outcomes": dict(campaign.outcomes),
        "faults": dict(campaign.faults),
        "refusals": dict(campaign.refusals),
        "failures": {str(number): what for number, what in campaign.failures.items()},
    }
    show("faults", figures, as_json)
    if campaign.failures:
        raise typer.Exit(1)


@bench.command("mask")
def bench_mask_command(
    dim: Annotated[int, typer.Option(help="Elements of the vector.", min=1)] = 1 << 20,
    neighbours: Annotated[int, typer.Option(help="Masks added to it.", min=1)] = 100,
    bits: BitsOption = 32,
    repeats: RepeatsOption = 5,
    peer: Annotated[
        Peer | None, typer.Option(help="Measure another system's masking in the same run.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Mask expansion and addition, beside the bare AES-CTR keystream."""
    from simulations.bench.mask import bench_mask

    show("mask", bench_mask(dim, neighbours, bits, repeats, peer), as_json)


@bench.command("shamir")
def bench_shamir_command(
    secrets: Annotated[int, typer.Option(help="Secrets of 32 bytes.", min=1)] = 1,
    holders: Annotated[int, typer.Option(help="Parties that get a share.", min=1)] = 100,
    threshold: Annotated[int, typer.Option(help="Shares that rebuild a secret.", min=1)] = 51,
    repeats: RepeatsOption = 15,
    as_json: JsonFlag = False,
) -> None:
    """Sharing and rebuilding secrets, beside a bare matrix product; status 1 if one is wrong."""
    from simulations.bench.shamir import bench_shamir

    figures = bench_shamir(secrets, holders, threshold, repeats)
    show("shamir", figures, as_json)
    if not figures["correct"]:
        raise typer.Exit(1)


@bench.command("unmask")
def bench_unmask_command(
    clients: Annotated[int, typer.Option(help="Clients that shared their secrets.", min=2)] = 100,
    dim: Annotated[int, typer.Option(help="Elements of the vector.", min=1)] = 1_000_000,
    dropped: Annotated[int, typer.Option(help="Clients that never uploaded.", min=0)] = 10,
    bits: BitsOption = 24,
    workers: Annotated[int, typer.Option(help="Processes; 1 for none but this.", min=1)] = 1,
    repeats: RepeatsOption = 5,
    as_json: JsonFlag = False,
) -> None:
    """The server's last step, beside the bare keystream of its masks; status 1 if it is wrong."""
    from simulations.bench.unmask import bench_unmask

    figures = bench_unmask(clients, dim, dropped, bits, workers, repeats)
    show("unmask", figures, as_json)
    if not figures["correct"]:
        raise typer.Exit(1)


@bench.command("round")
def bench_round_command(
    clients: Annotated[int, typer.Option(help="Size of the cohort.", min=2)] = 100,
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 100_000,
    dropout: Annotated[float, typer.Option(help="Share that never uploads.", min=0, max=0.9)] = 0.1,
    bits: BitsOption = 24,
    mode: Annotated[Mode, typer.Option(help="What the server is trusted with.")] = Mode.ACTIVE,
    as_json: JsonFlag = False,
) -> None:
    """One round of secure aggregation with real cryptography; exit status 1 if its sum is wrong."""
    from simulations.bench.round import bench_round

    figures = bench_round(clients, dim, dropout, bits, mode)
    show("round", figures, as_json)
    if not figures["correct"]:
        raise typer.Exit(1)


def show(title: str, figures: Mapping[str, Any], as_json: bool) -> None:
    """Print figures as one JSON object, or as a table for people."""
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        table.add_row(name, readable(value))
    Console().print(table)


def explain(config: RunConfig, summary: Summary, out: Path, console: Console) -> None:
    """What the demo showed, in words."""
    table = Table("", "private", "plain averaging", title="after the last round", min_width=60)
    table.add_row("accuracy", f"{summary.accuracy:.1%}", f"{summary.accuracy_baseline:.1%}")
    table.add_row("compression", f"{summary.average_compression:.2f}x", "none")
    table.add_row("epsilon against the server", f"{summary.epsilon_server:.2f}", "infinite")
    table.add_row("epsilon against an outsider", f"{summary.epsilon_outsider:.2f}", "infinite")
    console.print(table)
    console.print(
        f"Plain averaging: no clipping, no noise, no compression, a learning rate of its own. "
        f"delta = {summary.delta:g}; {Adjacency.ZERO_OUT}. No amplification by sampling is "
        f"claimed: the server knows who takes part. A client takes part in at most "
        f"{config.participations} rounds. {summary.dropped} clients were lost on the way, at all "
        f"stages. {summary.bytes_per_client / 1000:.1f} kB for each client and round, all messages "
        f"in both directions. {summary.seconds:.0f} s.\nReport: {out}/ (accuracy.png, sketch.png, "
        f"epsilon.png, clients.png, rounds.jsonl, config.toml, ledger.jsonl, summary.json)",
        soft_wrap=True,
        highlight=False,
    )


def readable(value: object) -> str:
    """A number with separators and four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def main() -> None:
    """Entry point: typed errors become one line on standard error and exit status 2."""
    from dp import PrivacyError
    from protocol.errors import ConfigurationError, PolicyError
    from secagg import ProtocolError

    try:
        app()
    except (ConfigurationError, PolicyError, PrivacyError, ProtocolError) as error:
        reasons = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        text = escape(f"{error}{reasons}")
        prose.print(f"[red]{type(error).__name__}[/red]: {text}", highlight=False)
        sys.exit(2)
