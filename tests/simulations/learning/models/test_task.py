"""The model as a vector: stable order, round trips, loss, evaluation, learning."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from simulations.learning.data import Split, load_digits_dataset
from simulations.learning.models import MlpTask, ParameterLayout

pytestmark = pytest.mark.usefixtures("one_thread")


def seeded(seed: int = 0) -> torch.Generator:
    """Return a torch generator."""
    return torch.Generator().manual_seed(seed)


def named() -> dict[str, Tensor]:
    """Return three small parameters in an order that is not sorted."""
    return {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.tensor([10.0, 11.0]),
        "c": torch.tensor(12.0),
    }


def test_flatten_sorts_by_name() -> None:
    layout = ParameterLayout.of(named())
    assert layout.names == ("a", "b", "c")
    assert layout.sizes == (2, 6, 1)
    assert layout.dimension == 9
    vector = layout.flatten(named())
    assert vector.dtype == np.float32
    assert vector.tolist() == [10, 11, 0, 1, 2, 3, 4, 5, 12]


def test_layout_ignores_the_order_of_the_mapping() -> None:
    shuffled = dict(reversed(list(named().items())))
    layout = ParameterLayout.of(named())
    assert ParameterLayout.of(shuffled) == layout
    assert np.array_equal(layout.flatten(shuffled), layout.flatten(named()))


def test_unflatten_inverts_flatten() -> None:
    layout = ParameterLayout.of(named())
    restored = layout.unflatten(torch.tensor(layout.flatten(named())))
    assert list(restored) == ["a", "b", "c"]
    for name, value in named().items():
        assert torch.equal(restored[name], value)


def test_flatten_copies_and_unflatten_shares_memory() -> None:
    parameters = named()
    layout = ParameterLayout.of(parameters)
    vector = layout.flatten(parameters)
    parameters["a"][0] = -1.0
    assert vector[0] == 10.0
    tensor = torch.tensor(vector)
    layout.unflatten(tensor)["a"][0] = 5.0
    assert tensor[0] == 5.0


def test_flatten_converts_other_float_types() -> None:
    parameters = {"a": torch.ones(2, dtype=torch.float64)}
    assert ParameterLayout.of(parameters).flatten(parameters).dtype == np.float32


def test_one_parameter_is_copied_too() -> None:
    parameters = {"a": torch.ones(2)}
    vector = ParameterLayout.of(parameters).flatten(parameters)
    parameters["a"][0] = 3.0
    assert vector.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": torch.zeros(2)},
        {**named(), "d": torch.zeros(1)},
        {**named(), "a": torch.zeros(3)},
        {**named(), "b": torch.zeros(3, 2)},
    ],
)
def test_flatten_refuses_other_parameters(wrong: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="names and shapes"):
        ParameterLayout.of(named()).flatten(wrong)


@pytest.mark.parametrize("shape", [(8,), (10,), (1, 9)])
def test_unflatten_refuses_other_vectors(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected a vector of 9"):
        ParameterLayout.of(named()).unflatten(torch.zeros(shape))


@pytest.mark.parametrize("names", [(), ("b", "a"), ("a", "a")])
def test_layout_refuses_unsorted_names(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        ParameterLayout(tuple((name, (1,)) for name in names))


def test_initial_prediction_is_uniform() -> None:
    task, test = MlpTask(), load_digits_dataset().test
    evaluation = task.evaluate(task.initial(seeded()), test)
    assert evaluation.loss == pytest.approx(math.log(10), rel=1e-5)
    assert evaluation.accuracy == pytest.approx(float((test.labels == 0).mean()))


def test_loss_weighs_examples_and_skips_padding() -> None:
    task, train = MlpTask(hidden=4), load_digits_dataset().train
    vector = torch.randn(task.dimension, generator=seeded(4))
    images, labels = torch.tensor(train.inputs[:3]), torch.tensor(train.labels[:3])
    single = [
        task.loss(vector, images[i : i + 1], labels[i : i + 1], torch.ones(1)) for i in range(3)
    ]
    weighted = task.loss(vector, images, labels, torch.tensor([1.0, 3.0, 0.0]))
    torch.testing.assert_close(weighted, (single[0] + 3 * single[1]) / 4)


def test_evaluate_counts_right_answers() -> None:
    task = MlpTask(features=2, hidden=3, classes=3)
    vector = np.zeros(task.dimension, dtype=np.float32)
    bias = task.layout.unflatten(torch.from_numpy(vector))["output.bias"]
    bias[1] = 1.0
    split = Split(np.zeros((4, 2), dtype=np.float32), np.array([1, 1, 0, 1]))
    assert task.evaluate(vector, split).accuracy == 0.75


def test_evaluate_survives_a_diverged_model() -> None:
    task = MlpTask()
    vector = np.full(task.dimension, np.nan, dtype=np.float32)
    assert math.isnan(task.evaluate(vector, load_digits_dataset().test).loss)


def test_full_batch_descent_learns_the_digits() -> None:
    task, data = MlpTask(), load_digits_dataset()
    images, labels = torch.tensor(data.train.inputs), torch.tensor(data.train.labels)
    vector = torch.tensor(task.initial(seeded())).requires_grad_()
    for _ in range(60):
        loss = task.loss(vector, images, labels, torch.ones(len(labels)))
        (slope,) = torch.autograd.grad(loss, vector)
        vector = (vector - 0.5 * slope).detach().requires_grad_()
    assert task.evaluate(vector.detach().numpy(), data.test).accuracy > 0.9
