"""What a server could tell: the curve of the pair if the records have it, else that of a point."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import drawn, record
from scipy import stats

from dp import FailingGaussian
from simulations.common.pages import Chart
from simulations.reports.run.trade_off import (
    least_misses,
    misses_of_point,
    promised_misses,
    trade_off_chart,
)

ALARMS = np.linspace(0.0, 1.0, 41)


def chart_of(path: Path, **epsilons: Any) -> Chart | None:
    last = record(2)
    last["epsilons"] = {**last["epsilons"], **epsilons}
    return drawn(trade_off_chart, path, [record(1), last])


def test_the_curve_of_a_pair(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, gaussian={"failure": 3e-7, "mu": 0.42})
    assert chart.table.columns == ("false alarms", "misses, at least", "by the goal")
    expected = stats.norm.cdf(stats.norm.isf(0.05) - 0.42)
    (row,) = [cells for cells in chart.table.rows if cells[0] == "0.05"]
    assert float(row[1]) == pytest.approx(expected, rel=1e-3)
    # The goal leaves less than what was spent so far.
    assert float(row[2]) < float(row[1])
    promise, reading = chart.text.split("A reading, from what the busiest client")
    assert "Guaranteed for every client, wherever the run stops" in promise
    assert f"at most 5% false alarms mean at least {float(row[2]):.2%} misses" in promise
    assert "at most 5% false alarms mean at least 88.97% misses" in reading


def test_a_point_says_less_than_a_pair() -> None:
    """The pair meets (epsilon, delta), so its curve lies above that of the point."""
    pair = FailingGaussian(1e-6, 0.7)
    epsilons = {"gaussian": {"failure": 1e-6, "mu": 0.7}, "delta": 1e-5}
    point = {"server": pair.epsilon(1e-5), "delta": 1e-5}
    both = least_misses(epsilons, ALARMS), least_misses(point, ALARMS)
    assert np.all(both[0] >= both[1] - 1e-12)
    assert both[0][10] > both[1][10] + 0.1


def test_the_goal_of_a_pair_is_the_largest_gaussian_it_has_room_for() -> None:
    epsilons = {"gaussian": {"failure": 1e-6, "mu": 0.7}}
    pair = FailingGaussian(1e-6, 0.7)
    promised = promised_misses(pair.epsilon(1e-5), 1e-5, epsilons, ALARMS)
    np.testing.assert_allclose(promised, pair.type_two_error(ALARMS), rtol=1e-9, atol=1e-12)
    assert np.all(promised_misses(1.0, 1e-5, {}, ALARMS) == misses_of_point(1.0, 1e-5, ALARMS))


def test_a_point_by_its_definition() -> None:
    """1 - beta <= e^eps a + delta and 1 - a <= e^eps beta + delta, and one of them is tight."""
    found = misses_of_point(0.8, 1e-2, ALARMS)
    slack = [
        math.exp(0.8) * ALARMS + 1e-2 - (1.0 - found),
        math.exp(0.8) * found + 1e-2 - (1.0 - ALARMS),
    ]
    assert np.all(np.minimum(*slack) > -1e-12)
    assert np.all((np.abs(np.minimum(*slack)) < 1e-12) | (found == 0.0))


def test_no_curve_without_an_epsilon(tmp_path: Path) -> None:
    assert chart_of(tmp_path, server="inf") is None
