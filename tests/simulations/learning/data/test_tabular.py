"""Tables: reading, missing values, encoding by the training rows alone."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.learning.data import DataError, DataProblem
from simulations.learning.data.encoding import TableEncoder
from simulations.learning.data.tabular import Schema, Table, read_table

SCHEMA = Schema(columns=("age", "job", "pay", "ok"), numeric=frozenset({"age", "pay"}), target="ok")


def table(*rows: str, delimiter: str = ",") -> Table:
    """Read rows of text as a table."""
    return read_table([f"{row}\n" for row in rows], SCHEMA, "file", delimiter=delimiter)


def test_columns_are_read_by_kind() -> None:
    read = table("30, cook, 1.5, no", "", "  ", '40,"head, cook",-2e3,yes', "30, cook, 1.5, no")
    assert len(read) == 3
    assert read.numbers["age"].dtype == np.float32
    assert read.numbers["age"].tolist() == [30, 40, 30]
    assert read.numbers["pay"].tolist() == [1.5, -2000.0, 1.5]
    assert read.categories["job"].values == ("cook", "head, cook")
    assert read.categories["job"].codes.tolist() == [0, 1, 0]
    assert read.labels({"no": 0, "yes": 1}, "file").tolist() == [0, 1, 0]


def test_other_delimiters_and_quotes_are_read() -> None:
    read = table('30;"a,b";1;"no"', delimiter=";")
    assert read.categories["job"].values == ("a,b",)


def test_many_rows_are_read_in_pieces() -> None:
    rows = [f"{i % 5000},job{i % 7},{i},{'yes' if i % 3 else 'no'}" for i in range(20_000)]
    read = table(*rows, *rows)
    assert len(read) == 40_000
    assert np.array_equal(read.numbers["pay"], np.tile(np.arange(20_000), 2))
    codes = np.tile(np.arange(20_000) % 7, 2)
    assert np.array_equal(read.categories["job"].codes, codes)


def test_missing_values_are_found() -> None:
    read = table("30,cook,1,no", "?,cook,1,no", "30,?,1,no", "30,cook,?,no")
    assert read.incomplete().tolist() == [False, True, True, True]
    complete = read.take(~read.incomplete())
    assert len(complete) == 1 and not complete.incomplete().any()


@pytest.mark.parametrize(
    ("row", "pattern", "problem"),
    [
        ("30,cook,1", "a row with 3 fields", DataProblem.FORMAT),
        ("30,cook,1,no,more", "a row with 5 fields", DataProblem.FORMAT),
        ("old,cook,1,no", "column age: value 'old'", DataProblem.FORMAT),
        ("nan,cook,1,no", "column age: value 'nan'", DataProblem.FORMAT),
        ("30,cook,inf,no", "column pay: value 'inf'", DataProblem.FORMAT),
        ("30,cook,1e39,no", "column pay: value '1e39'", DataProblem.FORMAT),
        ('30,"cook\n",1,no', "line break", DataProblem.FORMAT),
    ],
)
def test_broken_rows_are_named(row: str, pattern: str, problem: DataProblem) -> None:
    lines = "".join(f"{r}\n" for r in ("30,cook,1,no", row, "31,cook,1,no"))
    with pytest.raises(DataError, match=pattern) as caught:
        read_table(lines.splitlines(keepends=True), SCHEMA, "file", delimiter=",")
    assert caught.value.reason is problem


def test_a_table_needs_a_row() -> None:
    with pytest.raises(DataError, match="no rows") as caught:
        table()
    assert caught.value.reason is DataProblem.TRUNCATED


def test_unknown_labels_are_named() -> None:
    with pytest.raises(DataError, match="labels maybe; valid: no, yes"):
        table("30,cook,1,maybe").labels({"no": 0, "yes": 1}, "file")


@pytest.mark.parametrize(
    ("columns", "numeric", "target"),
    [(("a", "a"), set(), "a"), (("a", "b"), {"c"}, "b"), (("a", "b"), {"b"}, "b")],
)
def test_schemas_are_checked(columns: tuple[str, ...], numeric: set[str], target: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Schema(columns=columns, numeric=frozenset(numeric), target=target)


def test_encoding_uses_the_training_rows_alone() -> None:
    train = table("10,cook,5,no", "20,baker,5,no", "30,cook,5,yes")
    test = table("40,smith,9,no", "20,cook,5,no")
    encoder = TableEncoder.fit(train)
    assert encoder.features == ("age", "pay", "job=baker", "job=cook")
    deviation = np.sqrt(200 / 3)
    expected = [[-10 / deviation, 0, 0, 1], [0, 0, 1, 0], [10 / deviation, 0, 0, 1]]
    np.testing.assert_allclose(encoder.encode(train), expected, rtol=1e-6)
    # A constant column stays 0 and an unknown category has no indicator.
    np.testing.assert_allclose(
        encoder.encode(test), [[20 / deviation, 0, 0, 0], [0, 0, 0, 1]], rtol=1e-6
    )
    assert encoder.encode(train).dtype == np.float32


def test_categories_of_rows_that_were_cut_away_do_not_count() -> None:
    everything = table("10,cook,5,no", "20,baker,6,no", "30,cook,7,yes")
    encoder = TableEncoder.fit(everything.take(np.array([0, 2])))
    assert encoder.features == ("age", "pay", "job=cook")
    assert encoder.encode(everything)[:, 2].tolist() == [1, 0, 1]


def test_missing_numbers_are_the_mean_and_missing_names_a_category() -> None:
    train = table("10,cook,?,no", "30,?,?,no", "?,cook,?,no")
    encoder = TableEncoder.fit(train)
    assert encoder.features == ("age", "pay", "job=?", "job=cook")
    assert encoder.encode(train).tolist() == [[-1, 0, 0, 1], [1, 0, 1, 0], [0, 0, 0, 1]]


def test_outliers_are_cut_off_and_columns_left_out() -> None:
    train = table(*["0,cook,1,no"] * 999, "1,cook,2,no")
    encoder = TableEncoder.fit(train, without=["pay", "job"], bound=3.0)
    assert encoder.features == ("age",)
    assert encoder.encode(train).max() == 3.0


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"without": ["ok"]}, "without must name features, got ok"),
        ({"without": ["age", "job", "pay"]}, "without must leave at least one column"),
        ({"bound": 0.0}, "bound must be positive"),
        ({"bound": float("nan")}, "bound must be positive"),
    ],
)
def test_bad_encoder_options_are_refused(options: dict[str, object], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        TableEncoder.fit(table("30,cook,1,no"), **options)
