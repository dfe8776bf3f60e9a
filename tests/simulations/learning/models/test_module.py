"""A module of one's own: what it computes, what is refused, and that it is never changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from protocol.errors import ConfigurationError
from simulations.learning.models import ModuleTask

pytestmark = pytest.mark.usefixtures("one_thread")


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


INPUTS, LABELS = torch.linspace(-1, 1, 30).reshape(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])


def test_it_computes_what_the_module_computes() -> None:
    module = mlp()
    task = ModuleTask(module)
    vector = task.initial(torch.Generator())
    assert task.dimension == 5 * 4 + 4 + 4 * 3 + 3
    parameters = task.layout.unflatten(torch.tensor(vector))
    torch.testing.assert_close(task.scores(parameters, INPUTS), module(INPUTS))
    expected = cross_entropy(module(INPUTS), LABELS)
    torch.testing.assert_close(
        task.loss(torch.tensor(vector), INPUTS, LABELS, torch.ones(6)), expected
    )
    assert task.classes_of(INPUTS, LABELS) == 3


def test_the_module_stays_as_it_is_and_a_copy_has_the_result() -> None:
    module = mlp()
    before = copy.deepcopy(module.state_dict())
    task = ModuleTask(module)
    trained = task.trained(np.arange(task.dimension, dtype=np.float32))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    flat = task.layout.flatten(dict(trained.named_parameters()))
    assert flat.tolist() == list(range(task.dimension))
    assert not trained.training and module.training


def test_frozen_parameters_and_buffers_stay() -> None:
    module = mlp()
    module[0].requires_grad_(False)
    module.register_buffer("kept", torch.ones(2))
    task = ModuleTask(module)
    assert task.dimension == 4 * 3 + 3
    trained = task.trained(np.zeros(task.dimension, np.float32))
    assert torch.equal(trained[0].weight, module[0].weight) and not trained[2].weight.any()


def test_dropout_is_off() -> None:
    task = ModuleTask(nn.Sequential(nn.Dropout(0.9), nn.Linear(5, 3)))
    parameters = task.layout.unflatten(torch.tensor(task.initial(torch.Generator())))
    assert torch.equal(task.scores(parameters, INPUTS), task.scores(parameters, INPUTS))


class Slow(nn.Module):
    """Gives other threads time between reading one parameter and the next."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(3))
        self.second = nn.Parameter(torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.first
        for _ in range(50):
            inputs = inputs + 0.0
        return inputs[:, :3] * 0.0 + first - self.second


def test_threads_do_not_see_one_another_s_parameters() -> None:
    task = ModuleTask(Slow())

    def differences(value: float) -> float:
        parameters = {name: torch.full((3,), value) for name in ("first", "second")}
        return max(float(task.scores(parameters, INPUTS).abs().max()) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(differences, range(8))) == [0.0] * 8


def test_it_travels() -> None:
    task = ModuleTask(mlp())
    parameters = task.layout.unflatten(torch.tensor(task.initial(torch.Generator())))
    task.scores(parameters, INPUTS)
    copied = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes
    assert torch.equal(copied.scores(parameters, INPUTS), task.scores(parameters, INPUTS))


def test_a_loss_of_one_s_own() -> None:
    def smoothed(scores: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(scores, labels, reduction="none", label_smoothing=0.1)

    task = ModuleTask(mlp(), smoothed)
    vector = torch.tensor(task.initial(torch.Generator()))
    expected = smoothed(mlp()(INPUTS), LABELS).mean()
    torch.testing.assert_close(task.loss(vector, INPUTS, LABELS, torch.ones(6)), expected)
    torch.testing.assert_close(
        task.mean_loss(task.scores(task.layout.unflatten(vector), INPUTS), LABELS), expected
    )


class Unused(nn.Module):
    """Has a layer that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.used(inputs)


def frozen() -> nn.Module:
    return mlp().requires_grad_(False)


def undefined() -> nn.Module:
    module = mlp()
    nn.init.constant_(module[0].weight, float("nan"))
    return module


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: "mlp", "a str; valid: a torch.nn.Module"),
        (frozen, "no parameter requires a gradient"),
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), "model.1: BatchNorm1d keeps"),
        (lambda: nn.LazyLinear(3), "model.weight: no values yet"),
        (lambda: mlp().double(), "model.0.weight: of torch.float64"),
        (undefined, "model.0.weight: not finite"),
    ],
)
def test_modules_that_cannot_be_trained(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ModuleTask(make())


def test_normalisation_without_running_statistics_is_fine() -> None:
    ModuleTask(nn.Sequential(nn.Linear(5, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)))
    ModuleTask(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, track_running_stats=False)))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Linear(7, 3), r"cannot take inputs float32\[6, 5\]: .*shapes"),
        (nn.LSTM(5, 3), "answers with a tuple"),
        (nn.Sequential(nn.Linear(5, 3), nn.Unflatten(1, (3, 1))), r"shape \[6, 3, 1\]"),
        (nn.Linear(5, 1), r"shape \[6, 1\]; valid: .* two classes"),
        (nn.Linear(5, 2), "2 classes for a label 2"),
        (Unused(), "no score depends on spare.weight, spare.bias"),
    ],
)
def test_modules_that_do_not_fit_the_data(module: nn.Module, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ModuleTask(module).classes_of(INPUTS, LABELS)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (cross_entropy, r"shape \[\] for 6 examples; valid: a loss for each example"),
        (lambda scores, _: scores.sum(1) / 0.0, "not finite"),
    ],
)
def test_losses_that_do_not_fit(loss: Callable[[Tensor, Tensor], Tensor], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ModuleTask(mlp(), loss).classes_of(INPUTS, LABELS)
