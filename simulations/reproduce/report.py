"""Plots and tables of the reproduction of cpSGD, from its plain figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from simulations.figures import BLUE, GREEN, GREY, ORANGE

COLOURS = (ORANGE, BLUE, GREEN, "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v")

Points = Sequence[Mapping[str, Any]]

WAYS = {
    "paper": ("paper's accountant", ORANGE, "o", "--"),
    "domination": ("domination, paper's sensitivities", "#CC79A7", "v", "-."),
    "coupled": ("domination, coupled sensitivities", BLUE, "s", "-"),
    "conditional": ("ours: conditional rounding, same bits", GREEN, "^", "-"),
}

ACCOUNTANTS = (
    ("theorem1", "Theorem 1", "--", "none"),
    ("domination", "domination", "-", "full"),
)


def plot_figure1(figures: Mapping[str, Any], path: Path) -> Path:
    """Plot error against epsilon: at several scales, and of a mean on k levels."""
    figure, (left, right) = _panels()
    _draw_scales(left, figures["figure1"])
    _draw_mean(right, figures["mean_estimation"])
    for axes in (left, right):
        axes.set_xlabel("epsilon")
        axes.set_ylabel("mean squared error, lower is better")
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_ticks(axes, [0.5, 1.0, 2.0, 4.0])
    return _saved(figure, path)


def plot_bits(figures: Mapping[str, Any], path: Path) -> Path:
    """Plot error against bits of a coordinate of a message, at two values of epsilon."""
    figure, panels = _panels()
    part = figures["mean_estimation"]
    available = _values(part["points"], "epsilon")
    chosen = (min(available, key=lambda e: abs(e - 1.0)), max(available))
    for axes, epsilon in zip(panels, chosen, strict=True):
        points = [point for point in part["points"] if point["epsilon"] == epsilon]
        axes.axhline(points[0]["gaussian_error"], color=GREY, label="Gaussian, exact condition")
        for way, (label, colour, marker, line) in WAYS.items():
            found = [p["ways"][way] for p in points if p["ways"].get(way) is not None]
            bits = [way_figures["bits"] for way_figures in found]
            errors = [way_figures["error"] for way_figures in found]
            axes.plot(bits, errors, line, color=colour, marker=marker, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("bits per coordinate and client, log2 of the alphabet")
        axes.set_ylabel("mean squared error, lower is better")
        levels = ", ".join(str(k) for k in _values(points, "levels"))
        axes.set_title(f"epsilon = {epsilon:g}; k = {levels}")
        axes.legend(fontsize=9)
    return _saved(figure, path)


def _draw_scales(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw Figure 1: two accountants at each scale, beside Gaussian noise."""
    points = part["points"]
    for place, inverse in enumerate(_values(points, "inverse_scale")):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        scale = "1" if inverse == 1 else f"1/{inverse}"
        rows = [point for point in points if point["inverse_scale"] == inverse]
        for who, name, line, fill in ACCOUNTANTS:
            found = [p for p in rows if p["error"][who] is not None]
            epsilons = [p["epsilon"] for p in found]
            errors = [p["error"][who] for p in found]
            (curve,) = axes.plot(epsilons, errors, line, color=colour, marker=marker)
            curve.set(fillstyle=fill, markersize=5.0, label=f"{name}, s = {scale}")
    rows = [point for point in points if point["inverse_scale"] == points[0]["inverse_scale"]]
    _draw_gaussians(axes, rows, [(p["error"]["lemma1"], p["error"]["gaussian"]) for p in rows])
    axes.set_title(f"binomial mechanism, d = {part['dimension']:,}, D2 = Dinf = {part['l2']:g}")
    axes.legend(fontsize=8, ncols=2)


