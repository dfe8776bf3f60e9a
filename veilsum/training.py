"""Private training of one's own model in one call, as a simulation in this process."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from protocol.errors import ConfigurationError
from veilsum.extras import install_command

if TYPE_CHECKING:
    from torch import nn

    from simulations.learning.configuration import RunConfig
    from simulations.learning.data import Dataset
    from simulations.learning.models import Loss, ModuleTask
    from simulations.learning.records import Record, RunSummary
    from simulations.learning.run.callbacks import RunCallback

OWN: Final = "own"
"""What stands for data and model in the configuration of such a run."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrivateRun:
    """A finished training.

    Attributes:
        model: a copy of the module with the parameters of the last round, in evaluation mode.
        accuracy: share of the test examples that it labels rightly, in [0, 1].
        loss: mean loss of a test example.
        epsilon: guaranteed to every client over all rounds; None if the run promises none. With
            ``engine.aggregator = "central"``, a simulation, it holds against whoever sees only the
            released models and does not know ``seed``, from which the server's noise follows.
        delta: of that guarantee.
        summary: what the run came to, as `veilsum run --json` prints it.
        records: of the rounds, as in `rounds.jsonl`.
        folder: of the run; None if it was not kept.
    """

    model: nn.Module
    accuracy: float
    loss: float
    epsilon: float | None
    delta: float
    summary: RunSummary
    records: list[Record]
    folder: Path | None

    @property
    def evaluations(self) -> dict[int, dict[str, float | None]]:
        """What clients said of the models, by round; empty without `evaluate_every`.

        Shares of right predictions, `accuracy`, and mean losses, `loss`, each with its standard
        error, of the noise and of the draw of examples, `accuracy_error` and `loss_error`. None is
        what the noise leaves nothing of.
        """
        return {
            record["round"]: record["by_clients"]
            for record in self.records
            if "by_clients" in record
        }

    def __str__(self) -> str:
        """One line for people."""
        promise = "no promise" if self.epsilon is None else f"epsilon {self.epsilon:.3g}"
        return (
            f"{self.accuracy:.1%} of the test examples right after {len(self.records)} rounds, at "
            f"{promise}, delta {self.delta:.0e}"
        )


def private_training(
    model: nn.Module,
    clients: Any,
    *,
    epsilon: float,
    delta: float = 1e-6,
    rounds: int = 20,
    cohort: int | None = None,
    clip_l2: float = 0.5,
    learning_rate: float = 0.1,
    epochs: int = 5,
    batch_size: int = 16,
    server_learning_rate: float = 1.0,
    evaluate_every: int | None = None,
    test: Any = None,
    columns: tuple[str, str] | None = None,
    loss: Loss | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
    callbacks: Sequence[RunCallback] = (),
) -> PrivateRun:
    """Train a classifier on the data of several clients, so that each of them is protected.

    This is a simulation: all clients and the server are in this process. What clients clip,
    compress, round and add as noise is what they would send; the cryptography is left out, which
    changes no sum (``settings={"engine.aggregator": "real"}`` puts it in). It shows what training
    is worth at this epsilon, and protects nobody, since this process has all data.

    Args:
        model: a torch module that maps a batch of inputs to a score for each class. It is copied.
        clients: the examples of each client: pairs (inputs, labels) of arrays or tensors, map-style
            data sets of such pairs or a `DataLoader` over one, or tables with named columns
            (Hugging Face `datasets`); also a `flwr_datasets.FederatedDataset`, or a `Dataset` of
            this package whose owners are the clients. A label is the number of a class, or a row of
            0 and 1 where several classes may apply.
        epsilon: of the promise to every client, over all rounds of this run. Runs on the same
            clients in other folders, or in none, are not counted with it: what they tell adds up.
        delta: of that guarantee; take one well below 1 / clients.
        rounds: how often the server learns a sum.
        cohort: clients of a round, who take turns; all, if left out.
        clip_l2: a client's update is shortened to this length. The noise grows with it; too small
            a value makes training slow.
        learning_rate, epochs, batch_size: of a client's own training in a round, by plain
            stochastic gradient descent.
        server_learning_rate: what the mean update is multiplied with.
        evaluate_every: after so many rounds each, clients evaluate the model privately, on every
            fifth of their examples, which is not trained on. An evaluation is one more round that
            epsilon pays for. Never, if left out.
        test: examples that no client has, in the same form as a client's. If left out, every tenth
            example of each client is held out.
        columns: names of inputs and labels in tables.
        loss: of each example, from scores and labels; cross entropy if left out (binary, with the
            scores as log odds, where several classes may apply).
        folder: where to keep the run. The same call goes on after an interruption, and
            `veilsum report FOLDER` makes a page of it. A temporary one if left out. A folder with
            a ledger and without the clients' identities (`secrets.key`) is refused.
        seed: of what need not be secret: cohorts and batches.
        settings: any other keys of the configuration, such as ``{"sketch.controller": "fixed"}``.
        progress: show the rounds on standard error.
        callbacks: are told of the run as it goes (`simulations.learning.run.RunCallback`); of one
            that is finished already they are not told.

    Raises:
        ConfigurationError: model, data or settings do not fit together; it names what, and what
            would be valid.
        PrivacyError, TooFewSurvivorsError, DivergedError: where the run ends.
        CallbackError: a callback cannot start.
    """
    task, data = _problem(model, clients, test, columns, loss)
    config = _config(
        task,
        data,
        cohort,
        settings or {},
        {
            "seed": seed,
            "rounds": rounds,
            "local": {"learning_rate": learning_rate, "epochs": epochs, "batch_size": batch_size},
            "server": {"learning_rate": server_learning_rate},
            "privacy": {"epsilon": epsilon, "delta": delta, "clip_l2": clip_l2},
            **({} if evaluate_every is None else {"evaluation": {"every": evaluate_every}}),
        },
    )
    with ExitStack() as stack:
        place = folder
        if place is None:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="veilsum-run-"))
        vector, summary, records = _trained(config, data, task, Path(place), progress, callbacks)
    guaranteed = summary["epsilons"].get("guaranteed")
    return PrivateRun(
        model=task.trained(vector),
        accuracy=summary["accuracy"],
        loss=summary["loss"],
        epsilon=None if guaranteed is None else float(guaranteed),
        delta=delta,
        summary=summary,
        records=records,
        folder=None if folder is None else Path(folder),
    )


