"""A residual network for images: 110 layers, or fewer for tests.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, group_norm, linear

from simulations.learning.models.convolutional import ImageTask
from simulations.learning.models.task import Parameters

WIDTHS: Final = (16, 32, 64)
"""Channels of the three stages; each halves the image but the first."""

_GROUP: Final = 8
_LAST_DEVIATION: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class ResidualTask(ImageTask):
    """Three stages of residual blocks; with 18 blocks each, 1,722,224 parameters (ResNet-110).

    Convolution 3x3 to 16; blocks of two convolutions 3x3 with normalisation and ReLU, the first of
    a later stage with stride 2; the mean over places; dense classes. sqSGD gives the count and no
    details. ResNet-110 as published has 1,727,674 for one colour; without weights in the
    normalisation, with projections 1x1 with biases where the width changes, and without a bias in
    the last layer the count is exactly sqSGD's: a reconstruction, not a quotation.

    Normalisation is over groups of 8 channels of one image, where the published network uses the
    batch: an update shall depend on an image whichever company it is in, and an evaluation too.

    Source: He et al. 2016, section 4.2; Wu and He 2018 (arXiv 1803.08494) for the normalisation.
    """

    blocks: int = 18  # of a stage, at least 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        if self.blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {self.blocks}")

    def _map(self, pixels: int) -> int:
        return -(-pixels // 4)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"first.weight": (WIDTHS[0], self.channels, 3, 3)}
        before = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            if width != before:
                shapes[f"stage{stage}.project.weight"] = (width, before, 1, 1)
                shapes[f"stage{stage}.project.bias"] = (width,)
            for block in range(self.blocks):
                name = _block(stage, block)
                shapes[f"{name}.a.weight"] = (width, before, 3, 3)
                shapes[f"{name}.b.weight"] = (width, width, 3, 3)
                before = width
        shapes["output.weight"] = (self.classes, before)
        return shapes

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw the weights as He et al. 2015 do, for ReLU; the last ones small, biases zero.

        The sum of 54 blocks has a variance of about 54: with ordinary last weights the first loss
        would be 17 rather than ln 10.
        """
        for name in self.layout.names:
            if name == "output.weight":
                nn.init.normal_(parameters[name], std=_LAST_DEVIATION, generator=generator)
            elif name.endswith(".weight"):
                nn.init.kaiming_normal_(parameters[name], mode="fan_in", generator=generator)

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits float32[m, classes] of m images of any shape with enough values."""
        pixels = self.pixels(inputs)
        values = _normalised(conv2d(pixels, parameters["first.weight"], padding=1)).relu()
        for stage in range(len(WIDTHS)):
            for block in range(self.blocks):
                values = _residual(parameters, stage, block, values)
        return linear(values.mean(dim=(2, 3)), parameters["output.weight"])


def _block(stage: int, block: int) -> str:
    return f"stage{stage}.block{block:02d}"


def _normalised(values: Tensor) -> Tensor:
    """Normalise groups of channels of each image."""
    return group_norm(values, values.shape[1] // _GROUP)


def _residual(parameters: Parameters, stage: int, block: int, values: Tensor) -> Tensor:
    """Add what a block makes of its input to the input, projected where the width changes."""
    name, shortcut, stride = _block(stage, block), values, 1
    if block == 0 and f"stage{stage}.project.weight" in parameters:
        stride, project = 2, f"stage{stage}.project"
        weight, bias = parameters[f"{project}.weight"], parameters[f"{project}.bias"]
        shortcut = conv2d(values, weight, bias, stride=2)
    inner = conv2d(values, parameters[f"{name}.a.weight"], stride=stride, padding=1)
    inner = conv2d(_normalised(inner).relu(), parameters[f"{name}.b.weight"], padding=1)
    return (_normalised(inner) + shortcut).relu()
