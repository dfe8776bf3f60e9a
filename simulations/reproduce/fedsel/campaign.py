"""FedSel's Table 3 and Figure 2 (f) to (i): `veilsum reproduce fedsel`.

The paper trains everything with one learning rate and does not say which. It matters more than
anything else here: flat mechanisms scale a coordinate up by d and two-stage ones do not, so that
one rate is d times too large for the one or too small for the other. So every comparison is made
both ways: at common rates, and with each arm's own best rate, found in repetitions of their own.
Beside accuracy stands balanced accuracy, which tells a model from a constant answer.

Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from matplotlib.figure import Figure

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.plots import Legend, Style, curve, curves, dress, level, panels
from simulations.reproduce.engine.render import Column, Grid, Part, Text, percent, pivot, table
from simulations.reproduce.engine.rows import Figures, Row, where
from simulations.reproduce.fedsel.claims import claims
from simulations.reproduce.fedsel.figures import OWN, figures_of, modes
from simulations.reproduce.fedsel.plan import HONEST, PRESETS, SWEPT

INTRODUCTION = """epsilon = {epsilon:g} a report, mu = 0.1, k = 0.1 d, {repeats} times
{folds}-fold cross-validation in Table 3, {sweep_repeats} times in the sweeps over epsilon.

The paper uses one learning rate for all and does not say which. PM, HM and Duchi scale a sampled
coordinate up by d, two-stage reports (EXP, PE, PS) do not: at one rate their steps are d times
shorter. So all are compared at common rates, and with every arm at its own best rate ("own").
Balanced accuracy is the mean over both labels, so a constant answer has 50 %.

Of the claims: "for it" counts cases whose 95 % interval lies above zero, "against" those that are
surely not above zero (below 0.05 points, the doubt of 5 % shared out among the cases). All cases
for it make a claim reproduced, one against it not reproduced.
"""

READING = """## How it was read

- Every user is asked once an epoch, in 100 batches. With one epoch nobody has an older gradient to
  add: **accumulation and momentum do nothing** in Table 3 and Figure 2 (f), (h), (i). In (g)
  momentum is r_j + eta r'_j with eta = 0.5, which the paper does not state.
- "-C" is Table 3's control: epsilon for the value *and* a tenth of it for the choice. PE is the one
  that keeps its promise; "PE-printed" is the published one.
- "RND-PM" is our control: a random coordinate and all of epsilon for its value, which is PM at a
  d-th of the rate.
- Gradients include the regulariser, lambda = 1e-4, and are clipped to [-1, 1] by coordinate; there
  is no intercept. Columns and scales meet the paper's numbers of features
  (`simulations/reproduce/fedsel/tables.py`).
- Own rates are looked for at each epsilon, with one epoch, in {tuning_repeats} repetitions that
  count for nothing else.
- Arms of one repetition share folds and order. Intervals are Student's over repetitions: they are
  about this table, not about other data.
- Values are randomised by the continuous laws in floats; selectors are those of `dp.local`.

Left out: Figure 2 (a) to (e) and Figure 3; SVM in Figure 2 (f) to (i); the controls in the sweeps
over epsilon.
"""

TABLE, MODEL, RATE = Column("table", "table"), Column("model", "model"), Column("rate", "mode")


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
    labels: tuple[Column, ...], arms: Mapping[str, str], cell: Any, rows: list[Row]
) -> Grid:
    """Return a table with a column for each arm, which has a head of its own."""
    found = [row for row in rows if row["arm"] in arms]
    return pivot("", labels, "arm", Column("", cell), found, head=lambda arm: arms[arm])


SPENT = (
    TABLE,
    Column("d", "features"),
    Column("arm", "arm"),
    Column("choice, printed", "choice_printed", ".6f"),
    Column("choice, exact", "choice_exact", ".6f"),
    Column("report, exact", "exact", ".6f"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    plan, rows = figures["plan"], figures["table3"]
    yield Text(INTRODUCTION.format_map(plan))
    yield Text(
        "## Table 3: gain and loss\n\nPoints of accuracy, with 95 % intervals: gain of the control "
        "over PM / loss without the additional budget. The paper's figures are in brackets."
    )
    controls = {f"{name}-PM-C": name for name in (*HONEST, "PE-printed")}
    for mode in modes(plan["common_rates"]):
        yield Text("Own rates:" if mode == OWN else f"Common rate {mode}:")
        here = where(rows, mode=mode)
        yield _by_arm((TABLE, MODEL), controls, _gain_and_loss, here)
    plain = ("NP", "PM", "RND-PM", *(f"{name}-PM" for name in HONEST), "PE-printed-PM")
    yield Text("## What the gain is\n\nAccuracy / balanced accuracy in %, without the controls.")
    majority = {name: each["majority"] for name, each in figures["tables"].items()}
    constant = Column("constant", lambda row: f"{100 * majority[row['table']]:.1f} / 50")
    labels = (TABLE, MODEL, RATE, constant)
    yield _by_arm(labels, {name: name for name in plain}, _both, rows)
    yield Text(
        "## What is spent\n\nEpsilon of one report. The promise of PE as printed is not true "
        "([local-dp-fedsel.md](../local-dp-fedsel.md)); of all other arms the printed epsilon is "
        "the exact one. Controls spend epsilon1 more than the others."
    )
    spent = [row for row in figures["spent"] if row["arm"].startswith("PE")]
    features = {name: each["features"] for name, each in figures["tables"].items()}
    yield table("", SPENT, [{**row, "features": features[row["table"]]} for row in spent])
    yield Text(
        "## Figure 2 (f) and (g): by epsilon\n\nAccuracy in %, and in brackets the difference from "
        "PM in points."
    )
    labels = (TABLE, MODEL, RATE, Column("epsilon of a report", "epsilon", "g"))
    two_stages = {"PM": "PM", **{f"{name}-PM": name for name in HONEST}}
    yield _by_arm(labels, two_stages, _beside_pm, figures["figure2f"])
    yield Text("Two epochs, so twice the epsilon in all:")
    yield _by_arm(labels, two_stages, _beside_pm, figures["figure2g"])
    yield Text(
        "## Figure 2 (h) and (i)\n\nMisclassification in %, and its standard deviation over all "
        "runs."
    )
    others = figures["figure2hi"]
    yield _by_arm((TABLE, RATE), {row["arm"]: row["arm"] for row in others}, _error, others)
    yield Text(READING.format_map(plan))


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
