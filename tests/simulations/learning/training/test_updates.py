"""Local training of many clients: equals a plain loop, whatever the chunk; refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from simulations.learning.data import DataKind, Dataset, load_digits_dataset
from simulations.learning.models import MlpTask, Vector
from simulations.learning.partition import Partition, partition_dirichlet
from simulations.learning.training import (
    Batches,
    ClientStreams,
    LocalTraining,
    draw_batches,
    local_updates,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CLIENTS = 24
TRAINING = LocalTraining(learning_rate=0.3, steps=4, batch_size=8)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Return the digits."""
    return load_digits_dataset()


@pytest.fixture(scope="module")
def members(data: Dataset) -> Partition:
    """Return clients of very different sizes, some below the batch size."""
    source = np.random.default_rng(2)
    parts = partition_dirichlet(data.train.labels, 120, 0.1, source, minimum=2)[:CLIENTS]
    sizes = [len(part) for part in parts]
    assert min(sizes) < TRAINING.batch_size < max(sizes)
    return parts


@pytest.fixture(scope="module")
def task() -> MlpTask:
    """Return a small model."""
    return MlpTask(hidden=6)


@pytest.fixture(scope="module")
def start(task: MlpTask) -> Vector:
    """Return parameters with no zero layer, so that every gradient matters."""
    noise = torch.randn(task.dimension, generator=torch.Generator().manual_seed(5))
    vector: Vector = (0.2 * noise).numpy()
    return vector


def stacked(
    task: MlpTask,
    start: Vector,
    data: Dataset,
    members: Partition,
    chunk: int,
    training: LocalTraining = TRAINING,
) -> NDArray[np.float32]:
    """Return the updates of all clients, from generator seed 9."""
    source = np.random.default_rng(9)
    return np.concatenate(
        list(local_updates(task, start, data.train, members, training, source, chunk=chunk))
    )