def _problem(
    model: nn.Module,
    clients: Any,
    test: Any,
    columns: tuple[str, str] | None,
    loss: Loss | None,
) -> tuple[ModuleTask, Dataset]:
    """The model and the data in the form in which runs take them."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "private_training needs torch, which comes with the extra sim: "
            f"{install_command('sim')}",
            name=error.name,
        ) from None
    from simulations.learning.data import Dataset
    from simulations.learning.data.own import own_dataset
    from simulations.learning.models import ModuleTask

    task = ModuleTask(model, loss)
    if isinstance(clients, Dataset):
        given = {"test": test, "columns": columns}
        for name, value in given.items():
            if value is not None:
                raise ConfigurationError(name, "given with a Dataset", "left out: it has them")
        data = clients
        if data.train.owners is None:
            raise ConfigurationError("clients", "a Dataset without owners", "one with owners")
    else:
        data = own_dataset(clients, None, test, columns)
    few = slice(0, 4)
    inputs, labels = data.train.inputs[few], data.train.labels[few]
    classes = task.classes_of(torch.tensor(inputs), torch.tensor(labels))
    if data.classes > classes:
        valid = f"labels below {classes}, the model's number of classes"
        raise ConfigurationError("clients", f"a label {data.classes - 1}", valid)
    return task, data


def _config(
    task: ModuleTask,
    data: Dataset,
    cohort: int | None,
    settings: Mapping[str, Any],
    given: dict[str, Any],
) -> RunConfig:
    """The configuration; with fingerprints, so that a folder knows its data and its model."""
    import numpy as np
    import torch

    from protocol.planning.configuration import parse
    from simulations.learning.configuration import RunConfig
    from simulations.learning.data.own import digest
    from simulations.learning.run.overrides import changed

    if data.train.owners is None:
        raise TypeError("data without owners")
    population = len(np.unique(data.train.owners))
    size = population if cohort is None else cohort
    first = task.initial(torch.Generator())
    raw = {
        **given,
        "task": {
            "data": OWN,
            "model": OWN,
            "clients": "natural",
            "population": population,
            "minimum_examples": 1,
            "data_options": {
                "examples": digest(data),
                "parameters": hashlib.sha256(first.tobytes()).hexdigest(),
            },
        },
        "cohort": {
            "size": size,
            "tolerated_dropouts": size // 10,
            "tolerated_colluders": size // 20,
        },
    }
    return changed(parse(raw, RunConfig), list(settings.items()))


def _trained(
    config: RunConfig,
    data: Dataset,
    task: ModuleTask,
    folder: Path,
    progress: bool,
    callbacks: Sequence[RunCallback],
) -> tuple[Any, RunSummary, list[Record]]:
    """The parameters after the last round, float32[d]; what the run came to; its rounds."""
    from rich.console import Console

    from simulations.common.failures import kept_so_far
    from simulations.learning.run.checkpoint import Checkpoint
    from simulations.learning.run.experiment import run_experiment
    from simulations.learning.run.folder import RunFolder, finished
    from simulations.learning.run.view import LiveView

    console = Console(stderr=True, quiet=not progress)
    summary = finished(folder, config)
    with RunFolder(folder, config) as opened, _own_threads():
        if summary is None:
            with kept_so_far():
                callbacks = [LiveView(config, console), *callbacks]
                summary = run_experiment(config, data, opened, callbacks, task=task).summary()
        checkpoint = Checkpoint.load(opened.checkpoint)
        if checkpoint is None:
            raise ConfigurationError("folder", f"{folder} has no checkpoint", "another folder")
        return checkpoint.state.released, summary, opened.records()


@contextmanager
def _own_threads() -> Iterator[None]:
    """Give torch back the threads of the caller: a run has one for each of its own."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
