"""The plot of what a server could tell about one client: false alarms against misses."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from dp import FailingGaussian
from dp.accounting import gaussian_mu
from simulations.common.figures import BLUE, ORANGE
from simulations.common.pages.svg import INK, Chart, Table, blank, legend, ruled, write_svg
from simulations.learning.records import Epsilons
from simulations.reports.run.folders import Run
from simulations.reports.run.plots import HEIGHT_INCHES, LEGEND_INCHES, WIDTH_INCHES

TITLE: Final = "What the server could tell about one client"
SHOWN: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
"""False alarms of the table."""

_SAID: Final = 2
"""Which of them is put into words."""

_POINTS: Final = 201


def trade_off_chart(run: Run, name: str) -> Chart | None:
    """Plot the trade-off curve against the server; None where no epsilon is finite.

    The curve is that of the pair that dominates the run, where the records have it; else all that
    one (epsilon, delta) says.
    """
    last = run.records[-1]["epsilons"]
    spent = float(last.get("server", math.inf))
    if not math.isfinite(spent):
        return None
    alarms = np.linspace(0.0, 1.0, _POINTS)
    goal = run.config.privacy.epsilon
    figure, (axes,) = blank(WIDTH_INCHES, HEIGHT_INCHES + 2 * LEGEND_INCHES)
    ruled(axes, "y")
    handles = axes.plot(
        alarms, least_misses(last, alarms), color=BLUE, lw=1.8, label="by what is spent so far"
    )
    if goal is not None:
        promised = promised_misses(goal, run.config.privacy.delta, last, alarms)
        handles += axes.plot(
            alarms, promised, color=ORANGE, ls="--", lw=1.8, label="by what is guaranteed"
        )
    handles += axes.plot(alarms, 1.0 - alarms, color=INK, ls=":", lw=1.2, label="by a blind guess")
    axes.set_xlabel('false alarms: "took part", wrongly', fontsize=11)
    axes.set_ylabel('misses: "sent zeros", wrongly', fontsize=11)
    for axis, limit in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        axis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
        limit(0.0, 1.0)
    legend(figure, handles, 2)
    shown = np.array(SHOWN)
    found = least_misses(last, shown)
    columns = ["false alarms", "misses, at least"]
    cells = [[f"{alarm:.3g}" for alarm in SHOWN], [f"{miss:.4g}" for miss in found]]
    said = ""
    if goal is not None:
        columns.append("by the goal")
        promised = promised_misses(goal, run.config.privacy.delta, last, shown)
        cells.append([f"{miss:.4g}" for miss in promised])
        said = f"Guaranteed for every client, wherever the run stops: {_at_least(promised)}. "
    text = (
        "Errors of any test that decides, from everything that the server saw, whether a client "
        f"gave its updates or zeros. {said}A reading, from what the busiest client has spent so "
        f"far: {_at_least(found)}."
    )
    rows = tuple(zip(*cells, strict=True))
    return Chart(TITLE, text, write_svg(name, TITLE, text, figure), Table(tuple(columns), rows))


def _at_least(misses: NDArray[np.float64]) -> str:
    """What a chart says of the misses at the false alarms that are shown."""
    return f"at most {SHOWN[_SAID]:.0%} false alarms mean at least {misses[_SAID]:.2%} misses"


def least_misses(epsilons: Epsilons, alarms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least type II error against the server at each type I error, by a record's epsilons."""
    pair = epsilons.get("gaussian")
    if pair is not None:
        return FailingGaussian(float(pair["failure"]), float(pair["mu"])).type_two_error(alarms)
    return misses_of_point(float(epsilons["server"]), float(epsilons["delta"]), alarms)


def promised_misses(
    goal: float, delta: float, epsilons: Epsilons, alarms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The least type II error that a goal leaves, however the run goes on.

    A run counted by domination stops at the largest Gaussian that its goal has room for, next to
    the failures that were set aside; of another run one (epsilon, delta) is all that is promised.
    """
    pair = epsilons.get("gaussian")
    if pair is None:
        return misses_of_point(goal, delta, alarms)
    failure = float(pair["failure"])
    return FailingGaussian(failure, gaussian_mu(goal, delta - failure)).type_two_error(alarms)


def misses_of_point(
    epsilon: float, delta: float, alarms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The least type II error that one (epsilon, delta) leaves.

    Source: Wasserman and Zhou 2010 (arXiv 0811.2501); Kairouz, Oh and Viswanath 2015.
    """
    steep = 1.0 - delta - math.exp(min(epsilon, 700.0)) * alarms
    flat = math.exp(-epsilon) * (1.0 - delta - alarms)
    return np.maximum(0.0, np.maximum(steep, flat))
