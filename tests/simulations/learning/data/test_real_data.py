"""The real files, where there are any: counts, clients, labels, speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from simulations.learning.data import DataFolder, Dataset, load_dataset
from simulations.learning.data.names import LANGUAGES, read_names
from simulations.learning.data.shakespeare import read_moby_lines, read_tiny_lines
from simulations.learning.partition import partition_natural


def clients(data: Dataset) -> tuple[int, int]:
    """Return the number of natural clients in train and test."""
    return len(np.unique(data.train.owners)), len(np.unique(data.test.owners))


def lengths(spoken: Mapping[tuple[str, str], Sequence[str]]) -> np.ndarray:
    """Return the number of lines of each speaker."""
    return np.array([len(lines) for lines in spoken.values()])


def test_mnist_has_its_writers(data_dir: Path) -> None:
    data = load_dataset("mnist", data_dir, writers=True)
    assert data.train.inputs.shape == (60_000, 28, 28)
    assert data.test.inputs.shape == (10_000, 28, 28)
    assert data.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert clients(data) == (539, 297)
    assert not np.intersect1d(data.train.owners, data.test.owners).size
    sizes = [len(part) for part in partition_natural(data.train.owners)]
    assert (len(sizes), min(sizes), max(sizes), np.median(sizes)) == (539, 19, 131, 116)
    # The mean pixel that every tutorial standardises by.
    assert data.train.inputs.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert data.train.inputs.min() == 0.0 and data.train.inputs.max() == 1.0


def test_mnist_loads_quickly(data_dir: Path) -> None:
    def seconds() -> float:
        start = time.process_time()
        load_dataset("mnist", data_dir)
        return time.process_time() - start

    # About 0.4 s of processor time; the bound leaves room for slow and busy machines.
    assert min(seconds() for _ in range(3)) < 2.0


def test_fashion_is_balanced(data_dir: Path) -> None:
    data = load_dataset("fashion-mnist", data_dir)
    assert np.bincount(data.train.labels).tolist() == [6_000] * 10
    assert np.bincount(data.test.labels).tolist() == [1_000] * 10
    assert data.train.inputs.mean(dtype=np.float64) == pytest.approx(0.2860, abs=5e-5)


def test_shakespeare_has_its_speakers(data_dir: Path) -> None:
    counts = lengths(read_moby_lines(DataFolder(data_dir)))
    assert (len(counts), counts.sum(), counts.max(), np.median(counts)) == (
        1_305,
        107_392,
        1_495,
        25,
    )
    assert [(counts >= least).sum() for least in (2, 10, 100)] == [1_212, 899, 308]


def test_shakespeare_windows(data_dir: Path) -> None:
    data = load_dataset("shakespeare", data_dir, stride=80)
    assert clients(data) == (1_212, 1_212)
    assert data.shape == (80,)
    # The alphabet covers the plays, and all but the shortest texts fill a context.
    assert not (data.train.inputs == 1).any()
    assert (data.train.inputs == 0).mean() < 0.002


def test_tinyshakespeare_has_its_speakers(data_dir: Path) -> None:
    counts = lengths(read_tiny_lines(DataFolder(data_dir)))
    assert (len(counts), (counts >= 2).sum()) == (309, 268)
    assert clients(load_dataset("tinyshakespeare", data_dir, stride=80)) == (268, 268)


def test_names_are_counted(data_dir: Path) -> None:
    names = [read_names(DataFolder(data_dir), language) for language in LANGUAGES]
    assert len(names) == 18
    assert sum(map(len, names)) == 20_050
    assert sum(len(set(some)) for some in names) == 18_012
    # 26 more are the same but for accents.
    data = load_dataset("names", data_dir)
    assert len(data.train) + len(data.test) == 17_986
    assert (data.train.inputs == 1).sum() == 0


def test_adult_rows_and_missing_values(data_dir: Path) -> None:
    data = load_dataset("adult", data_dir)
    assert (len(data.train), len(data.test)) == (32_561, 16_281)
    assert data.train.labels.sum() == 7_841 and data.test.labels.sum() == 3_846
    complete = load_dataset("adult", data_dir, complete_rows=True)
    assert len(data.train) - len(complete.train) == 2_399
    assert len(data.test) - len(complete.test) == 1_221
    assert data.features == 108


def test_bank_rows(data_dir: Path) -> None:
    data = load_dataset("bank", data_dir)
    assert len(data.train) + len(data.test) == 45_211
    assert data.train.labels.sum() + data.test.labels.sum() == 5_289
    assert data.features == 51


@pytest.mark.slow
def test_kdd99_rows_and_attacks(data_dir: Path) -> None:
    data = load_dataset("kdd99", data_dir, attack_classes=True)
    assert (len(data.train), len(data.test)) == (494_021, 311_029)
    assert np.bincount(data.train.labels).tolist() == [97_278, 391_458, 4_107, 1_126, 52]
    assert np.bincount(data.test.labels).tolist() == [60_593, 229_853, 4_166, 16_189, 228]
