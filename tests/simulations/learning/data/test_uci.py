"""Adult, Bank Marketing and KDD Cup 1999 from small files of the same format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from simulations.learning.data import CATALOG, DataError, DataFile, DataFolder, DataKind
from simulations.learning.data.uci import (
    BANK_SCHEMA,
    KDD99_SCHEMA,
    load_adult,
    load_bank,
    load_kdd99,
)

ADULT = "{age}, {work}, 1, HS-grad, 9, Single, Sales, Husband, White, Male, 0, 0, 40, Cuba, {pay}"


def write(root: Path, file: DataFile, *lines: str) -> DataFolder:
    """Write a packed table."""
    (root / file.path).parent.mkdir(exist_ok=True)
    (root / file.path).write_bytes(gzip.compress("\n".join(lines).encode()))
    return DataFolder(root, check=False)


def adult(age: int, work: str, pay: str) -> str:
    """Return a row of the Adult data set."""
    return ADULT.format(age=age, work=work, pay=pay)


@pytest.fixture
def adults(tmp_path: Path) -> DataFolder:
    """Three rows to train on and two to test, without and with the final newline."""
    train, test = CATALOG["adult"]
    rows = adult(20, "Private", "<=50K"), adult(40, "?", ">50K"), adult(60, "Private", "<=50K")
    write(tmp_path, train, *rows)
    tests = adult(40, "Never", ">50K."), adult(20, "?", "<=50K.")
    return write(tmp_path, test, "|1x3 Cross validator", *tests, "", "")


def test_adult_files_differ_in_a_remark_and_a_full_stop(adults: DataFolder) -> None:
    data = load_adult(adults)
    assert (data.kind, data.classes) == (DataKind.TABULAR, 2)
    assert data.train.labels.tolist() == [0, 1, 0] and data.test.labels.tolist() == [1, 0]
    # 6 numbers, one category in each of 7 columns, two in the column with a missing value.
    assert data.features == 6 + 7 + 2
    assert data.test.inputs[:, 0].tolist() == pytest.approx([0, -np.sqrt(1.5)])


def test_incomplete_adults_can_be_left_out(adults: DataFolder) -> None:
    data = load_adult(adults, complete_rows=True, without=["fnlwgt", "native-country"])
    assert (len(data.train), len(data.test), data.features) == (2, 1, 5 + 7)


def test_adult_labels_are_checked(adults: DataFolder) -> None:
    write(adults.root, CATALOG["adult"][0], adult(20, "Private", "rich"))
    with pytest.raises(DataError, match=r"adult\.data\.gz: labels rich"):
        load_adult(adults)


def bank(day: int, answer: str) -> str:
    """Return a row of the Bank data set."""
    middle = '"job";"single";"tertiary";"no";2143;"yes";"no";"unknown"'
    return f'58;{middle};{day};"may";261;1;-1;0;"unknown";"{answer}"'


def test_bank_has_a_header_and_no_test_split(tmp_path: Path) -> None:
    header = ";".join(f'"{name}"' for name in BANK_SCHEMA.columns)
    rows = [bank(i, "yes" if i % 4 == 0 else "no") for i in range(40)]
    folder = write(tmp_path, CATALOG["bank"][0], header, *rows)
    data = load_bank(folder, test_fraction=0.25, without=["duration"])
    assert (len(data.train), len(data.test)) == (30, 10)
    assert np.bincount(data.train.labels).tolist() in ([22, 8], [23, 7])
    assert data.features == 6 + 9
    # Standardised by the training rows, not by all.
    assert data.train.inputs[:, 2].mean() == pytest.approx(0.0, abs=1e-6)
    assert data.test.inputs[:, 2].mean() != pytest.approx(0.0, abs=1e-6)
    again = load_bank(folder, test_fraction=0.25, seed=1, without=["duration"])
    assert not np.array_equal(again.test.inputs, data.test.inputs)


def test_bank_columns_are_checked(tmp_path: Path) -> None:
    folder = write(tmp_path, CATALOG["bank"][0], "age,job", "1,2")
    with pytest.raises(DataError, match="header"):
        load_bank(folder)


def connection(kind: str) -> str:
    """Return a row of the KDD 1999 data set."""
    values = {"protocol_type": "tcp", "service": "http", "flag": "SF", "connection": kind}
    return ",".join(values.get(name, "0") for name in KDD99_SCHEMA.columns)


def test_attacks_are_told_apart_if_asked(tmp_path: Path) -> None:
    train, test = CATALOG["kdd99"]
    write(tmp_path, train, *map(connection, ("normal.", "smurf.", "nmap.")))
    folder = write(tmp_path, test, *map(connection, ("snmpguess.", "httptunnel.", "normal.")))
    two, five = load_kdd99(folder), load_kdd99(folder, attack_classes=True)
    assert two.classes == 2 and two.test.labels.tolist() == [1, 1, 0]
    assert five.classes == 5
    assert five.train.labels.tolist() == [0, 1, 2] and five.test.labels.tolist() == [3, 4, 0]
    assert two.features == 34 + 7


def test_tables_are_ascii(tmp_path: Path) -> None:
    train, _ = CATALOG["adult"]
    folder = write(tmp_path, train, adult(20, "Privé", "<=50K"))
    with pytest.raises(DataError, match="ASCII"):
        load_adult(folder)
