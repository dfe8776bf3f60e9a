"""Data of one's own, client by client, as a data set whose owners are the clients.

May use numpy only; what other libraries make is known by its methods, so none is imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from simulations.learning.data.base import DataKind, Dataset, Inputs, Labels, Split

HELD_OUT: Final = 10
"""Every tenth example of a client is for testing where no test examples are given."""

Examples = Any
"""Of one client: a pair (inputs, labels) of arrays or tensors; a map-style data set whose items are
such pairs, as torch has them, or a `DataLoader` over all of one; or a table with named columns, as
Hugging Face's `datasets` has."""

CLASSES: Final = "integers from 0 on, or rows of 0 and 1 where several labels may apply"
TO_CLASSES: Final = "numbers become classes by numpy.digitize(labels, edges)"

NAME: Final = "own"
"""What such a data set is called in configurations and reports."""


def own_dataset(
    clients: Any,
    classes: int | None = None,  # number of labels; one more than the largest if left out
    test: Examples | None = None,
    columns: tuple[str, str] | None = None,
) -> Dataset:
    """Put the examples of several clients together.

    A data set of kind `numbers` with float32 inputs, or `text` with int64 tokens. Bytes, as
    pictures have them, become numbers from 0 to 1; every owner is a client.
    """
    parts, test = _parts(clients, test)
    if len(parts) < 2:
        raise ConfigurationError("clients", f"{len(parts)} of them", "at least two")
    read = [_pair(part, f"clients[{index}]", columns) for index, part in enumerate(parts)]
    if len({(x.shape[1:], x.dtype, labels.shape[1:]) for x, labels in read}) != 1:
        raise ConfigurationError(
            "clients", "inputs or labels of different shapes or types", "examples that are alike"
        )
    owners = np.repeat(np.arange(len(read)), [len(labels) for _, labels in read])
    inputs = np.concatenate([each for each, _ in read])
    labels = np.concatenate([each for _, each in read])
    if test is None:
        train, held = _hold_out(inputs, labels, owners)
    else:
        train, held = Split(inputs, labels, owners), Split(*_pair(test, "test", columns))
    top = int(max(train.labels.max(), held.labels.max())) + 1
    tokens = inputs.dtype == np.int64
    try:
        return Dataset(
            name=NAME,
            kind=DataKind.TEXT if tokens else DataKind.NUMBERS,
            classes=max(top, 2) if classes is None else classes,
            train=train,
            test=held,
            vocabulary=int(max(inputs.max(), held.inputs.max())) + 1 if tokens else None,
        )
    except ValueError as error:
        raise ConfigurationError("clients", str(error), "examples that fit together") from None


def digest(data: Dataset) -> str:
    """SHA-256 over all examples, as hexadecimal digits: the same data, the same run."""
    found = hashlib.sha256()
    for split in (data.train, data.test):
        for array in (split.inputs, split.labels, split.owners):
            if array is not None:
                found.update(f"{array.dtype}{array.shape}".encode())
                found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _parts(clients: Any, test: Examples | None) -> tuple[Sequence[Examples], Examples | None]:
    """The clients one by one, and the test examples of a data set that has both."""
    if hasattr(clients, "load_partition"):
        count = clients.partitioners["train"].num_partitions
        parts = [clients.load_partition(index, "train") for index in range(count)]
        return parts, clients.load_split("test") if test is None else test
    single = isinstance(clients, str | bytes) or hasattr(clients, "batch_sampler")
    if single or not hasattr(clients, "__iter__"):
        raise ConfigurationError(
            "clients", f"a {type(clients).__name__}", "a list with the examples of each client"
        )
    return list(clients), test


