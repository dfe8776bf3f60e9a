"""Models as NVFlare carries them, named arrays, and as a round sees them: a vector, a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import ParameterError

Weights = Mapping[str, NDArray[Any]]
"""A model: arrays by name. Floats are trained and averaged; integers and truth values, such as a
count of batches, stay as the server has them."""

_LABEL = b"veilsum/nvflare/model/1"
_TRAINED, _KEPT = "f", "iub"


def trained_names(weights: Weights) -> list[str]:
    """The arrays that are averaged, in the order in which a vector holds them.

    Raises:
        ParameterError: something is no array, or of a type that cannot be averaged.
    """
    for name, array in weights.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in _TRAINED + _KEPT:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            valid = "NumPy arrays of floats, integers or truth values"
            raise ParameterError(f"model array {name!r}", kind, valid)
    return sorted(name for name, array in weights.items() if array.dtype.kind in _TRAINED)


def dimension_of(weights: Weights) -> int:
    """d, numbers in all averaged arrays together."""
    return sum(weights[name].size for name in trained_names(weights))


def difference(trained: Weights, received: Weights) -> NDArray[np.float64]:
    """float64[d], what training changed.

    Raises:
        ParameterError: an averaged array is missing, or has another shape.
    """
    parts = []
    for name in trained_names(received):
        before = received[name]
        after = np.asarray(trained.get(name, np.empty(0)), np.float64)
        if after.shape != before.shape:
            raise ParameterError(f"trained array {name!r}", after.shape, f"of shape {before.shape}")
        parts.append((after - before.astype(np.float64)).ravel())
    return np.concatenate(parts) if parts else np.zeros(0)


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
    """SHA-256 of everything that a trainer is given: names, types, shapes, values, round numbers.

    Clients bind it into the round. Were they given different things to train on, a server could
    tell their updates apart in the sum.
    """
    digest = hashlib.sha256(_LABEL)
    _add(digest, f"{number} {rounds} {len(weights)}".encode())
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        _add(digest, name.encode(), little.dtype.str.encode(), str(array.shape).encode())
        _add(digest, little.tobytes())
    return digest.digest()


def _add(digest: Any, *parts: bytes) -> None:
    """Every part with its length before it, so that no two lists give the same bytes."""
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
