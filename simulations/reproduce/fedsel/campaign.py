"""FedSel's tables and figures: `veilsum reproduce fedsel`.

The paper trains everything with one learning rate and does not say which. It matters more than
anything else here: flat mechanisms scale a coordinate up by d and two-stage ones do not, so that
one rate is d times too large for the one or too small for the other. So every comparison is made
both ways: at common rates, and with each arm's own best rate, found in repetitions of their own.
Beside accuracy stands balanced accuracy, which tells a model from a constant answer.

Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import NOT_REPRODUCED
from simulations.campaigns.plots import Legend, Style, curve, curves, dress, level, panels
from simulations.campaigns.render import (
    Column,
    Grid,
    Part,
    claims_table,
    percent,
    pivot,
    table,
)
from simulations.campaigns.rows import Figures, Row, where
from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.fedsel.claims import claims
from simulations.reproduce.fedsel.figures import OWN, figures_of, modes
from simulations.reproduce.fedsel.plan import HONEST, PRESETS, SWEPT

TABLE, MODEL, RATE = Column("table", "table"), Column("model", "model"), Column("rate", "mode")
ARM = Column("arm", "arm")


def _interval(head: str, key: str) -> Column:
    return percent(head, f"{key}.mean", f"{key}.half", "+.2f")


GAIN, LOSS = _interval("", "gain"), _interval("", "loss")


def _gain_and_loss(row: Row) -> str:
    cell = f"{GAIN.cell(row)} / {LOSS.cell(row)}"
    if "paper_gain" not in row:
        return cell
    return f"{cell} [{100 * row['paper_gain']:.2f} / {100 * row['paper_loss']:.2f}]"


def _both(row: Row) -> str:
    cell = f"{100 * row['accuracy']['mean']:.1f} / {100 * row['balanced']['mean']:.1f}"
    return f"{cell} (rate {row['rate']:g})" if row["mode"] == OWN else cell


def _beside_pm(row: Row) -> str:
    accuracy = f"{100 * row['accuracy']['mean']:.2f}"
    return f"{accuracy} ({GAIN.cell(row)})" if "gain" in row else accuracy


def _error(row: Row) -> str:
    return f"{100 * (1 - row['accuracy']['mean']):.2f}, {100 * row['deviation']:.2f}"


def _by_arm(
    title: str,
    labels: tuple[Column, ...],
    cell: Any,
    rows: Sequence[Row],
    arms: Mapping[str, str] | None = None,
) -> Grid:
    """Return a table with a column for each arm; of some arms, by the heads that they have."""
    if arms is None:
        return pivot(title, labels, "arm", Column("", cell), rows, head=str)
    found = [row for row in rows if row["arm"] in arms]
    return pivot(title, labels, "arm", Column("", cell), found, head=arms.__getitem__)


SPENT = (
    TABLE,
    Column("d", "features"),
    ARM,
    Column("choice, printed", "choice_printed", ".6f"),
    Column("choice, exact", "choice_exact", ".6f"),
    Column("report, exact", "exact", ".6f"),
)


CHOSEN = (
    TABLE,
    RATE,
    Column("read after", lambda row: f"{row['steps']} steps" if row["steps"] else "the epoch"),
    Column("epsilon of the choice", "epsilon", "g"),
)
BATCHES = (Column("users of a step", "clients"), Column("mu", "share", ".3g"))
NOISE = (
    Column("d", "dimension", ",d"),
    ARM,
    Column("chance of a coordinate, times d", "most", ".3f"),
    Column("largest noise", "noise", ".3g"),
    Column("gradient left", "left", ".3g"),
    Column("noise over what is left", "relative", ".3g"),
)


def _cases(figures: Figures) -> Grid:
    """Return cases for and against each claim, a column for each way to choose rates."""
    rows = []
    for claim in figures["claims"]:
        text, _, rate = claim["statement"].rpartition("; ")
        cases, more, against = (int(each) for each in re.findall(r"\d+", claim["seen"])[:3])
        marked = "" if claim["verdict"] == NOT_REPRODUCED else f", {claim['verdict']}"
        cell = f"{more} / {against} of {cases}{marked}"
        rows.append({"claim": text, "source": claim["source"], "rate": rate, "cell": cell})
    labels = (Column("claim", "claim"), Column("source", "source"))
    return pivot("Cases for / against", labels, "rate", Column("", "cell"), rows, head=str)


def _parts(figures: Figures) -> Iterator[Part]:
    plan, rows = figures["plan"], figures["table3"]
    counted = [claim for claim in figures["claims"] if "; " in claim["statement"]]
    yield _cases({"claims": counted})
    rest = [claim for claim in figures["claims"] if claim not in counted]
    yield Grid("Claims that need no training", claims_table(rest).rows)
    controls = {f"{name}-PM-C": name for name in (*HONEST, "PE-printed")}
    for mode in modes(plan["common_rates"]):
        rate = "own rates" if mode == OWN else f"common rate {mode}"
        here = where(rows, mode=mode)
        title = f"Gain / loss, points, {rate}"
        yield _by_arm(title, (TABLE, MODEL), _gain_and_loss, here, controls)
    plain = ("NP", "PM", "RND-PM", *(f"{name}-PM" for name in HONEST), "PE-printed-PM")
    majority = {name: each["majority"] for name, each in figures["tables"].items()}
    constant = Column("constant", lambda row: f"{100 * majority[row['table']]:.1f} / 50")
    labels = (TABLE, MODEL, RATE, constant)
    title = "Accuracy / balanced accuracy, %"
    yield _by_arm(title, labels, _both, rows, {name: name for name in plain})
    spent = [row for row in figures["spent"] if row["arm"].startswith("PE")]
    features = {name: each["features"] for name, each in figures["tables"].items()}
    listed = [{**row, "features": features[row["table"]]} for row in spent]
    yield table("Epsilon of a report", SPENT, listed)
    swept = (TABLE, RATE, Column("epsilon of a report", "epsilon", "g"))
    two_stages = {"PM": "PM", **{f"{name}-PM": name for name in HONEST}}
    for part, epochs in (("figure2f", "one epoch"), ("figure2g", "two epochs")):
        title = f"By epsilon, {epochs}: accuracy, % (above PM, points)"
        yield _by_arm(title, swept, _beside_pm, figures[part], two_stages)
    yield _by_arm("Misclassified, and deviation, %", (TABLE, RATE), _error, figures["figure2hi"])
    title = "Exact values: accuracy, % (above NP-RS, points)"
    yield _by_arm(title, CHOSEN, _beside_pm, figures["figure2ad"])
    times = [{**row, "time": 1e6 * fmean(row["seconds"])} for row in figures["times"]]
    cell = Column("", "time", ".1f")
    yield pivot("Microseconds of a choice, by d", (ARM,), "dimension", cell, times)
    title = "Kept times the rate (-O): accuracy, % (points that keeping it plain gains)"
    kept = [{**row, "gain": row["by_plain"]} for row in figures["figure3a"]]
    yield _by_arm(title, (TABLE, RATE), _beside_pm, kept)
    shared = (TABLE, Column("epsilon", "epsilon", "g"), Column("mu", "share", "g"))
    title = "By mu: accuracy, % (above PM, points)"
    yield _by_arm(title, shared, _beside_pm, figures["figure3b"], two_stages)
    batches = figures["figure3c"]
    shares = {row["batch"]: row["share"] for row in batches if row["share"] is not None}
    listed = [{**row, "share": shares[row["batch"]]} for row in batches]
    title = "By users of a step: accuracy, % (above PM, points)"
    yield _by_arm(title, BATCHES, _beside_pm, listed, two_stages)
    yield table("Noise by dimension", NOISE, figures["noise"])


# The arms that are drawn
STYLES: Final = [
    Style("NP", GREY, "D", ":"),
    Style("PM", ORANGE, "o", "--"),
    Style("RND-PM", AMBER, "P", "--"),
    Style("EXP-PM", BLUE, "s", "-"),
    Style("PE-PM", PINK, "v", "-"),
    Style("PS-PM", GREEN, "^", "-"),
]

CONSTANT: Final = Style("constant answer", "black")


def plot_rates(figures: Figures) -> Figure:
    """Plot accuracy and balanced accuracy against the learning rate; logistic regression."""
    tables = figures["tables"]
    figure, axes = panels(2, len(tables), 4.4 * len(tables), 6.4)
    for column, (name, about) in enumerate(tables.items()):
        tuned = where(figures["tuning"], table=name, model=SWEPT)
        rows = {row["arm"]: row for row in tuned}
        for line, measure in enumerate(("accuracy", "balanced")):
            panel = axes[line][column]
            for look in (each for each in STYLES if each.label in rows):
                row = rows[look.label]
                points = zip(row["rates"], row[measure], strict=True)
                curve(panel, [{"x": x, "y": y} for x, y in points], "x", "y", look)
            if measure == "accuracy":
                level(panel, about["majority"], CONSTANT)
            title = "" if line else f"{name}, {SWEPT}, epsilon = {figures['plan']['epsilon']:g}"
            label = {"accuracy": "accuracy", "balanced": "balanced accuracy"}[measure]
            legend: Legend = None if line or column else "best"
            shown = "" if column else label
            dress(panel, "learning rate", shown, title, log="x", percents=True, legend=legend)
    return figure


def plot_epsilons(figures: Figures) -> Figure:
    """Plot accuracy against epsilon: common rate and own rates, one epoch and two."""
    tables = figures["tables"]
    common = f"{figures['plan']['figure_rate']:g}"
    lines = [(part, mode) for part in ("figure2f", "figure2g") for mode in (common, OWN)]
    figure, axes = panels(len(lines), len(tables), 4.4 * len(tables), 3.2 * len(lines))
    for line, (part, mode) in enumerate(lines):
        epochs = "one epoch" if part == "figure2f" else "two epochs"
        for column, (name, about) in enumerate(tables.items()):
            panel = axes[line][column]
            rows = where(figures[part], table=name, mode=mode)
            looks = {look.label: look for look in STYLES}
            curves(panel, rows, "arm", looks, "epsilon", "accuracy.mean", "accuracy.half")
            level(panel, about["majority"], CONSTANT)
            dress(
                panel,
                "epsilon of a report",
                "" if column else "accuracy",
                f"{name}, {epochs}, rate: {mode}",
                log="x",
                percents=True,
                ticks=sorted({row["epsilon"] for row in rows}),
                legend=None if line or column else "best",
            )
    return figure


CAMPAIGN = Campaign(
    name="fedsel",
    title="FedSel: what was measured",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"rates": plot_rates, "epsilon": plot_epsilons},
)
