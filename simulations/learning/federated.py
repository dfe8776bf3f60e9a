"""A population that learns together: cohorts take turns, some clients get lost, a model moves.

The engine knows nothing of cryptography: it asks a `MeanSource` for the mean update of a cohort.

Whatever is random in a round comes from the run's seed and the round's number alone, so a run can
go on from any round. Updates are made chunk by chunk as they are asked for: memory is that of a
chunk, whatever the size of the cohort.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from protocol.exchange.ranks import ALONE, Ranks
from protocol.round.losses import NOBODY, Dropouts, Stage, stages_of
from secagg import Mode
from simulations.common.compiling import CompileTimer
from simulations.common.failures import DivergedError, RankError
from simulations.common.ranks import device_of
from simulations.learning.attackers import AttackedUpdates, Attackers
from simulations.learning.client_evaluation import ACCURACY, LOSS, Judged, kept_back
from simulations.learning.configuration import RunConfig, Server
from simulations.learning.data import DATASETS, Dataset, Split, load_dataset
from simulations.learning.models import (
    DataShape,
    Evaluation,
    ModelOptions,
    Task,
    Vector,
    build_task,
)
from simulations.learning.partition import (
    Indices,
    Partition,
    check_partition,
    partition_dirichlet,
    partition_iid,
    partition_natural,
    partition_shards,
)
from simulations.learning.server_optimizer import ModelState, optimize
from simulations.learning.training import chunks_of, local_updates, require_device
from simulations.learning.training.division import divide, training_cost


class Purpose(IntEnum):
    """What random numbers are for: each purpose has a stream of its own in every round."""

    PARTITION = 0
    ORDER = 1
    DROPOUTS = 2
    BATCHES = 3
    CENTRAL = 4
    TEST = 5
    COINS = 6


class Updates(Protocol):
    """The updates of a cohort, by index; each is asked for once, in ascending order."""

    @property
    def seconds(self) -> float:
        """How long callers waited for them."""

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of client `index`, float32[d]; valid until a later one is asked for."""


class CohortUpdates:
    """The updates of a cohort, made chunk by chunk; each is asked for once, in ascending order.

    Args:
        chunks: float32[c, d] each, the updates of consecutive clients.
    """

    def __init__(
        self, chunks: Iterator[NDArray[np.float32]], places: Sequence[range] | None = None
    ) -> None:
        self._chunks = chunks
        self._places = None if places is None else iter(places)
        self._place = range(0)
        self._chunk: NDArray[np.float32] = np.empty((0, 0), np.float32)
        self._waited = 0.0

    @property
    def seconds(self) -> float:
        """How long callers waited for updates: what threads made ahead of time is not in it."""
        return self._waited

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of client `index`, float32[d]; valid until a later one is asked for."""
        if index < self._place.start:
            raise ValueError(
                f"update {index} was already computed and dropped; ask in ascending order"
            )
        while index >= self._place.stop:
            start = time.perf_counter()
            following = next(self._chunks, None)
            self._waited += time.perf_counter() - start
            if following is None:
                raise IndexError(f"no client {index} in this cohort")
            last, self._chunk = self._place.stop, following
            after = range(last, last + len(following))
            self._place = after if self._places is None else next(self._places)
        if index < self._place.start:
            raise IndexError(f"client {index} is played by another rank")
        row: NDArray[np.float32] = self._chunk[index - self._place.start]
        return row


@dataclass(frozen=True, slots=True, eq=False)
class Invitation:
    """One round's cohort and fate."""

    number: int  # from 0
    # members of the population, in the order of their indices in the cohort
    clients: tuple[int, ...]
    dropouts: Dropouts  # by index in the cohort
    # what every member would send; where ranks share a cohort, every member of ours
    updates: Updates
    model: Vector  # float32[d], what every member received
    # of the members that this process trains, as ranges of indices, ascending; None for all of
    # them, however they are trained
    chunks: tuple[range, ...] | None = None

    @property
    def own(self) -> Iterable[int]:
        """Indices of the members that this process trains, ascending."""
        if self.chunks is None:
            return range(len(self.clients))
        return chain.from_iterable(self.chunks)


