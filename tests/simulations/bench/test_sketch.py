"""The benchmark of sketches: what it reports, per row, beside what."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import invoke, run_json

from simulations.bench._kernels import ready_gather, ready_scatter


def measured(*arguments: object) -> dict[str, float]:
    return run_json("bench", "sketch", *arguments, "--repeats", "1")


@pytest.mark.parametrize(("rows", "copies"), [(15, 1), (3, 5)])
def test_seconds_are_of_one_row(rows: int, copies: int) -> None:
    dim = 1 << 16
    figures = measured("--dim", dim, "--rows", rows, "--copies", copies)
    assert (figures["rows"], figures["copies"], figures["total_rows"]) == (rows, copies, 15)
    assert figures["rate"] == pytest.approx(64, rel=0.02)
    for way, limit in (("encode", "scatter"), ("decode", "gather")):
        seconds = figures[f"{way}_seconds"]
        assert figures[f"{way}_vector_seconds"] == pytest.approx(15 * seconds)
        ratio = figures[f"{way}_ratio_to_limit"]
        assert ratio == pytest.approx(seconds / figures[f"{limit}_seconds"])
        assert figures[f"{way}_ratio_to_copy"] == pytest.approx(seconds / figures["copy_seconds"])
    speedup = figures["encode_seconds"] / figures["encode_many_seconds"]
    assert figures["encode_many_speedup"] == pytest.approx(speedup)


def test_nothing_of_the_order_of_all_hashes_is_allocated() -> None:
    figures = measured("--dim", 1 << 19)
    assert figures["vector_bytes"] == 8 << 19
    assert figures["hash_table_bytes"] == 15 * 5 << 19
    assert figures["encode_peak_bytes"] < figures["hash_table_bytes"] / 20
    assert figures["decode_peak_bytes"] < figures["vector_bytes"] + (1 << 20)


def test_it_is_a_table_without_json() -> None:
    result = invoke("bench", "sketch", "--dim", "5000", "--repeats", "1")
    assert result.exit_code == 0
    assert "encode_ratio_to_limit" in result.stdout


@pytest.mark.parametrize(
    "arguments", [("--copies", "2"), ("--rate", "1"), ("--rate", "0.5"), ("--dim", "10")]
)
def test_bad_arguments_are_refused(arguments: tuple[str, str]) -> None:
    result = invoke("bench", "sketch", *arguments)
    assert result.exit_code == 2


def test_limits_do_the_work_of_one_row() -> None:
    bucket = np.array([1, 0, 1], dtype=np.uint32)
    sign = np.array([1, -1, -1], dtype=np.int8)
    row, out = np.zeros(2), np.ones(3)
    ready_scatter(np.array([5.0, 3.0, 2.0]), bucket, sign, row)
    ready_gather(row, bucket, sign, out)
    assert row.tolist() == [-3.0, 3.0]
    assert out.tolist() == [4.0, 4.0, -2.0]
