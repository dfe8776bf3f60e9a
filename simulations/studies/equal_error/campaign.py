"""Epsilon at equal error: `veilsum reproduce equal-error`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.plots import curves, dress, panels, style
from simulations.campaigns.render import Column, Part, pivot
from simulations.campaigns.rows import Figures, Row, distinct
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.studies.equal_error.systems import Task, compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is varied."""

    # z, the error of a coordinate of the sum over the clip
    noises: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    clients: int = 100  # of the sum
    dimension: int = 1 << 20  # of a vector, a power of two

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for figures that no system can be set to."""
        if not all(0.1 <= noise <= 100.0 for noise in self.noises):
            raise ValueError(f"noises must be in 0.1 .. 100, got {self.noises}")
        if not 2 <= self.clients <= 1_000_000:
            raise ValueError(f"clients must be in 2 .. 1,000,000, got {self.clients}")

    @property
    def task(self) -> Task:
        """Return the sum, at the usual noise."""
        return Task(clients=self.clients, dimension=self.dimension)


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Compare all systems at every noise."""
    task, noises = study.plan.task, sorted(set(study.plan.noises))
    cells = [Cell(f"z = {z:g}", compared, (replace(task, noise=z),)) for z in noises]
    found = zip(noises, study.results(cells), strict=True)
    points = [{"noise": noise, "systems": systems} for noise, systems in found]
    return {"task": asdict(task), "points": points}


def _rows(figures: Figures) -> list[Row]:
    return [{"z": point["noise"], **row} for point in figures["points"] for row in point["systems"]]


def _parts(figures: Figures) -> Iterator[Part]:
    rows, head = _rows(figures), "z = {:g}".format
    labels = (Column("system", "system"), Column("trusted with vectors", "trust"))
    for place, rounds in enumerate(figures["task"]["rounds"]):
        after = "one round" if rounds == 1 else f"{rounds} rounds"
        listed = [{**row, "shown": _shown(row["epsilon"][place])} for row in rows]
        cell, title = Column("", "shown"), f"Epsilon of {after}, by z"
        yield pivot(title, labels, "z", cell, listed, head=head, brief=True)
    cell = Column("", lambda row: _shown(row["bits"]))
    yield pivot("Bits of a coordinate, by z", labels, "z", cell, rows, head=head)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def plot(figures: Figures) -> Figure:
    """Plot the epsilon of one round against the error."""
    figure, [[axes]] = panels(1, 1, 9, 6)
    rows = _rows(figures)
    looks = {name: style(place, name) for place, name in enumerate(distinct(rows, "system"))}
    curves(axes, rows, "system", looks, "z", lambda row: float(row["epsilon"][0]))
    x, y = "error z of a coordinate of the sum, over the clip", "epsilon of one round"
    ticks = sorted(distinct(rows, "z"))
    dress(axes, x, f"{y}, lower is better", log="xy", ticks=ticks, legend="right")
    return figure


CAMPAIGN = Campaign(
    name="equal-error",
    title="Epsilon of this system and of others, at equal error",
    presets={"usual": Plan(), "quick": Plan(dimension=1 << 10)},
    figures=figures_of,
    parts=_parts,
    plots={"epsilon": plot},
)
