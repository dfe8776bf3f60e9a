"""`veilsum reproduce sqsgd`: runs, what they share, verdicts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simulations.campaigns.campaign import Options
from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED, Interval
from simulations.campaigns.store import Cell
from simulations.learning.data import Dataset
from simulations.learning.local_dp import ClientMemory
from simulations.reproduce.sqsgd.campaign import CAMPAIGN
from simulations.reproduce.sqsgd.claims import claims, shown
from simulations.reproduce.sqsgd.plan import PRESETS, Run, build_model, equal_bits, runs, theory
from simulations.reproduce.sqsgd.training import Training, trained

QUICK = replace(PRESETS["quick"], epochs=2)


def runs_of_quick() -> list[Run]:
    """Return all runs of the quick plan."""
    return runs(QUICK, build_model(QUICK.model).dimension)


@pytest.mark.slow
def test_a_quick_campaign_has_every_run(written: Callable[..., Any]) -> None:
    figures, folder = written(CAMPAIGN, replace(QUICK, seeds=1))
    page = (folder / "sqsgd-digits.md").read_text()
    for row in figures["runs"]:
        assert f"| {row['name']} |" in page
        assert [len(result["curve"]) for result in row["results"]] == [2]
    by_name = {row["name"]: row for row in figures["runs"]}
    # Two epochs of five rounds without privacy are enough to beat chance by far.
    assert by_name["plain"]["results"][0]["curve"][-1]["accuracy"] > 0.4
    assert figures["rounds_of_epoch"] == 5 and len(figures["claims"]) == 15


def test_the_plan_has_the_papers_figures() -> None:
    plan = PRESETS["lenet5"]
    found = {run.name: run for run in runs(plan, 119_850)}
    assert plan.setting.rounds_of_epoch(60_000) == 188
    assert {run.facts["levels"] for run in found.values() if 1 in run.figures} == {None, 2, 8, 32}
    assert {run.facts["epsilon"] for run in found.values() if 2 in run.figures} == {
        None,
        200.0,
        300.0,
        400.0,
    }
    own = found["sqsgd-k16-400"]
    assert own.facts["kept"] == 599 and own.facts["bits"] == 4 * 599
    assert own.algorithm is not None and own.algorithm.epsilon <= 400.0
    # Figure 3: equal bits, and what vqSGD really spends.
    assert equal_bits(400.0, 119_850) == 160 * 32
    ways = ("equal-sqsgd-k16-400", "equal-piecewise-400", "equal-vqsgd-400")
    assert [found[name].facts["bits"] for name in ways] == [5120, 5120, 5112]
    assert found["equal-vqsgd-400"].facts["epsilon_report"] == pytest.approx(284 * 400.0)
    traded = [run for run in found.values() if 5 in run.figures]
    assert [run.facts["kept"] for run in traded] == [2396, 798, 479, 342]
    assert {run.facts["bits"] // 10 for run in traded} == {239}
    for name in ("equal-piecewise-400", "piecewise-scaled-400", "vqsgd-paid-400"):
        assert found[name].facts["epsilon_report"] <= 400.0
    residual = PRESETS["resnet110"]
    assert residual.figure1_epsilon == 2000.0
    assert build_model(residual.model).dimension == 1_722_224


def test_the_error_of_a_report_is_the_one_that_is_stated(digits: Dataset) -> None:
    training = Training(QUICK.setting, digits, 1)
    zeros = np.zeros((10, training.task.dimension))
    for run in runs_of_quick():
        if run.algorithm is None:
            continue
        errors = []
        for number in range(30):
            memory = ClientMemory(training.task.dimension)
            total = training.reported(run.algorithm, run.name, zeros, memory, number)
            errors.append(float(total @ total) / 10.0)
        tolerance = 5.0 * float(np.std(errors)) / np.sqrt(30)
        assert abs(np.mean(errors) - run.facts["error"]) < tolerance, run.name
        assert abs(np.mean(errors) - 2.0 * run.facts["error"]) > tolerance, run.name


def test_settings_say_where_kappa_is_out_of_the_printed_range() -> None:
    found = {
        (each["kept"], each["epsilon"], each["levels"]): each["kappa_in_printed_range"]
        for each in theory(PRESETS["lenet5"], 119_850)
    }
    assert found[599, 400.0, 8] and found[599, 400.0, 2]
    assert not found[599, 400.0, 16] and not found[1024, 400.0, 8]


def test_rates_are_chosen_by_trials_that_no_figure_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, asked = CAMPAIGN.study(QUICK, tmp_path, 3), []

    def results(cells: Iterable[Cell]) -> list[dict[str, Any]]:
        asked.extend(found := list(cells))
        return [{"accuracy": float(cell.given[3] == QUICK.rate)} for cell in found]

    monkeypatch.setattr(study, "results", results)
    rows = CAMPAIGN.figures(study)["runs"]
    assert {row["rate"] for row in rows} == {QUICK.rate}
    assert {len(row["tried"]) for row in rows} == {QUICK.steps + 1}
    seeds = {v: {cell.given[4] for cell in asked if cell.given[5] is v} for v in (True, False)}
    assert seeds == {True: {1003}, False: {3, 4}}


def test_trials_are_tested_on_training_examples_that_are_held_out(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "train", lambda self, *_: self._data)
    for validating, sizes in ((False, (1437, 360)), (True, (1197, 240))):
        data = trained(QUICK.setting, None, "plain", 0.1, 1, validating)
        assert (len(data.train), len(data.test)) == sizes
        pool = digits.train if validating else digits.test
        assert np.isin(data.test.inputs.sum(axis=1), pool.inputs.sum(axis=1)).all()


def test_runs_of_a_seed_share_their_batches(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, seen = Training(QUICK.setting, digits, 3), []
    model = training.task.initial(torch.Generator().manual_seed(3))

    def reported(self: Training, *given: Any) -> float:
        seen.append(given[2])
        return 0.0

    monkeypatch.setattr(Training, "reported", reported)
    for run in runs_of_quick()[1:3]:
        memory = ClientMemory(training.task.dimension)
        training.mean(run.algorithm, run.name, model, memory, 7)
    assert np.array_equal(seen[0], seen[1])


def test_a_diverging_run_ends_and_says_so(digits: Dataset) -> None:
    training = Training(QUICK.setting, digits, 1)
    found = training.train(None, "plain", 1e6)
    assert found["diverged"] and found["rounds"] == 1 and len(found["curve"]) == 2
    model = np.full(training.task.dimension, np.nan, np.float32)
    assert np.isnan(training.mean(None, "plain", model, ClientMemory(1), 0)).all()


def test_too_few_examples_are_refused(digits: Dataset) -> None:
    with pytest.raises(ValueError, match="examples for 5000 clients"):
        Training(replace(QUICK, clients=5000).setting, digits, 1)


def test_weeks_of_training_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan = CAMPAIGN.plan(Options("resnet110", {"force": [True]}))
    assert plan.setting == PRESETS["resnet110"].setting


def row(
    way: str, accuracies: Sequence[float], figures: Sequence[int] = (), **facts: Any
) -> dict[str, Any]:
    """A row with one epoch."""
    results = [
        {"curve": [{"accuracy": accuracy}], "rounds": 5, "diverged": False}
        for accuracy in accuracies
    ]
    known = dict.fromkeys(("levels", "bits", "epsilon", "epsilon_report", "error"))
    return {"way": way, "figures": list(figures), "results": results, **known, **facts}


def verdicts(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Verdicts of made-up figures, by claim."""
    plan = replace(PRESETS["lenet5"], epsilons=(400.0,), levels=(2,), middle=16)
    figures = {
        "model": "lenet5",
        "parameters": 119_850,
        "rounds_of_epoch": 188,
        "plan": {"epsilons": [400.0]},
        "theory": theory(plan, 119_850),
        "runs": rows,
    }
    return {claim.statement: claim.verdict for claim in claims(figures)}


