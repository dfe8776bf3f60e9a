"""`veilsum reproduce equal-error`: errors are equal, epsilons are those of the analyses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dp import NoiseSeed
from dp.accounting import gaussian_epsilon
from dp.local import best_priv_quant
from simulations.studies.equal_error.campaign import CAMPAIGN
from simulations.studies.equal_error.systems import Task, compared

SMALL = Task(clients=20, dimension=256, noise=2.0, rounds=(1, 10))


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    """The comparison at a small size, by system."""
    return {row["system"]: row for row in compared(SMALL)}


def test_a_trusted_server_has_the_epsilon_of_gaussian_noise(rows: dict[str, Any]) -> None:
    expected = [gaussian_epsilon(math.sqrt(k) / SMALL.noise, SMALL.delta) for k in SMALL.rounds]
    assert rows["Gaussian noise of the server"]["epsilon"] == pytest.approx(expected, rel=1e-6)


def test_ours_is_between_the_trusted_server_and_all_other_sums(rows: dict[str, Any]) -> None:
    central = rows["Gaussian noise of the server"]["epsilon"]
    ours = rows["veilsum: binomial, domination"]["epsilon"]
    assert all(a < b < 1.1 * a for a, b in zip(central, ours, strict=True))
    for name in (
        "the same, by cpSGD's Theorem 1",
        "discrete Gaussian, as published",
        "Skellam, as published",
        "cpSGD as printed",
    ):
        assert all(a < float(b) for a, b in zip(ours, rows[name]["epsilon"], strict=True))


def test_local_reports_have_the_error_that_is_left_to_each(rows: dict[str, Any]) -> None:
    """The sum of n reports of zero has n times the error of one, measured."""
    epsilon = rows["sqSGD's PrivQuant, 2 levels"]["epsilon"][0]
    way = best_priv_quant(SMALL.dimension, 2, SMALL.coordinate_clip, epsilon)
    runs = 2_000
    vectors = np.zeros((runs, SMALL.dimension))
    reports = way.randomize(vectors, NoiseSeed(bytes(32)))
    errors = [float((reports.estimate(i) ** 2).sum()) for i in range(runs)]
    # Every coordinate of a report is U/m or -U/m: the error of a report does not vary.
    assert max(errors) == pytest.approx(min(errors))
    total = SMALL.clients * errors[0] / SMALL.dimension
    assert SMALL.noise**2 / 1.01 < total <= SMALL.noise**2 * (1 + 1e-9)


def test_an_error_that_no_report_can_have_is_infinite() -> None:
    """Two levels of a report alone are further apart than that."""
    tiny = {row["system"]: row for row in compared(replace(SMALL, noise=0.1))}
    assert tiny["sqSGD's PrivQuant, 2 levels"]["epsilon"] == ["inf", "inf"]


def test_more_error_is_less_epsilon_everywhere(rows: dict[str, Any]) -> None:
    louder = {row["system"]: row for row in compared(replace(SMALL, noise=4.0))}
    for name, row in rows.items():
        assert float(louder[name]["epsilon"][0]) < float(row["epsilon"][0]), name


@pytest.mark.slow
def test_every_system_is_on_the_page(written: Callable[..., Any]) -> None:
    figures, folder = written(CAMPAIGN, replace(CAMPAIGN.presets["quick"], noises=(4.0, 1.0)))
    assert [point["noise"] for point in figures["points"]] == [1.0, 4.0]
    page = (folder / "equal-error.md").read_text()
    assert all(row["system"] in page for row in figures["points"][0]["systems"])
