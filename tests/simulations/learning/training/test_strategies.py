"""Strategies, chunks and executors give the same updates; FedSGD, FedAvg; bounded look-ahead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.func import grad

from simulations.learning.data import DataKind, Split
from simulations.learning.models import CnnTask, DataShape, MlpTask, Task, Vector, build_task
from simulations.learning.training import (
    ClientStreams,
    LocalTraining,
    Strategy,
    chosen_strategy,
    default_chunk,
    draw_batches,
    local_updates,
    training_pool,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CLIENTS = 7
IMAGES = DataShape(kind=DataKind.IMAGE, shape=(16, 16), classes=3)
TEXTS = DataShape(kind=DataKind.TEXT, shape=(6,), classes=7, vocabulary=7)
SHAPES = {
    "mlp": IMAGES,
    "mlp60": IMAGES,
    "svm": IMAGES,
    "logistic": IMAGES,
    "tiny": IMAGES,
    "cnn": IMAGES,
    "lenet5": IMAGES,
    "lstm": TEXTS,
    "lstm_classifier": TEXTS,
}
STEPS = LocalTraining(learning_rate=0.01, steps=3, batch_size=4)
EPOCHS = LocalTraining.fed_avg(0.01, epochs=2, batch_size=4)
SGD = LocalTraining.fed_sgd()


@pytest.fixture(scope="module")
def members() -> tuple[NDArray[np.int64], ...]:
    """Return clients with 1 to 13 examples."""
    bounds = np.cumsum([0, 1, 3, 4, 13, 9, 2, 5])
    return tuple(np.arange(a, b) for a, b in itertools.pairwise(bounds))


def data_for(shape: DataShape) -> Split:
    """Return 37 random examples."""
    rng = np.random.default_rng(3)
    labels = rng.integers(1 if shape.vocabulary else 0, shape.classes, 37)
    if shape.vocabulary:
        return Split(rng.integers(1, shape.vocabulary, (37, *shape.shape)), labels)
    return Split(rng.random((37, *shape.shape), dtype=np.float32), labels)


def start_of(task: Task) -> Vector:
    """Return parameters with no zero layer."""
    noise = torch.randn(task.dimension, generator=torch.Generator().manual_seed(5))
    vector: Vector = task.initial(torch.Generator().manual_seed(4)) + 0.02 * noise.numpy()
    return vector


def updates(
    task: Task,
    split: Split,
    members: tuple[NDArray[np.int64], ...],
    training: LocalTraining,
    *,
    chunk: int | None = None,
    strategy: Strategy = "auto",
    executor: Executor | None = None,
    ahead: int = 4,
) -> NDArray[np.float32]:
    """Return all updates, from generator seed 9."""
    parts = local_updates(
        *(task, start_of(task), split, members, training, np.random.default_rng(9)),
        chunk=chunk,
        strategy=strategy,
        executor=executor,
        ahead=ahead,
    )
    return np.concatenate(list(parts))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("training", [STEPS, EPOCHS, SGD], ids=["steps", "epochs", "sgd"])
def test_strategies_agree(
    name: str, training: LocalTraining, members: tuple[NDArray[np.int64], ...]
) -> None:
    task, split = build_task(name, SHAPES[name]), data_for(SHAPES[name])
    loop = updates(task, split, members, training, strategy="loop")
    stacked = updates(task, split, members, training, strategy="vmap")
    assert loop.shape == (CLIENTS, task.dimension) and loop.dtype == np.float32
    assert np.abs(loop).max(axis=1).min() > 0
    np.testing.assert_allclose(loop, stacked, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
@pytest.mark.parametrize("training", [STEPS, EPOCHS], ids=["steps", "epochs"])
def test_chunk_changes_nothing(
    strategy: Strategy, training: LocalTraining, members: tuple[NDArray[np.int64], ...]
) -> None:
    task, split = build_task("mlp", IMAGES), data_for(IMAGES)
    whole = updates(task, split, members, training, strategy=strategy)
    for chunk in (1, 2, 5, 1000):
        parts = updates(task, split, members, training, strategy=strategy, chunk=chunk)
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-6)
        if strategy == "loop":
            assert np.array_equal(parts, whole)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_runs_repeat_bit_for_bit(name: str, members: tuple[NDArray[np.int64], ...]) -> None:
    task, split = build_task(name, SHAPES[name]), data_for(SHAPES[name])
    first = updates(task, split, members, EPOCHS)
    assert np.array_equal(first, updates(task, split, members, EPOCHS))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("strategy", ["vmap", "loop"])
@pytest.mark.parametrize("name", ["tiny", "mlp"])
def test_threads_change_nothing(
    strategy: Strategy, name: str, members: tuple[NDArray[np.int64], ...]
) -> None:
    task, split = build_task(name, IMAGES), data_for(IMAGES)
    here = updates(task, split, members, STEPS, strategy=strategy, chunk=2)
    with training_pool(3) as pool:
        for ahead in (1, 4):
            there = updates(
                *(task, split, members, STEPS),
                strategy=strategy,
                chunk=2,
                executor=pool,
                ahead=ahead,
            )
            assert np.array_equal(here, there)


@pytest.mark.slow
def test_the_pool_changes_nothing(members: tuple[NDArray[np.int64], ...]) -> None:
    with training_pool(2) as pool:
        for name in ("mlp", "cnn"):
            task, split = build_task(name, SHAPES[name]), data_for(SHAPES[name])
            here = updates(task, split, members, STEPS, chunk=2)
            assert np.array_equal(
                here, updates(task, split, members, STEPS, chunk=2, executor=pool)
            )


class CountingExecutor(Executor):
    """Runs work at once and counts how many chunks were submitted."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_no_more_chunks_are_begun_than_asked_for(members: tuple[NDArray[np.int64], ...]) -> None:
    task, executor = build_task("logistic", IMAGES), CountingExecutor()
    parts: Iterator[object] = local_updates(
        *(task, start_of(task), data_for(IMAGES), members, STEPS, np.random.default_rng(0)),
        chunk=1,
        executor=executor,
        ahead=2,
    )
    assert executor.submitted == 0
    for taken in range(1, 6):
        next(parts)
        assert executor.submitted == taken + 1
    assert len(list(parts)) == 2
    assert executor.submitted == CLIENTS


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_fed_sgd_is_minus_the_gradient(
    strategy: Strategy, members: tuple[NDArray[np.int64], ...]
) -> None:
    task, split = build_task("mlp60", IMAGES), data_for(IMAGES)
    found = updates(task, split, members, SGD, strategy=strategy)
    vector = torch.tensor(start_of(task))
    for update, part in zip(found, members, strict=True):
        inputs, labels = torch.tensor(split.inputs[part]), torch.tensor(split.labels[part])
        slope = grad(task.loss)(vector, inputs, labels, torch.ones(len(part)))
        np.testing.assert_allclose(update, -slope.numpy(), rtol=1e-4, atol=1e-7)


