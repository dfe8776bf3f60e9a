"""`veilsum reproduce adaptive-mean`: figures, tables, plot, and what the Genie may pick."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console

from simulations.reproduce.adaptive_mean import report
from simulations.reproduce.adaptive_mean.campaign import LENGTH, Plan, Point, genie, vectors


@pytest.fixture(scope="module")
def quick(tmp_path_factory, reproduced):
    """One quick run: (figures on standard output, folder)."""
    folder = tmp_path_factory.mktemp("adaptive")
    arguments = ("adaptive-mean", "--quick", "--workers", "1", "--seed", "3", "--out", folder)
    return reproduced(*arguments), folder


def test_a_quick_run_writes_figures_tables_and_a_plot(quick):
    figures, folder = quick
    assert figures["seed"] == 3
    assert json.loads((folder / "adaptive-mean.json").read_text()) == figures
    assert (folder / "adaptive-mean.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "adaptive-mean-tables.md").read_text() == report.tables(figures)


def test_every_method_ran_in_both_forms_within_its_budget(quick):
    figures, _ = quick
    plan = Plan.chosen(True)
    assert len(figures["points"]) == len(plan.points)
    for point in figures["points"]:
        assert set(point["forms"]) == {"untrusted", "central"}
        for rows in point["forms"].values():
            assert {row["method"] for row in rows} == {*plan.methods(), "genie"}
            for row in rows:
                assert 0 < row["most_spent"] <= plan.epsilon
                assert row["error"] > 0 and row["sent"] >= 5


def test_a_summary_has_every_method(quick, capsys):
    figures, _ = quick
    report.REPORT.show(figures, Console(width=300))
    assert "Adapt Tail" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["norm", "tail"])
def test_vectors_have_the_mean_and_the_length_that_was_asked_for(family):
    plan = Plan(dimension=400)
    point = Point(family=family, clients=300, norm=0.6)
    table = vectors(plan, point, np.random.default_rng(0))
    lengths = np.linalg.norm(table, axis=1)
    assert lengths == pytest.approx(np.full(300, LENGTH))
    # The mean of the own directions has length 0.8 / sqrt(300).
    assert abs(float(np.linalg.norm(table.mean(axis=0))) - 0.6 * LENGTH) < 0.05
    largest = float(np.abs(table.mean(axis=0)).max())
    assert (largest > 0.4) is (family == "tail")


def test_the_genie_takes_the_cheapest_acceptable_rate():
    rows = [
        {"method": "fixed 1", "error": 1.0, "sent": 100},
        {"method": "fixed 4", "error": 1.9, "sent": 25},
        {"method": "fixed 8", "error": 2.1, "sent": 12},
        {"method": "doubling", "error": 0.1, "sent": 1},
    ]
    assert genie(Plan(), rows)["picked"] == "fixed 4"
