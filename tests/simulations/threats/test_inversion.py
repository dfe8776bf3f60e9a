"""Gradient inversion: each attack works where nothing stops it, and fails on the noised sum."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from scipy.stats import norm

from protocol import PrivacyGoal
from secagg import ParameterError
from simulations.audits.base import Check
from simulations.common.threads import one_thread
from simulations.learning.data import DATA_DIR_VARIABLE, Split
from simulations.threats.inversion.analytic import (
    imprint_model,
    imprint_task,
    leaked_label,
    read_bins,
    row_ratio,
    to_pixels,
)
from simulations.threats.inversion.experiments import (
    GUESSES,
    InversionSetting,
    attack_by_imprint,
    permitted,
    pictures_by_epsilon,
)
from simulations.threats.inversion.grid import noise_curve
from simulations.threats.inversion.optimisation import Search, invert
from simulations.threats.inversion.pictures import (
    PSNR_CEILING,
    Gallery,
    Recognition,
    best_guesses,
    distinct,
    drawn,
    flat,
    galleries,
    psnr,
)
from simulations.threats.inversion.results import Labels, Reconstructions
from simulations.threats.inversion.views import CLIP_L2, GradientRound, ServerView, announced, named

ALPHA = 1e-6
GOAL = PrivacyGoal(1.0, 1e-5, 1)


@pytest.fixture(scope="module")
def gallery() -> Gallery:
    (digits,) = galleries(("digits",))
    return digits


@pytest.fixture(scope="module")
def setting(gallery: Gallery) -> InversionSetting:
    return InversionSetting(gallery, 10, GOAL, 1)


def one_each(
    setting: InversionSetting, name: str, clients: int
) -> tuple[GradientRound, np.ndarray]:
    task, model = setting.honest_model(name)
    private = setting.gallery.private
    held = distinct(private, clients, np.random.default_rng(3))
    return GradientRound.of(task, model, private, list(held.reshape(-1, 1))), held


# -- pictures and chance ---------------------------------------------------------------------------


def test_psnr_is_its_formula() -> None:
    pictures = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    guesses = np.array([[0.1, 0.1, 0.1, 0.1], [5.0, 1.0, 1.0, 0.5]])
    # Squared errors 0.01 and, after cutting 5 to 1, 0.25 / 4.
    expected = [20.0, -10.0 * math.log10(0.0625)]
    assert psnr(pictures, guesses) == pytest.approx(expected)
    assert best_guesses(pictures, guesses)[1].tolist() == [1.0, 1.0, 1.0, 0.5]
    assert psnr(pictures, pictures).tolist() == [PSNR_CEILING] * 2


def test_no_guess_is_the_worst_guess() -> None:
    pictures = np.zeros((3, 4))
    assert psnr(pictures, np.empty((0, 4))).tolist() == [0.0] * 3
    assert (best_guesses(pictures, np.empty((0, 4))) == 0.5).all()


@pytest.mark.parametrize("guesses", [1, 256])
def test_who_guesses_blindly_stays_below_the_threshold(gallery: Gallery, guesses: int) -> None:
    line = Recognition.of(gallery.public, guesses, 1)
    assert 0.0 < line.chance < 0.05
    others = np.random.default_rng(1).choice(len(gallery.public), guesses, replace=False)
    reached = psnr(flat(gallery.private), flat(gallery.public, others))
    found = int((reached > line.threshold).sum())
    # Binomial with at most the stated chance: more than this has probability below alpha.
    mean = len(reached) * line.chance
    assert found <= mean + norm.isf(ALPHA) * math.sqrt(mean) + 1
    # The control: a slightly disturbed copy is recognised.
    rng = np.random.default_rng(2)
    copies = flat(gallery.private) + 0.01 * rng.standard_normal(flat(gallery.private).shape)
    assert (psnr(flat(gallery.private), copies) > line.threshold).all()


def test_more_guesses_raise_the_threshold(gallery: Gallery) -> None:
    few, many = (Recognition.of(gallery.public, count, 1) for count in (1, 500))
    assert many.threshold > few.threshold


def test_chance_needs_pictures_and_guesses(gallery: Gallery) -> None:
    with pytest.raises(ParameterError, match="guesses"):
        Recognition.of(gallery.public, 0, 1)
    few = Split(gallery.public.inputs[:39], gallery.public.labels[:39])
    with pytest.raises(ParameterError, match="39 pictures"):
        Recognition.of(few, 1, 1)


def test_labels_are_drawn_evenly_and_pictures_have_them(gallery: Gallery) -> None:
    chosen = drawn(gallery.private, 5000, np.random.default_rng(1))
    counts = np.bincount(gallery.private.labels[chosen], minlength=10)
    # Each count is Bin(5000, 1/10).
    assert np.abs(counts - 500).max() <= norm.isf(ALPHA / 20) * math.sqrt(450) + 1


def test_missing_data_sets_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    assert [each.data.name for each in galleries(("digits", "mnist"))] == ["digits"]


def test_mnist_is_attacked_where_it_is(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(data_dir))
    digits, mnist = galleries(("digits", "mnist"))
    found = attack_by_imprint(InversionSetting(mnist, 4, GOAL, 1), 1, 4, 128)
    assert (found.data, found.side, digits.data.name) == ("mnist", (28, 28), "digits")
    assert found.counts(ServerView.PLAIN) == (4, 4)
    assert found.counts(ServerView.NOISED) == (0, 16)
    assert found.counts(ServerView.SUM)[0] > 8


# -- views -----------------------------------------------------------------------------------------


def test_the_sum_is_the_mean_of_clipped_updates(setting: InversionSetting) -> None:
    played, _ = one_each(setting, "mlp60", 5)
    lengths = np.linalg.norm(played.updates, axis=1)
    assert (lengths > CLIP_L2).all()
    mean = -(played.updates / lengths[:, None]).mean(axis=0, dtype=np.float64)
    seen = played.gradient(ServerView.SUM, GOAL, 1)
    assert np.abs(seen - mean).max() < 2.0**-20
    assert np.array_equal(played.gradient(ServerView.PLAIN, GOAL, 1), -played.updates[0])


@pytest.mark.statistical
def test_the_noise_is_what_the_round_is_accounted_with(setting: InversionSetting) -> None:
    played, _ = one_each(setting, "mlp60", 5)
    total = played.gradient(ServerView.SUM, GOAL, 1)
    parameters = announced(5, total.size, GOAL, 1, True).parameters
    # Coins of five clients, and rounding with a variance between 0 and 1/4 for each of them.
    coins = 5 * parameters.mechanism.variance / (5 * parameters.scale) ** 2
    rounding = 5 / 4 / (5 * parameters.scale) ** 2
    tolerance = norm.isf(ALPHA / 2) * math.sqrt(2.0 / total.size)

    def is_accounted(seen: np.ndarray) -> bool:
        variance = np.square(seen - total).mean()
        return coins * (1 - tolerance) <= variance <= (coins + rounding) * (1 + tolerance)

    assert is_accounted(played.gradient(ServerView.NOISED, GOAL, 1))
    # The controls: noise for another epsilon, and none.
    assert not is_accounted(played.gradient(ServerView.NOISED, PrivacyGoal(1.5, 1e-5, 1), 1))
    assert not is_accounted(total)


def test_a_seed_repeats_a_round(setting: InversionSetting) -> None:
    played, _ = one_each(setting, "mlp60", 4)
    first, again, other = (played.gradient(ServerView.NOISED, GOAL, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_torch_gets_its_threads_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


# -- one attack at a time --------------------------------------------------------------------------


def test_the_row_ratio_is_exact_and_ignores_scale() -> None:
    rng = np.random.default_rng(1)
    x, slopes = rng.uniform(-1, 1, 7), rng.standard_normal(5)
    weight = np.outer(slopes, x)
    for scale in (1.0, 1e-6, -3.0):
        assert row_ratio(scale * weight, scale * slopes)[0] == pytest.approx(x)
    assert to_pixels(np.array([-1.0, 0.0, 1.0, 9.0])).tolist() == [0.0, 0.5, 1.0, 1.0]


def test_the_row_ratio_of_two_is_their_weighted_mean() -> None:
    rng = np.random.default_rng(1)
    x, slopes = rng.uniform(-1, 1, (2, 7)), np.array([[1.0], [3.0]])
    weight, bias = slopes.T @ x, slopes.sum(axis=0)
    assert row_ratio(weight, bias)[0] == pytest.approx((x[0] + 3 * x[1]) / 4)


def test_a_row_without_slope_says_nothing() -> None:
    assert row_ratio(np.ones((3, 7)), np.zeros(3)).shape == (0, 7)


def test_labels_leak_from_real_gradients(setting: InversionSetting) -> None:
    played, held = one_each(setting, "mlp60", 12)
    bias = [named(played.task, -update.astype(float))["layer2.bias"] for update in played.updates]
    labels = setting.gallery.private.labels[held]
    assert [leaked_label(each.numpy()) for each in bias] == labels.tolist()
    # The control: the largest entry is not the label.
    assert not np.any(
        [int(each.argmax()) == label for each, label in zip(bias, labels, strict=True)]
    )


def test_bins_give_pictures_back_through_a_sum(setting: InversionSetting) -> None:
    task = imprint_task(setting.shape, 256)
    private = setting.gallery.private
    held = distinct(private, 20, np.random.default_rng(1))
    members = list(held.reshape(5, 4))
    recovered = {}
    for name, model in (
        ("malicious", imprint_model(task, setting.gallery.public, 1)),
        ("honest", task.initial(torch.Generator().manual_seed(1))),
    ):
        played = GradientRound.of(task, model, private, members)
        bins = read_bins(task, played.gradient(ServerView.SUM, GOAL, 1))
        recovered[name] = int((psnr(flat(private, held), bins) > 40.0).sum())
    assert recovered["malicious"] >= 15
    # Few units of an honest layer are active for one picture alone.
    assert recovered["honest"] <= 4


def test_pictures_that_share_a_bin_are_not_told_apart(setting: InversionSetting) -> None:
    task = imprint_task(setting.shape, 4)
    private = setting.gallery.private
    held = distinct(private, 40, np.random.default_rng(1))
    model = imprint_model(task, setting.gallery.public, 1)
    played = GradientRound.of(task, model, private, [held])
    bins = read_bins(task, played.gradient(ServerView.PLAIN, GOAL, 1))
    assert len(bins) <= 4
    assert (psnr(flat(private, held), bins) < 40.0).all()


def test_a_search_finds_the_picture_of_its_gradient(setting: InversionSetting) -> None:
    played, held = one_each(setting, "cnn", 3)
    private, label = setting.gallery.private, setting.gallery.private.labels[held[:1]]
    task, model = played.task, played.model
    picture = flat(private, held[:1])

    def reached(gradient: np.ndarray) -> float:
        found = invert(task, model, gradient, label, (64,), Search(steps=150, seed=1))
        assert found.shape == (1, 64)
        assert found.min() >= 0.0 and found.max() <= 1.0
        return float(psnr(picture, found)[0])

    with one_thread():
        seen = played.gradient(ServerView.PLAIN, GOAL, 1)
        assert reached(seen) > 25.0
        assert reached(np.random.default_rng(1).standard_normal(seen.size)) < 12.0


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"steps": 1, "rate": 0.0}, {"steps": 1, "total_variation": math.nan}]
)
def test_searches_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match="steps, rate, total_variation"):
        Search(**wrong)


def test_a_zero_gradient_is_searched_without_a_nan(setting: InversionSetting) -> None:
    task, model = setting.honest_model("cnn")
    with one_thread():
        found = invert(task, model, np.zeros(task.dimension), np.array([1]), (64,), Search(steps=2))
    assert np.isfinite(found).all()


# -- verdicts --------------------------------------------------------------------------------------


def test_a_result_succeeds_only_with_the_pictures_themselves(gallery: Gallery) -> None:
    originals = flat(gallery.private)[:20]
    noise = np.random.default_rng(1).uniform(size=originals.shape)
    line = Recognition.of(gallery.public, 1, 1)
    guesses = {ServerView.PLAIN: originals, ServerView.SUM: noise, ServerView.NOISED: noise}
    same = dict.fromkeys(ServerView, originals)
    result = Reconstructions("test", "a test", "digits", (8, 8), line, same, guesses)
    assert result.rate(ServerView.PLAIN)["succeeded"] is True
    assert result.rate(ServerView.NOISED)["succeeded"] is False
    figures = result.figures(ServerView.PLAIN)
    assert figures["digits_test_recovered"] == figures["digits_test_pictures"] == 20
    assert figures["digits_test_mean_psnr_db"] == PSNR_CEILING


def test_labels_may_be_guessed_as_often_as_epsilon_permits() -> None:
    assert permitted(GOAL, 0.1) == pytest.approx(math.e / 10 + 1e-5)
    assert permitted(PrivacyGoal(9.0, 1e-5, 1), 0.1) == 1.0
    with pytest.raises(ParameterError, match="for one round"):
        permitted(PrivacyGoal(1.0, 1e-5, 2), 0.1)
    right = {ServerView.PLAIN: 200, ServerView.SUM: 40, ServerView.NOISED: 22}
    labels = Labels("digits", right, 200, 10, permitted(GOAL, 0.1))
    assert [labels.rate(view)["succeeded"] for view in ServerView] == [True, False, False]
    assert labels.figures(ServerView.SUM)["digits_label_accuracy"] == 0.2


def test_only_noise_hides_a_picture_from_who_knows_the_rest(setting: InversionSetting) -> None:
    threshold = setting.recognition(GUESSES).threshold
    strong, weak, none = pictures_by_epsilon(setting, (1.0, 256.0, math.inf))
    assert strong.recovered(threshold) == 0
    assert strong.psnr.mean() + 6.0 < weak.psnr.mean()
    assert none.recovered(threshold) == setting.clients
    exhibit = noise_curve([strong, weak, none], threshold, "digits", 10)
    assert "epsilon 1: 0 of 10 recovered" in exhibit.text
    assert "epsilon inf: 10 of 10 recovered" in exhibit.text
    assert matplotlib.image.imread(io.BytesIO(exhibit.data)).shape[1] == 900


def test_what_the_attack_reports(quick_check: Callable[[str], Check]) -> None:
    check = quick_check("A23")
    real, twin = check.with_defence, check.without_defence
    assert real["successes"] == 0
    assert twin["digits_row_ratio_recovered"] == twin["digits_row_ratio_pictures"]
    assert twin["digits_label_accuracy"] == 1.0
    # Aggregation alone does not stop a malicious model, and both sides say so.
    for side in (real, twin):
        recovered = side["sum_digits_imprint_recovered"]
        assert recovered > side["sum_digits_imprint_pictures"] / 4
        assert side["sum_digits_row_ratio_recovered"] == 0
    (grid,) = check.exhibits
    assert matplotlib.image.imread(io.BytesIO(grid.data)).shape[1] == 900
    assert "plain update: 12 of 12 pictures recovered" in grid.text
    assert "noised sum, eps 1: 0 of 80 pictures recovered" in grid.text
