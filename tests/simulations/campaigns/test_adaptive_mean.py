"""`veilsum reproduce adaptive-mean`: figures, page, plot, and what the Genie may pick."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from simulations.reproduce.adaptive_mean import growth
from simulations.reproduce.adaptive_mean.campaign import CAMPAIGN, genie
from simulations.reproduce.adaptive_mean.means import LENGTH, Point, Setting, needed, vectors


@pytest.mark.slow
def test_every_method_runs_in_both_forms_within_its_budget(written: Callable[..., Any]) -> None:
    plan = CAMPAIGN.presets["quick"]
    figures, folder = written(CAMPAIGN, plan, 3)
    assert len(figures["points"]) == len(plan.points)
    for point in figures["points"]:
        assert set(point["forms"]) == {"untrusted", "central"}
        for rows in point["forms"].values():
            assert {row["method"] for row in rows} == {*plan.methods(), "genie"}
            for row in rows:
                assert 0 < row["most_spent"] <= plan.epsilon
                assert row["error"] > 0 and row["sent"] >= 5
    assert "Adapt Tail, top-k" in (folder / "adaptive-mean.md").read_text()


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


def _runs(power: float, rise: float = 0.0, spread: float = 0.0) -> list[dict[str, Any]]:
    """Made-up runs whose ratios are log2(d)^power d^rise, the latter by `spread` among seeds."""
    return [
        {
            "form": "untrusted",
            "family": "norm",
            "seed": seed,
            "dimension": d,
            "charged": d.bit_length() - 1,
            "error": 7.0 * math.log2(d) ** power * d ** (rise + (seed - 2) * spread),
            "plain": 7.0,
        }
        for d in (2**10, 2**14, 2**17, 2**20)
        for seed in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (_runs(1.0), REPRODUCED),  # one logarithm, that of the rounds charged
        (_runs(1.0, spread=0.1), UNDECIDED),  # too few seeds for what they differ by
        (_runs(1.0, rise=0.06), UNDECIDED),  # could be a second logarithm
        (_runs(2.5), NOT_REPRODUCED),  # more logarithms than the theorem has
        (_runs(0.0, rise=0.5), NOT_REPRODUCED),  # a power of d
    ],
)
def test_each_verdict_on_growth_is_given(runs: list[dict[str, Any]], expected: str) -> None:
    (fit,) = growth.slopes(runs, "error")
    assert fit["verdict"] == expected


def test_slopes_are_those_that_ratios_were_made_with() -> None:
    (fit,) = growth.slopes(_runs(1.5), "error")
    assert fit["power"] == pytest.approx(1.5)
    (fit,) = growth.slopes(_runs(1.0, rise=0.3), "error")
    assert fit["rest"] == pytest.approx(0.3)


def test_one_case_against_the_theorem_is_enough() -> None:
    fits = growth.slopes(_runs(1.0), "error") + growth.slopes(_runs(2.5), "error")
    sent = [{**fit, "what": "sent"} for fit in fits[:1]]
    found = growth.claims({"fits": [*fits, *sent]})
    assert [claim.verdict for claim in found] == [NOT_REPRODUCED, REPRODUCED]


# Squared tails of the mean below: 13.0002, 4.0002, 0.0002, 0.0001.
@pytest.mark.parametrize(
    ("variance", "expected"), [(0.01, 2), (2.0, 2), (4.5, 1), (5e-5, 3), (1e-9, 4)]
)
def test_needed_is_the_least_size_whose_tail_is_below_the_noise(
    variance: float, expected: int
) -> None:
    mean = np.array([0.01, -3.0, 2.0, 0.01])
    assert needed(mean, variance) == expected


@pytest.mark.slow
def test_growth_is_measured_within_budgets_on_a_page_of_its_own(
    tmp_path: Path, reproduced: Callable[..., dict[str, Any]]
) -> None:
    changes = ("--set", "dimensions=32,64,128", "--set", "clients=16")
    figures = reproduced(
        "adaptive-mean", "--preset", "growth", *changes, "--seeds", "2", "--out", tmp_path
    )
    assert len(figures["runs"]) == 3 * 2 * 2 * 2 and len(figures["claims"]) == 2
    assert all(0 < run["spent"] <= figures["epsilon"] for run in figures["runs"])
    assert all(1 <= run["needed"] <= run["dimension"] for run in figures["runs"])
    assert "Growth with d" in (tmp_path / "adaptive-mean-growth.md").read_text()
    assert (tmp_path / "adaptive-mean-growth.png").read_bytes().startswith(b"\x89PNG")