class MeanSource(Protocol):
    """Turns a cohort's updates into their mean; they are in `simulations.learning.sources`."""

    def mean(self, invitation: Invitation) -> NDArray[np.float64]:
        """float64[d]; raises what the protocol raises."""

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """The server's learning rate for this kind of mean."""


@runtime_checkable
class EvaluatedSource(Protocol):
    """A source whose clients can also be asked how good a model is."""

    def evaluate(self, invitation: Invitation, judged: Callable[[int], Judged]) -> None:
        """Ask a cohort, by its indices, about the model after its round; told as a fact of it."""


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Where the time of a round went."""

    training: float  # until updates were there, as far as the round had to wait for them
    # all else from the first update to the released mean: encoding, the protocol's messages, adding
    # up, decoding
    aggregation: float
    test: float  # of the new model; 0 in rounds without one
    # what aggregation waited for beside that, once on a machine: machine code
    compiling: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The model after a round, how good it is (None in rounds without a test), and its time."""

    invitation: Invitation
    state: ModelState
    evaluation: Evaluation | None
    seconds: StageSeconds
    # share of marked test examples that get the label that attackers want; None without a backdoor
    backdoor: float | None = None

    @property
    def model(self) -> Vector:
        """The model after the last round, float32[d]."""
        return self.state.model

    @property
    def tested(self) -> Evaluation:
        """The evaluation of a round that has one."""
        if self.evaluation is None:
            raise ValueError(f"round {self.invitation.number + 1} was not tested")
        return self.evaluation


