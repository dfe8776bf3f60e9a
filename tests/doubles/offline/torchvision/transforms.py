"""Stands in for `torchvision.transforms`: pictures as tensors, moved and scaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class Compose:
    """One step after the other."""

    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self._steps = steps

    def __call__(self, image: Any) -> Any:
        for step in self._steps:
            image = step(image)
        return image


class ToTensor:
    """From uint8[height, width, 3] to float32[3, height, width] in 0 .. 1."""

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255.0


class Normalize:
    """Subtract a mean and divide by a deviation, by colour."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self._mean = torch.tensor(mean)[:, None, None]
        self._deviation = torch.tensor(deviation)[:, None, None]

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - self._mean) / self._deviation
