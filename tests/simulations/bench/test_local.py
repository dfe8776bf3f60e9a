"""The benchmark of local reports: what it names, beside which limits."""

from __future__ import annotations

import pytest
from command_line import invoke, run_json


def test_every_report_is_timed_beside_its_limit() -> None:
    figures = run_json("bench", "local", "--dim", "2000", "--repeats", "1")
    assert figures["dim"] == 2000
    assert figures["top"] == 200
    for name in ("privquant", "exp", "pe", "ps", "piecewise", "sampled", "copy", "partition"):
        assert figures[f"{name}_seconds"] > 0.0
    for name, limit in [("piecewise", "keystream_two_words"), ("privquant", "keystream_one_byte")]:
        ratio = figures[f"{name}_seconds"] / figures[f"{limit}_seconds"]
        assert figures[f"{name}_ratio_to_keystream"] == pytest.approx(ratio)
    for name in ("exp", "pe", "ps"):
        ratio = figures[f"{name}_seconds"] / figures["partition_seconds"]
        assert figures[f"{name}_ratio_to_partition"] == pytest.approx(ratio)


def test_bad_options_are_refused() -> None:
    result = invoke("bench", "local", "--dim", "1")
    assert result.exit_code == 2
