"""CIFAR-10 from small files of both published forms, CIFAR-100 from one."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from simulations.learning.data import (
    DataError,
    DataFolder,
    DataKind,
    DataProblem,
    Dataset,
    load_dataset,
)
from simulations.learning.data.catalog import (
    CIFAR10_BINARY,
    CIFAR10_PYTHON,
    CIFAR10_PYTHON_FILES,
    CIFAR100_PYTHON,
)
from simulations.learning.data.cifar import PIXELS, load_cifar10, load_cifar100
from simulations.learning.data.files import DataFile

ROWS = 3


def batch(number: int) -> tuple[np.ndarray, list[int]]:
    """Pixels and labels of one file."""
    pixels = np.random.default_rng(number).integers(0, 256, (ROWS, PIXELS)).astype(np.uint8)
    return pixels, [(number + row) % 10 for row in range(ROWS)]


def pickled(number: int) -> bytes:
    """One file of the Python form."""
    pixels, labels = batch(number)
    return pickle.dumps({b"data": pixels, b"labels": labels, b"batch_label": b"x"}, protocol=3)


def records(number: int) -> bytes:
    """One file of the binary form."""
    pixels, labels = batch(number)
    return np.hstack([np.array(labels, np.uint8)[:, None], pixels]).tobytes()


def write_loose(root: Path) -> DataFolder:
    """Write the unpacked Python form."""
    for number, file in enumerate(CIFAR10_PYTHON_FILES.values()):
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickled(number))
    return DataFolder(root, check=False)


def write_archive(root: Path, *, binary: bool, left_out: str = "") -> DataFolder:
    """Write one of the archives."""
    encode, suffix = (records, ".bin") if binary else (pickled, "")
    named = {f"{name}{suffix}": encode(i) for i, name in enumerate(CIFAR10_PYTHON_FILES)}
    named.pop(f"{left_out}{suffix}", None)
    return write_tar(root, CIFAR10_BINARY if binary else CIFAR10_PYTHON, named)


def write_tar(root: Path, file: DataFile, named: dict[str, bytes]) -> DataFolder:
    """Write an archive of these files, in a folder of it."""
    path = root / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, blob in named.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    return DataFolder(root, check=False)


def check(data: Dataset) -> None:
    """Make sure that the pictures are those of `batch`."""
    assert (data.name, data.kind, data.classes, data.shape) == (
        "cifar10",
        DataKind.IMAGE,
        10,
        (3, 32, 32),
    )
    assert (len(data.train), len(data.test)) == (5 * ROWS, ROWS)
    for number, (split, first) in enumerate(
        [*((data.train, ROWS * n) for n in range(5)), (data.test, 0)]
    ):
        pixels, labels = batch(number)
        assert split.labels[first : first + ROWS].tolist() == labels
        found = split.inputs[first : first + ROWS].reshape(ROWS, PIXELS)
        np.testing.assert_array_equal(found, pixels / np.float32(255))


def refusal(folder: DataFolder, pattern: str) -> DataProblem:
    """Return why loading fails."""
    with pytest.raises(DataError, match=pattern) as caught:
        load_cifar10(folder)
    return caught.value.reason


def test_all_forms_hold_the_same_pictures(tmp_path: Path) -> None:
    check(load_cifar10(write_loose(tmp_path / "loose")))
    check(load_cifar10(write_archive(tmp_path / "python", binary=False)))
    check(load_cifar10(write_archive(tmp_path / "binary", binary=True)))


def hundred(number: int, largest: int = 99) -> bytes:
    """One file of CIFAR-100."""
    pixels = batch(number)[0]
    fine, coarse = [number, 50, largest], [0, 1, 2]
    return pickle.dumps({b"data": pixels, b"fine_labels": fine, b"coarse_labels": coarse})


def test_a_hundred_kinds(tmp_path: Path) -> None:
    """By their fine labels; there is one file for training and one for tests."""
    members = {"train": hundred(7), "test": hundred(8)}
    data = load_cifar100(write_tar(tmp_path, CIFAR100_PYTHON, members))
    assert (data.name, data.classes, data.shape) == ("cifar100", 100, (3, 32, 32))
    for number, split in ((7, data.train), (8, data.test)):
        assert split.labels.tolist() == [number, 50, 99]
        found = split.inputs.reshape(ROWS, PIXELS)
        np.testing.assert_array_equal(found, batch(number)[0] / np.float32(255))
    folder = write_tar(tmp_path, CIFAR100_PYTHON, {**members, "test": hundred(8, 100)})
    with pytest.raises(DataError, match="test: labels out of range; valid: labels 0 to 99"):
        load_cifar100(folder)
    with pytest.raises(DataError, match="test is not inside"):
        load_cifar100(write_tar(tmp_path, CIFAR100_PYTHON, {"train": hundred(7)}))


def test_checksums_are_verified(tmp_path: Path) -> None:
    write_loose(tmp_path)
    with pytest.raises(DataError, match="sha256") as caught:
        load_dataset("cifar10", tmp_path)
    assert caught.value.reason is DataProblem.CHECKSUM


def test_absent_files_are_named(tmp_path: Path) -> None:
    assert refusal(DataFolder(tmp_path), "data_batch_1: no such file") is DataProblem.MISSING
    folder = write_loose(tmp_path)
    (tmp_path / CIFAR10_PYTHON_FILES["data_batch_3"].path).unlink()
    assert refusal(folder, "data_batch_3: no such file") is DataProblem.MISSING


def test_an_archive_without_a_batch_is_refused(tmp_path: Path) -> None:
    folder = write_archive(tmp_path, binary=True, left_out="test_batch")
    assert refusal(folder, r"test_batch\.bin is not inside") is DataProblem.COUNT


def test_an_archive_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / CIFAR10_PYTHON.path
    path.parent.mkdir()
    path.write_bytes(b"x" * 2000)
    assert refusal(DataFolder(tmp_path, check=False), "tar") is DataProblem.FORMAT


class Runs:
    """A pickle that would run a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (pickle.dumps({b"data": Runs(), b"labels": []}, protocol=3), "does not belong in a file"),
        (pickle.dumps([1, 2]), "pickled dictionary"),
        (pickle.dumps({b"data": b"pixels", b"labels": [1]}, protocol=3), "another type"),
        (pickled(0)[:-40], "pickled dictionary"),
    ],
)
def test_pickles_of_anything_else_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, pattern: str
) -> None:
    folder = write_loose(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / CIFAR10_PYTHON_FILES["data_batch_2"].path).write_bytes(content)
    assert refusal(folder, pattern) is DataProblem.FORMAT
    assert not (tmp_path / "made-by-a-pickle").exists()


@pytest.mark.parametrize(
    ("labels", "rows", "problem"),
    [([1, 2], ROWS, DataProblem.COUNT), ([1, 2, 10], ROWS, DataProblem.FORMAT)],
)
def test_labels_must_fit(
    tmp_path: Path, labels: list[int], rows: int, problem: DataProblem
) -> None:
    folder = write_loose(tmp_path)
    content = pickle.dumps(
        {b"data": np.zeros((rows, PIXELS), np.uint8), b"labels": labels}, protocol=3
    )
    (tmp_path / CIFAR10_PYTHON_FILES["data_batch_1"].path).write_bytes(content)
    assert refusal(folder, "data_batch_1") is problem


def test_a_cut_record_is_refused(tmp_path: Path) -> None:
    folder = write_archive(tmp_path, binary=True)
    write_tar(
        tmp_path, CIFAR10_BINARY, {f"{name}.bin": bytes(100) for name in CIFAR10_PYTHON_FILES}
    )
    assert refusal(folder, "100 bytes") is DataProblem.TRUNCATED
