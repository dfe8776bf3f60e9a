"""`veilsum reproduce cpsgd-mnist`: noise drawn at once has its law, networks learn, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dp import NoiseSeed, clip_l2, quantize
from dp.coins import sample_binomial
from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from simulations.campaigns.study import enter
from simulations.learning.data import DataError, Dataset
from simulations.reproduce.cpsgd import mean_estimation
from simulations.reproduce.cpsgd.mean_estimation import Conditional, Setting
from simulations.reproduce.cpsgd_training.campaign import CAMPAIGN, all_steps, claims
from simulations.reproduce.cpsgd_training.clipped_gradients import Examples, sum_clipped
from simulations.reproduce.cpsgd_training.deformed import deformed
from simulations.reproduce.cpsgd_training.estimators import Rounded, by_scale, on_levels
from simulations.reproduce.cpsgd_training.training import Plan, Run, Training, runs, trained
from sketch import PublicSeed, Rotation

ALPHA = 1e-6
SMALL = Setting(clients=40, dimension=256, delta=1e-6)
QUICK: Plan = CAMPAIGN.presets["quick"]
LEVELS = [(on_levels(SMALL, coins, k), k) for coins, k in ((12, 4), (3, 2))]
SCALE = 30.0
ROUNDED = [*LEVELS, (by_scale(SMALL, 7, SCALE), None)]


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
    rows = {row["name"]: row for row in figures["runs"]}
    assert min(rows["plain"]["accuracies"]) > 0.85 and min(rows["clipped"]["accuracies"]) > 0.8
    # 360 pictures are tested: chance would be 36 right, give or take 6.
    assert min(min(row["accuracies"]) for row in rows.values()) > 0.3
    assert all(
        [row["rate"], max(a for _, a in row["tried"])] in row["tried"] for row in rows.values()
    )
    assert "| paper's accountant |" in (folder / "cpsgd-mnist.md").read_text()


def test_the_sum_of_clipped_gradients_is_that_of_the_single_ones() -> None:
    training = Training(QUICK.course, 5)
    model, drawn = training.initial().model, training.examples(0)
    single = [
        _slope(training, Examples(drawn.inputs[i : i + 1], drawn.labels[i : i + 1]))
        for i in range(50)
    ]
    rows, examples = np.array(single), Examples(drawn.inputs[:50], drawn.labels[:50])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    for clip in (0.1, float(np.median(norms)), 100.0):
        together = sum_clipped(training.task, model, examples, clip)
        np.testing.assert_allclose(together, (rows / norms.clip(min=clip)).sum(axis=0), atol=1e-4)
    whole = sum_clipped(training.task, model, examples, None)
    np.testing.assert_allclose(whole, rows.sum(axis=0), atol=1e-3)


def _slope(training: Training, example: Examples) -> Any:
    """The gradient of one example's loss, by the task itself."""
    vector = torch.tensor(training.initial().model, requires_grad=True)
    loss = training.task.loss(vector, example.inputs, example.labels, torch.ones(1))
    return torch.autograd.grad(loss, vector)[0].numpy()


def _integers(estimator: Rounded, levels: int | None, rows: Any, rng: np.random.Generator) -> Any:
    """A rotation, and the sum of what clients send who rotate and round one after another."""
    rotation = Rotation(SMALL.dimension, PublicSeed(rng.bytes(32)))
    total = np.zeros(SMALL.dimension, np.int64)
    for row in rows:
        padded = np.pad(row, (0, SMALL.dimension - row.size))
        rotated = clip_l2(padded, 1.0).map_isometry(rotation.forward)
        if levels is None:
            linf = Conditional(SMALL, SCALE).linf
            total += quantize(rotated, SCALE, linf, NoiseSeed(rng.bytes(32))).values
        else:
            mechanism = SMALL.levels(levels, estimator.coins)
            total += mechanism.quantize(rotated, NoiseSeed(rng.bytes(32))).values
    return rotation, total


