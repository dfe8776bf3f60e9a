"""The benchmark of what tuning adds to a round."""

from __future__ import annotations

import pytest
from command_line import run_json


def test_shares_are_of_the_round() -> None:
    arguments = ["bench", "controller", "--clients", "4", "--dim", "20000", "--rate", "8"]
    figures = run_json(*arguments, "--repeats", "1")
    assert figures["sketch_size"] == pytest.approx(20_000 / 8, rel=0.01)
    assert figures["second_sketch_size"] >= 64
    for part in ("controller", "second_sketch"):
        share = figures[f"{part}_seconds"] / figures["round_seconds"]
        assert figures[f"{part}_share"] == pytest.approx(share)
        assert 0.0 < share < 1.0
