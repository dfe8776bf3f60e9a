"""CIFAR-10 in either of its two published forms, packed or unpacked; CIFAR-100 in one, packed.

*Python*: pickled dictionaries, six for CIFAR-10 and two for CIFAR-100. A pickle can run code, so
nothing is unpickled but plain values and arrays of numbers, even of a file with the right checksum.
*Binary*: records of a label byte and 3,072 pixel bytes, red, green and blue plane. Both hold the
same pictures in the same order.

May use numpy; must not know torch, models or the protocol.

Source: Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data import catalog
from simulations.learning.data.base import DataKind, Dataset, Split
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DataFile, DataFolder

IMAGE_SHAPE = (3, 32, 32)
"""Numbers of colours, rows and columns."""

PIXELS = 3072

_RECORD_BYTES = 1 + PIXELS

_RECONSTRUCT = np.empty(0).__reduce__()[0]
"""What arrays are unpickled by; NumPy 2 moved it away from where the published files say it is."""

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels, uint8[m, 3072], and labels, int64[m]."""


def load_cifar10(folder: DataFolder) -> Dataset:
    """Load 50,000 and 10,000 colour pictures of 32x32 pixels, 10 kinds.

    Post: inputs are float32[m, 3, 32, 32] in [0, 1].
    """
    batches = [part for _, part in sorted(_batches(folder))]
    return Dataset(
        name="cifar10",
        kind=DataKind.IMAGE,
        classes=10,
        train=_split(batches[:-1]),
        test=_split(batches[-1:]),
    )


def load_cifar100(folder: DataFolder) -> Dataset:
    """Load 50,000 and 10,000 colour pictures of 32x32 pixels, 100 kinds.

    Post: inputs are float32[m, 3, 32, 32] in [0, 1].
    """
    decode = partial(_unpickled, key=b"fine_labels", classes=100)
    parts = dict(_archived(folder, catalog.CIFAR100_PYTHON, ("train", "test"), "", decode))
    train, test = (_split([parts[name]]) for name in ("train", "test"))
    return Dataset(name="cifar100", kind=DataKind.IMAGE, classes=100, train=train, test=test)


def _batches(folder: DataFolder) -> Iterator[tuple[str, Batch]]:
    """Yield name and contents of the five training batches and of the test batch."""
    loose = catalog.CIFAR10_PYTHON_FILES
    if any((folder.root / file.path).is_file() for file in loose.values()):
        for name, file in loose.items():
            yield name, _unpickled(folder.read(file), folder.subject(file))
        return
    for archive, suffix, decode in (
        (catalog.CIFAR10_PYTHON, "", _unpickled),
        (catalog.CIFAR10_BINARY, ".bin", _records),
    ):
        if (folder.root / archive.path).is_file():
            yield from _archived(folder, archive, tuple(loose), suffix, decode)
            return
    first = loose["data_batch_1"]
    archives = (catalog.CIFAR10_PYTHON, catalog.CIFAR10_BINARY)
    advice = " or ".join(file.advice for file in archives)
    valid = f"{first.advice} with the five others, or {advice}"
    raise DataError(folder.subject(first), DataProblem.MISSING, "no such file", valid)


def _archived(
    folder: DataFolder,
    archive: DataFile,
    names: Sequence[str],
    suffix: str,
    decode: Callable[[bytes, str], Batch],
) -> Iterator[tuple[str, Batch]]:
    """Yield the batches of an archive."""
    subject = folder.subject(archive)
    try:
        with tarfile.open(fileobj=io.BytesIO(folder.read(archive)), mode="r:") as tar:
            members = {member.name.rsplit("/", 1)[-1]: member for member in tar if member.isfile()}
            for name in names:
                member = members.get(name + suffix)
                file = None if member is None else tar.extractfile(member)
                if file is None:
                    problem = f"{name + suffix} is not inside"
                    raise DataError(subject, DataProblem.COUNT, problem, archive.advice)
                yield name, decode(file.read(), f"{subject}: {name + suffix}")
    except tarfile.TarError as error:
        raise DataError(subject, DataProblem.FORMAT, str(error), "a tar archive") from error


def _records(blob: bytes, subject: str) -> Batch:
    """Read the binary form."""
    if not blob or len(blob) % _RECORD_BYTES:
        problem = f"{len(blob)} bytes"
        raise DataError(
            subject, DataProblem.TRUNCATED, problem, f"records of {_RECORD_BYTES} bytes"
        )
    rows = np.frombuffer(blob, np.uint8).reshape(-1, _RECORD_BYTES)
    return _checked(rows[:, 1:], rows[:, 0].astype(np.int64), subject)


def _unpickled(blob: bytes, subject: str, key: bytes = b"labels", classes: int = 10) -> Batch:
    """Read the Python form."""
    valid = "a pickled dictionary with uint8 data [m, 3072] and m labels"
    try:
        found = _PlainUnpickler(io.BytesIO(blob), encoding="bytes").load()
        pixels, labels = found[b"data"], np.array(found[key], dtype=np.int64)
    # What a broken pickle raises is anybody's guess; all of it means the same here.
    except Exception as error:
        raise DataError(subject, DataProblem.FORMAT, f"{error!r}", valid) from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise DataError(subject, DataProblem.FORMAT, "data of another type", valid)
    return _checked(pixels, labels, subject, classes)


def _checked(
    pixels: NDArray[np.uint8], labels: NDArray[np.int64], subject: str, classes: int = 10
) -> Batch:
    """Make sure that every picture has one label, and return both."""
    if pixels.shape != (len(labels), PIXELS):
        problem = f"{len(labels)} labels for pixels of shape {pixels.shape}"
        raise DataError(subject, DataProblem.COUNT, problem, f"one label for {PIXELS} pixels")
    if labels.size == 0 or labels.min() < 0 or labels.max() >= classes:
        valid = f"labels 0 to {classes - 1}"
        raise DataError(subject, DataProblem.FORMAT, "labels out of range", valid)
    return pixels, labels


class _PlainUnpickler(pickle.Unpickler):
    """Reads dictionaries, lists, numbers, bytes and NumPy arrays, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.removeprefix("numpy."), name) in {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("core.multiarray", "_reconstruct"),
            ("_core.multiarray", "_reconstruct"),
        }:
            return _RECONSTRUCT if name == "_reconstruct" else getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a file of pictures")


def _split(batches: list[Batch]) -> Split:
    """Join batches; divide pixels by their known range."""
    pixels = np.concatenate([pixels for pixels, _ in batches])
    inputs = np.divide(pixels, np.float32(255), dtype=np.float32).reshape(-1, *IMAGE_SHAPE)
    return Split(inputs, np.concatenate([labels for _, labels in batches]))
