"""Dense layers trained for all clients at once move each as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from simulations.learning.data import DataKind, Split
from simulations.learning.models import LogisticTask, MlpTask, NgramTask, ReluMlpTask, SvmTask, Task
from simulations.learning.models.dense import DenseTask
from simulations.learning.training import LocalTraining, Strategy, local_updates

pytestmark = pytest.mark.usefixtures("one_thread")

MEMBERS = tuple(np.split(np.random.default_rng(8).permutation(40), [1, 8, 11, 30]))
"""Clients of 1, 7, 3, 19 and 10 examples: whoever takes most steps is not the first."""
# Penalties so large that a few steps show them.
TASKS: dict[str, DenseTask] = {
    "tanh": MlpTask(features=12, hidden=5, classes=4, kind=DataKind.NUMBERS),
    "pixels": MlpTask(features=12, hidden=5, classes=4),
    "relu": ReluMlpTask(features=12, width=6, layers=3, classes=4),
    "softmax": LogisticTask(features=12, classes=4, l2=0.5),
    "logistic": LogisticTask(features=12, l2=0.5),
    "hinge": SvmTask(features=12, l2=0.0),
    "squared hinge": SvmTask(features=12, classes=4, l2=0.5, squared=True),
    "tokens": NgramTask(vocabulary=9, length=3, embedded=4, hidden=5, classes=4),
}
TRAININGS = {
    "steps": LocalTraining(learning_rate=0.2, steps=4, batch_size=4),
    "epochs": LocalTraining(learning_rate=0.2, epochs=2, batch_size=4),
    "single examples": LocalTraining(learning_rate=0.2, steps=3, batch_size=1),
    "all examples": LocalTraining(learning_rate=0.2, steps=3),
    "one step": LocalTraining.fed_sgd(),
}


def updates(
    task: Task, training: LocalTraining, strategy: Strategy, members: tuple[NDArray[np.int64], ...]
) -> NDArray[np.float32]:
    """Updates of these clients from parameters with no zero layer."""
    source = np.random.default_rng(3)
    # Of two classes there is one score.
    two = isinstance(task, LogisticTask | SvmTask) and task.classes == 2
    labels = source.integers(0, 2 if two else 4, 40)
    if isinstance(task, NgramTask):
        # The same token several times in an input, so that its row gets several slopes.
        split = Split(source.integers(0, 9, (40, 3)), labels)
    else:
        split = Split(source.random((40, 3, 4), dtype=np.float32), labels)
    noise = torch.randn(task.dimension, generator=torch.Generator().manual_seed(5))
    rng = np.random.default_rng(9)
    given = (task, (0.5 * noise).numpy(), split, members, training, rng)
    return np.concatenate(list(local_updates(*given, strategy=strategy)))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", TASKS)
def test_written_out_gradients_equal_those_that_torch_derives(name: str, training: str) -> None:
    stacked, alone = (
        updates(TASKS[name], TRAININGS[training], strategy, MEMBERS)
        for strategy in ("vmap", "loop")
    )
    assert np.abs(alone).max(axis=1).min() > 0
    scale = np.abs(alone).max(axis=1, keepdims=True)
    np.testing.assert_array_less(np.abs(stacked - alone) / scale, 3e-6)


@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_an_example_that_does_not_exist_is_refused(strategy: Strategy) -> None:
    with pytest.raises(IndexError, match="40 is out of bounds"):
        updates(TASKS["tanh"], TRAININGS["one step"], strategy, (np.array([40]),))
