"""`veilsum reproduce cpsgd-mnist`: both ways to add up agree, noise has its law, networks learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dp import NoiseSeed
from dp.coins import sample_binomial
from simulations.learning.data import DataError, Dataset
from simulations.reproduce.cpsgd import mean_estimation
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.campaign import CAMPAIGN, all_steps
from simulations.reproduce.cpsgd_training.clipped_gradients import (
    Examples,
    each_clipped,
    sum_clipped,
)
from simulations.reproduce.cpsgd_training.estimators import ByScale, OnLevels, Rounded
from simulations.reproduce.cpsgd_training.training import Plan, Run, Training, runs, trained
from simulations.reproduce.engine.study import enter

ALPHA = 1e-6
SMALL = Setting(clients=40, dimension=256, delta=1e-6)
QUICK: Plan = CAMPAIGN.presets["quick"]
ROUNDED = [OnLevels(SMALL, 12, 4), OnLevels(SMALL, 3, 2), ByScale(SMALL, 7, 30.0)]


@pytest.fixture(scope="module")
def quick(written: Callable[..., Any]) -> tuple[dict[str, Any], Path]:
    """One quick run: figures, and the folder."""
    return written(CAMPAIGN, QUICK, 3)


def solved(plan: Plan) -> dict[str, Run]:
    """All runs of a plan by name."""
    found = [
        mean_estimation.point(plan.setting, levels, epsilon)
        for epsilon in plan.epsilons
        for levels in plan.levels
    ]
    return {run.name: run for run in runs(plan, found)}


def _vectors(rng: np.random.Generator, clients: int = SMALL.clients, dimension: int = 200) -> Any:
    normal = rng.standard_normal((clients, dimension))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


@pytest.mark.slow
def test_a_quick_run_learns_and_writes_everything(quick: tuple[dict[str, Any], Path]) -> None:
    figures, folder = quick
    accuracy = {row["name"]: row["accuracy"] for row in figures["runs"]}
    assert accuracy["plain"] > 0.85 and accuracy["clipped"] > 0.8
    # 360 pictures are tested: chance would be 36 right, give or take 6.
    assert min(accuracy.values()) > 0.3
    assert accuracy["paper-k4-2"] < accuracy["coupled-k4-2"]
    assert "| paper's accountant |" in (folder / "cpsgd-mnist.md").read_text()
    assert [row["by_client"] for row in figures["first_epoch"]] == [True, False]


@pytest.mark.slow
@pytest.mark.statistical
def test_one_step_client_by_client_has_the_predicted_error(
    quick: tuple[dict[str, Any], Path],
) -> None:
    """The squared error is a sum of D nearly normal squares: relative spread sqrt(2 / D)."""
    figures, _ = quick
    spread = np.sqrt(2.0 / QUICK.setting.dimension) * stats.norm.isf(ALPHA)
    for row in figures["check"]:
        # Rounding has between nothing and a quarter; coins have all the rest.
        coins = next(run["coins"] for run in figures["runs"] if run["name"] == row["name"])
        assert coins / (1.0 + coins) * (1.0 - spread) <= row["ratio"] <= 1.0 + spread


def test_the_sum_of_clipped_gradients_is_that_of_the_single_ones() -> None:
    training = Training(QUICK, 5)
    model, all_examples = training.initial().model, training.examples(0)
    examples = Examples(all_examples.inputs[:50], all_examples.labels[:50])
    norms = []
    for clip in (0.1, 1.0, 100.0):
        rows = np.array(list(each_clipped(training.task, model, examples, clip)))
        norms.append(np.linalg.norm(rows, axis=1))
        together = sum_clipped(training.task, model, examples, clip)
        np.testing.assert_allclose(together, rows.sum(axis=0), atol=1e-4)
    assert norms[0] == pytest.approx(np.ones(50)) and norms[2].max() < 1.0
    whole = sum_clipped(training.task, model, examples, None)
    np.testing.assert_allclose(whole, 100.0 * rows.sum(axis=0), atol=1e-2)


def test_gradients_are_those_of_the_loss() -> None:
    training = Training(QUICK, 5)
    examples = training.examples(0)
    vector = torch.tensor(training.initial().model, requires_grad=True)
    weights = torch.ones(len(examples))
    loss = training.task.loss(vector, examples.inputs, examples.labels, weights)
    (slope,) = torch.autograd.grad(loss, vector)
    whole = sum_clipped(training.task, training.initial().model, examples, None) / len(examples)
    np.testing.assert_allclose(whole, slope.numpy(), atol=1e-5)


@pytest.mark.parametrize("estimator", ROUNDED, ids=str)
def test_an_integer_sum_is_the_float_sum_within_a_step_a_client(estimator: Rounded) -> None:
    rng = np.random.default_rng(4)
    vectors = _vectors(rng)
    rotation = estimator.rotation(rng)
    integers = estimator.add_each(vectors, rotation, rng)
    places = integers - SMALL.clients * estimator.offset
    rotated = rotation.forward(estimator.padded(vectors.sum(axis=0)))
    assert np.abs(estimator.width * places - rotated).max() < SMALL.clients * estimator.width
    # Independent errors of one step each do far better together: Hoeffding's inequality.
    critical = np.sqrt(0.5 * SMALL.clients * np.log(2.0 * SMALL.dimension / ALPHA))
    assert np.abs(places - rotated / estimator.width).max() < critical


@pytest.mark.parametrize("estimator", ROUNDED[:2], ids=str)
def test_the_estimate_is_that_of_the_printed_mechanism(estimator: OnLevels) -> None:
    total = np.random.default_rng(1).integers(0, 400, 256)
    printed = estimator.mechanism.estimate(total, SMALL.clients)
    np.testing.assert_allclose(estimator.estimate(total), printed, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ROUNDED, ids=str)
def test_coins_drawn_at_once_have_the_law_of_every_clients_own(estimator: Rounded) -> None:
    """Chi-square against Bin(n m, 1/2) at level 1e-6; noise of one client too few is found out."""
    rng, length = np.random.default_rng(6), 60_000
    coins, clients = estimator.coins, SMALL.clients
    at_once = estimator.coins_of_all(rng, length)
    own = sum(sample_binomial(NoiseSeed(rng.bytes(32)), coins, length) for _ in range(clients))
    law = stats.binom(clients * coins, 0.5)
    assert _chi_square(at_once, law) > ALPHA
    assert _chi_square(own, law) > ALPHA
    assert _chi_square(replace(estimator, coins=coins + 1).coins_of_all(rng, length), law) < ALPHA


def _chi_square(draws: Any, law: Any) -> float:
    """P-value over about twenty cells of equal weight."""
    edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 19)))
    counts = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    shares = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    return float(stats.chisquare(counts, draws.size * shares).pvalue)


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ROUNDED, ids=str)
def test_both_ways_have_the_same_error(estimator: Rounded) -> None:
    """Squared errors of 200 means each, Student's test at 1e-6; without coins it fails."""
    rng = np.random.default_rng(8)
    each = _errors(lambda rows: estimator.each(rows, rng), rng)
    summed = _errors(lambda rows: estimator.summed(rows.sum(axis=0), rng), rng)
    assert stats.ttest_ind(each, summed).pvalue > ALPHA / 2.0
    broken = replace(estimator, coins=0)
    bare = _errors(lambda rows: broken.summed(rows.sum(axis=0), rng), rng)
    assert stats.ttest_ind(each, bare).pvalue < ALPHA


