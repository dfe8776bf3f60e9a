"""One experiment from a configuration to its last round, in a folder that survives a crash.

The order of a round: the ledger is charged, the sum is released, the checkpoint with the round's
record is replaced, the record is appended. A run that was killed between any two of these is
continued there: the round is run again with the same secrets and releases the same values, at no
further cost (`protocol.training.records.Charge`), or its record is taken from the checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from protocol.exchange.ranks import ALONE, Ranks
from simulations.common.files import write_whole
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.federated import Federation, Trained
from simulations.learning.insecure import protects
from simulations.learning.models import Task
from simulations.learning.records import Record as Record
from simulations.learning.records import RunSummary, average_rate, number, second_half
from simulations.learning.run.assembly import source_of
from simulations.learning.run.callbacks import RunCallback, telling
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.run.folder import RunFolder, other_seed
from simulations.learning.run.scratch import scratch_folder, share_state
from simulations.learning.run.secrets import RunSecrets
from simulations.learning.server_optimizer import ModelState
from simulations.learning.sources import RecordedSource
from simulations.learning.training import training_pool


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes:
        records: of all rounds, also of those before an interruption.
        resumed: rounds that were finished before this call.
        seconds: of this call.
    """

    records: list[Record]
    resumed: int
    seconds: float
    path: Path

    def summary(self) -> RunSummary:
        """What the run came to, as JSON values."""
        last = self.records[-1]
        tested = [r for r in self.records if r["accuracy"] is not None]
        summary: RunSummary = {
            "rounds": len(self.records),
            "accuracy": number(tested[-1]["accuracy"]),
            "best_accuracy": max(number(r["accuracy"]) for r in tested),
            "loss": number(tested[-1]["loss"]),
            "bytes_per_client": _mean([r["bytes_per_client"] for r in self.records]),
            "compression": average_rate(self.records),
            "compression_second_half": average_rate(second_half(self.records)),
            "epsilons": last["epsilons"],
            "seconds_training_and_encoding": _mean([r["seconds"] for r in self.records])
            * len(self.records),
            "resumed_after": self.resumed,
            "folder": str(self.path),
        }
        if (seed := last.get("insecure_seed")) is not None:
            summary["insecure_seed"], summary["protects"] = seed, protects(seed)
        return summary


def run_experiment(
    config: RunConfig,
    data: Dataset,
    folder: RunFolder,
    callbacks: Sequence[RunCallback] = (),
    ranks: Ranks = ALONE,
    task: Task | None = None,
) -> RunResult:
    """Run an experiment, or what is left of it.

    Args:
        data: that the configuration names.
        folder: open, of this configuration.
        callbacks: are told of the run as it goes; what they raise costs no round.
        ranks: this one, rank 0, and those that call `assist` at the same time.
        task: a model of one's own, on this rank alone.

    Raises:
        ConfigurationError: the folder is damaged, or data and configuration do not fit.
        BudgetExceededError, LedgerError, TooFewSurvivorsError, DivergedError, RankError: where the
            run ends; the folder holds all rounds before.
        CallbackError: a callback cannot start.
    """
    start = time.perf_counter()
    if ranks.size > 1 and config.engine.aggregator in ("real", "ideal", "local"):
        # Made now, so that all ranks have the same secrets.
        RunSecrets.open(folder.key, config.engine.insecure_seed)
    checkpoint = Checkpoint.load(folder.checkpoint)
    if checkpoint is not None:
        _require_same_seed(checkpoint.record, config)
    records = folder.restore(checkpoint.record if checkpoint else None)
    share_state(ranks, folder)
    done = len(records)
    with telling(callbacks, config, folder.path, tuple(records)) as observers, ExitStack() as stack:
        federation, source = _opened(config, data, folder, checkpoint, stack, ranks, task)
        for trained, before, seconds in _rounds(config, federation, source, checkpoint):
            record = record_of(config, source, trained, before, seconds)
            number, state = trained.invitation.number + 1, source.state
            Checkpoint(number, trained.state, state, record, source.arrays).save(folder.checkpoint)
            folder.append(record)
            records.append(record)
            observers.round(record)
        result = RunResult(records, done, time.perf_counter() - start, folder.path)
        summary = result.summary()
        write_whole(folder.summary, json.dumps(summary, indent=1).encode() + b"\n")
        observers.summary = summary
        # Nothing has to be released again from now on.
        folder.key.unlink(missing_ok=True)
    return result


def assist(config: RunConfig, data: Dataset, ranks: Ranks) -> None:
    """Run the same rounds as rank 0 and keep nothing: what every other rank does."""
    with ExitStack() as stack:
        # Gone before the first round: it has secrets, and a rank that is killed cleans up nothing.
        with scratch_folder(ranks, config) as folder:
            checkpoint = Checkpoint.load(folder.checkpoint)
            federation, source = _opened(config, data, folder, checkpoint, stack, ranks)
        for _ in _rounds(config, federation, source, checkpoint):
            pass


def _opened(
    config: RunConfig,
    data: Dataset,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    stack: ExitStack,
    ranks: Ranks,
    task: Task | None = None,
) -> tuple[Federation, RecordedSource]:
    """What trains, and what turns updates into means; the stack closes them."""
    if config.engine.device == "cpu":
        # One core for each thread of the pool, or they would wait for one another.
        torch.set_num_threads(1)
    executor = stack.enter_context(training_pool(config.engine.threads))
    federation = Federation(config, data, executor, ranks, task)
    layout = federation.task.layout
    return federation, source_of(config, layout, folder, checkpoint, stack, executor, ranks)


def _rounds(
    config: RunConfig, federation: Federation, source: RecordedSource, checkpoint: Checkpoint | None
) -> Iterator[tuple[Trained, ModelState, float]]:
    """Yield each round, the state before it, and its seconds."""
    state = checkpoint.state if checkpoint else federation.initial()
    for now in range(checkpoint.number if checkpoint else 0, config.rounds):
        start = time.perf_counter()
        trained = federation.round(source, state, now)
        yield trained, state, time.perf_counter() - start
        state = trained.state


def record_of(
    config: RunConfig,
    source: RecordedSource,
    trained: Trained,
    before: ModelState,  # the model's state before it
    seconds: float,  # of the whole round
) -> Record:
    """What is kept of a round that a source has just run."""
    invitation, evaluation = trained.invitation, trained.evaluation
    record: Record = {
        "round": invitation.number + 1,
        "accuracy": None if evaluation is None else evaluation.accuracy,
        "loss": None if evaluation is None else evaluation.loss,
        "seconds": seconds,
        "stages": asdict(trained.seconds),
        "cohort": len(invitation.clients),
        "step": float(np.linalg.norm(trained.model.astype(np.float64) - before.model)),
        **source.facts(invitation),
    }
    if trained.backdoor is not None:
        record["backdoor"] = trained.backdoor
    if config.engine.insecure_seed is not None:
        record["insecure_seed"] = config.engine.insecure_seed
    return record


def _require_same_seed(last: Record, config: RunConfig) -> None:
    """See that a run goes on with the insecure seed, or with none, that it was begun with.

    The folder holds its configuration against ours; this holds even where somebody edited that.
    """
    seed, begun = config.engine.insecure_seed, last.get("insecure_seed")
    if seed != begun:
        raise other_seed(seed, begun)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
