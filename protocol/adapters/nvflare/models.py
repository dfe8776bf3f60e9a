"""Models as NVFlare carries them, named arrays, and as a round sees them: a vector, a digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.adapters import named_arrays
from protocol.adapters.named_arrays import is_averaged, model_digest, require_numbers
from secagg import ParameterError

Weights = Mapping[str, NDArray[Any]]
"""A model: arrays by name. Floats are trained and averaged; integers and truth values, such as a
count of batches, stay as the server has them."""

_LABEL = b"nvflare"


def trained_names(weights: Weights) -> list[str]:
    """The arrays that are averaged, in the order in which a vector holds them."""
    return sorted(name for name, array in weights.items() if is_averaged(name, array))


def dimension_of(weights: Weights) -> int:
    """d, numbers in all averaged arrays together; raises as `named_arrays.dimension_of` does."""
    return named_arrays.dimension_of(weights[name].size for name in trained_names(weights))


def difference(trained: Weights, received: Weights) -> NDArray[np.float64]:
    """float64[d], what training changed; finite wherever weights are."""
    names = trained_names(received)

    def pairs() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for name in names:
            before, after = received[name], np.asarray(trained.get(name, np.empty(0)))
            require_numbers(name, after)
            if after.shape != before.shape:
                valid = f"of shape {before.shape}"
                found = f"{after.dtype} of shape {after.shape}"
                raise ParameterError(f"trained array {name!r}", found, valid)
            yield after, before

    return named_arrays.difference(pairs, dimension_of(received))


def flat(changes: Weights, received: Weights) -> NDArray[np.float64]:
    """float64[d], changes of each averaged array, as one vector; raises as `difference` does."""
    return difference(changes, {name: np.zeros_like(array) for name, array in received.items()})


def changed(weights: Weights, update: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """The model with an update float64[d] added; every array keeps its type."""
    model, start = dict(weights), 0
    for name in trained_names(weights):
        array = weights[name]
        part = update[start : start + array.size].reshape(array.shape)
        model[name] = (array + part).astype(array.dtype)
        start += array.size
    return model


def task_digest(weights: Weights, number: int, rounds: int) -> bytes:
    """SHA-256 of everything that a task gives a trainer: arrays, their order, round numbers.

    Clients bind it into the round. Were they given different things to train on, a server could
    tell their updates apart in the sum. What a job has configured for a site, the trainer and its
    arguments, is no part of a task and not in it (docs/integrations/nvflare.md).
    """
    return model_digest(weights, _LABEL, f"{number} {rounds}".encode())
