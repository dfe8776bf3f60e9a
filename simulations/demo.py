"""The demo: federated training of a small network on real digits, with everything switched on.

Real cryptography in every round, lost clients at every stage, binomial noise at a stated epsilon,
a sketch that tunes itself; beside it plain federated averaging on the same clients and batches:
no clipping, no noise, no compression, no cryptography, and a learning rate of its own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dp import FourEpsilons, Ledger
from protocol.aggregators import RealAggregator
from protocol.config import build_plan
from protocol.training import PrivateTraining, RoundResult
from secagg import Identity
from simulations.config import RunConfig, write_config
from simulations.data import load_digits_dataset
from simulations.federated import Federation, Trained
from simulations.figures import RoundRecord, write_figures
from simulations.sources import PlainMean, PrivateMean

COLUMNS = ("round", "correct", "sketch", "rate", "bits", "kB", "left", "eps S", "eps O")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the demo is about, in numbers.

    Attributes:
        rounds: rounds run.
        accuracy: of the private model on the test split after the last round.
        accuracy_baseline: of plain federated averaging: no privacy, no compression, no clipping,
            and a learning rate of its own.
        epsilons: of the busiest client, against a server of the configured mode and its colluders
            and against three other adversaries.
        average_compression: harmonic mean over the rounds, d rounds / sum of sketch sizes.
        bytes_per_client: mean over rounds, sent and received by a surviving client.
        dropped: clients lost over all rounds, at any stage.
        seconds: the whole demo, baseline included.
    """

    rounds: int
    accuracy: float
    accuracy_baseline: float
    epsilons: FourEpsilons
    average_compression: float
    bytes_per_client: float
    dropped: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """JSON values; infinity is the string "inf"."""
        return {**asdict(self), "epsilons": self.epsilons.as_json()}


def run_demo(config: RunConfig, out: Path, console: Console) -> Summary:
    """Run the demo and write its report folder.

    The folder gets `config.toml`, `rounds.jsonl` (one line as each round ends), `ledger.jsonl`,
    `summary.json` and PNG plots. Identities are new in every run, so a ledger from an earlier demo
    in the same folder belongs to other clients: it is kept as `ledger.previous-1.jsonl`, or under
    the next number that is free.

    Args:
        console: for progress and prose.
    """
    start = time.perf_counter()
    # Tensors this small make a second thread wait, and one thread repeats bit for bit.
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    write_config(config, out / "config.toml")
    data = load_digits_dataset()
    baseline = [t.tested.accuracy for t in Federation(config, data).run(PlainMean())]
    federation = Federation(config, data)
    with Ledger.open(_fresh_ledger(out)) as ledger:
        source = _private_source(config, federation.task.dimension, ledger)
        records = _train(config, federation, source, out / "rounds.jsonl", console)
    write_figures(records, out, baseline=baseline)
    epsilons = _last(source).epsilons
    summary = _summarise(config, records, baseline[-1], epsilons, time.perf_counter() - start)
    (out / "summary.json").write_text(json.dumps(summary.as_json(), indent=1) + "\n")
    return summary


def _private_source(config: RunConfig, dimension: int, ledger: Ledger) -> PrivateMean:
    identities = [Identity.generate() for _ in range(config.task.population)]
    plan = build_plan(config.privacy, config.cohort, config.participations)
    aggregator = RealAggregator(identities, plan.client_policy(dimension))
    training = PrivateTraining(
        plan, dimension, config.sketch.build(config.rounds), aggregator, ledger
    )
    return PrivateMean(training, identities)


def _last(source: PrivateMean) -> RoundResult:
    if source.last is None:
        raise RuntimeError("a round ended without a result")
    return source.last


def _train(
    config: RunConfig, federation: Federation, source: PrivateMean, log: Path, console: Console
) -> list[RoundRecord]:
    table = Table(*COLUMNS, title="one row for each round (epsilon: S server, O outsider)")
    for column in table.columns:
        column.justify = "right"
    records = []
    with _progress(console) as progress, log.open("w") as file:
        task = progress.add_task("training", total=config.rounds, note="")
        for trained in federation.run(source):
            record = _record(trained, _last(source))
            records.append(record)
            reason = _last(source).rationale
            line = {**asdict(record), "rationale": reason.words, "figures": dict(reason.numbers)}
            file.write(json.dumps(line) + "\n")
            file.flush()
            table.add_row(*_row(record))
            note = f"accuracy {record.accuracy:.1%}, epsilon {record.epsilon_server:.2f}"
            progress.update(task, advance=1, note=note)
    console.print(table)
    return records


def _record(trained: Trained, result: RoundResult) -> RoundRecord:
    parameters, survivors = result.setup.parameters, result.outcome.total.survivors
    dropouts = sorted(trained.invitation.dropouts.items(), key=lambda item: item[1])
    lost = Counter(str(stage) for index, stage in dropouts if index not in survivors)
    lost_later = Counter(str(stage) for index, stage in dropouts if index in survivors)
    return RoundRecord(
        round=result.number + 1,
        accuracy=trained.tested.accuracy,
        loss=trained.tested.loss,
        sketch_size=parameters.length,
        dimension=parameters.sketch.dimension,
        compression=parameters.sketch.rate,
        bits=result.setup.context.bits,
        bytes_per_client=result.outcome.bytes_per_survivor(),
        cohort=result.setup.context.size,
        survivors=len(survivors),
        epsilon_server=result.epsilons.server,
        epsilon_outsider=result.epsilons.outsider,
        lost=dict(lost),
        lost_later=dict(lost_later),
    )


def _row(record: RoundRecord) -> tuple[str, ...]:
    return (
        str(record.round),
        f"{record.accuracy:.1%}",
        str(record.sketch_size),
        f"{record.compression:.1f}x",
        str(record.bits),
        f"{record.bytes_per_client / 1000:.1f}",
        f"{record.survivors}/{record.cohort}",
        f"{record.epsilon_server:.2f}",
        f"{record.epsilon_outsider:.2f}",
    )


def _summarise(
    config: RunConfig,
    records: list[RoundRecord],
    baseline: float,
    epsilons: FourEpsilons,
    seconds: float,
) -> Summary:
    last = records[-1]
    return Summary(
        rounds=len(records),
        accuracy=last.accuracy,
        accuracy_baseline=baseline,
        epsilons=epsilons,
        average_compression=last.dimension
        * len(records)
        / sum(record.sketch_size for record in records),
        bytes_per_client=sum(record.bytes_per_client for record in records) / len(records),
        dropped=config.lost_per_round * len(records),
        seconds=seconds,
    )


def _fresh_ledger(out: Path) -> Path:
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
