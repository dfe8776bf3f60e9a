"""Local training of many clients: equals a plain loop, whatever the chunk; refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from simulations.learning.data import Dataset, load_digits_dataset
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


@dataclass(frozen=True)
class Case:
    """Clients of very different sizes, some below the batch size, and a small model."""

    task: MlpTask
    start: Vector  # no zero layer, so that every gradient matters
    data: Dataset
    members: Partition

    def parts(
        self, chunk: int, training: LocalTraining = TRAINING, members: Partition | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The updates of these clients or of others, from generator seed 9, by chunks."""
        members = self.members if members is None else members
        source = np.random.default_rng(9)
        given = (self.task, self.start, self.data.train, members, training, source)
        return local_updates(*given, chunk=chunk)

    def updates(self, chunk: int, *given: Any) -> NDArray[np.float32]:
        """All of them."""
        return np.concatenate(list(self.parts(chunk, *given)))


@pytest.fixture(scope="module")
def case() -> Case:
    data, task, source = load_digits_dataset(), MlpTask(hidden=6), np.random.default_rng(2)
    parts = partition_dirichlet(data.train.labels, 120, 0.1, source, minimum=2)[:CLIENTS]
    sizes = [len(part) for part in parts]
    assert min(sizes) < TRAINING.batch_size < max(sizes)
    noise = torch.randn(task.dimension, generator=torch.Generator().manual_seed(5))
    return Case(task, (0.2 * noise).numpy(), data, parts)


def plain_update(case: Case, batches: Batches, client: int) -> NDArray[np.float32]:
    """Train one client with a stateful torch model and torch's own SGD, without padding."""
    parameters = case.task.layout.unflatten(torch.tensor(case.start))
    model = nn.Sequential()
    model.add_module("hidden", nn.Linear(64, parameters["hidden.bias"].numel()))
    model.add_module("activation", nn.Tanh())
    model.add_module("output", nn.Linear(parameters["hidden.bias"].numel(), 10))
    model.load_state_dict(parameters)
    optimizer, train = torch.optim.SGD(model.parameters(), TRAINING.learning_rate), case.data.train
    for indices, weights in zip(batches.indices[client], batches.weights[client], strict=True):
        real = indices[weights > 0]
        images = 2 * torch.tensor(train.inputs[real]) - 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), torch.tensor(train.labels[real]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return case.task.layout.flatten(dict(model.named_parameters())) - case.start


def test_equals_a_sequential_loop(case: Case) -> None:
    updates = case.updates(7)
    batches = draw_batches(case.members, TRAINING, ClientStreams(np.random.default_rng(9)))
    assert updates.shape == (CLIENTS, case.task.dimension) and updates.dtype == np.float32
    for client in range(CLIENTS):
        expected = plain_update(case, batches, client)
        np.testing.assert_allclose(updates[client], expected, rtol=1e-4, atol=1e-5)


def test_yields_one_chunk_at_a_time(case: Case) -> None:
    updates = case.parts(10)
    assert iter(updates) is iter(updates)
    assert [len(part) for part in updates] == [10, 10, 4]


def test_start_is_left_alone(case: Case) -> None:
    before = case.start.copy()
    case.updates(8)
    assert np.array_equal(case.start, before)


def test_same_seed_same_updates_and_no_global_randomness(case: Case) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]
    first = case.updates(8)
    assert np.array_equal(first, case.updates(8))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])


def test_local_training_lowers_a_client_loss(case: Case) -> None:
    update, part, train = case.updates(8)[0], case.members[0], case.data.train
    examples = torch.tensor(train.inputs[part]), torch.tensor(train.labels[part])
    before, after = (
        case.task.loss(torch.tensor(vector), *examples, torch.ones(len(part)))
        for vector in (case.start, case.start + update)
    )
    assert after < before


def test_batches_walk_through_permutations(case: Case) -> None:
    batches = draw_batches(case.members, TRAINING, ClientStreams(np.random.default_rng(1)))
    assert batches.indices.shape == batches.weights.shape == (CLIENTS, 4, 8)
    for client, part in enumerate(case.members):
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


def test_chunk_and_clients_are_checked_before_iteration(case: Case) -> None:
    with pytest.raises(ValueError, match="chunk and clients must be at least 1, got 0 and 24"):
        case.parts(0)
    empty = np.zeros(0, dtype=np.int64)
    for bad in ((), (case.members[0], empty)):
        with pytest.raises(ValueError, match="needs an example"):
            case.parts(8, TRAINING, bad)
