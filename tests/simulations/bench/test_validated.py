"""The benchmark of validated rounds: what it reports, and that a cheat that gets through shows."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import invoke, run_json

from secagg.validated import check, server

HONEST = ("bench", "validated", "--honest", "40")
ROUND = ("bench", "validated", "--clients", "6", "--cheats", "2", "--dim", "3000")
ROUND += ("--committee", "8", "1", "1")


def test_cheats_are_out_and_the_sum_is_right() -> None:
    figures = run_json(*ROUND)
    assert (figures["correct"], figures["excluded"], figures["repetitions"]) == (True, 2, 3)
    assert figures["ring_bits"] >= 42 and figures["bound_over_clip"] > 1.0
    for name in ("client_seconds_median", "server_seconds_per_upload", "ratio_to_transforms"):
        assert figures[name] > 0.0


def test_a_cheat_that_gets_through_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def everybody(p: object, answers: Any) -> frozenset[int]:
        return frozenset(answers)

    assert server.decide is check.decide
    monkeypatch.setattr(server, "decide", everybody)
    assert invoke(*ROUND).exit_code == 1


def test_honest_uploads_are_in_however_extreme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: a decision that wants more of the members than there are."""
    figures = run_json(*HONEST)
    assert (figures["accepted"], figures["correct"]) == (40, True)
    monkeypatch.setattr(check.Parameters, "fewest_agreeing", 8)
    assert invoke(*HONEST).exit_code == 1


def test_more_cheats_than_a_round_has_clients_are_refused() -> None:
    result = invoke(*ROUND, "--cheats", "5")
    assert result.exit_code != 0 and "at most 4" in str(result.exception)


def test_masking_is_beside_its_transforms() -> None:
    asked = ("bench", "mask", "--scheme", "all", "--dim", "5000", "--repeats", "1")
    found = run_json(*asked)
    assert list(found) == ["pairwise", "one-shot", "validated", "ratio"]
    figures = found["validated"]
    assert figures["blocks"] == 3 and figures["ratio_to_transforms"] > 1.0


def test_three_schemes_beside_each_other() -> None:
    asked = ("bench", "round", "--clients", "8", "--dim", "3000", "--dropout", "0", "--scheme")
    figures = run_json(*asked, "all", "--committee", "8", "1", "1")
    assert list(figures) == ["pairwise", "one-shot", "validated", "ratio"]
    for each in ("pairwise", "one-shot", "validated"):
        assert figures[each]["correct"]
        for name in ("server_seconds", "client_seconds_median", "bytes_per_client"):
            assert figures[each][name] > 0
