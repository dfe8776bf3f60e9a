"""cpSGD's Figure 2 with MNIST for infinite MNIST: `veilsum reproduce cpsgd-mnist`.

For every k and every epsilon of a step the noise is solved for under the paper's accountant and
under ours, and the network is trained with each; beside them our own mechanism at the bits of the
paper, Gaussian noise by a trusted server, and the baseline without clip, rounding and noise.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from dp.accounting import gaussian_epsilon, gaussian_mu
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.cpsgd import mean_estimation
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.training import (
    Plan,
    Training,
    checked,
    epoch,
    runs,
    trained,
)
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.plots import Style, curve, dress, level, panels
from simulations.reproduce.engine.render import Column, Part, percent, table
from simulations.reproduce.engine.rows import Figures, Row, where
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study, dataset


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Solve for the noise of every run, train it, and compare both ways to add up."""
    plan, seed, run_plan = study.plan, study.seed, study.plan.of_a_run
    training, data = Training(run_plan, seed), dataset(plan.data)
    points = study.results(
        Cell(f"noise of k = {k}, epsilon {e:g}", mean_estimation.point, (plan.setting, k, e))
        for e in plan.epsilons
        for k in plan.levels
    )
    chosen = runs(plan, points)
    rounding = tuple(run for run in chosen if run.rounds)
    cells = [Cell(run.name, trained, (run_plan, run, seed)) for run in chosen]
    if plan.checked:
        # With the fewest coins rounding weighs most.
        least = min(rounding, key=lambda run: int(run.figures["coins"]))
        cells.append(Cell("check", checked, (run_plan, rounding, seed)))
        for by_client in (True, False):
            name = "an epoch client by client" if by_client else "an epoch at once"
            cells.append(Cell(name, epoch, (run_plan, least, by_client, seed)))
    found = study.results(cells)
    return {
        "data": plan.data,
        "parameters": training.task.dimension,
        "examples": len(data.train),
        "epochs": training.epochs,
        "adjacency": "one client's vector replaced by another, as in the paper",
        "epsilon_of_all_steps": {
            f"{each:g}": all_steps(each, plan.setting.delta, training.epochs)
            for each in plan.epsilons
        },
        "runs": found[: len(chosen)],
        "check": found[len(chosen)] if plan.checked else [],
        "first_epoch": found[len(chosen) + 1 :],
    }


def all_steps(epsilon: float, delta: float, participations: int) -> float:
    """Return Gaussian noise's epsilon after so many steps with the same client, at one delta."""
    return float(gaussian_epsilon(gaussian_mu(epsilon, delta) * participations**0.5, delta))


WAYS = {
    "paper": Style("paper's accountant", ORANGE, "o", "--"),
    "coupled": Style("same mechanism, our accountant", BLUE, "s", "-"),
    "conditional": Style("our mechanism, paper's bits", GREEN, "^", ":"),
}
LEVELS = {
    "plain": Style("baseline: no noise, no rounding", "black"),
    "clipped": Style("clip alone", "black", line=":"),
    "gaussian": Style("Gaussian noise by the server", GREY, line="-."),
}
TITLES = {way: look.label for way, look in (LEVELS | WAYS).items()}


def _levels(row: Row) -> int | str | None:
    levels: int | None = row["levels"]
    return levels if row["way"] != "conditional" else f"(as {levels})"


def _bits(row: Row) -> float | str:
    bits: float = row["bits"]
    return "32 (float)" if row["way"] in LEVELS else bits


RUNS = (
    Column("epsilon of a step", "epsilon", "g"),
    Column("k", _levels),
    Column("coins by", lambda row: TITLES[row["way"]]),
    Column("m", "coins", ",d"),
    Column("bits", _bits, ".2f"),
    Column("error / D^2", "error", ".4g"),
    percent("test accuracy, %", "accuracy", form=".2f"),
)
CHECKS = (
    Column("run", "name"),
    Column("measured", "measured", ".4g"),
    Column("predicted", "predicted", ".4g"),
    Column("ratio", "ratio", ".4f"),
)
EPOCHS = (
    Column("run", "name"),
    Column("rounded", lambda row: "client by client" if row["by_client"] else "all at once"),
    Column("steps", "step"),
    percent("test accuracy, %", "accuracy", form=".2f"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows = sorted(figures["runs"], key=lambda row: (row["epsilon"] or 0.0, row["levels"] or 0))
    yield table("Accuracy", RUNS, rows, brief=True)
    if figures["check"]:
        yield table("One step, client by client", CHECKS, figures["check"])
        yield table("One epoch, both ways", EPOCHS, figures["first_epoch"])


def plot(figures: Figures) -> Figure:
    """Plot accuracy against bits, one panel for each epsilon, as Figure 2 has it."""
    epsilons = sorted(figures["plan"]["epsilons"], reverse=True)
    figure, [axes] = panels(1, len(epsilons), 7 * len(epsilons), 6)
    for panel, epsilon in zip(axes, epsilons, strict=True):
        rows = where(figures["runs"], epsilon=epsilon)
        for way, look in WAYS.items():
            curve(panel, where(rows, way=way), "bits", "accuracy", look)
            for row in where(rows, way=way) if way != "conditional" else ():
                panel.annotate(
                    f"k={row['levels']}, m={row['coins']}",
                    (row["bits"], row["accuracy"]),
                    (0, -13 if way == "paper" else 7),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=look.colour,
                )
        for row in figures["runs"]:
            if row["way"] in LEVELS and row["epsilon"] in (None, epsilon):
                level(panel, row["accuracy"], LEVELS[row["way"]])
        title, x = f"epsilon = {epsilon:g} a step", "bits per coordinate and client, log2(k + m)"
        dress(panel, x, "test accuracy, higher is better", title, percents=True)
        panel.margins(x=0.12)
    return figure


CAMPAIGN = Campaign(
    name="cpsgd-mnist",
    title="cpSGD's Figure 2 with MNIST",
    presets={
        "usual": Plan(),
        # 1,000 clients a step of the embedded digits.
        "quick": Plan(
            data="digits", setting=Setting(clients=1000, dimension=8192), levels=(4,), steps=40
        ),
    },
    figures=figures_of,
    parts=_parts,
    plots={"bits": plot},
)
