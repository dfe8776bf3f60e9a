"""MNIST, with its writers if asked for, and Fashion-MNIST.

Pixels are divided by 255, their known range, never by statistics of the data.

May use numpy; must not know torch, models or the protocol.

Source: LeCun et al. 1998, Proc. IEEE 86(11); Xiao, Rasul and Vollgraf 2017 (arXiv 1708.07747);
writers: Yadav and Bottou 2019 (arXiv 1905.10498), whose rows match MNIST's one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data import catalog
from simulations.learning.data.base import DataKind, Dataset, Labels, Owners, Split
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DataFile, DataFolder
from simulations.learning.data.idx import decode_idx

MAX_BYTE = np.float32(255)
"""Largest pixel of an 8-bit image."""

_QMNIST_COLUMNS = 8
_DIGIT_COLUMN, _WRITER_COLUMN = 0, 2


def load_mnist(folder: DataFolder, *, writers: bool = False) -> Dataset:
    """Load 60,000 and 10,000 handwritten digits of 28x28 pixels.

    Post: inputs are float32[m, 28, 28] in [0, 1].
    """
    train = _read_split(folder, catalog.MNIST_TRAIN_IMAGES, catalog.MNIST_TRAIN_LABELS)
    test = _read_split(folder, catalog.MNIST_TEST_IMAGES, catalog.MNIST_TEST_LABELS)
    if writers:
        train = _with_writers(train, folder, catalog.QMNIST_TRAIN)
        test = _with_writers(test, folder, catalog.QMNIST_TEST)
    return Dataset(name="mnist", kind=DataKind.IMAGE, classes=10, train=train, test=test)


def load_fashion_mnist(folder: DataFolder) -> Dataset:
    """Load 60,000 and 10,000 pictures of clothes of 28x28 pixels, 10 kinds.

    Post: inputs are float32[m, 28, 28] in [0, 1].
    """
    return Dataset(
        name="fashion-mnist",
        kind=DataKind.IMAGE,
        classes=10,
        train=_read_split(folder, catalog.FASHION_TRAIN_IMAGES, catalog.FASHION_TRAIN_LABELS),
        test=_read_split(folder, catalog.FASHION_TEST_IMAGES, catalog.FASHION_TEST_LABELS),
    )


def _read_split(folder: DataFolder, images: DataFile, labels: DataFile) -> Split:
    """Read pixels and labels that belong together."""
    pixels, answers = _read_array(folder, images, axes=3), _read_array(folder, labels, axes=1)
    if len(pixels) != len(answers):
        raise DataError(
            folder.subject(labels),
            DataProblem.COUNT,
            f"{len(answers)} labels for {len(pixels)} images of {images.path}",
            "one label per image",
        )
    return Split(np.divide(pixels, MAX_BYTE, dtype=np.float32), answers.astype(np.int64))


def _read_array(folder: DataFolder, file: DataFile, *, axes: int) -> NDArray[np.uint8]:
    """Read an IDX array of bytes with so many axes."""
    subject = folder.subject(file)
    array = decode_idx(folder.read(file), subject)
    if array.dtype != np.uint8 or array.ndim != axes:
        raise DataError(
            subject,
            DataProblem.FORMAT,
            f"{array.dtype} with {array.ndim} axes",
            f"uint8 with {axes} axes",
        )
    return array


def _with_writers(split: Split, folder: DataFolder, file: DataFile) -> Split:
    """Add owners from the extended labels, whose first rows are the examples in order."""
    subject = folder.subject(file)
    rows = decode_idx(folder.read(file), subject)
    digits, writers = _read_writers(rows, subject)
    if not np.array_equal(digits[: len(split)], split.labels):
        raise DataError(
            subject,
            DataProblem.COUNT,
            f"the digits of the first {len(split)} of {len(digits)} rows are not the labels",
            "the rows that match the images one by one",
        )
    return Split(split.inputs, split.labels, writers[: len(split)])


def _read_writers(rows: NDArray[Any], subject: str) -> tuple[Labels, Owners]:
    """Return digit and writer of each row: int64[m], int64[m]."""
    if rows.dtype != np.int32 or rows.ndim != 2 or rows.shape[1] != _QMNIST_COLUMNS:
        raise DataError(
            subject,
            DataProblem.FORMAT,
            f"{rows.dtype} of shape {rows.shape}",
            f"int32[m, {_QMNIST_COLUMNS}]",
        )
    table = rows.astype(np.int64)
    return table[:, _DIGIT_COLUMN], table[:, _WRITER_COLUMN].copy()
