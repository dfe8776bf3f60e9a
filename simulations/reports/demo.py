"""The demo: federated training of a small network on real digits, with everything switched on.

Real cryptography in every round, lost clients, binomial noise at a stated epsilon, a sketch that
tunes itself; once more with the other scheme, and beside both plain federated averaging: no
clipping, noise, compression or cryptography, and a learning rate of its own. Clients and batches
are the same in all three.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dp import FourEpsilons, Ledger
from protocol.errors import ConfigurationError
from protocol.planning.configuration import OneShotTable, PairwiseTable, build_plan
from protocol.training.local import local_aggregator
from protocol.training.private import PrivateTraining
from secagg import Identity
from simulations.common.files import named, write_whole
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data import Dataset, load_digits_dataset
from simulations.learning.federated import Federation
from simulations.learning.records import Record, average_rate, number, second_half
from simulations.learning.run.experiment import record_of
from simulations.learning.run.folder import write_environment
from simulations.learning.run.overrides import changed
from simulations.learning.sources import PlainMean, PrivateMean, RecordedSource
from simulations.reports.run import find_runs, write_page
from simulations.reports.run.charts import split_bytes

COLUMNS = (
    "round",
    "right",
    "values\nsent",
    "times\nless",
    "vector\nkB",
    "in all\nkB",
    "in the\nsum",
    "server\nepsilon",
    "outsider\nepsilon",
)
PLAIN: Final = "plain"
"""Folder of the baseline, below that of the demo; that of the other scheme has its name."""
COMMITTEE: Final = {"kind": "named", "size": 16, "corrupt": 2, "away": 1}
"""Who opens one-shot sums beside a demo of pairwise ones."""
PAGE: Final = "report.html"
NOT_RUN: Final = ("local_dp", "powersgd", "clipping", "denoise")
"""Tables of a configuration that the demo has no use for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """What the demo is about, in numbers."""

    rounds: int  # rounds run
    accuracy: float  # of the private model on the test split after the last round
    scheme: str
    other_scheme: str  # the same run with it
    other_accuracy: float
    # of plain federated averaging: no privacy, no compression, no clipping, and a learning rate of
    # its own
    accuracy_baseline: float
    # what is guaranteed against a server of the configured mode and its colluders, and what the
    # busiest client has spent, against them and three other adversaries
    epsilons: FourEpsilons
    average_compression: float  # harmonic mean over the rounds, d rounds / sum of sketch sizes
    compression_second_half: float  # the same of the second half of the rounds
    # mean over rounds, sent and received by a surviving client; the model is not counted
    bytes_per_client: float
    other_bytes_per_client: float
    bytes_baseline: float
    dropped: int  # clients lost over all rounds, at any stage
    seconds: float  # the whole demo, baseline included
    page: str  # the file to look at

    def as_json(self) -> dict[str, object]:
        """JSON values; infinity is the string "inf"."""
        return {**asdict(self), "epsilons": self.epsilons.as_json()}


def run_demo(config: RunConfig, out: Path, console: Console) -> DemoSummary:
    """Run the demo and write its report folder.

    The folder gets what that of a run has (`config.toml`, `environment.json`, `rounds.jsonl` with
    one line as each round ends, `ledger.jsonl`, `summary.json`), that of the baseline below it, and
    a page about both. Identities are new in every run, so a ledger from an earlier demo in the same
    folder belongs to other clients: it is kept as `ledger.previous-1.jsonl`, or under the next
    number that is free.
    """
    start = time.perf_counter()
    for name in NOT_RUN:
        if getattr(config, name) is not None:
            raise ConfigurationError(
                name, "given for the demo", "left out; only veilsum run supports it"
            )
    if config.cohort.choice != "turns":
        valid = "turns; only veilsum run supports it"
        raise ConfigurationError("cohort.choice", f"value {config.cohort.choice!r}", valid)
    if config.engine.insecure_seed is not None:
        raise ConfigurationError(
            "engine.insecure_seed", "given for the demo", "left out; only veilsum run supports it"
        )
    # Tensors this small make a second thread wait, and one thread repeats bit for bit.
    torch.set_num_threads(1)
    data = load_digits_dataset()
    every = ("engine.evaluate_every", 1)
    plain = changed(config, [("engine.aggregator", "plain"), every])
    baseline = list(_rounds(plain, Federation(plain, data), PlainMean(), out / PLAIN))
    private = changed(config, [("engine.aggregator", "real"), every])
    records, epsilons = _private(private, data, out, "", console)
    other = _other_scheme(private)
    name = str(other.scheme.kind)
    others, _ = _private(other, data, out / name, name, console)
    shown = {(out / each).resolve() for each in ("", name, PLAIN)}
    runs = [
        replace(run, name=private.scheme.kind) if run.path.resolve() == out.resolve() else run
        for run in find_runs([out])
        if run.path.resolve() in shown
    ]
    page = write_page(runs, "veilsum demo", out / PAGE)
    summary = DemoSummary(
        rounds=len(records),
        accuracy=number(records[-1]["accuracy"]),
        scheme=private.scheme.kind,
        other_scheme=name,
        other_accuracy=number(others[-1]["accuracy"]),
        accuracy_baseline=number(baseline[-1]["accuracy"]),
        epsilons=epsilons,
        average_compression=average_rate(records),
        compression_second_half=average_rate(second_half(records)),
        bytes_per_client=_mean_bytes(records),
        other_bytes_per_client=_mean_bytes(others),
        bytes_baseline=_mean_bytes(baseline),
        dropped=config.lost_per_round * len(records),
        seconds=time.perf_counter() - start,
        page=str(page),
    )
    write_whole(out / "summary.json", json.dumps(summary.as_json(), indent=1) + "\n")
    return summary


