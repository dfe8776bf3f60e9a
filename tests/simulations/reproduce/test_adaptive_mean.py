"""`veilsum reproduce adaptive-mean`: figures, page, plot, and what the Genie may pick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.errors import ConfigurationError
from simulations.reproduce.adaptive_mean.campaign import CAMPAIGN, genie
from simulations.reproduce.adaptive_mean.means import LENGTH, Point, Setting, vectors
from simulations.reproduce.engine.campaign import Options


def test_every_method_runs_in_both_forms_within_its_budget(
    tmp_path: Path, reproduced: Callable[..., dict[str, Any]]
) -> None:
    figures = reproduced("adaptive-mean", "--quick", "--seed", "3", "--out", tmp_path)
    plan = CAMPAIGN.presets["quick"]
    assert figures["seed"] == 3 and len(figures["points"]) == len(plan.points)
    for point in figures["points"]:
        assert set(point["forms"]) == {"untrusted", "central"}
        for rows in point["forms"].values():
            assert {row["method"] for row in rows} == {*plan.methods(), "genie"}
            for row in rows:
                assert 0 < row["most_spent"] <= plan.epsilon
                assert row["error"] > 0 and row["sent"] >= 5
    assert (tmp_path / "adaptive-mean.png").read_bytes().startswith(b"\x89PNG")
    assert "Adapt Tail, top-k" in (tmp_path / "adaptive-mean.md").read_text()


@pytest.mark.parametrize("family", ["norm", "tail"])
def test_vectors_have_the_mean_and_the_length_that_was_asked_for(family: str) -> None:
    point = Point(family=family, clients=300, norm=0.6)
    table = vectors(Setting(dimension=400), point, np.random.default_rng(0))
    lengths = np.linalg.norm(table, axis=1)
    assert lengths == pytest.approx(np.full(300, LENGTH))
    # The mean of the own directions has length 0.8 / sqrt(300).
    assert abs(float(np.linalg.norm(table.mean(axis=0))) - 0.6 * LENGTH) < 0.05
    largest = float(np.abs(table.mean(axis=0)).max())
    assert (largest > 0.4) is (family == "tail")


def test_the_genie_takes_the_cheapest_acceptable_rate() -> None:
    rows = [
        {"method": "fixed 1", "error": 1.0, "sent": 100},
        {"method": "fixed 4", "error": 1.9, "sent": 25},
        {"method": "fixed 8", "error": 2.1, "sent": 12},
        {"method": "doubling", "error": 0.1, "sent": 1},
    ]
    assert genie(rows)["picked"] == "fixed 4"


def test_a_single_data_set_has_no_interval() -> None:
    with pytest.raises(ConfigurationError, match="seeds must be at least 2"):
        CAMPAIGN.plan(Options(seeds=1))