@pytest.mark.parametrize(("estimator", "levels"), ROUNDED, ids=str)
def test_an_integer_sum_is_the_float_sum_within_a_step_a_client(
    estimator: Rounded, levels: int | None
) -> None:
    rng = np.random.default_rng(4)
    vectors = _vectors(rng)
    rotation, integers = _integers(estimator, levels, vectors, rng)
    places = integers - SMALL.clients * estimator.offset
    rotated = rotation.forward(np.pad(vectors.sum(axis=0), (0, 56)))
    assert np.abs(estimator.width * places - rotated).max() < SMALL.clients * estimator.width
    # Independent errors of one step each do far better together: Hoeffding's inequality.
    critical = np.sqrt(0.5 * SMALL.clients * np.log(2.0 * SMALL.dimension / ALPHA))
    assert np.abs(places - rotated / estimator.width).max() < critical


@pytest.mark.parametrize(("estimator", "levels"), LEVELS, ids=str)
def test_the_estimate_is_that_of_the_printed_mechanism(estimator: Rounded, levels: int) -> None:
    total = np.random.default_rng(1).integers(0, 400, 256)
    printed = SMALL.levels(levels, estimator.coins).estimate(total, SMALL.clients)
    np.testing.assert_allclose(estimator.estimate(total), printed, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("estimator", [each for each, _ in ROUNDED], ids=str)
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
@pytest.mark.parametrize(("estimator", "levels"), ROUNDED, ids=str)
def test_rounding_at_once_has_the_error_of_clients_one_by_one(
    estimator: Rounded, levels: int | None
) -> None:
    """Squared errors of 200 means each, Student's test at 1e-6; without coins it fails."""
    rng = np.random.default_rng(8)

    def one_by_one(rows: Any) -> Any:
        rotation, total = _integers(estimator, levels, rows, rng)
        noised = total + estimator.coins_of_all(rng, total.size)
        return rotation.inverse(estimator.estimate(noised))[: rows.shape[1]]

    each = _errors(one_by_one, rng)
    summed = _errors(lambda rows: estimator.mean(rows.sum(axis=0), rng), rng)
    assert stats.ttest_ind(each, summed).pvalue > ALPHA / 2.0
    broken = replace(estimator, coins=0)
    bare = _errors(lambda rows: broken.mean(rows.sum(axis=0), rng), rng)
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
        name: float(np.sum((run.estimator.mean(total, rng) - truth) ** 2))
        for name, run in chosen.items()
    }
    assert error["plain"] == error["clipped"] == 0.0
    for way in ("gaussian", "paper-k4", "coupled-k4", "conditional-k4"):
        # Five times apart by theory; a relative spread of 2 % each.
        assert error[f"{way}-4"] < 0.6 * error[f"{way}-2"]
    for epsilon in (2, 4):
        assert error[f"coupled-k4-{epsilon}"] < 0.6 * error[f"paper-k4-{epsilon}"]
        assert error[f"gaussian-{epsilon}"] < error[f"coupled-k4-{epsilon}"]


def test_nobody_takes_part_twice_in_a_pass(digits: Dataset) -> None:
    plan = replace(QUICK, setting=Setting(clients=400, dimension=8192))
    training = Training(plan.course, 1)
    assert training.steps_of_pass == 3 and training.participations == 14
    seen = torch.cat([training.examples(step).inputs for step in range(3)]).flatten(1).numpy()
    pool = digits.train.inputs.reshape(len(digits.train), -1)
    assert len(np.unique(seen, axis=0)) >= 1200 - (len(pool) - len(np.unique(pool, axis=0)))
    assert not torch.equal(training.examples(0).labels, training.examples(3).labels)