def plain_update(
    task: MlpTask, start: Vector, data: Dataset, batches: Batches, client: int
) -> NDArray[np.float32]:
    """Train one client with a stateful torch model and torch's own SGD, without padding."""
    hidden = task.layout.unflatten(torch.tensor(start))["hidden.bias"].numel()
    model = nn.Sequential()
    model.add_module("hidden", nn.Linear(64, hidden))
    model.add_module("activation", nn.Tanh())
    model.add_module("output", nn.Linear(hidden, 10))
    model.load_state_dict(task.layout.unflatten(torch.tensor(start)))
    optimizer = torch.optim.SGD(model.parameters(), lr=TRAINING.learning_rate)
    for indices, weights in zip(batches.indices[client], batches.weights[client], strict=True):
        real = indices[weights > 0]
        images = 2 * torch.tensor(data.train.inputs[real]) - 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), torch.tensor(data.train.labels[real]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    trained = task.layout.flatten(dict(model.named_parameters()))
    difference: NDArray[np.float32] = trained - start
    return difference


def test_equals_a_sequential_loop(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    updates = stacked(task, start, data, members, chunk=7)
    batches = draw_batches(members, TRAINING, ClientStreams(np.random.default_rng(9)))
    assert updates.shape == (CLIENTS, task.dimension) and updates.dtype == np.float32
    for client in range(CLIENTS):
        expected = plain_update(task, start, data, batches, client)
        np.testing.assert_allclose(updates[client], expected, rtol=1e-4, atol=1e-5)


def test_chunk_changes_nothing(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    whole = stacked(task, start, data, members, chunk=CLIENTS)
    for chunk in (1, 5, 1000):
        parts = stacked(task, start, data, members, chunk=chunk)
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)


def test_yields_one_chunk_at_a_time(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    source = np.random.default_rng(9)
    updates = local_updates(task, start, data.train, members, TRAINING, source, chunk=10)
    assert iter(updates) is iter(updates)
    assert [len(part) for part in updates] == [10, 10, 4]


def test_start_is_left_alone(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    before = start.copy()
    stacked(task, start, data, members, chunk=8)
    assert np.array_equal(start, before)


def test_same_seed_same_updates_and_no_global_randomness(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]
    first = stacked(task, start, data, members, chunk=8)
    assert np.array_equal(first, stacked(task, start, data, members, chunk=8))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])


def test_local_training_lowers_a_client_loss(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    update = stacked(task, start, data, members, chunk=8)[0]
    part = members[0]
    images, labels = (torch.tensor(x[part]) for x in (data.train.inputs, data.train.labels))
    weights = torch.ones(len(part))
    before = task.loss(torch.tensor(start), images, labels, weights)
    after = task.loss(torch.tensor(start + update), images, labels, weights)
    assert after < before


def test_a_diverging_client_stays_visible_and_alone(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    images = data.train.inputs.copy()
    # The task doubles pixels: inf minus inf in the first layer.
    images[members[1]] = np.finfo(np.float32).max
    poisoned = replace(
        data, kind=DataKind.TABULAR, train=replace(data.train, inputs=images, owners=None)
    )
    clean = stacked(task, start, data, members, chunk=8)
    updates = stacked(task, start, poisoned, members, chunk=8)
    assert np.isnan(updates[1]).any()
    others = np.arange(CLIENTS) != 1
    np.testing.assert_allclose(updates[others], clean[others], rtol=1e-4, atol=1e-5)


def test_batches_walk_through_permutations(members: Partition) -> None:
    batches = draw_batches(members, TRAINING, ClientStreams(np.random.default_rng(1)))
    assert batches.indices.shape == batches.weights.shape == (CLIENTS, 4, 8)
    for client, part in enumerate(members):
        used = min(8, len(part))
        assert (batches.weights[client].sum(axis=1) == used).all()
        stream = batches.indices[client][:, :used].reshape(-1)
        for first in range(0, len(stream), len(part)):
            window = stream[first : first + len(part)]
            assert len(set(window.tolist())) == len(window)
            assert set(window.tolist()) <= set(part.tolist())


def test_one_example_each_is_what_drawing_would_give() -> None:
    single = tuple(np.array([place]) for place in (7, 3, 9))
    # A last client with two examples, so that everybody's are drawn.
    mixed = (*single, np.array([1, 2]))
    for training in (LocalTraining.fed_sgd(), LocalTraining.fed_avg(0.1, batch_size=1)):
        quick = draw_batches(single, training, ClientStreams(np.random.default_rng(5)))
        drawn = draw_batches(mixed, training, ClientStreams(np.random.default_rng(5)))
        assert quick.indices.shape == (3, 1, 1)
        np.testing.assert_array_equal(quick.indices, drawn.indices[:3, :1, :1])
        np.testing.assert_array_equal(quick.weights, drawn.weights[:3, :1, :1])
        assert quick.weights.dtype == drawn.weights.dtype
        assert quick.indices.dtype == drawn.indices.dtype


def test_width_is_no_larger_than_the_largest_client() -> None:
    parts = (np.arange(3), np.arange(3, 5))
    training = LocalTraining(learning_rate=1.0, steps=2, batch_size=100)
    batches = draw_batches(parts, training, ClientStreams(np.random.default_rng(0)))
    assert batches.weights.tolist() == [[[1, 1, 1]] * 2, [[1, 1, 0]] * 2]


def test_chunk_and_clients_are_checked_before_iteration(
    task: MlpTask, start: Vector, data: Dataset, members: Partition
) -> None:
    source = np.random.default_rng(0)
    with pytest.raises(ValueError, match="chunk and clients must be at least 1, got 0 and 24"):
        local_updates(task, start, data.train, members, TRAINING, source, chunk=0)
    empty = np.zeros(0, dtype=np.int64)
    for bad in ((), (members[0], empty)):
        with pytest.raises(ValueError, match="needs an example"):
            local_updates(task, start, data.train, bad, TRAINING, source)


@pytest.mark.parametrize(
    ("rate", "steps", "batch"),
    [
        (0.0, 1, 1),
        (-1.0, 1, 1),
        (float("nan"), 1, 1),
        (float("inf"), 1, 1),
        (0.1, 0, 1),
        (0.1, 1, 0),
    ],
)
def test_bad_settings_are_refused(rate: float, steps: int, batch: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        LocalTraining(learning_rate=rate, steps=steps, batch_size=batch)


def test_many_shapes_run_through(task: MlpTask, start: Vector, data: Dataset) -> None:
    for steps, batch, clients in itertools.product((1, 3), (1, 50), (1, 3)):
        training = LocalTraining(learning_rate=0.1, steps=steps, batch_size=batch)
        parts = tuple(np.arange(4 * i, 4 * i + 4) for i in range(clients))
        updates = stacked(task, start, data, parts, 2, training)
        assert updates.shape == (clients, task.dimension)
        assert np.isfinite(updates).all() and np.abs(updates).max() > 0