def _errors(estimate: Callable[[Any], Any], rng: np.random.Generator) -> list[float]:
    found = []
    for _ in range(200):
        rows = _vectors(rng)
        found.append(float(np.sum((estimate(rows) - rows.mean(axis=0)) ** 2)))
    return found


def test_more_epsilon_means_less_error() -> None:
    chosen = solved(replace(QUICK, epsilons=(2.0, 4.0)))
    rng = np.random.default_rng(9)
    vectors = _vectors(rng, QUICK.setting.clients, 4000)
    total, truth = vectors.sum(axis=0), vectors.mean(axis=0)
    error = {
        name: float(np.sum((run.estimator.summed(total, rng) - truth) ** 2))
        for name, run in chosen.items()
    }
    assert error["plain"] == error["clipped"] == 0.0
    for way in ("gaussian", "paper-k4", "coupled-k4", "conditional-k4"):
        # Five times apart by theory; a relative spread of 2 % each.
        assert error[f"{way}-4"] < 0.6 * error[f"{way}-2"]
    for epsilon in (2, 4):
        assert error[f"coupled-k4-{epsilon}"] < 0.6 * error[f"paper-k4-{epsilon}"]
        assert error[f"gaussian-{epsilon}"] < error[f"coupled-k4-{epsilon}"]


def test_a_step_with_every_client_rounding_for_itself() -> None:
    plan = replace(QUICK, setting=Setting(clients=30, dimension=8192, delta=1e-6), steps=2)
    training = Training(plan, 2)
    run = Run("own", OnLevels(plan.setting, 1, 16), {})
    first = training.train(run, by_client=True)
    assert first == training.train(run, by_client=True)
    assert first["step"] == 2 and 0.0 <= first["accuracy"] <= 1.0


def test_nobody_takes_part_twice_in_an_epoch(digits: Dataset) -> None:
    plan = replace(QUICK, setting=Setting(clients=400, dimension=8192))
    training = Training(plan, 1)
    assert training.steps_of_epoch == 3 and training.epochs == 14
    seen = torch.cat([training.examples(step).inputs for step in range(3)]).flatten(1).numpy()
    pool = digits.train.inputs.reshape(len(digits.train), -1)
    assert len(np.unique(seen, axis=0)) >= 1200 - (len(pool) - len(np.unique(pool, axis=0)))
    assert not torch.equal(training.examples(0).labels, training.examples(3).labels)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1437 examples for 2000"):
        Training(replace(QUICK, setting=Setting(clients=2000, dimension=8192)), 1)
    with pytest.raises(ValueError, match="parameters in 4096"):
        Training(replace(QUICK, setting=Setting(clients=100, dimension=4096)), 1)


def test_epsilon_grows_with_the_number_of_epochs() -> None:
    assert all_steps(2.0, 1e-9, 1) == pytest.approx(2.0, rel=1e-6)
    assert 2.0 * 4.0 < all_steps(2.0, 1e-9, 20) < 2.0 * 20.0


def test_mnist_itself(data_dir: Path) -> None:
    """Skipped where there are no files: the plan of the full run, one step."""
    enter(data_dir, None)
    plan = replace(Plan(), steps=1, levels=(2,), epsilons=(4.0,))
    training = Training(plan, 1)
    assert (training.task.dimension, training.steps_of_epoch) == (51_370, 6)
    assert trained(plan, solved(plan)["coupled-k2-4"], 1)["accuracy"] > 0.1
    enter(None, None)


def test_without_files_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILSUM_DATA_DIR", raising=False)
    with pytest.raises(DataError, match="VEILSUM_DATA_DIR"):
        CAMPAIGN.run(CAMPAIGN.study(Plan(), tmp_path))
