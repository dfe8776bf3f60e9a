"""Plots of a training run, one PNG each, from plain per-round records.

Every function is pure up to the file it writes: it takes records, draws on its own ``Figure``
(never on matplotlib's global state) and returns the path. Colours are those of Okabe and Ito,
told apart with any colour vision; curves also differ in marker and line style.

May use matplotlib; must not know how the records come about.

Source: Okabe and Ito 2008, "Color Universal Design".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
LOSS_COLOURS = ("#56B4E9", "#0072B2", ORANGE, "#E69F00", "#CC79A7", "#F0E442")
GREY = "#5F5F5F"

WIDTH_PIXELS = 900
HEIGHT_PIXELS = 500
DOTS_PER_INCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What one round left behind, as far as the plots need it.

    Args:
        round: number of the round, from 1.
        accuracy: on the test split after the round, in [0, 1].
        loss: on the test split after the round, in nats.
        sketch_size: values per client that entered the sum (L).
        dimension: parameters of the model (d).
        compression: ``dimension / sketch_size``.
        bits: size of a field element on the wire.
        bytes_per_client: mean number of bytes a client sent.
        cohort: clients invited.
        survivors: clients whose update entered the sum.
        epsilon_server: spent so far by one client against the server.
        epsilon_outsider: spent so far by one client against who sees only the released models.
        lost: clients lost by named stage before they uploaded, in protocol order. May be empty.
        lost_later: clients whose update entered the sum and who were lost afterwards, likewise.

    Raises:
        ValueError: survivors or lost clients do not fit in the cohort.
    """

    round: int
    accuracy: float
    loss: float
    sketch_size: int
    dimension: int
    compression: float
    bits: int
    bytes_per_client: float
    cohort: int
    survivors: int
    epsilon_server: float
    epsilon_outsider: float
    lost: Mapping[str, int] = field(default_factory=dict)
    lost_later: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the clients add up."""
        if not 0 <= self.survivors <= self.cohort:
            raise ValueError(f"survivors {self.survivors} must lie in [0, {self.cohort}]")
        if any(count < 0 for count in (*self.lost.values(), *self.lost_later.values())):
            raise ValueError("lost clients must not be negative")
        if sum(self.lost_later.values()) > self.survivors:
            raise ValueError(f"more than the {self.survivors} survivors were lost later")
        if self.unexplained < 0:
            raise ValueError(
                f"{sum(self.lost.values())} lost and {self.survivors} surviving clients are more "
                f"than the cohort of {self.cohort}"
            )

    @property
    def unexplained(self) -> int:
        """Return how many clients were lost at no named stage."""
        return self.cohort - self.survivors - sum(self.lost.values())


def write_figures(
    records: Sequence[RoundRecord], folder: Path, *, baseline: Sequence[float] = ()
) -> tuple[Path, ...]:
    """Write all plots into a folder, which is created if need be; return their paths.

    Raises:
        ValueError: there is no record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return (
        plot_accuracy(records, folder / "accuracy.png", baseline=baseline),
        plot_sketch(records, folder / "sketch.png"),
        plot_epsilon(records, folder / "epsilon.png"),
        plot_clients(records, folder / "clients.png"),
    )


def plot_accuracy(
    records: Sequence[RoundRecord], path: Path, *, baseline: Sequence[float] = ()
) -> Path:
    """Plot test accuracy by round, beside that of a run without privacy if given.

    Args:
        records: one per round.
        path: the PNG to write.
        baseline: accuracy after rounds 1, 2, ... of the run without privacy and compression.

    Raises:
        ValueError: there is no record.
    """
    figure, axes = _start(records, "Test accuracy by round")
    if baseline:
        rounds = range(1, len(baseline) + 1)
        label = f"without privacy or compression (last: {baseline[-1]:.1%})"
        _curve(axes, rounds, baseline, GREY, "s", "--", label)
    accuracies = [record.accuracy for record in records]
    label = f"private and compressed (last: {accuracies[-1]:.1%})"
    _curve(axes, _rounds(records), accuracies, BLUE, "o", "-", label)
    axes.set_ylabel("test accuracy")
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    axes.legend(loc="lower right")
    return _finish(figure, path)


def plot_sketch(records: Sequence[RoundRecord], path: Path) -> Path:
    """Plot the sketch size and the compression rate by round, one panel above the other.

    Raises:
        ValueError: there is no record.
    """
    figure, upper = _start(records, "Size of the autotuned sketch by round", rows=2)
    lower = figure.axes[1]
    rounds, sizes = _rounds(records), [record.sketch_size for record in records]
    upper.axhline(records[0].dimension, color=GREY, linestyle="--", label="model dimension d")
    _curve(upper, rounds, sizes, BLUE, "o", "-", "sketch size L")
    upper.set_ylabel("values per client")
    upper.set_ylim(0, 1.1 * max(records[0].dimension, *sizes))
    upper.legend(loc="center right")
    average = sum(record.dimension for record in records) / sum(sizes)
    _curve(lower, rounds, [r.compression for r in records], ORANGE, "^", "-", "this round")
    lower.axhline(average, color=GREEN, linestyle=":", label=f"whole run: {average:.2f}x")
    lower.set_ylabel("compression d / L")
    lower.set_ylim(bottom=0.0)
    lower.legend(loc="upper left")
    return _finish(figure, path)