def _draw_mean(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw the mean on k levels at the second largest k, or the largest of two."""
    levels = _values(part["points"], "levels")
    k = levels[-2] if len(levels) > 2 else levels[-1]
    rows = [point for point in part["points"] if point["levels"] == k]
    for way, (label, colour, marker, line) in WAYS.items():
        found = [p for p in rows if p["ways"].get(way) is not None]
        errors = [p["ways"][way]["error"] for p in found]
        axes.plot(
            [p["epsilon"] for p in found], errors, line, color=colour, marker=marker, label=label
        )
    _draw_gaussians(axes, rows, [(p["theorem2_error"], p["gaussian_error"]) for p in rows])
    axes.set_title(f"mean of {part['clients']:,} vectors, k = {k}, d = {part['dimension']:,}")
    axes.legend(fontsize=9)


def _draw_gaussians(axes: Axes, rows: Points, errors: Sequence[tuple[float, float]]) -> None:
    """Draw the Gaussian mechanism by the paper's formula and by the exact condition."""
    epsilons = [row["epsilon"] for row in rows]
    axes.plot(epsilons, [e for e, _ in errors], ":", color="black", label="Gaussian, paper")
    axes.plot(epsilons, [e for _, e in errors], "-", color=GREY, label="Gaussian, exact")


def _panels() -> tuple[Figure, tuple[Axes, Axes]]:
    """Return a figure with two panels side by side."""
    figure = Figure(figsize=(14, 6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for axes in panels:
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _plain_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Mark a logarithmic axis by plain numbers."""
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _saved(figure: Figure, path: Path) -> Path:
    """Write the PNG and return its path."""
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _values(points: Points, name: str) -> list[Any]:
    """Return the different values of a figure, in order of appearance."""
    return list(dict.fromkeys(point[name] for point in points))


def tables(figures: Mapping[str, Any]) -> str:
    """Return all figures as Markdown tables."""
    parts = [
        ("Theorems 3 and 4: measured, exact and printed error", _theorem_rows(figures)),
        ("Figure 1: error at equal epsilon", _scale_rows(figures)),
        ("The mean on k levels at equal epsilon", _mean_rows(figures)),
        ("The mean on k levels at equal error: bits per coordinate", _bits_rows(figures)),
    ]
    return "\n".join(f"## {title}\n\n{markdown(rows)}" for title, rows in parts)


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _theorem_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["theorem", "n", "d", "k", "m", "p", "vectors", "measured (95 %)", "exact"]]
    rows[0] += ["printed bound", "bound / measured"]
    for f in figures["theorems"]:
        row = [str(f[name]) for name in ("theorem", "clients", "dimension", "levels", "coins")]
        row += [f"{f['probability']:g}", f["inputs"]]
        row.append(f"{f['measured']:.5g} +- {f['confidence_half_width']:.2g}")
        row += [f"{f[name]:.5g}" for name in ("exact", "printed_bound")]
        rows.append([*row, f"{f['bound_over_measured']:.3f}"])
    return rows


def _scale_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["s", "epsilon", "N, Theorem 1", "N, domination", "error ratio", "bits saved"]]
    rows[0].append("domination / exact Gaussian")
    for p in figures["figure1"]["points"]:
        row = ["1" if p["inverse_scale"] == 1 else f"1/{p['inverse_scale']}"]
        row.append(f"{p['epsilon']:g}")
        row += [_shown(p["coins"][who], ",") for who in ("theorem1", "domination")]
        row += [_shown(p[name], ".2f") for name in ("error_ratio", "bits_saved")]
        rows.append([*row, _shown(p["excess_over_gaussian"], ".4f")])
    return rows


def _mean_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [
        ["k", "epsilon", "bits, paper", "error, paper", "accountant alone", "and sensitivities"]
    ]
    rows[0] += ["ours at the same bits", "exact Gaussian"]
    for p in figures["mean_estimation"]["points"]:
        paper, ratio = p["ways"]["paper"], p["error_ratio"]
        gains = [_times(ratio.get(way)) for way in ("domination", "coupled", "conditional")]
        row = [str(p["levels"]), f"{p['epsilon']:g}"]
        row += [_shown(paper and paper["bits"], ".2f"), _shown(paper and paper["error"], ".4g")]
        gaussian = None if paper is None else paper["error"] / p["gaussian_error"]
        rows.append([*row, *gains, _times(gaussian)])
    return rows


def _bits_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["k", "epsilon", "paper", "its mechanism, our accountant", "saved", "ours", "saved"]]
    for p in figures["mean_estimation"]["points"]:
        paper = p["ways"]["paper"]
        row = [str(p["levels"]), f"{p['epsilon']:g}", _shown(paper and paper["bits"], ".2f")]
        for way in ("coupled", "conditional"):
            found = p["at_equal_error"][way]
            row += [_shown(found and found["bits"], ".2f"), _shown(p["bits_saved"].get(way), ".2f")]
        rows.append(row)
    return rows


def _times(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f} times"


def _shown(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)