def _private(
    config: RunConfig, data: Dataset, out: Path, name: str, console: Console
) -> tuple[list[Record], FourEpsilons]:
    """One private run; without a name, its rounds are shown as they end."""
    federation = Federation(config, data)
    with Ledger.open(_fresh_ledger(out)) as ledger:
        source = _private_source(config, federation.task.dimension, ledger)
        rounds = _rounds(config, federation, source, out)
        records = _shown(rounds, config.rounds, name, console)
    if source.last is None:
        raise RuntimeError("a round ended without a result")
    return records, source.last.epsilons


def _other_scheme(config: RunConfig) -> RunConfig:
    """The same with one-shot sums in the place of pairwise ones, or the other way round."""
    pairwise = config.scheme.kind == PairwiseTable().kind
    other = OneShotTable.model_validate({"committee": COMMITTEE}) if pairwise else PairwiseTable()
    return config.model_copy(update={"scheme": other})


def _private_source(config: RunConfig, dimension: int, ledger: Ledger) -> PrivateMean:
    identities = [Identity.generate() for _ in range(config.task.population)]
    plan = build_plan(config, config.participations)
    aggregator = local_aggregator(plan, identities, dimension)
    training = PrivateTraining(
        plan, dimension, config.sketch.build(config.rounds), aggregator, ledger
    )
    return PrivateMean(training, identities)


def _rounds(
    config: RunConfig, federation: Federation, source: RecordedSource, folder: Path
) -> Iterator[Record]:
    """Run all rounds and write them down as they end."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config, folder / "config.toml")
    write_environment(folder)
    records = folder / "rounds.jsonl"
    with records.open("w") as file:
        before, start = federation.initial(), time.perf_counter()
        for trained in federation.run(source, before):
            seconds = time.perf_counter() - start
            record = record_of(config, source, trained, before, seconds)
            with named(records):
                file.write(json.dumps(record) + "\n")
                file.flush()
            yield record
            before, start = trained.state, time.perf_counter()


def _shown(rounds: Iterator[Record], total: int, name: str, console: Console) -> list[Record]:
    """Show progress, and without a name a table; give the rounds back."""
    title = "test answers right, what one client sends, epsilon spent so far"
    table = Table(*COLUMNS, title=title, box=SIMPLE_HEAD, collapse_padding=True)
    for column in table.columns:
        column.justify = "right"
    records = []
    with _progress(console) as progress:
        task = progress.add_task(f"the same, {name}" if name else "training", total=total, note="")
        for record in rounds:
            records.append(record)
            table.add_row(*_row(record))
            spent = f"epsilon spent {record['epsilons']['server']:.2f}"
            note = f"accuracy {record['accuracy']:.1%}, {spent}"
            progress.update(task, advance=1, note=note)
    if not name:
        console.print(table)
    return records


def _row(record: Record) -> tuple[str, ...]:
    return (
        str(record["round"]),
        f"{record['accuracy']:.1%}",
        str(record["sketch_size"]),
        f"{record['compression']:.1f}x",
        f"{split_bytes(record)[0] / 1000:.1f}",
        f"{record['bytes_per_client'] / 1000:.1f}",
        f"{record['survivors']}/{record['cohort']}",
        f"{record['epsilons']['server']:.2f}",
        f"{record['epsilons']['outsider']:.2f}",
    )


def _mean_bytes(records: list[Record]) -> float:
    return sum(record["bytes_per_client"] for record in records) / len(records)


def _fresh_ledger(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "ledger.jsonl"
    if path.exists():
        kept = (out / f"ledger.previous-{number}.jsonl" for number in count(1))
        path.replace(next(previous for previous in kept if not previous.exists()))
    return path


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
