"""The learning task: softmax regression on scikit-learn's digits, in NumPy. Nothing of Flower."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

PIXELS, DIGITS = 64, 10
_TRAINING = 1500
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Examples:
    """Images float64[n, 64] in 0 .. 1, and labels int64[n]."""

    images: NDArray[np.float64]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Model:
    """Weights float32[64, 10] and bias float32[10]."""

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def zero(cls) -> Model:
        """A model that knows nothing yet."""
        return cls(np.zeros((PIXELS, DIGITS), np.float32), np.zeros(DIGITS, np.float32))

    def scores(self, images: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[n, 10]; the largest is the answer."""
        return np.asarray(images @ self.weights + self.bias, np.float64)

    def accuracy(self, examples: Examples) -> float:
        """Share of right answers."""
        return float(np.mean(self.scores(examples.images).argmax(axis=1) == examples.labels))

    def trained(self, examples: Examples, epochs: int, rate: float) -> Model:
        """After some epochs of gradient descent in small batches."""
        model, order = self, np.random.default_rng(0)
        for _ in range(epochs):
            shuffled = order.permutation(examples.labels.size)
            for batch in np.array_split(shuffled, -(-shuffled.size // _BATCH)):
                model = model._step(examples.images[batch], examples.labels[batch], rate)
        return model

    def _step(self, images: NDArray[np.float64], labels: NDArray[np.int64], rate: float) -> Model:
        scores = self.scores(images)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = odds / odds.sum(axis=1, keepdims=True)
        errors[np.arange(labels.size), labels] -= 1.0
        weights = self.weights - rate * images.T @ errors / labels.size
        bias = self.bias - rate * errors.mean(axis=0)
        return Model(weights.astype(np.float32), bias.astype(np.float32))


def training_part(part: int, parts: int) -> Examples:
    """A client's own examples."""
    images, labels = _shuffled()
    mine = np.arange(part, _TRAINING, parts)
    return Examples(images[mine], labels[mine])


def test_examples() -> Examples:
    """The server's: 297 examples that no client has."""
    images, labels = _shuffled()
    return Examples(images[_TRAINING:], labels[_TRAINING:])


def _shuffled() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(digits.target.size)
    return digits.data[order] / 16.0, digits.target[order]
