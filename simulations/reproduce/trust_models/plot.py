"""The plot of the comparison: accuracy by epsilon and by bytes, from the plain figures alone."""

from __future__ import annotations

from matplotlib.figure import Figure

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY
from simulations.reproduce.engine.plots import Style, curve, dress, level, panels
from simulations.reproduce.engine.render import Figures
from simulations.reproduce.trust_models.methods import METHODS, Trust

STYLES = {
    "central": ("black", "s"),
    "distributed": (BLUE, "o"),
    "piecewise": (ORANGE, "^"),
    "hybrid": (AMBER, "v"),
    "cross_polytope": (GREEN, "D"),
    "sqsgd": (PINK, "P"),
    "fedsel_ps": (SKY, "X"),
    "fedsel_pe": (GREY, "<"),
}

MARGIN = 0.03
"""Above the highest accuracy and below the lowest."""

LINES = {Trust.SERVER: "--", Trust.COHORT: "-", Trust.NOBODY: ":"}


def plot(figures: Figures) -> Figure:
    """Draw both panels."""
    figure, [[left, right]] = panels(1, 2, 14, 5.6)
    all_rows = figures["rows"]
    for method in METHODS:
        if method.trust is Trust.EVERYBODY:
            continue
        rows = [row for row in all_rows if row["method"] == method.name]
        (colour, marker), line = STYLES[method.name], LINES[method.trust]
        for hollow, ending in ((False, ""), (True, ", sketch")):
            found = [r for r in rows if (r["knob"] != method.knob.usual) is hollow]
            found = [row for row in found if row["by_epsilon"]]
            look = Style(f"{method.title}{ending}", colour, marker, line, hollow)
            if found:
                curve(left, found, "epsilon", "accuracy", look, "half_width")
        look = Style(f"{method.title}: {method.knob.label}", colour, marker, line)
        curve(right, [r for r in rows if r["by_bytes"]], "bytes", "accuracy", look, "half_width")
    plain = next(row for row in all_rows if row["trust"] == Trust.EVERYBODY.value)
    for axes in (left, right):
        level(axes, plain["accuracy"], Style("no privacy", "black"))
        level(axes, figures["majority"], Style("one answer", GREY, line="-."))
    plan = figures["plan"]
    ticks, x = [*plan["epsilons"], *plan["more_epsilons"]], "epsilon of a client, whole run"
    title = "equal epsilon, one report of each client"
    dress(left, x, "test accuracy", title, log="x", percents=True, ticks=ticks)
    title, x = f"by bytes, epsilon = {plan['byte_epsilon']:g}", "bytes of a client, whole run"
    dress(right, x, "test accuracy", title, log="x", percents=True)
    # By the means: with few seeds an interval may be longer than all there is.
    heights = [figures["majority"], *(row["accuracy"] for row in all_rows)]
    for axes in (left, right):
        axes.set_ylim(max(0.0, min(heights) - MARGIN), min(1.0, max(heights) + MARGIN))
    return figure
