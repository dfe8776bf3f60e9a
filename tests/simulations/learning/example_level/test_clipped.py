"""Gradients of single examples: two ways and a plain loop agree, and nobody exceeds the clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dp.errors import NonFiniteUpdateError
from simulations.learning.example_level.clipped import (
    ExampleGradients,
    StackedGradients,
    TappedGradients,
    gradients_of,
)
from simulations.learning.example_level.networks import TAPPED
from simulations.learning.models import BlockCnnTask, LstmClassifierTask, MlpTask, ReluMlpTask, Task

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT = 7
LSTM = LstmClassifierTask(vocabulary=9, embedded=5, hidden=6, classes=4)
TASKS: dict[str, Task] = {
    "lstm": LSTM,
    "two layers": LstmClassifierTask(vocabulary=9, embedded=3, hidden=4, layers=2, classes=3),
    "cnn": BlockCnnTask(channels=1, height=22, width=22, classes=3),
    "mlp": MlpTask(features=6, hidden=4, classes=3),
    "deep": ReluMlpTask(features=6, width=4, classes=3),
}
WAYS = [
    (way, name)
    for name, task in TASKS.items()
    for way in (StackedGradients, TappedGradients)
    if way is StackedGradients or type(task) in TAPPED
]


def examples(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """First parameters away from zero, inputs and labels."""
    rng = np.random.default_rng(1)
    start = task.initial(torch.Generator().manual_seed(1))
    model = start + 0.1 * rng.standard_normal(start.size, dtype=np.float32)
    labels = torch.tensor(rng.integers(0, 3, COUNT))
    if isinstance(task, LstmClassifierTask):
        # Repeated tokens share a row of the embedding.
        inputs = torch.tensor(rng.integers(0, 4, (COUNT, 5)))
    else:
        width = (task.height, task.width) if isinstance(task, BlockCnnTask) else (6,)
        inputs = torch.tensor(rng.random((COUNT, *width), dtype=np.float32))
    return torch.tensor(model), inputs, labels


def one_by_one(task: Task) -> Tensor:
    """Gradients by ordinary backward passes: float32[n, d]."""
    model, inputs, labels = examples(task)
    rows = []
    for i in range(COUNT):
        vector = model.clone().requires_grad_()
        parameters = task.layout.unflatten(vector)
        loss = task.loss_of(parameters, inputs[i : i + 1], labels[i : i + 1], torch.ones(1))
        rows.append(torch.autograd.grad(loss, vector)[0])
    return torch.stack(rows)


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_norms_and_clipped_sums_are_those_of_single_backward_passes(
    way: type[ExampleGradients], name: str
) -> None:
    task = TASKS[name]
    rows, (model, inputs, labels) = one_by_one(task), examples(task)
    norms = rows.norm(dim=1)
    for clip in (None, 0.1 * float(norms.min()), float(norms.median()), 10.0 * float(norms.max())):
        found = way(task).clipped_sum(model, inputs, labels, clip)
        torch.testing.assert_close(found.norms, norms, rtol=1e-4, atol=1e-6)
        factors = torch.ones(COUNT) if clip is None else (clip / norms).clamp(max=1.0)
        torch.testing.assert_close(found.total, factors @ rows, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_an_example_moves_the_sum_by_the_clip_and_no_more(
    way: type[ExampleGradients], name: str
) -> None:
    task = TASKS[name]
    model, inputs, labels = examples(task)
    gradients, clip = way(task, 3), 1e-2
    whole = gradients.clipped_sum(model, inputs, labels, clip).total
    for i in range(COUNT):
        rest = [j for j in range(COUNT) if j != i]
        others = gradients.clipped_sum(model, inputs[rest], labels[rest], clip).total
        assert float((whole - others).norm()) == pytest.approx(clip, rel=1e-3)


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_each_gradient_has_noise_of_its_own_and_is_clipped_again(
    way: type[ExampleGradients], name: str
) -> None:
    rows, (model, inputs, labels) = one_by_one(TASKS[name]), examples(TASKS[name])
    first, again = (torch.Generator().manual_seed(2) for _ in range(2))
    clip = float(rows.norm(dim=1).median())
    for multiplier in (0.0, 1e-3, 2.0):
        gradients = way(TASKS[name], COUNT)
        found = gradients.noised_sum(model, inputs, labels, clip, multiplier, first)
        noise = clip * multiplier * torch.randn(rows.shape, generator=again)
        noised = rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1.0) + noise
        clipped = noised * (clip / noised.norm(dim=1, keepdim=True)).clamp(max=1.0)
        torch.testing.assert_close(found.total, clipped.sum(dim=0), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(found.norms, rows.norm(dim=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_chunks_do_not_matter(way: type[ExampleGradients], name: str) -> None:
    task = TASKS[name]
    model, inputs, labels = examples(task)
    whole = way(task, 64).clipped_sum(model, inputs, labels, 0.5)
    parts = way(task, 2).clipped_sum(model, inputs, labels, 0.5)
    torch.testing.assert_close(whole.total, parts.total, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(whole.norms, parts.norms)


@pytest.mark.parametrize(("way", "name"), WAYS)
def test_an_empty_batch_is_zero(way: type[ExampleGradients], name: str) -> None:
    task = TASKS[name]
    model, inputs, labels = examples(task)
    found = way(task).clipped_sum(model, inputs[:0], labels[:0], 1.0)
    assert not found.total.any() and found.total.shape == (task.dimension,)
    assert found.norms.shape == (0,)


@pytest.mark.parametrize("way", [StackedGradients, TappedGradients], ids=lambda way: way.__name__)
def test_an_example_that_is_not_finite_counts_as_zero(way: type[ExampleGradients]) -> None:
    task = TASKS["cnn"]
    model, inputs, labels = examples(task)
    expected = way(task).clipped_sum(model, inputs[1:], labels[1:], 0.5).total
    inputs[0, 3, 3] = torch.nan
    found = way(task).clipped_sum(model, inputs, labels, 0.5)
    torch.testing.assert_close(found.total, expected)
    assert not torch.isfinite(found.norms[0]) and torch.isfinite(found.norms[1:]).all()
    with pytest.raises(NonFiniteUpdateError, match="not finite"):
        way(task).clipped_sum(model, inputs, labels, None)


def test_the_faster_way_is_chosen() -> None:
    assert isinstance(gradients_of(LSTM), TappedGradients)
    assert isinstance(gradients_of(TASKS["deep"]), StackedGradients)


def test_bad_arguments_are_named() -> None:
    model, inputs, labels = examples(LSTM)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        StackedGradients(LSTM, 0)
    for clip in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"clip must be positive, got {clip}"):
            TappedGradients(LSTM).clipped_sum(model, inputs, labels, clip)
    with pytest.raises(TypeError, match="got ReluMlpTask"):
        TappedGradients(TASKS["deep"])


def test_the_surnames_network_is_that_of_the_thesis() -> None:
    task = LstmClassifierTask()
    sizes = (task.vocabulary, task.embedded, task.hidden, task.layers, task.classes)
    assert sizes == (256, 64, 128, 1, 18) and task.dimension == 117_522
