"""`veilsum reproduce sqsgd`: runs, what they share, verdicts, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import grad, vmap
from typer.testing import CliRunner

from protocol.errors import ConfigurationError
from simulations.commands import cli
from simulations.learning.local_dp import ClientMemory
from simulations.learning.models.residual import ResidualTask
from simulations.reproduce.sqsgd import report
from simulations.reproduce.sqsgd.claims import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    claims,
    interval,
)
from simulations.reproduce.sqsgd.plan import Plan, build_model, equal_bits, runs
from simulations.reproduce.sqsgd.settings import theory
from simulations.reproduce.sqsgd.training import Training

QUICK = replace(Plan.quick(), epochs=2)


@pytest.fixture(scope="module")
def quick(tmp_path_factory, reproduced):
    """One quick run: (figures on standard output, folder)."""
    folder = tmp_path_factory.mktemp("sqsgd")
    return reproduced(*arguments(folder)), folder


def arguments(folder):
    return ["sqsgd", "--quick", "--epochs", "2", "--seeds", "1", "--out", str(folder)]


def test_a_quick_run_writes_everything(quick):
    figures, folder = quick
    assert json.loads((folder / "sqsgd-digits.json").read_text()) == figures
    assert (folder / "sqsgd-digits.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "sqsgd-digits-tables.md").read_text()
    assert text == report.tables(figures)
    for row in figures["runs"]:
        assert f"| {row['name']} |" in text
        assert [len(result["curve"]) for result in row["results"]] == [2]
    by_name = {row["name"]: row for row in figures["runs"]}
    # Two epochs of five rounds without privacy are enough to beat chance by far.
    assert by_name["plain"]["results"][0]["curve"][-1]["accuracy"] > 0.4
    assert figures["rounds_of_epoch"] == 5
    assert {claim["verdict"] for claim in figures["claims"]} <= {
        REPRODUCED,
        NOT_REPRODUCED,
        UNDECIDED,
    }


def test_finished_runs_are_not_trained_again(quick, monkeypatch, reproduced):
    figures, folder = quick

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(Training, "train", refuse)
    assert reproduced(*arguments(folder)) == figures
    other = CliRunner().invoke(cli.app, ["reproduce", *arguments(folder), "--seed", "5"])
    assert "trained again" in str(other.exception)


def test_a_summary_is_printed(quick):
    _, folder = quick
    result = CliRunner().invoke(cli.app, ["reproduce", *arguments(folder)])
    assert result.exit_code == 0, result.output
    assert "sqsgd-digits-tables.md" in result.output and "claims" in result.output


def test_the_plan_has_the_papers_figures():
    plan = Plan()
    found = {run.name: run for run in runs(plan, 119_850)}
    assert plan.rounds_of_epoch(60_000) == 188
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
    for name in ("equal-piecewise-400", "piecewise-scaled-400", "vqsgd-paid-400"):
        assert found[name].facts["epsilon_report"] <= 400.0
    residual = Plan.residual()
    assert residual.figure1_epsilon == 2000.0 and build_model(residual).dimension == 1_722_224


def test_the_error_of_a_report_is_the_one_that_is_stated(digits):
    training = Training(QUICK, digits, 1)
    zeros = np.zeros((10, training.task.dimension))
    for run in runs(QUICK, training.task.dimension):
        if run.algorithm is None:
            continue
        errors = []
        for number in range(30):
            memory = ClientMemory(training.task.dimension)
            total = training._reported(run.algorithm, zeros, memory, number, run.name)
            errors.append(float(total @ total) / 10.0)
        tolerance = 5.0 * float(np.std(errors)) / np.sqrt(30)
        assert abs(np.mean(errors) - run.facts["error"]) < tolerance, run.name
        assert abs(np.mean(errors) - 2.0 * run.facts["error"]) > tolerance, run.name


def test_settings_say_where_kappa_is_out_of_the_printed_range():
    found = {
        (each["kept"], each["epsilon"], each["levels"]): each["kappa_in_printed_range"]
        for each in theory(Plan(), 119_850)
    }
    assert found[599, 400.0, 8] and found[599, 400.0, 2]
    assert not found[599, 400.0, 16] and not found[1024, 400.0, 8]


def test_runs_of_a_seed_share_their_batches(digits, monkeypatch):
    training, seen = Training(QUICK, digits, 3), []
    model = training.task.initial(torch.Generator().manual_seed(3))
    for run in runs(QUICK, training.task.dimension)[1:3]:
        monkeypatch.setattr(
            Training, "_reported", lambda self, a, updates, *rest: seen.append(updates) or 0.0
        )
        training.mean(run, model, ClientMemory(training.task.dimension), 7)
    assert np.array_equal(seen[0], seen[1])


def test_a_diverging_run_ends_and_says_so(digits):
    training = Training(replace(QUICK, rate=1e6), digits, 1)
    plain = runs(QUICK, training.task.dimension)[0]
    found = training.train(plain)
    assert found["diverged"] and found["rounds"] == 1 and len(found["curve"]) == 2
    model = np.full(training.task.dimension, np.nan, np.float32)
    assert np.isnan(training.mean(plain, model, ClientMemory(1), 0)).all()


def test_too_few_examples_are_refused(digits):
    with pytest.raises(ValueError, match="examples for 5000 clients"):
        Training(replace(QUICK, clients=5000), digits, 1)


def test_options_are_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for options, message in (
        (["--model", "vgg"], "vgg"),
        (["--data", "cifar"], "cifar"),
        (["--model", "resnet110"], "a machine with a GPU, or --force"),
    ):
        command = ["reproduce", "sqsgd", "--out", str(tmp_path), *options]
        result = CliRunner().invoke(cli.app, command)
        assert result.exit_code != 0
        assert isinstance(result.exception, ConfigurationError)
        assert message in str(result.exception)


def row(way, accuracies, figures=(), **facts):
    """A row with one epoch."""
    results = [
        {"curve": [{"accuracy": accuracy}], "rounds": 5, "diverged": False}
        for accuracy in accuracies
    ]
    known = dict.fromkeys(("levels", "bits", "epsilon", "epsilon_report", "error"))
    return {"way": way, "figures": list(figures), "results": results, **known, **facts}


def verdicts(rows):
    """Verdicts of made-up figures, by claim."""
    settings = theory(replace(Plan(), epsilons=(400.0,), levels=(2,), middle=16), 119_850)
    figures = {
        "model": "lenet5",
        "parameters": 119_850,
        "rounds_of_epoch": 188,
        "plan": {"epsilons": [400.0]},
        "theory": settings,
        "runs": rows,
    }
    return {claim["claim"]: claim["verdict"] for claim in claims(figures)}


@pytest.mark.parametrize(
    ("better", "expected"),
    [
        ([0.8, 0.81, 0.82], REPRODUCED),
        ([0.7, 0.71, 0.72], NOT_REPRODUCED),
        ([0.6, 0.8, 0.7], UNDECIDED),
    ],
)
def test_verdicts_follow_from_the_intervals(better, expected):
    worse = [0.7, 0.71, 0.72]
    found = verdicts(
        [
            row("sqsgd", worse, (1,), levels=2, epsilon=400.0, error=3.0),
            row("sqsgd", better, (1,), levels=8, epsilon=400.0, error=2.0),
            row("sqsgd", worse, (2,), levels=16, epsilon=200.0, error=9.0),
            row("sqsgd", better, (2,), levels=16, epsilon=400.0, error=4.0),
            row("equal-sqsgd", better, (3,), levels=16, epsilon=400.0, bits=5),
            row("piecewise", worse, (3,), epsilon=400.0),
            row("equal-vqsgd", worse, (3,), epsilon=400.0, epsilon_report=9e4),
        ]
    )
    assert found["K = 2 is significantly worse than more levels: accuracy"] == expected
    assert found["a larger epsilon is needed to train well"] == expected
    text = "sqSGD beats the Piecewise Mechanism significantly, at epsilon = 400, equal bits"
    assert found[text] == expected
    close = {REPRODUCED: NOT_REPRODUCED, NOT_REPRODUCED: REPRODUCED, UNDECIDED: UNDECIDED}
    text = "vqSGD is comparable on the smaller model, at epsilon = 400, its repeats not paid for"
    assert found[text] == close[expected]
    assert found["K = 2 has the largest error of a report (of a zero vector, exact)"] == REPRODUCED


def test_theory_is_judged_without_training():
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
        "Figures 1 to 3 on ResNet-110": UNDECIDED,
    }


def test_one_seed_decides_nothing_and_three_give_students_interval():
    assert str(interval([0.5])) == "+50.0 (one seed)"
    found = interval([0.1, 0.2, 0.3])
    # t(0.975, 2) = 4.3027, standard error 0.1/sqrt(3).
    assert (found.mean, found.high - found.mean) == pytest.approx((0.2, 0.24841), rel=1e-4)


def test_the_residual_network():
    task = ResidualTask(blocks=1, channels=3, height=8, width=8)
    generator = torch.Generator().manual_seed(2)
    vector = torch.tensor(task.initial(generator)).requires_grad_()
    inputs, labels = torch.rand(6, 3, 8, 8, generator=generator), torch.arange(6)
    loss = task.loss(vector, inputs, labels, torch.ones(6))
    assert loss.item() == pytest.approx(np.log(10.0), rel=0.1)
    (slope,) = torch.autograd.grad(loss, vector)
    for name, part in task.layout.unflatten(slope).items():
        assert float(part.abs().max()) > 0.0, name
    stacked = vmap(grad(task.loss))(
        vector.detach().repeat(2, 1),
        inputs.expand(2, *inputs.shape),
        labels.expand(2, -1),
        torch.ones(2, 6),
    )
    torch.testing.assert_close(stacked[1], slope, rtol=1e-4, atol=1e-5)
    # An image has the same scores in any company.
    parameters = task.layout.unflatten(vector.detach())
    alone = task.scores(parameters, inputs[2:3])
    torch.testing.assert_close(task.scores(parameters, inputs)[2:3], alone)
    moved = vector.detach() - 0.1 * slope
    assert task.loss(moved, inputs, labels, torch.ones(6)) < loss
    assert ResidualTask().dimension == 1_722_224
    for bad in ({"blocks": 0}, {"channels": 0}):
        with pytest.raises(ValueError, match=r"blocks must be|need features"):
            ResidualTask(**bad)
