"""Forward passes that keep what the taps need.

The networks are the Surnames LSTM, the CNN of three blocks, and the perceptron with one hidden
layer.

They say the same as the `scores` of their tasks, which the tests assert; beside the scores, they
return every linear layer with what entered it.

May use torch; must not know data or privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, embedding, linear, unfold

from simulations.learning.example_level.taps import Tap, TokenTap
from simulations.learning.models.convolutional import BlockCnnTask
from simulations.learning.models.dense import MlpTask
from simulations.learning.models.recurrent import LstmClassifierTask
from simulations.learning.models.task import Parameters, centred

Tapped = tuple[Tensor, list[Tap | TokenTap]]
"""Scores float32[n, classes], and the taps of all parameters."""


def tapped_classifier(task: LstmClassifierTask, parameters: Parameters, inputs: Tensor) -> Tapped:
    """Run the recurrent classifier on int64[n, length]."""
    values = embedding(inputs, parameters["embedding"]).requires_grad_()
    taps: list[Tap | TokenTap] = [TokenTap(values, inputs, "embedding", task.vocabulary)]
    for layer in range(task.layers):
        values = _recurrence(task, parameters, f"lstm{layer}", values, taps)
    return _dense(parameters, "output", values[:, -1], taps), taps


def _recurrence(
    task: LstmClassifierTask,
    parameters: Parameters,
    layer: str,
    values: Tensor,
    taps: list[Tap | TokenTap],
) -> Tensor:
    """Run one LSTM layer; return float32[n, length, hidden]."""
    weight, recurrent = parameters[f"{layer}.input"], parameters[f"{layer}.recurrent"]
    # The recurrent part is added to it step by step, so its slope is that of the sum.
    entering = linear(values, weight, parameters[f"{layer}.bias"])
    hidden = values.new_zeros(len(values), task.hidden)
    cell, states = hidden, [hidden]
    for step in entering.unbind(1):
        enter, forget, fresh, leave = (step + linear(hidden, recurrent)).chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * fresh.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    before = torch.stack(states[:-1], dim=1).detach()
    inputs = {f"{layer}.input": values.detach(), f"{layer}.recurrent": before}
    taps.append(Tap(entering, inputs, f"{layer}.bias"))
    return torch.stack(states[1:], dim=1)


def tapped_blocks(task: BlockCnnTask, parameters: Parameters, inputs: Tensor) -> Tapped:
    """Run the convolutional network on images of the task's size."""
    values = task.pixels(inputs)
    taps: list[Tap | TokenTap] = []
    for block in task.blocks:
        values = task.after_convolution(_convolution(parameters, block, values, taps))
    values = values.flatten(1)
    for layer in task.hidden_layers:
        values = _dense(parameters, layer, values, taps).relu()
    return _dense(parameters, "output", values, taps), taps


def tapped_perceptron(task: MlpTask, parameters: Parameters, inputs: Tensor) -> Tapped:
    """Run the perceptron with one hidden layer."""
    taps: list[Tap | TokenTap] = []
    values = _dense(parameters, "hidden", centred(inputs, task.kind).flatten(1), taps).tanh()
    return _dense(parameters, "output", values, taps), taps


def _convolution(
    parameters: Parameters, layer: str, values: Tensor, taps: list[Tap | TokenTap]
) -> Tensor:
    """Convolve without padding; what leaves is seen place by place."""
    weight, bias = parameters[f"{layer}.weight"], parameters[f"{layer}.bias"]
    output = conv2d(values, weight, bias)
    places = _started(output.flatten(2).mT)
    patches = unfold(values.detach(), (weight.shape[2], weight.shape[3])).mT
    taps.append(Tap(places, {f"{layer}.weight": patches}, f"{layer}.bias"))
    return places.mT.reshape(output.shape)


def _dense(
    parameters: Parameters, layer: str, values: Tensor, taps: list[Tap | TokenTap]
) -> Tensor:
    """Apply a dense layer to float32[n, k]."""
    weight, bias = parameters[f"{layer}.weight"], parameters[f"{layer}.bias"]
    output = _started(linear(values, weight, bias))
    taps.append(Tap(output, {f"{layer}.weight": values.detach()}, f"{layer}.bias"))
    return output


def _started(values: Tensor) -> Tensor:
    """Return the values as part of a graph: parameters ask for no gradient, taps do."""
    return values if values.requires_grad else values.requires_grad_()


TAPPED: dict[type, Callable[[Any, Parameters, Tensor], Tapped]] = {
    LstmClassifierTask: tapped_classifier,
    BlockCnnTask: tapped_blocks,
    MlpTask: tapped_perceptron,
}
"""The tasks that have such a forward pass."""
