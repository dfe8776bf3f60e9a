"""Membership inference: always right without noise, bounded by epsilon with it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from protocol import PrivacyGoal
from secagg import ParameterError
from simulations.audits.base import Check, Claim
from simulations.learning.data import load_digits_dataset
from simulations.threats.inversion.experiments import InversionSetting
from simulations.threats.inversion.pictures import Gallery, distinct
from simulations.threats.inversion.views import CLIP_L2, GradientRound
from simulations.threats.membership.on_model import ModelGame, Played, model_figures, play
from simulations.threats.membership.on_sum import SumGame, audited, sum_figures

GOAL = PrivacyGoal(1.0, 1e-5, 1)


@pytest.fixture(scope="module")
def played() -> GradientRound:
    setting = InversionSetting(Gallery.of(load_digits_dataset()), 4, GOAL, 1)
    task, model = setting.honest_model("mlp")
    held = distinct(setting.gallery.private, 4, np.random.default_rng(1))
    return GradientRound.of(task, model, setting.gallery.private, list(held.reshape(-1, 1)))


# -- the sum ---------------------------------------------------------------------------------------


def test_without_noise_the_scores_are_the_two_worlds(played: GradientRound) -> None:
    game = SumGame.of(played, GOAL, 1, noised=False)
    assert game.threshold == pytest.approx(CLIP_L2 / 2)
    for world in (0, 1):
        scores = game.release(world, 3, 1)
        assert scores == pytest.approx(np.full(3, world * CLIP_L2), abs=1e-4)


def test_noise_for_a_weaker_promise_is_noticed(played: GradientRound) -> None:
    claim = SumGame.of(played, GOAL, 1, noised=True).claim(GOAL.delta)
    assert claim.epsilon <= GOAL.epsilon
    thin = SumGame.of(played, PrivacyGoal(16.0, 1e-5, 1), 1, noised=True)
    figures = sum_figures(thin, claim, 80, 1)
    assert figures["succeeded"] is True
    assert figures["audited_epsilon"] > claim.epsilon
    # Against what it really promises it stands.
    own = sum_figures(thin, thin.claim(1e-5), 80, 1)
    assert own["succeeded"] is False


def test_the_audited_epsilon_is_its_formula() -> None:
    runs = 1_000_000
    # With a = b = 0.3085 the Gaussian has mu = 1, and its epsilon at 1e-5 is 4.38.
    wrong = round(0.3085375 * runs)
    assert audited((wrong, wrong), runs, 1e-5, 0.05) == pytest.approx(4.38, abs=0.03)
    # Few false positives and many false negatives: the other bound is the larger one.
    assert audited((0, 900_000), runs, 1e-300, 0.05) > math.log(0.099 / 4e-6)
    assert audited((600, 500), 1000, 1e-5, 0.05) == 0.0


def test_no_run_is_refused(played: GradientRound) -> None:
    game = SumGame.of(played, GOAL, 1, noised=True)
    with pytest.raises(ParameterError, match="runs"):
        sum_figures(game, Claim(1.0, 1e-5), 0, 1)


# -- the model -------------------------------------------------------------------------------------


def model_game(clients: int = 48, rounds: int = 16, seed: int = 1) -> ModelGame:
    goal = PrivacyGoal(0.5, 1e-9, rounds)
    return ModelGame(load_digits_dataset(), clients, 1, goal, 2.0, True, seed)


def test_clients_hold_distinct_examples_and_labels_that_follow_from_nothing() -> None:
    game = model_game(200)
    held = np.concatenate(game.members)
    assert len(set(held.tolist())) == 200
    natural = ModelGame(game.data, 200, 1, game.goal, 2.0, False, 1)
    assert np.array_equal(natural.split.labels, game.data.train.labels)
    agree = (game.split.labels == natural.split.labels).mean()
    # Of 1437 random labels a tenth agrees; the standard deviation is 0.008.
    assert abs(agree - 0.1) < 0.05
    assert 60 < game.included().sum() < 140


def test_a_client_that_is_not_included_leaves_no_trace() -> None:
    game = model_game(24, 2)
    everybody = play(game, private=False)
    changed = ModelGame(game.data, 24, 1, game.goal, 2.0, True, 1)
    first_out = int(np.flatnonzero(~everybody.included)[0])
    labels = changed.split.labels.copy()
    labels[changed.members[first_out]] = (labels[changed.members[first_out]] + 1) % 10
    changed.__dict__["split"] = type(game.split)(game.split.inputs, labels)
    again = play(changed, private=False)
    same = np.arange(24) != first_out
    assert np.array_equal(everybody.scores[same], again.scores[same])
    assert everybody.scores[first_out] != again.scores[first_out]


def test_a_private_training_repeats_and_is_accounted() -> None:
    game = model_game(12, 2)
    first, again = (play(game, private=True) for _ in range(2))
    assert np.array_equal(first.scores, again.scores)
    assert 0.4 < first.epsilon <= 0.5
    assert play(game, private=False).epsilon == 0.0


def test_scores_that_say_it_all_succeed_and_others_do_not() -> None:
    rng = np.random.default_rng(1)
    included = rng.random(60) < 0.5
    claim = Claim(0.5, 1e-9)
    open_book = model_figures(Played(included, included.astype(float), 0.5, 0.0), claim)
    assert open_book["succeeded"] is True
    assert (open_book["auc"], open_book["right"], open_book["guesses"]) == (1.0, 40, 40)
    noise = model_figures(Played(included, rng.standard_normal(60), 0.5, 0.0), claim)
    assert noise["succeeded"] is False
    assert noise["advantage_lower"] < noise["advantage"] < noise["advantage_upper"]


# -- both ------------------------------------------------------------------------------------------


def test_what_the_attack_reports(quick_check: Callable[[str], Check]) -> None:
    check = quick_check("A24")
    real, twin = check.with_defence, check.without_defence
    assert twin["sum_accuracy"] == 1.0
    assert real["sum_lower"] < real["sum_allowed_accuracy"] < 0.74
    for part in ("sum", "model"):
        accounted = real[f"{part}_accounted_epsilon"]
        assert real[f"{part}_audited_epsilon"] <= accounted < twin[f"{part}_audited_epsilon"]