def test_a_single_step_loses_nothing_to_cancellation() -> None:
    """Next to parameters of 1000 an update of 1e-6 would vanish in a difference."""
    task = build_task("logistic", DataShape(kind=DataKind.TABULAR, shape=(1,), classes=2))
    split = Split(np.ones((1, 1), dtype=np.float32), np.ones(1, dtype=np.int64))
    start = np.array([-1000.0, 1000.0], dtype=np.float32)
    training = LocalTraining(learning_rate=1e-6, steps=1)
    for strategy in ("vmap", "loop"):
        (update,) = local_updates(
            *(task, start, split, [np.arange(1)], training, np.random.default_rng(0)),
            strategy=strategy,
        )
        assert update[0, 0] == pytest.approx(5e-7, rel=1e-4)


def test_epochs_walk_through_everything_once_each(members: tuple[NDArray[np.int64], ...]) -> None:
    batches = draw_batches(members, EPOCHS, ClientStreams(np.random.default_rng(1)))
    assert batches.indices.shape == (CLIENTS, 2 * 4, 4)
    for client, part in enumerate(members):
        used = batches.indices[client][batches.weights[client] > 0]
        for walk in used.reshape(2, -1):
            assert sorted(walk.tolist()) == part.tolist()
        steps = batches.weights[client].any(axis=1)
        assert steps.sum() == EPOCHS.steps_of(len(part)) == 2 * -(-len(part) // 4)
        assert (np.diff(steps.astype(int)) <= 0).all()


@pytest.mark.parametrize("bad", [0, 2])
@pytest.mark.parametrize(("strategy", "name"), [("vmap", "mlp"), ("vmap", "tiny"), ("loop", "mlp")])
def test_a_diverged_client_stays_visible_and_alone(
    strategy: Strategy, name: str, bad: int, members: tuple[NDArray[np.int64], ...]
) -> None:
    """Also where the padding of other clients might have been its first example."""
    task, split = build_task(name, IMAGES), data_for(IMAGES)
    poisoned = _Poisoned(split, members[bad])
    clean = updates(task, split, members, EPOCHS, strategy=strategy)
    found = updates(task, poisoned, members, EPOCHS, strategy=strategy)  # type: ignore[arg-type]
    assert np.isnan(found[bad]).any()
    others = np.arange(CLIENTS) != bad
    np.testing.assert_allclose(found[others], clean[others], rtol=1e-4, atol=1e-6)


class _Poisoned:
    """A split with NaN, which a real one would refuse."""

    def __init__(self, split: Split, where: NDArray[np.int64]) -> None:
        self.inputs, self.labels = split.inputs.copy(), split.labels
        self.inputs[where] = np.nan


def test_auto_goes_by_model_and_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    lstm = build_task("lstm", TEXTS)
    assert chosen_strategy("auto", MlpTask(), cpu) == "vmap"
    assert chosen_strategy("auto", MlpTask(features=784, hidden=1280), cpu) == "vmap"
    assert chosen_strategy("auto", CnnTask(), cpu) == "loop"
    assert chosen_strategy("auto", CnnTask(), cuda) == "vmap"
    assert chosen_strategy("auto", lstm, cpu) == chosen_strategy("auto", lstm, cuda) == "loop"
    assert chosen_strategy("vmap", lstm, cpu) == "vmap"
    with pytest.raises(ValueError, match="strategy"):
        chosen_strategy("grouped", lstm, cpu)  # type: ignore[arg-type]


def test_chunks_shrink_with_the_model() -> None:
    assert default_chunk(4810) == 64
    assert default_chunk(1_018_174) == 2
    assert default_chunk(10**9) == 1


@pytest.mark.parametrize(
    "numbers",
    [
        *({}, {"steps": 1, "epochs": 1}, {"epochs": 0}, {"steps": 0}),
        {"steps": 1, "batch_size": 0},
        *({"steps": 1, "learning_rate": rate} for rate in (0.0, -1.0, math.nan, math.inf)),
    ],
)
def test_bad_settings_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LocalTraining(**{"learning_rate": 0.1, **numbers})
