"""Convolutional networks for images.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, instance_norm, linear, max_pool2d

from simulations.learning.data import DataKind
from simulations.learning.models.dense import check_widths
from simulations.learning.models.task import Family, Parameters, Task, centred


@dataclass(frozen=True, kw_only=True)
class ImageTask(Task):
    """An image classifier whose weights start Xavier-uniform and whose biases start at zero."""

    channels: int = 1  # colours
    height: int = 28  # rows of pixels
    width: int = 28  # columns of pixels
    classes: int = 10  # labels

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_widths(self.channels, 1, self.classes)
        if min(self._map(self.height), self._map(self.width)) < 1:
            raise ValueError(f"an image of {self.height} x {self.width} pixels is too small")

    @property
    def family(self) -> Family:
        """Most of its work is in convolutions."""
        return Family.CONVOLUTIONAL

    @abstractmethod
    def _map(self, pixels: int) -> int:
        """Return how long a side of the last feature map is."""

    @property
    def _map_size(self) -> int:
        """Return the number of places in a feature map."""
        return self._map(self.height) * self._map(self.width)

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw the weights as Keras does by default."""
        for name in self.layout.names:
            if name.endswith(".weight"):
                nn.init.xavier_uniform_(parameters[name], generator=generator)

    def pixels(self, inputs: Tensor) -> Tensor:
        """Return float32[m, channels, height, width] in [-1, 1]."""
        shape = (len(inputs), self.channels, self.height, self.width)
        return centred(inputs, DataKind.IMAGE).reshape(shape)


def _connect(parameters: Parameters, layer: str, values: Tensor) -> Tensor:
    """Apply a dense layer."""
    return linear(values, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])


@dataclass(frozen=True, kw_only=True)
class StackedTask(ImageTask):
    """Convolutions without padding, then dense layers; ReLU behind all but the last."""

    convolutions: ClassVar[tuple[tuple[int, int, bool], ...]]
    """Of each its filters, the side of its kernel, and whether pooling 2x2 follows."""
    dense: ClassVar[tuple[int, ...]] = ()
    """Widths of the dense layers before the last."""

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of the convolutions."""
        return tuple(f"conv{place}" for place in range(1, len(self.convolutions) + 1))

    @property
    def hidden_layers(self) -> tuple[str, ...]:
        """Return the names of the dense layers before the last."""
        if len(self.dense) == 1:
            return ("dense",)
        return tuple(f"dense{place}" for place in range(1, len(self.dense) + 1))

    def _map(self, pixels: int) -> int:
        for _, side, pooled in self.convolutions:
            pixels = (pixels - side + 1) // (2 if pooled else 1)
        return pixels

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        weights: dict[str, tuple[int, ...]] = {}
        before = self.channels
        for name, (filters, side, _) in zip(self.blocks, self.convolutions, strict=True):
            weights[name] = (filters, before, side, side)
            before = filters
        before *= self._map_size
        for name, width in zip(self.hidden_layers, self.dense, strict=True):
            weights[name] = (width, before)
            before = width
        weights["output"] = (self.classes, before)
        shapes = {f"{layer}.weight": shape for layer, shape in weights.items()}
        return shapes | {f"{layer}.bias": shape[:1] for layer, shape in weights.items()}

    @staticmethod
    def after_convolution(values: Tensor, pooled: bool = True) -> Tensor:
        """ReLU, and pooling where there is any."""
        return max_pool2d(values.relu(), 2) if pooled else values.relu()

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits float32[m, classes] of m images of any shape with enough values."""
        values = self.pixels(inputs)
        for block, (_, _, pooled) in zip(self.blocks, self.convolutions, strict=True):
            weight, bias = parameters[f"{block}.weight"], parameters[f"{block}.bias"]
            values = self.after_convolution(conv2d(values, weight, bias), pooled)
        values = values.flatten(1)
        for layer in self.hidden_layers:
            values = _connect(parameters, layer, values).relu()
        return _connect(parameters, "output", values)


@dataclass(frozen=True, kw_only=True)
class CnnTask(StackedTask):
    """The network for (F-)EMNIST: 1,018,174 parameters for 28x28x1 pixels and 62 classes.

    Convolution 3x3 to 32, pool 2x2, convolution 3x3 to 64, dense 128, dense classes; ReLU between.
    The paper also lists two dropout layers, without rates; they are left out here, as everywhere.

    Source: arXiv 2307.10999, Appendix F.1, "Large Model: 1M parameter CNN".
    """

    convolutions = ((32, 3, True), (64, 3, False))
    dense = (128,)
    classes: int = 62


@dataclass(frozen=True, kw_only=True)
class Lenet5Task(StackedTask):
    """A network of LeNet-5's form with 119,850 parameters for 28x28x1 pixels and ten classes.

    sqSGD calls its network LeNet-5 and gives that count, but no widths; LeNet-5 as published has
    about 61,700. This is two convolutions 5x5 with pooling and two dense layers, with the round
    widths 64, 32 and 128, which have exactly that count: a reconstruction, not a quotation.

    Source: LeCun et al. 1998, Proc. IEEE 86(11); the count from sqSGD, section 4.
    """

    convolutions = ((64, 5, True), (32, 5, True))
    dense = (128,)


@dataclass(frozen=True, kw_only=True)
class BlockCnnTask(StackedTask):
    """Three blocks and three dense layers: 361,290 parameters for 32x32x3 pixels, ten classes.

    A block is a convolution 3x3 without padding (32, 64, 128 filters), instance normalisation
    without weights, ReLU and average pooling 2x2; then dense 256, dense 512, dense classes. The
    thesis names no padding; without any, its traffic of 105.25 GiB in 39,100 steps at 8 bytes for
    a coordinate is that of exactly so many parameters. Its two kinds of dropout are left out here,
    as everywhere.

    Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep
    Learning", a thesis, section 2.1.2.
    """

    convolutions = ((32, 3, True), (64, 3, True), (128, 3, True))
    dense = (256, 512)
    channels: int = 3
    height: int = 32
    width: int = 32

    @staticmethod
    def after_convolution(values: Tensor, pooled: bool = True) -> Tensor:
        """Normalise every feature map of every image for itself, then ReLU and pooling."""
        values = instance_norm(values).relu()
        return avg_pool2d(values, 2) if pooled else values


@dataclass(frozen=True, kw_only=True)
class TinyCnnTask(StackedTask):
    """A small convolutional network for quick runs: 810 parameters for 8x8 pixels, ten classes.

    Convolution 3x3 to 8, pool 2x2, dense classes.
    """

    convolutions = ((8, 3, True),)
    height: int = 8
    width: int = 8


def image_sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of images of a shape."""
    if len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]:
        return 1, math.isqrt(shape[0]), math.isqrt(shape[0])
    if len(shape) in (2, 3):
        channels, height, width = (1, *shape) if len(shape) == 2 else shape
        return channels, height, width
    raise ValueError(f"{shape} is not the shape of a square image, grey or coloured")
