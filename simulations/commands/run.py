"""`veilsum run` and `veilsum sweep`: whole experiments from configuration files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from simulations.commands.places import SchedulerOption, WorkersOption
from simulations.common.failures import kept_so_far
from simulations.common.files import write_whole
from simulations.common.tables import JsonFlag, readable, show_rows

if TYPE_CHECKING:
    from protocol.exchange.ranks import Ranks
    from simulations.learning.configuration import RunConfig
    from simulations.learning.data import Dataset
    from simulations.learning.records import RunSummary
    from simulations.learning.run.callbacks import RunCallback
    from simulations.learning.run.experiment import RunResult

ConfigArgument = Annotated[Path, typer.Argument(help="TOML file; `veilsum init` writes one.")]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets. Default: VEILSUM_DATA_DIR.", exists=False),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="Print neither the forecast nor the live view.")
]


class Tracker(Enum):
    """Where a run can be followed."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


LogOption = Annotated[
    list[Tracker] | None, typer.Option(help="Also send every round there; may be repeated.")
]


def run_command(
    config: ConfigArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run. Default: runs/NAME. An interrupted run is resumed."),
    ] = None,
    data_dir: DataOption = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, to replace a setting of the file; may be repeated."),
    ] = None,
    insecure_seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Research only, protects nobody: all secrets follow from this number, so that the "
            "run can be repeated bit for bit.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check the configuration and print a forecast; run nothing."
        ),
    ] = False,
    log: LogOption = None,
    quiet: QuietOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Run one experiment. If it is interrupted, the same command resumes it."""
    from simulations.common.ranks import joined

    with joined() as ranks:
        if ranks.rank:
            _assist(ranks, data_dir)
            return
        chosen = _chosen(config, change or [], insecure_seed, ranks.size)
        console = Console(stderr=True, quiet=quiet)
        folder = out or Path("runs") / config.stem
        figures: Mapping[str, object] | None
        if dry_run:
            figures = _forecast(chosen, _data(chosen, data_dir), ranks)
        else:
            figures = _finished(folder, chosen, console)
        if figures is None:
            trackers = _trackers(log or [])
            figures = _run(chosen, folder, data_dir, console, ranks, trackers).summary()
        else:
            ranks.broadcast(None)
    if as_json:
        typer.echo(json.dumps(figures))
    elif dry_run or not quiet:
        _show("forecast" if dry_run else "summary", figures)
        if not dry_run:
            _judge(chosen, folder)


def _show(title: str, figures: Mapping[str, object]) -> None:
    from simulations.reports.labels import grouped_table

    Console().print(grouped_table(title, figures))


def _judge(config: RunConfig, folder: Path) -> None:
    """Say what is to be said about a run that is over."""
    from simulations.learning.run.folder import read_rounds
    from simulations.reports.outcome import show_outcome

    show_outcome(Console(), config, read_rounds(folder))


def _chosen(
    config: Path, change: list[str], insecure_seed: int | None, ranks: int = 1
) -> RunConfig:
    from protocol.errors import ConfigurationError
    from protocol.planning.configuration import parse, read
    from simulations.learning.configuration import RunConfig
    from simulations.learning.run.overrides import changed, once, read_change, with_changes

    changes = [read_change(text) for text in change]
    if insecure_seed is not None:
        changes.append(("engine.insecure_seed", insecure_seed))
    changes = once(changes)
    raw = read(config)
    try:
        chosen = changed(parse(raw, RunConfig), changes)
        chosen.check(ranks)
    except ConfigurationError as error:
        from simulations.learning.run.remedy import as_tables, remedy

        wanted = with_changes(raw, changes)
        if mended := remedy(wanted, error, ranks):
            error.add_note(f"with these values it is valid:\n\n{as_tables(wanted, mended)}\n")
        raise
    return chosen


def _trackers(names: Sequence[Tracker]) -> list[RunCallback]:
    """Made before there is a folder: one that is not installed is refused there."""
    if not names:
        return []
    from simulations.learning.run.trackers import tracker

    return [tracker(name.value) for name in names]


def _assist(ranks: Ranks, data_dir: Path | None) -> None:
    """What every rank but the first does: play its share of the clients."""
    from simulations.learning.run.experiment import assist

    config: RunConfig | None = ranks.broadcast(None)
    if config is not None:
        assist(config, _data(config, data_dir), ranks)


def sweep_command(
    config: ConfigArgument,
    choices: Annotated[
        list[str], typer.Option("--set", help="key=value,value,...; several options make a grid.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: runs/NAME-sweep.")
    ] = None,
    data_dir: DataOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    log: LogOption = None,
    quiet: QuietOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Run every point of a grid, each in its own folder. Finished points are not run again.

    Points are run one after another, or several at a time by processes, by a Dask cluster, or by
    the ranks of torchrun. The folder must then be on a file system that all of them share.
    """
    from protocol.planning.configuration import load
    from simulations.common.executors import executor, serve
    from simulations.common.ranks import joined
    from simulations.learning.configuration import RunConfig
    from simulations.learning.run.overrides import changed, grid, named, once, read_choices

    with joined() as ranks:
        if ranks.rank:
            serve(ranks)
            return
        base = load(config, RunConfig)
        points = named(grid(once(map(read_choices, choices))))
        # All of them are checked before the first one is run.
        runs = {name: changed(base, point) for name, point in points.items()}
        folder = out or Path("runs") / f"{config.stem}-sweep"
        console = Console(stderr=True, quiet=quiet)
        _trackers(log or [])  # so that one that is not installed here is refused at once
        with executor(workers, scheduler, ranks) as places:
            if places is None:
                found = _one_by_one(runs, folder, data_dir, console, log or [])
            else:
                found = _by_others(places, runs, folder, data_dir, console, log or [])
    summaries = [
        {**dict(point), **summary} for point, summary in zip(points.values(), found, strict=True)
    ]
    write_whole(folder / "sweep.json", json.dumps(summaries, indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(summaries))
    elif not quiet:
        _compare(summaries, [key for key, _ in next(iter(points.values()))])


def _one_by_one(
    runs: Mapping[str, RunConfig],
    folder: Path,
    data_dir: Path | None,
    console: Console,
    log: Sequence[Tracker],
) -> list[RunSummary]:
    """Run what is missing here, with a live view of every point."""
    summaries = []
    for number, (name, config) in enumerate(runs.items(), 1):
        console.print(f"{number} of {len(runs)}: {name}", highlight=False)
        summary = _finished(folder / name, config, console)
        if summary is None:
            trackers = _trackers(log)
            summary = _run(config, folder / name, data_dir, console, trackers=trackers).summary()
        summaries.append(summary)
    return summaries


def _by_others(
    places: Executor,
    runs: Mapping[str, RunConfig],
    folder: Path,
    data_dir: Path | None,
    console: Console,
    log: Sequence[Tracker],
) -> list[RunSummary]:
    """Hand what is missing to others; a line for every point that is done.

    A point that fails costs no other point: its error is raised when all the others are done.
    """
    from simulations.learning.run.points import Sweep

    with Sweep(folder, data_dir, places, [name.value for name in log]) as sweep:
        for number, name in enumerate(sweep.run(runs), 1):
            console.print(f"{number} of {len(runs)} done: {name}", highlight=False)
        return sweep.summaries


def _run(
    config: RunConfig,
    out: Path,
    data_dir: Path | None,
    console: Console,
    ranks: Ranks | None = None,
    trackers: Sequence[RunCallback] = (),
) -> RunResult:
    from protocol.exchange.ranks import ALONE
    from simulations.learning.run.experiment import run_experiment
    from simulations.learning.run.folder import RunFolder
    from simulations.learning.run.view import LiveView
    from simulations.reports.labels import grouped_table

    ranks = ranks or ALONE
    data = _data(config, data_dir)
    # Made even if nobody sees it: what cannot run here is refused before there is a folder.
    figures = _forecast(config, data, ranks)
    console.print(grouped_table("what this run takes", figures))
    if (chunks := int(str(figures["chunks_of_a_cohort"]))) < ranks.size:
        console.print(
            f"a cohort has {chunks} chunks of clients, and {ranks.size - chunks} of {ranks.size} "
            "ranks have nothing to do: a smaller engine.chunk makes more of them",
            soft_wrap=True,
        )
    with RunFolder(out, config) as folder, kept_so_far():
        ranks.broadcast(config)
        view = LiveView(config, console)
        return run_experiment(config, data, folder, [view, *trackers], ranks)


def _data(config: RunConfig, data_dir: Path | None) -> Dataset:
    from simulations.learning.federated import load_data

    return load_data(config, data_dir)


def _forecast(config: RunConfig, data: Dataset, ranks: Ranks) -> dict[str, object]:
    from simulations.learning.federated import Federation
    from simulations.learning.run.forecast import forecast

    return forecast(config, Federation(config, data), ranks.size)


def _finished(folder: Path, config: RunConfig, console: Console) -> RunSummary | None:
    """The summary of a run that is over, said to be so; None if it is not."""
    from simulations.learning.run.folder import finished

    summary = finished(folder, config)
    if summary is not None:
        console.print(Text(f"{folder} is finished: nothing is run again"), soft_wrap=True)
    return summary


def _compare(summaries: list[dict[str, Any]], keys: list[str]) -> None:
    """Print what came of every point."""
    from simulations.learning.records import spent

    shown = {
        "accuracy": "accuracy",
        "best_accuracy": "best accuracy",
        "compression": "compression",
        "compression_second_half": "second half",
        "bytes_per_client": "bytes per client",
    }
    # Keys as in the names of the points' folders.
    short = (key.rpartition(".")[2] for key in keys)
    heads = (*short, *shown.values(), "epsilon, guaranteed", "spent")
    # Points that an earlier version finished may not have all of it.
    rows = [
        [readable(summary.get(name, "-")) for name in (*keys, *shown)]
        + [
            readable(summary["epsilons"].get("guaranteed", "-")),
            readable(spent(summary["epsilons"])),
        ]
        for summary in summaries
    ]
    title = "sweep"
    if insecure := sum("insecure_seed" in summary for summary in summaries):
        # In the title: a caption is what people cut off.
        title = (
            f"sweep: {insecure} of {len(summaries)} runs have an insecure_seed, and protect nobody"
        )
    show_rows(title, heads, rows)
