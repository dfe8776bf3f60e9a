"""Runs as a flat table: the same columns in every row, units told, CSV and Parquet the same."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from command_line import invoke
from report_runs import folder_of, record

from protocol.errors import ConfigurationError
from simulations.common.failures import one_line
from simulations.learning.records import Record, flat
from simulations.reports.run.folders import find_runs
from simulations.reports.run.rows import column_of, rows_of
from veilsum.extras import install_command


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two points that differ in epsilon; the second one has more to tell, and loses fewer."""
    folder = tmp_path / "sweep"
    folder_of(folder / "epsilon=2", [record(1), record(2)], privacy={"epsilon": 2.0})
    more: dict[str, Any] = {"scale": [2.0, 3.0], "lost": {}, "accuracy": None}
    folder_of(folder / "epsilon=10", [record(1, **more)], privacy={"epsilon": 10.0})
    return folder


def test_inner_names_follow_outer_ones() -> None:
    found = flat({"a": {"b": {"c": 1}}, "d": [2.5, None], "e": "inf", "f": "word", "g": {}})
    assert found == {"a.b.c": 1, "d.0": 2.5, "d.1": None, "e": math.inf, "f": "word"}


def test_every_row_has_every_column(sweep: Path) -> None:
    rows = rows_of(find_runs([sweep]))
    assert [(row["run"], row["round"]) for row in rows] == [
        ("epsilon=2", 1),
        ("epsilon=2", 2),
        ("epsilon=10", 1),
    ]
    assert len({tuple(row) for row in rows}) == 1
    assert [row["config.privacy.epsilon"] for row in rows] == [2.0, 2.0, 10.0]
    assert list(rows[0])[:3] == ["run", "config.privacy.epsilon", "config.rounds"]
    assert [row["lost.advertise"] for row in rows] == [1, 1, 0]
    assert [row["scale.1"] for row in rows] == [None, None, 3.0]
    assert rows[0]["epsilons.secagg_alone"] == math.inf


def test_one_run_has_no_settings(tmp_path: Path) -> None:
    rows = rows_of(find_runs([folder_of(tmp_path / "one", [record(1)])]))
    assert not [name for name in rows[0] if name.startswith("config")]


def test_a_run_without_a_round_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no round in it"):
        rows_of(find_runs([folder_of(tmp_path / "one", [])]))


def test_a_spreadsheet_reads_it(sweep: Path) -> None:
    result = invoke("export", sweep)
    assert result.exit_code == 0, result.output
    assert "3 rounds of 2 runs" in result.stderr
    with (sweep / "rounds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and None not in rows[0]
    assert rows[0]["survivors"] == "60" and rows[2]["accuracy"] == ""
    assert rows[0]["epsilons.amplified"] == "false"
    assert math.isinf(float(rows[0]["epsilons.secagg_alone"]))
    assert rows[0]["rationale"] == record(1)["rationale"]


def test_parquet_has_types_and_units(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: the extra parquet has it")
    from pyarrow import parquet

    out = tmp_path / "new" / "rounds.parquet"
    assert invoke("export", sweep, "--to", "parquet", "--out", out).exit_code == 0
    table = parquet.read_table(out)
    assert table.to_pylist() == rows_of(find_runs([sweep]))
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert kinds["survivors"] == "int64" and kinds["loss"] == "double"
    assert kinds["epsilons.amplified"] == "bool" and kinds["rationale"] == "string"
    assert table.schema.field("bytes_per_client").metadata[b"unit"] == b"bytes"


def test_without_pyarrow_the_extra_is_named(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = invoke("export", sweep, "--to", "parquet", "--out", tmp_path / "out").exception
    assert isinstance(error, ImportError)
    line = one_line(error)
    assert line is not None and install_command("parquet") in line
    assert not (tmp_path / "out").exists()


def test_everything_in_a_record_is_described() -> None:
    for name in (*get_type_hints(Record), "run", "config.privacy.epsilon"):
        assert column_of(name).meaning, name


def test_what_another_version_wrote_comes_last(tmp_path: Path) -> None:
    rows = rows_of(find_runs([folder_of(tmp_path / "one", [record(1, novelty={"a": 1})])]))
    assert list(rows[0])[-1] == "novelty.a" and column_of("novelty.a").meaning == ""
