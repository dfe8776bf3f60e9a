"""Tables and the summary of the reproduction of cpSGD, from its plain figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulations.reproduce.cpsgd.plot import plot_bits, plot_figure1
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.text import section, shown


def tables(figures: Mapping[str, Any]) -> str:
    """Return all figures as Markdown tables."""
    parts = [
        ("Theorems 3 and 4: measured, exact and printed error", _theorem_rows(figures)),
        ("Figure 1: error at equal epsilon", _scale_rows(figures)),
        ("The mean on k levels at equal epsilon", _mean_rows(figures)),
        ("The mean on k levels at equal error: bits per coordinate", _bits_rows(figures)),
    ]
    return "\n".join(section(*part) for part in parts)


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
        row += [_or_none(p["coins"][who], ",") for who in ("theorem1", "domination")]
        row += [_or_none(p[name], ".2f") for name in ("error_ratio", "bits_saved")]
        rows.append([*row, _or_none(p["excess_over_gaussian"], ".4f")])
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
        row += [_or_none(paper and paper["bits"], ".2f"), _or_none(paper and paper["error"], ".4g")]
        gaussian = None if paper is None else paper["error"] / p["gaussian_error"]
        rows.append([*row, *gains, _times(gaussian)])
    return rows


def _bits_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["k", "epsilon", "paper", "its mechanism, our accountant", "saved", "ours", "saved"]]
    for p in figures["mean_estimation"]["points"]:
        paper = p["ways"]["paper"]
        row = [str(p["levels"]), f"{p['epsilon']:g}", _or_none(paper and paper["bits"], ".2f")]
        for way in ("coupled", "conditional"):
            found = p["at_equal_error"][way]
            row += [
                _or_none(found and found["bits"], ".2f"),
                _or_none(p["bits_saved"].get(way), ".2f"),
            ]
        rows.append(row)
    return rows


def _times(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f} times"


def _or_none(value: float | None, form: str) -> str:
    return shown(value, form, "none")


def _summary(figures: Mapping[str, Any]) -> Iterator[str | Titled]:
    """Yield the tables of errors and of bits, and the findings that are no table."""
    yield "mean squared error", _short_theorem_rows(figures)
    yield "the paper's error over ours, and bits saved at equal error", _short_mean_rows(figures)
    ratios = [p["error_ratio"] for p in figures["figure1"]["points"] if p["error_ratio"]]
    refuted = figures["theorem1_refuted"]
    yield (
        f"Figure 1: at equal epsilon Theorem 1 allows {min(ratios):.2f} to {max(ratios):.1f} times "
        "the error of domination, more the larger the scale s."
    )
    yield (
        f"Theorem 1 is false for large epsilon: with |x - x'|/sigma = "
        f"{refuted['l2_over_sigma']:.3f} it says epsilon = {refuted['theorem1_epsilon']:.2f} at "
        f"delta = {refuted['delta']:g}; the true delta there is at least "
        f"{refuted['true_delta_at_least']:.2g}."
    )


def _short_theorem_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["theorem", "n", "d", "k", "m", "p", "vectors", "measured", "exact"]]
    rows[0] += ["bound", "bound / measured"]
    for f in figures["theorems"]:
        counts = [str(f[name]) for name in ("clients", "dimension", "levels", "coins")]
        errors = [f"{f[name]:.4g}" for name in ("measured", "exact", "printed_bound")]
        case = [f["theorem"], *counts, f"{f['probability']:g}", f["inputs"]]
        rows.append([*case, *errors, f"{f['bound_over_measured']:.3f}"])
    return rows


def _short_mean_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = [["k", "epsilon", "accountant", "and sensitivities", "our mechanism"]]
    rows[0] += ["bits saved, its mechanism", "bits saved, ours"]
    for p in figures["mean_estimation"]["points"]:
        values = [p["error_ratio"].get(way) for way in ("domination", "coupled", "conditional")]
        values += [p["bits_saved"].get(way) for way in ("coupled", "conditional")]
        row = [str(p["levels"]), f"{p['epsilon']:g}"]
        rows.append([*row, *(_or_none(value, ".2f") for value in values)])
    return rows


REPORT = Report(
    "cpsgd",
    {
        "tables": ("-tables.md", tables),
        "figure1": ("-figure1.png", plot_figure1),
        "bits": ("-bits.png", plot_bits),
    },
    _summary,
)