@pytest.mark.parametrize(
    ("better", "expected"),
    [
        ([0.8, 0.81, 0.82], REPRODUCED),
        ([0.7, 0.71, 0.72], NOT_REPRODUCED),
        ([0.6, 0.8, 0.7], UNDECIDED),
    ],
)
def test_verdicts_follow_from_the_intervals(better: list[float], expected: str) -> None:
    worse = [0.7, 0.71, 0.72]
    found = verdicts(
        [
            row("sqsgd", worse, (1,), levels=2, epsilon=400.0, error=3.0),
            row("sqsgd", better, (1,), levels=8, epsilon=400.0, error=2.0),
            row("sqsgd", worse, (2,), levels=16, epsilon=200.0, error=9.0),
            row("sqsgd", better, (2,), levels=16, epsilon=400.0, error=4.0),
            row("equal-sqsgd", better, (3,), levels=16, epsilon=400.0, bits=5),
            row("piecewise", worse, (3,), epsilon=400.0),
            row("traded-sqsgd", better, (5,), levels=2),
            row("traded-sqsgd", worse, (5,), levels=8),
            row("equal-vqsgd", worse, (3,), epsilon=400.0, epsilon_report=9e4),
        ]
    )
    assert found["K = 2 is significantly worse than more levels: accuracy"] == expected
    assert found["a larger epsilon is needed to train well"] == expected
    text = (
        "sqSGD beats the Piecewise Mechanism significantly, at epsilon = 400, equal bits, own rates"
    )
    assert found[text] == expected
    text = "more levels and fewer coordinates, at equal bits, do not always raise accuracy"
    assert found[text] == (REPRODUCED if expected == REPRODUCED else UNDECIDED)
    traded = [
        row("traded-sqsgd", worse, (5,), levels=2),
        row("traded-sqsgd", better, (5,), levels=8),
    ]
    assert verdicts(traded)[text] == (NOT_REPRODUCED if expected == REPRODUCED else UNDECIDED)
    close = {REPRODUCED: NOT_REPRODUCED, NOT_REPRODUCED: REPRODUCED, UNDECIDED: UNDECIDED}
    text = "vqSGD is comparable on the smaller model, at epsilon = 400, its repeats not paid for"
    assert found[text] == close[expected]
    assert found["K = 2 has the largest error of a report (of a zero vector, exact)"] == REPRODUCED


def test_theory_is_judged_without_training() -> None:
    found = verdicts([])
    assert found == {
        "kappa in 0 .. d - 1 can be chosen as described, for all of these settings": NOT_REPRODUCED,
        "one report at epsilon = 400 protects what is sent (599 numbers) from reconstruction": (
            NOT_REPRODUCED
        ),
        "one report at epsilon = 400 protects the gradient (119,850 numbers) from reconstruction": (
            REPRODUCED
        ),
        "an epoch of 188 reports protects the gradient from reconstruction": NOT_REPRODUCED,
        "Figures 1 to 3, and 4, on ResNet-110": UNDECIDED,
    }


def test_gains_are_shown_in_points_with_what_is_known_of_them() -> None:
    assert shown(Interval.of([0.5])) == "+50.0 (one seed)"
    # t(0.975, 2) = 4.3027, standard error 0.1/sqrt(3).
    assert shown(Interval.of([0.1, 0.2, 0.3])) == "+20.0 (-4.8 to +44.8)"
