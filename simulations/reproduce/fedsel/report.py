"""The page and the tables of FedSel's reproduction, from its plain figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simulations.reproduce.fedsel.arms import HONEST
from simulations.reproduce.fedsel.claims import OURS
from simulations.reproduce.fedsel.figures import OWN, modes
from simulations.reproduce.fedsel.plot import plot_epsilons, plot_rates
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.text import markdown

Row = Mapping[str, Any]

HEAD = """# FedSel: what was measured

    veilsum reproduce fedsel --data-dir DATA --out OUT --seed {seed}

{runs}

The paper trains all arms with one learning rate and does not say which. Flat mechanisms (PM, HM,
Duchi) scale a sampled coordinate up by d, two-stage ones (EXP, PE, PS) do not scale: at one common
rate the steps of the first are some d times as long, signal and noise alike. So everything is
compared at common rates, and with every arm at its own best rate ("own"), which is looked for in
{tuning} repetitions that count for nothing else. *Balanced accuracy* is the mean of the shares of
right answers among either label: a constant answer has 50 %, whatever its accuracy.

## Claims

"For it" counts the cases whose 95 % interval lies above zero; a claim about all cases is reproduced
(what the paper does not claim: shown) if all are. "Against" counts cases that are surely not above
zero (below 0.05 points, the doubt of 5 % shared out among the cases); one of them is enough to
refute it. Anything else is not decidable.
"""

READING = """## How it was read

- One report each: an epoch asks every user once, in 100 batches of a hundredth of those who train.
  With one epoch nobody ever has an older gradient to add: **accumulation and momentum do nothing**
  in Table 3 and Figure 2 (f), (h), (i).
- Momentum is r_j + eta r'_j with eta = 0.5; the paper does not say. Only Figure 2 (g) has any.
- "-C" is Table 3's control: epsilon for the value *and* a tenth of it for the choice. PE is the one
  that keeps its promise; "PE-printed" is the published one.
- "RND-PM" is our control: FedSel's report with a uniformly random coordinate and all of epsilon
  for its value. It is PM at a d-th of the rate. What FedSel has over it is what choosing brings.
- Gradients include the regulariser, lambda = 1e-4, and are clipped to [-1, 1] by coordinate. There
  is no intercept. Columns and scales are chosen to meet the paper's numbers of features
  (`simulations/reproduce/fedsel/data.py`).
- Repetitions shuffle, split and draw noise anew; arms of one repetition share folds and order.
  Intervals are Student's over repetitions: they are about this table, not about other data.
- An arm's own rate is looked for at each epsilon, with one epoch; two epochs use the same.
- Values are randomised by the continuous laws in floats; selectors are those of `dp.local`.

## Left out

Figure 2 (a) to (e) and Figure 3; SVM in Figure 2 (f) to (i); controls "-C" in the sweeps.
"""


def page(figures: Mapping[str, Any]) -> str:
    """Return the page of results as Markdown."""
    plan = figures["plan"]
    runs = (
        f"epsilon = {plan['epsilon']:g} a report, mu = 0.1, k = 0.1 d, {plan['repeats']} times "
        f"{plan['folds']}-fold cross-validation in Table 3, {plan['sweep_repeats']} times in the "
        "sweeps over epsilon."
    )
    head = HEAD.format(seed=figures["seed"], runs=runs, tuning=plan["tuning_repeats"])
    parts = [head, markdown(claim_rows(figures)), "## Table 3: gain and loss\n"]
    parts.append(
        "Points of accuracy, with 95 % intervals: gain of the control over PM / loss without the\n"
        "additional budget. The paper's figures are in brackets.\n"
    )
    for mode in modes(plan["common_rates"]):
        parts += [_mode_title(mode), markdown(table3_rows(figures, mode))]
    parts += ["## What the gain is\n", "Accuracy / balanced accuracy in %, without the controls.\n"]
    parts += [markdown(accuracy_rows(figures)), "![By learning rate](fedsel-rates.png)\n"]
    parts += ["## What is spent\n", _spent_text(), markdown(spent_rows(figures))]
    parts += ["## Figure 2 (f) and (g): by epsilon\n", _sweep_text()]
    parts += [markdown(sweep_rows(figures, "figure2f"))]
    parts += [
        "Two epochs, so twice the epsilon in all:\n",
        markdown(sweep_rows(figures, "figure2g")),
    ]
    parts += ["![By epsilon](fedsel-epsilon.png)\n", "## Figure 2 (h) and (i)\n"]
    parts += ["Misclassification in %, and its standard deviation over all runs.\n"]
    parts += [markdown(other_rows(figures)), READING]
    return "\n".join(parts)


def claim_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of claims."""
    rows = [["claim", "learning rate", "verdict", "cases", "for it", "against"]]
    for row in figures["claims"]:
        counts = [str(row[name]) for name in ("cases", "above", "against")]
        rows.append([row["claim"], row["mode"], _verdict(row), *counts])
    return rows


def _verdict(row: Row) -> str:
    """Return the verdict; on what the paper does not claim there is nothing to reproduce."""
    if not row["claim"].startswith(OURS):
        return str(row["verdict"])
    return {"reproduced": "shown", "not reproduced": "refuted"}.get(row["verdict"], "not decidable")


