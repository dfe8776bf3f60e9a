"""Stands in for Hugging Face's `datasets`, as far as an app of `flwr new` uses it: no network.

A data set is pictures in two classes that a small network tells apart: dark ones and bright ones,
with grain. Its records are dictionaries with `img`, uint8[32, 32, 3], and `label`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_GRAIN = 30.0


class Dataset:
    """Pictures and labels; what `datasets.Dataset` has that is used."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._images, self._labels = images, labels
        self._transform: Callable[[dict], dict] = dict

    @classmethod
    def made(cls, size: int, seed: int) -> Self:
        """So many pictures, always the same of one seed."""
        draws = np.random.default_rng(seed)
        labels = draws.integers(0, 2, size)
        grain = draws.normal(scale=_GRAIN, size=(size, 32, 32, 3))
        images = 64.0 + 128.0 * labels[:, None, None, None] + grain
        return cls(images.clip(0, 255).astype(np.uint8), labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        batch = {"img": [self._images[index]], "label": [int(self._labels[index])]}
        return {name: values[0] for name, values in self._transform(batch).items()}

    def with_format(self, kind: str) -> Self:
        """The same; `with_transform` counts."""
        return self

    def with_transform(self, transform: Callable[[dict], dict]) -> Dataset:
        """The same, with records made by a function of batches."""
        changed = Dataset(self._images, self._labels)
        changed._transform = transform
        return changed

    def train_test_split(self, test_size: float, seed: int) -> DatasetDict:
        """Two parts, by place."""
        cut = len(self) - round(len(self) * test_size)
        return DatasetDict(
            train=Dataset(self._images[:cut], self._labels[:cut]),
            test=Dataset(self._images[cut:], self._labels[cut:]),
        )


class DatasetDict(dict):
    """Data sets by name."""

    def with_transform(self, transform: Callable[[dict], dict]) -> DatasetDict:
        """The same of every data set in it."""
        return DatasetDict({name: each.with_transform(transform) for name, each in self.items()})


def load_dataset(name: str, split: str) -> Dataset:
    """What is not a client's: pictures for the server."""
    return Dataset.made(100, seed=1000)