def test_deformed_digits_make_every_client_another_one(digits: Dataset) -> None:
    plan = replace(QUICK, setting=Setting(clients=400, dimension=8192), deformed=True)
    training = Training(plan.course, 1)
    assert training.participations == 1
    seen = torch.cat([training.examples(step).inputs for step in range(6)]).flatten(1).numpy()
    assert len(np.unique(seen, axis=0)) == 2400 and 0.0 <= seen.min() <= seen.max() <= 1.0
    assert torch.equal(training.examples(4).inputs, Training(plan.course, 1).examples(4).inputs)
    # What is drawn is still a digit: nearer to its own than to another one.
    pictures = torch.tensor(digits.train.inputs[:300]).reshape(300, 8, 8)
    moved = deformed(pictures, torch.Generator().manual_seed(2)).flatten(1)
    own = (moved - pictures.flatten(1)).norm(dim=1).mean()
    assert 0.5 < own < 0.8 * (moved - pictures.flatten(1).roll(1, 0)).norm(dim=1).mean()


def test_rates_are_tried_on_training_digits_that_are_held_out(digits: Dataset) -> None:
    for validating, (trained_on, tested) in ((False, (1437, 360)), (True, (1197, 240))):
        training = Training(QUICK.course, 1, validating=validating)
        data = training._data
        assert (len(data.train), len(data.test)) == (trained_on, tested)
        pool = digits.train if validating else digits.test
        assert np.isin(data.test.inputs.sum(axis=1), pool.inputs.sum(axis=1)).all()


def test_what_does_not_fit_is_refused() -> None:
    for clients, dimension, problem in (
        (2000, 8192, "1437 examples for 2000"),
        (100, 4096, "parameters in 4096"),
    ):
        setting = Setting(clients=clients, dimension=dimension)
        with pytest.raises(ValueError, match=problem):
            Training(replace(QUICK, setting=setting).course, 1)


@pytest.mark.parametrize(
    ("paper", "expected"),
    [
        ([0.8, 0.81, 0.82], REPRODUCED),
        ([0.9, 0.91, 0.92], NOT_REPRODUCED),
        ([0.7, 0.9, 0.86], UNDECIDED),
    ],
)
def test_verdicts_follow_from_the_seeds(paper: list[float], expected: str) -> None:
    other = [0.85, 0.86, 0.87]
    rows = [
        {"way": way, "levels": k, "epsilon": epsilon, "accuracies": accuracies}
        for way, k, epsilon, accuracies in (
            ("plain", None, None, other),
            ("paper", 2, 2.0, paper),
            ("paper", 4, 2.0, other),
            ("coupled", 2, 2.0, other),
            ("paper", 2, 4.0, other),
        )
    ]
    figures = {"plan": {"levels": [2, 4], "epsilons": [2.0, 4.0]}, "runs": rows}
    found = {claim.statement: claim.verdict for claim in claims(figures)}
    same = "the baseline without noise and rounding above k = 4, at epsilon = 2"
    assert found.pop(same) == NOT_REPRODUCED
    assert len(found) == 3 and set(found.values()) == {expected}


def test_epsilon_grows_with_the_number_of_epochs() -> None:
    assert all_steps(2.0, 1e-9, 1) == pytest.approx(2.0, rel=1e-6)
    assert 2.0 * 4.0 < all_steps(2.0, 1e-9, 20) < 2.0 * 20.0


def test_mnist_itself(data_dir: Path) -> None:
    """Skipped where there are no files: the plan of the full run, one step."""
    enter(data_dir, None)
    plan = replace(Plan(), steps=1, levels=(2,), epsilons=(4.0,))
    training = Training(plan.course, 1)
    assert (training.task.dimension, training.steps_of_pass) == (51_370, 6)
    run = solved(plan)["coupled-k2-4"]
    assert trained(plan.course, run, 0.5, 1, False)["accuracy"] > 0.1
    enter(None, None)


def test_without_files_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILSUM_DATA_DIR", raising=False)
    with pytest.raises(DataError, match="VEILSUM_DATA_DIR"):
        CAMPAIGN.run(CAMPAIGN.study(Plan(), tmp_path))
