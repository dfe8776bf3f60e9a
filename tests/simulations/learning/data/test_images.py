"""MNIST and its writers from small files of the same format."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from simulations.learning.data import (
    CATALOG,
    DataError,
    DataFolder,
    DataKind,
    DataProblem,
    load_dataset,
)
from simulations.learning.data.catalog import QMNIST_TEST, QMNIST_TRAIN
from simulations.learning.data.images import load_fashion_mnist, load_mnist

TRAIN, TEST = 12, 5


def write_idx(path: Path, array: np.ndarray, code: int) -> None:
    """Write a packed IDX file."""
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_images(root: Path, name: str) -> None:
    """Write 12 and 5 images with labels 0, 1, 2, ..."""
    images, labels, test_images, test_labels = (root / file.path for file in CATALOG[name])
    source = np.random.default_rng(0)
    for path, count in ((images, TRAIN), (test_images, TEST)):
        pixels = source.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        pixels[0, 0, :2] = 0, 255
        write_idx(path, pixels, 0x08)
    for path, count in ((labels, TRAIN), (test_labels, TEST)):
        write_idx(path, np.arange(count, dtype=np.uint8) % 10, 0x08)


def write_writers(root: Path, *, shift: int = 0) -> None:
    """Write extended labels of more digits than there are images."""
    for file, count in ((QMNIST_TRAIN, TRAIN), (QMNIST_TEST, TEST + 4)):
        rows = np.zeros((count, 8), dtype=">i4")
        rows[:, 0] = (np.arange(count) + shift) % 10
        rows[:, 2] = 100 + np.arange(count) // 3
        write_idx(root / file.path, rows, 0x0C)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """A folder with small MNIST files and writers."""
    write_images(tmp_path, "mnist")
    write_writers(tmp_path)
    return DataFolder(tmp_path, check=False)


def refusal(folder: DataFolder, pattern: str, *, writers: bool = False) -> DataProblem:
    """Return why loading fails."""
    with pytest.raises(DataError, match=pattern) as caught:
        load_mnist(folder, writers=writers)
    return caught.value.reason


def test_images_are_scaled_by_their_known_range(folder: DataFolder) -> None:
    data = load_mnist(folder)
    assert (data.name, data.kind, data.classes) == ("mnist", DataKind.IMAGE, 10)
    assert data.train.inputs.shape == (TRAIN, 28, 28) and data.test.inputs.shape == (TEST, 28, 28)
    assert data.train.inputs[0, 0, 0] == 0.0 and data.train.inputs[0, 0, 1] == 1.0
    assert data.train.labels.tolist() == [i % 10 for i in range(TRAIN)]
    assert data.train.owners is None


def test_fashion_has_the_same_format(tmp_path: Path) -> None:
    write_images(tmp_path, "fashion-mnist")
    data = load_fashion_mnist(DataFolder(tmp_path, check=False))
    assert (data.name, len(data.train), len(data.test)) == ("fashion-mnist", TRAIN, TEST)


def test_writers_are_the_owners(folder: DataFolder) -> None:
    data = load_mnist(folder, writers=True)
    assert data.train.owners.tolist() == [100 + i // 3 for i in range(TRAIN)]
    assert data.test.owners.tolist() == [100, 100, 100, 101, 101]


def test_other_versions_are_refused_by_default(folder: DataFolder) -> None:
    assert refusal(DataFolder(folder.root), "sha256") is DataProblem.CHECKSUM


def test_labels_and_images_must_agree_in_number(folder: DataFolder) -> None:
    labels = folder.root / CATALOG["mnist"][1].path
    write_idx(labels, np.zeros(TRAIN - 1, dtype=np.uint8), 0x08)
    assert refusal(folder, "11 labels for 12 images") is DataProblem.COUNT


@pytest.mark.parametrize(
    ("array", "code", "pattern"),
    [
        (np.zeros((TRAIN, 28, 28), ">i2"), 0x0B, "int16 with 3 axes; valid: uint8 with 3"),
        (np.zeros((TRAIN, 784), np.uint8), 0x08, "uint8 with 2 axes; valid: uint8 with 3"),
    ],
)
def test_other_arrays_are_no_images(
    folder: DataFolder, array: np.ndarray, code: int, pattern: str
) -> None:
    write_idx(folder.root / CATALOG["mnist"][0].path, array, code)
    assert refusal(folder, pattern) is DataProblem.FORMAT


def test_writers_of_other_digits_are_refused(folder: DataFolder) -> None:
    write_writers(folder.root, shift=1)
    assert refusal(folder, "are not the labels", writers=True) is DataProblem.COUNT


def test_writers_need_the_extended_labels(folder: DataFolder) -> None:
    write_idx(folder.root / QMNIST_TRAIN.path, np.zeros((TRAIN, 7), ">i4"), 0x0C)
    assert refusal(folder, r"valid: int32\[m, 8\]", writers=True) is DataProblem.FORMAT
    (folder.root / QMNIST_TRAIN.path).unlink()
    assert refusal(folder, "facebookresearch/qmnist", writers=True) is DataProblem.MISSING


def test_the_registry_passes_check_and_options_on(folder: DataFolder) -> None:
    data = load_dataset("mnist", folder.root, check=False, writers=True)
    assert data.train.owners is not None
    with pytest.raises(DataError, match="sha256"):
        load_dataset("mnist", folder.root)