def plot_epsilon(records: Sequence[RoundRecord], path: Path) -> Path:
    """Plot the epsilon that one client has spent by round, against server and outsider.

    Infinite values are left out of the curve and named in its label.

    Raises:
        ValueError: there is no record.
    """
    figure, axes = _start(records, "Privacy spent by one client, lower is better")
    rounds = _rounds(records)
    server = [record.epsilon_server for record in records]
    outsider = [record.epsilon_outsider for record in records]
    for values, who, colour, marker, line in (
        (server, "against the server", ORANGE, "o", "-"),
        (outsider, "against an outsider", BLUE, "s", "--"),
    ):
        shown = [value if math.isfinite(value) else math.nan for value in values]
        _curve(axes, rounds, shown, colour, marker, line, f"{who} (last: {values[-1]:.2f})")
    finite = [value for value in server + outsider if math.isfinite(value)]
    axes.set_ylabel("epsilon so far")
    axes.set_ylim(0.0, 1.1 * max(finite, default=0.0) or 1.0)
    axes.legend(loc="lower right")
    return _finish(figure, path)


def plot_clients(records: Sequence[RoundRecord], path: Path) -> Path:
    """Plot how many clients survived each round and where the others were lost.

    Raises:
        ValueError: there is no record.
    """
    figure, axes = _start(records, "Clients of each round: survivors and losses by stage")
    rounds = _rounds(records)
    base = [0] * len(records)
    for label, colour, counts in _client_layers(records):
        axes.bar(
            rounds, counts, bottom=base, color=colour, label=label, edgecolor="white", width=0.85
        )
        base = [low + count for low, count in zip(base, counts, strict=True)]
    axes.set_ylabel("clients")
    axes.set_ylim(0, 1.3 * max(record.cohort for record in records))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper center", ncols=3)
    return _finish(figure, path)


def _client_layers(records: Sequence[RoundRecord]) -> list[tuple[str, str, list[int]]]:
    """Return label, colour and counts by round of each layer of the stacked bars."""
    finished = [record.survivors - sum(record.lost_later.values()) for record in records]
    layers = [("in the sum", GREEN, finished)]
    later = [
        (stage, "in the sum, lost at", "lost_later") for stage in _stages(records, "lost_later")
    ]
    before = [(stage, "lost at", "lost") for stage in _stages(records, "lost")]
    for place, (stage, words, attribute) in enumerate(later + before):
        colour = LOSS_COLOURS[place % len(LOSS_COLOURS)]
        counts = [getattr(record, attribute).get(stage, 0) for record in records]
        layers.append((f"{words} {stage}", colour, counts))
    unexplained = [record.unexplained for record in records]
    if any(unexplained):
        layers.append(("lost", GREY, unexplained))
    return layers


def _stages(records: Sequence[RoundRecord], attribute: str) -> list[str]:
    """Return the stages at which anybody was lost, in order of first appearance."""
    return list(dict.fromkeys(stage for record in records for stage in getattr(record, attribute)))


def _rounds(records: Sequence[RoundRecord]) -> list[int]:
    """Return the numbers of the rounds."""
    return [record.round for record in records]


def _start(records: Sequence[RoundRecord], title: str, *, rows: int = 1) -> tuple[Figure, Axes]:
    """Return a titled figure with panels above one another, and its first panel."""
    if not records:
        raise ValueError("a plot needs at least one round")
    figure = Figure(
        figsize=(WIDTH_PIXELS / DOTS_PER_INCH, HEIGHT_PIXELS / DOTS_PER_INCH),
        dpi=DOTS_PER_INCH,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    for row in range(rows):
        axes = figure.add_subplot(rows, 1, row + 1)
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelsize=12)
        axes.yaxis.label.set_fontsize(13)
    axes.set_xlabel("round", fontsize=13)
    figure.axes[0].set_title(title, fontsize=15)
    return figure, figure.axes[0]


def _curve(
    axes: Axes,
    rounds: Sequence[int],
    values: Sequence[float],
    colour: str,
    marker: str,
    line: str,
    label: str,
) -> None:
    """Draw one labelled curve."""
    axes.plot(
        rounds,
        values,
        color=colour,
        marker=marker,
        linestyle=line,
        label=label,
        linewidth=2.0,
        markersize=5.0,
    )


def _finish(figure: Figure, path: Path) -> Path:
    """Write the PNG and return its path."""
    figure.savefig(path, format="png", metadata={"Software": None})
    return path