def _pair(part: Examples, name: str, columns: tuple[str, str] | None) -> tuple[Inputs, Labels]:
    """Inputs and labels of one client, as arrays of the types that splits take."""
    if hasattr(part, "batch_sampler"):
        part = _loaded(part, name)
    if hasattr(part, "column_names") and hasattr(part, "with_format"):
        chosen = _columns(part.column_names, name, columns)
        rows = part.with_format("numpy")
        raw = [rows[column] for column in chosen]
    elif isinstance(part, tuple | list) and len(part) == 2:
        raw = list(part)
    elif hasattr(part, "__getitem__") and hasattr(part, "__len__"):
        raw = [list(each) for each in zip(*_items(part, name), strict=True)] or [[], []]
    else:
        valid = "a pair (inputs, labels), a map-style data set, or a table with columns"
        raise ConfigurationError(name, f"a {type(part).__name__}", valid)
    try:
        inputs, labels = (np.asarray(each) for each in raw)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(name, str(error), "inputs that are all of one shape") from None
    if inputs.ndim < 2 or labels.ndim not in (1, 2) or not 0 < len(inputs) == len(labels):
        raise ConfigurationError(
            name,
            f"inputs {list(inputs.shape)} and labels {list(labels.shape)}",
            "inputs [m, ...] and labels [m] or [m, n], with at least one example",
        )
    several = labels.ndim == 2 and labels.shape[1] > 1 and bool(np.isin(labels, (0, 1)).all())
    if not several and (labels.ndim == 2 or labels.dtype.kind not in "iu" or labels.min() < 0):
        what = f"of {labels.dtype}, shape {list(labels.shape)}"
        if labels.ndim == 2 and labels.shape[1] == 1:
            raise ConfigurationError(f"{name} labels", what, "one for each example: labels[:, 0]")
        raise ConfigurationError(f"{name} labels", what, f"{CLASSES}; {TO_CLASSES}")
    return _numbers(inputs, name), labels.astype(np.int64)


def _loaded(loader: Any, name: str) -> Any:
    """The data set behind a `DataLoader`: batches are made anew, with the run's own coins."""
    data = loader.dataset
    try:
        whole = len(loader.sampler) == len(data) and len(loader) > 0
    except TypeError:
        whole = False
    if not whole or type(loader.batch_sampler).__name__ not in ("BatchSampler", "NoneType"):
        valid = "one over a map-style data set or a torch.utils.data.Subset, or the set itself"
        raise ConfigurationError(name, "a DataLoader that draws a part of its examples", valid)
    if getattr(loader.collate_fn, "__name__", "") not in ("default_collate", "default_convert"):
        valid = "the data set itself, with examples as they are to be trained on"
        raise ConfigurationError(name, "a DataLoader with a collate_fn", valid)
    return data


def _items(part: Any, name: str) -> Iterator[tuple[Any, Any]]:
    for index in range(len(part)):
        item = part[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ConfigurationError(
                f"{name}[{index}]", f"a {type(item).__name__}", "a pair (input, label)"
            )
        yield np.asarray(item[0]), np.asarray(item[1])


def _columns(names: Sequence[str], name: str, columns: tuple[str, str] | None) -> tuple[str, str]:
    """The columns of inputs and labels."""
    if columns is not None:
        if not set(columns) <= set(names):
            raise ConfigurationError("columns", f"{columns}", f"two of {', '.join(names)}")
        return columns
    labels = [each for each in names if each in ("label", "labels")]
    others = [each for each in names if each not in labels]
    if len(labels) != 1 or len(others) != 1:
        raise ConfigurationError(
            "columns", "left out", f"two of {', '.join(names)}: inputs and labels ({name})"
        )
    return others[0], labels[0]


def _numbers(inputs: NDArray[Any], name: str) -> Inputs:
    """The inputs in one of the two types that splits take."""
    if inputs.dtype == np.uint8:
        return inputs.astype(np.float32) / np.float32(255)
    if inputs.dtype.kind == "f":
        narrow = inputs.astype(np.float32)
        if not np.isfinite(narrow).all():
            raise ConfigurationError(f"{name} inputs", "not finite", "finite float32 numbers")
        return narrow
    if inputs.dtype.kind in "iu" and inputs.ndim == 2 and inputs.min() >= 0:
        return inputs.astype(np.int64)
    raise ConfigurationError(
        f"{name} inputs",
        f"{inputs.dtype} of shape {list(inputs.shape)}",
        "floating-point numbers, bytes, or tokens [m, length] from 0 on",
    )


def _hold_out(inputs: Inputs, labels: Labels, owners: NDArray[np.int64]) -> tuple[Split, Split]:
    """Every tenth example of each client for testing; a client with fewer keeps all of them."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    place = np.arange(len(owners)) - np.repeat(starts, np.diff([*starts, len(owners)]))
    held = place % HELD_OUT == HELD_OUT - 1
    if not held.any():
        raise ConfigurationError(
            "test", "left out", f"examples to test with: no client has {HELD_OUT} of them"
        )
    kept = ~held
    return Split(inputs[kept], labels[kept], owners[kept]), Split(inputs[held], labels[held])