class Federation:
    """A task, a population with its data, and a schedule; the same for every `MeanSource`."""

    def __init__(
        self,
        config: RunConfig,  # of the run
        data: Dataset,  # train and test splits
        executor: Executor | None = None,  # optional; trains clients, in threads for instance
        ranks: Ranks = ALONE,  # among which every cohort is divided
        task: Task | None = None,
    ) -> None:
        config.check(ranks.size)
        self._ranks = ranks
        self._hidden = config.cohort.choice == "allocation"
        self._device = device_of(ranks, config.engine.device)
        require_device(self._device)
        self._config = config
        self._data = data
        self._executor = executor
        if task is None:
            options = ModelOptions(hidden=config.task.hidden, l2=config.task.l2)
            task = build_task(config.task.model, DataShape.of(data), options)
        self.task = task
        self._local = config.local.build()
        self._attackers = Attackers(config)
        self._test, self._marked = self._test_split(), None
        self._train = data.train
        self.members, self._kept_back = kept_back(self._partition(), config.evaluation)
        if self._attackers.plant:
            mark = float(data.train.inputs.max())
            self._marked = self._attackers.marked(self._test, mark)
            self._train, self.members = self._attackers.poisoned(self._train, self.members, mark)
        self._order = self._rng(Purpose.ORDER).permutation(config.task.population)

    def initial(self) -> ModelState:
        """Before the first round."""
        generator = torch.Generator().manual_seed(self._config.seed)
        return ModelState.initial(self.task.initial(generator))

    def run(
        self, source: MeanSource, state: ModelState | None = None, number: int = 0
    ) -> Iterator[Trained]:
        """Yield the model after each round."""
        state = self.initial() if state is None else state
        for now in range(number, self._config.rounds):
            trained = self.round(source, state, now)
            yield trained
            state = trained.state

    def round(self, source: MeanSource, state: ModelState, number: int) -> Trained:
        """One round, from the invitation to the test."""
        config = self._config
        start = time.perf_counter()
        invitation = self.invite(number, state.model)
        invited = time.perf_counter()
        compiler = CompileTimer()
        with compiler.listening():
            mean = source.mean(invitation)
        released = time.perf_counter()
        training = invited - start + invitation.updates.seconds
        aggregation = released - invited - invitation.updates.seconds
        # Other threads may compile while this one waits for updates.
        compiling = min(compiler.seconds, max(aggregation, 0.0))
        aggregation -= compiling
        rate = source.rate(config.server, number, config.rounds)
        after = optimize(config.server, state, mean, rate)
        if not np.isfinite(after.model).all():
            raise DivergedError(number, math.nan)
        if config.server.averages(number, config.rounds):
            after = after.with_average()
        self._agree(number, after.model)
        if config.evaluates(number) and isinstance(source, EvaluatedSource):
            source.evaluate(invitation, partial(self._judged, invitation, after.released))
        last = number == config.rounds - 1
        if not last and (number + 1) % config.engine.evaluate_every:
            spent = StageSeconds(training, aggregation, 0.0, compiling)
            return Trained(invitation, after, None, spent)
        begin = time.perf_counter()
        evaluation = self.task.evaluate(
            after.released, self._test, executor=self._executor, ranks=self._ranks
        )
        if not math.isfinite(evaluation.loss):
            raise DivergedError(number, evaluation.loss)
        backdoor = None
        if self._marked is not None:
            fooled = self.task.evaluate(after.released, self._marked, executor=self._executor)
            backdoor = fooled.accuracy
        testing = time.perf_counter() - begin
        spent = StageSeconds(training, aggregation, testing, compiling)
        return Trained(invitation, after, evaluation, spent, backdoor)

    def invite(self, number: int, model: Vector) -> Invitation:
        """The cohort of a round, and what becomes of it."""
        engine, clients = self._config.engine, self._cohort(number)
        members = [self.members[client] for client in clients]
        chunks = self._divided(members)
        updates = local_updates(
            self.task,
            model,
            self._train,
            members,
            self._local,
            self._rng(Purpose.BATCHES, number),
            strategy=engine.strategy,
            device=self._device,
            executor=self._executor,
            only=chunks,
        )
        made: Updates = CohortUpdates(updates, chunks)
        if self._attackers.clients:
            made = AttackedUpdates(made, self._attackers, clients)
        lost = self._lose(number, clients)
        return Invitation(number, clients, lost, made, model, tuple(chunks))

    def _cohort(self, number: int) -> tuple[int, ...]:
        """Cohorts slide over a fixed random order, so nobody is invited more often than needed.

        Or every client comes in that round of a block that its own coin says.
        """
        size, population = self._config.cohort.size, len(self._order)
        if self._hidden:
            block, turn = divmod(number, self._config.block)
            coins = self._rng(Purpose.COINS, block).integers(self._config.block, size=population)
            return tuple(int(client) for client in np.flatnonzero(coins == turn))
        positions = (np.arange(size) + number * size) % population
        return tuple(int(client) for client in self._order[positions])

    def _judged(self, invitation: Invitation, model: Vector, index: int) -> Judged:
        """What a client of a cohort finds of a model, on examples that it has not trained on."""
        examples = self._kept_back[invitation.clients[index]]
        right, losses = self.task.judged(model, self._train, examples)
        bound = self._config.evaluation.loss_bound if self._config.evaluation else math.inf
        return {ACCURACY: right.tolist(), LOSS: np.minimum(losses, bound).tolist()}

    @property
    def chunks(self) -> list[range]:
        """The chunks of every cohort, as ranges of indices; one rank trains each."""
        return self._chunks(self._config.cohort.size)

    def _chunks(self, clients: int) -> list[range]:
        return chunks_of(clients, self.task.dimension, self._config.engine.chunk)

    def _divided(self, members: Sequence[Indices]) -> list[range]:
        """The chunks of a cohort that this process trains."""
        chunks = self._chunks(len(members))
        if self._ranks.size > 1:
            costs = [training_cost(members[c.start : c.stop], self._local) for c in chunks]
            chunks = [chunks[place] for place in divide(costs, self._ranks.size)[self._ranks.rank]]
        self._ranks.take(index for chunk in chunks for index in chunk)
        return chunks

    def _agree(self, number: int, model: Vector) -> None:
        """See that all ranks have the same model: they compute it each for themselves."""
        if self._ranks.size == 1:
            return
        digests = self._ranks.gather(model_digest(model))
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if others:
            raise RankError(
                f"after round {number + 1} rank {others[0]} has another model than rank 0: give "
                "all of them the same processors and the same versions of all packages"
            )

    def _lose(self, number: int, clients: tuple[int, ...]) -> Dropouts:
        """A fixed number of clients; the stages take turns over the rounds, so all occur.

        Of a hidden cohort everybody by itself: who comes must not change who else is lost.
        """
        size, lost = self._config.cohort.size, self._config.lost_per_round
        share = self._config.faults.dropout
        if not (share if self._hidden else lost):
            return NOBODY
        # Nothing is asked for in the last stage, so nobody can fail to send it.
        stages = [s for s in stages_of(Mode(self._config.scheme.mode)) if s is not Stage.RECOVER]
        if self._hidden:
            fates = self._rng(Purpose.DROPOUTS, number).random((len(self._order), 2))
            taken = (fates[:, 1] * len(stages)).astype(int)
            return {i: stages[taken[c]] for i, c in enumerate(clients) if fates[c, 0] < share}
        chosen = self._rng(Purpose.DROPOUTS, number).choice(size, lost, replace=False)
        return {int(c): stages[(number * lost + i) % len(stages)] for i, c in enumerate(chosen)}

    def _rng(self, purpose: Purpose, number: int = 0) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, purpose, number])

    def _test_split(self) -> Split:
        """All of the test examples, or as many as wished for, the same in every round."""
        test, wanted = self._data.test, self._config.engine.test_examples
        if wanted is None or wanted >= len(test):
            return test
        chosen = np.sort(self._rng(Purpose.TEST).choice(len(test), wanted, replace=False))
        return Split(test.inputs[chosen], test.labels[chosen])

    def _partition(self) -> Partition:
        task = self._config.task
        labels, rng = self._data.train.labels, self._rng(Purpose.PARTITION)
        least, count = task.minimum_examples, task.population
        if labels.ndim > 1 and task.clients in ("dirichlet", "shards"):
            value = f"{task.clients}, which divides by label, for several labels of an example"
            raise ConfigurationError("task.clients", value, "natural or iid")
        try:
            if task.clients == "natural":
                everybody = partition_natural(self._data.train.owners, minimum=least)
                if count > len(everybody):
                    raise ValueError(
                        f"{len(everybody)} natural clients have at least {least} examples"
                    )
                chosen = rng.choice(len(everybody), count, replace=False)
                parts = tuple(everybody[i] for i in sorted(chosen))
            elif task.clients == "shards":
                parts = partition_shards(labels, count, task.shards_each, rng)
            elif task.clients == "iid":
                parts = partition_iid(len(labels), count, rng, minimum=least)
            else:
                parts = partition_dirichlet(labels, count, task.dirichlet_alpha, rng, minimum=least)
            check_partition(parts, cohort=self._config.cohort.size)
        except ValueError as error:
            raise ConfigurationError("task.population", f"value {count}", str(error)) from None
        return parts


def load_data(config: RunConfig, data_dir: Path | None = None) -> Dataset:
    """The data set of a run."""
    if config.task.data not in DATASETS:
        raise ConfigurationError(
            "task.data", f"unknown data set {config.task.data!r}", ", ".join(DATASETS)
        )
    options: dict[str, Any] = dict(config.task.data_options)
    if config.task.clients == "natural" and config.task.data == "mnist":
        options.setdefault("writers", True)
    return load_dataset(config.task.data, data_dir, **options)


def model_digest(model: Vector) -> bytes:
    """SHA-256 of the little-endian float32 bytes of a model: what clients bind into the round."""
    return hashlib.sha256(np.ascontiguousarray(model, "<f4").tobytes()).digest()