def table3_rows(figures: Mapping[str, Any], mode: str) -> list[list[str]]:
    """Return head and rows of Table 3 at one way to choose rates."""
    rows = [["table", "model", "PM", *HONEST, "PE-printed"]]
    for table, model, arms in _groups(figures["table3"], mode):
        cells = [_gain_and_loss(arms[f"{name}-PM-C"]) for name in (*HONEST, "PE-printed")]
        rows.append([table, model, _percent(arms["PM"]["accuracy"]), *cells])
    return rows


def accuracy_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """Return accuracies beside balanced ones, at every way to choose rates."""
    names = ["NP", "PM", "RND-PM", *(f"{name}-PM" for name in HONEST), "PE-printed-PM"]
    rows = [["table", "model", "rate", "constant", *names]]
    for mode in modes(figures["plan"]["common_rates"]):
        for table, model, arms in _groups(figures["table3"], mode):
            constant = f"{100 * figures['tables'][table]['majority']:.1f} / 50"
            cells = [_both(arms[name], mode == OWN) for name in names]
            rows.append([table, model, mode, constant, *cells])
    return rows


def spent_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """Return what PE is said to spend and what it spends."""
    rows = [["table", "d", "arm", "choice, printed", "choice, exact", "report, exact"]]
    for row in figures["spent"]:
        if row["arm"].startswith("PE"):
            choice = [f"{row[name]:.6f}" for name in ("choice_printed", "choice_exact")]
            features = str(figures["tables"][row["table"]]["features"])
            rows.append([row["table"], features, row["arm"], *choice, f"{row['exact']:.6f}"])
    return rows


def sweep_rows(figures: Mapping[str, Any], part: str) -> list[list[str]]:
    """Return accuracy by epsilon, with the difference from PM."""
    rows = [["table", "model", "rate", "epsilon of a report", "PM", *HONEST]]
    found = figures[part]
    keys = list(dict.fromkeys((r["table"], r["model"], r["mode"], r["epsilon"]) for r in found))
    for key in keys:
        table, model, mode, epsilon = key
        arms = {
            r["arm"]: r for r in found if (r["table"], r["model"], r["mode"], r["epsilon"]) == key
        }
        cells = [
            f"{_percent(arms[name]['accuracy'])} ({_points(arms[name]['gain'])})"
            for name in (f"{selection}-PM" for selection in HONEST)
        ]
        cells.insert(0, _percent(arms["PM"]["accuracy"]))
        rows.append([table, model, mode, f"{epsilon:g}", *cells])
    return rows


def other_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """Return errors of other value mechanisms, and of random projection."""
    found = figures["figure2hi"]
    names = list(dict.fromkeys(row["arm"] for row in found))
    rows = [["table", "rate", *names]]
    for table, mode in dict.fromkeys((row["table"], row["mode"]) for row in found):
        arms = {r["arm"]: r for r in found if (r["table"], r["mode"]) == (table, mode)}
        cells = [
            f"{100 * (1 - arms[name]['accuracy']['mean']):.2f}, {100 * arms[name]['deviation']:.2f}"
            for name in names
        ]
        rows.append([table, mode, *cells])
    return rows


def _groups(rows: Iterable[Row], mode: str) -> list[tuple[str, str, dict[str, Row]]]:
    """Return table, model and rows by arm."""
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row["mode"] == mode:
            groups.setdefault((row["table"], row["model"]), {})[row["arm"]] = row
    return [(table, model, arms) for (table, model), arms in groups.items()]


def _mode_title(mode: str) -> str:
    return "Own rates:\n" if mode == OWN else f"Common rate {mode}:\n"


def _gain_and_loss(row: Row) -> str:
    cell = f"{_points(row['gain'])} / {_points(row['loss'])}"
    if "paper_gain" not in row:
        return cell
    return f"{cell} [{100 * row['paper_gain']:.2f} / {100 * row['paper_loss']:.2f}]"


def _points(figures: Mapping[str, float]) -> str:
    return f"{100 * figures['mean']:+.2f} ± {100 * figures['half']:.2f}"


def _percent(figures: Mapping[str, float]) -> str:
    return f"{100 * figures['mean']:.2f}"


def _both(row: Row, with_rate: bool) -> str:
    cell = f"{100 * row['accuracy']['mean']:.1f} / {100 * row['balanced']['mean']:.1f}"
    return f"{cell} (rate {row['rate']:g})" if with_rate else cell


def _spent_text() -> str:
    return (
        "Epsilon of one report. The promise of PE as printed is not true\n"
        "([local-dp-fedsel.md](../local-dp-fedsel.md)); of all other arms the printed epsilon is\n"
        "the exact one. Controls spend epsilon1 more than the others.\n"
    )


def _sweep_text() -> str:
    return "Accuracy in %, and in brackets the difference from PM in points.\n"


def _summary(figures: Mapping[str, Any]) -> list[Titled]:
    return [(None, claim_rows(figures))]


REPORT = Report(
    "fedsel",
    {
        "page": (".md", page),
        "rates": ("-rates.png", plot_rates),
        "epsilons": ("-epsilon.png", plot_epsilons),
    },
    _summary,
)
