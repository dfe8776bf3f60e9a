"""Inputs from gradients, by one division: of a dense layer, and of a whole round.

The input of a dense layer, the label of the last one, and a malicious model that sorts the pictures
of a round into bins and hands them back. docs/attacks-on-updates.md, "How A23 works", has the
derivations. For several examples the quotient of a layer is their mean, and the smallest entry of
dL/db is the label that occurs most, as long as the model does not know better.

Clipping scales the pictures of one client alike and cancels in the quotient. The malicious layer is
made so small, and the output so steep, that almost all that the clip lets through lies in the
gradients that carry pictures.

Source: Phong et al. 2018 (IEEE TIFS 13(5)), section 3; Geiping et al. 2020 (arXiv 2003.14053),
Proposition 3.1. Labels: Zhao, Mopuri and Bilen 2020 (arXiv 2001.02610), section 3. Bins: Fowl et
al. 2022 (arXiv 2110.13057), "Robbing the Fed", section 4.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from simulations.audits.base import Floats
from simulations.learning.data import Split
from simulations.learning.models import DataShape, ReluMlpTask, Vector
from simulations.threats.inversion.views import named


def row_ratio(weight: Floats, bias: Floats) -> Floats:
    """The layer's input, float64[1, features], as the row with the largest bias gradient has it.

    From dL/dW float64[k, features] and dL/db float64[k]; empty if all of dL/db is zero.
    """
    row = int(np.abs(bias).argmax())
    if bias[row] == 0.0:
        return np.empty((0, weight.shape[1]))
    return np.asarray(weight[row] / bias[row])[None]


def to_pixels(values: Floats) -> Floats:
    """Undo the models' centring: values in [-1, 1] to pixels in [0, 1], cut off beyond."""
    return np.clip((values + 1.0) / 2.0, 0.0, 1.0)


def leaked_label(bias: Floats) -> int:
    """Return the label that dL/db float64[classes] of the last layer speaks for."""
    return int(bias.argmin())


SHRINK: Final = 1e-4
"""How small the first layer is: what it puts out enters the gradient of the second, and is lost."""

NOTHING: Final = 1e-9
"""A bin whose dL/db is at most this share of the largest is taken for empty."""


def imprint_task(shape: DataShape, bins: int) -> ReluMlpTask:
    """An ordinary network with one hidden layer of so many units."""
    return ReluMlpTask(features=shape.features, width=bins, layers=1, classes=shape.classes)


def imprint_model(task: ReluMlpTask, known: Split, seed: int) -> Vector:
    """Malicious parameters float32[d] for pictures like those that are known."""
    rng = np.random.default_rng(seed)
    pixels = 2.0 * known.inputs.reshape(len(known), -1).astype(np.float64) - 1.0
    direction = rng.standard_normal(task.features)
    direction /= (pixels @ direction).std()
    bins = np.quantile(pixels @ direction, np.arange(task.width) / task.width)
    # Each label is as far from the uniform prediction as any other: g_x never vanishes.
    signs = np.where(np.arange(task.classes) % 2, 1.0, -1.0)
    steep = 1.0 / (SHRINK * task.width)
    parameters = {
        "layer0.weight": np.tile(SHRINK * direction, (task.width, 1)),
        "layer0.bias": -SHRINK * bins,
        "layer1.weight": np.tile(steep * signs[:, None], (1, task.width)),
        "layer1.bias": np.zeros(task.classes),
    }
    return task.layout.flatten({name: torch.tensor(value) for name, value in parameters.items()})


def read_bins(task: ReluMlpTask, gradient: Floats) -> Floats:
    """Return what the bins hold as pictures float64[k, pixels], those that are not empty."""
    parameters = named(task, gradient)
    weight, bias = (parameters[name].numpy() for name in ("layer0.weight", "layer0.bias"))
    # The last unit has nobody above it.
    pictures = weight - np.concatenate([weight[1:], np.zeros_like(weight[:1])])
    amounts = bias - np.append(bias[1:], 0.0)
    full = np.abs(amounts) > NOTHING * np.abs(amounts).max()
    return to_pixels(pictures[full] / amounts[full, None])
