"""One run: the p-value of the paper, a bound that holds, and canaries that find reduced noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from secagg import ParameterError
from simulations.audits.base import ALPHA
from simulations.audits.canaries import audit_canaries, canary_scores, canary_settings
from simulations.audits.one_run import epsilon_bound, one_run, p_value
from simulations.audits.paths import Mistake, WholePath

pytestmark = pytest.mark.statistical


def plain_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """The formula, term by term, from exact binomial coefficients."""
    q = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    mass = [math.comb(r, k) * q**k * (1.0 - q) ** (r - k) for k in range(r + 1)]
    terms = [sum(mass[v - i : v]) / i for i in range(1, v + 1)]
    return min(1.0, sum(mass[v:]) + 2.0 * m * delta * max(terms, default=0.0))


@pytest.mark.parametrize(("m", "r", "v"), [(10, 10, 7), (100, 40, 40), (60, 30, 0), (50, 20, 12)])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_p_value_is_the_formula(m: int, r: int, v: int, epsilon: float, delta: float) -> None:
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(
        plain_p_value(m, r, v, epsilon, delta), rel=1e-9, abs=1e-300
    )


@pytest.mark.parametrize("v", [60, 90, 100])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_bound_is_where_the_p_value_crosses(v: int, delta: float) -> None:
    bound = epsilon_bound(200, 100, v, delta, 0.9)
    assert p_value(200, 100, v, bound, delta) <= 0.1 or bound == 0.0
    assert p_value(200, 100, v, bound + 1e-6, delta) > 0.1
    grid = np.linspace(0.0, bound, 200)
    assert bound == 0.0 or all(p_value(200, 100, v, e, delta) <= 0.1 for e in grid.tolist())


def test_without_delta_and_all_right_the_bound_has_a_closed_form() -> None:
    """The bound solves q^r = alpha for the share q of right guesses."""
    q = 0.05 ** (1 / 80)
    assert epsilon_bound(80, 80, 80, 0.0) == pytest.approx(math.log(q / (1.0 - q)), rel=1e-9)


def test_guesses_at_random_show_nothing() -> None:
    assert epsilon_bound(100, 100, 50, 1e-6) == 0.0


def test_the_bound_holds_for_randomised_response() -> None:
    """Each canary is reported rightly with probability q(1): the worst case of epsilon = 1."""
    trials, m, epsilon = 200, 300, 1.0
    generator = np.random.default_rng(5)
    q = 1.0 / (1.0 + math.exp(-epsilon))
    included = generator.integers(0, 2, (trials, m)).astype(bool)
    right = generator.random((trials, m)) < q
    reported = np.where(right, included, ~included).astype(float)
    reported += 1e-9 * generator.random((trials, m))  # which ones are guessed must not matter
    bounds = [
        one_run(bits, scores, 200, 0.0, 0.9).epsilon
        for bits, scores in zip(included, reported, strict=True)
    ]
    assert sum(bound > epsilon for bound in bounds) <= stats.binom.isf(ALPHA, trials, 0.1)
    assert np.median(bounds) > 0.6  # and it is not merely small
    # The broken twin claims the point estimate, and is above the truth about half the time.
    naive = [math.log(r.mean() / (1.0 - r.mean())) for r in right]
    assert sum(each > epsilon for each in naive) > stats.binom.isf(ALPHA, trials, 0.1)


def test_guesses_are_the_extremes() -> None:
    included = np.array([False, True, False, True])
    bound = one_run(included, np.array([-3.0, -0.1, 0.1, 3.0]), 2, 0.0)
    assert (bound.right, bound.guesses, bound.canaries) == (2, 2, 4)
    assert bound.epsilon == bound.ceiling


@pytest.mark.parametrize("sketched", [True, False])
@pytest.mark.slow
def test_canary_clients(sketched: bool) -> None:
    check = audit_canaries(600, 2, sketched).check()
    assert check.held, check
    figures = check.without_defence
    assert figures["epsilon_at_least"] > figures["claimed_epsilon"]
    assert figures["epsilon_ceiling"] > figures["epsilon_at_least"]


def test_real_rounds_give_the_scores_of_ideal_ones() -> None:
    settings, included = canary_settings(30), np.arange(30) % 2 == 0
    ideal = canary_scores(WholePath(settings, 3), included, 1)
    real = canary_scores(WholePath(settings, 3, real=True), included, 1)
    assert np.array_equal(ideal, real)
    assert not np.array_equal(ideal, canary_scores(WholePath(settings, 4), included, 1))


def test_scores_separate_where_there_is_no_noise_to_speak_of() -> None:
    """Nearly: a tenth of the noise still is some."""
    included = np.arange(200) % 2 == 0
    path = WholePath(canary_settings(200, sketched=False), 3, Mistake.TENTH)
    scores = canary_scores(path, included, 1)
    gap = scores[included].mean() - scores[~included].mean()
    assert gap == pytest.approx(1.0, abs=5 * 2 * scores[included].std() / math.sqrt(200))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, 0, 0, 1.0, 0.0), "canaries = 0"),
        ((5, 6, 2, 1.0, 0.0), "right <= guesses <= canaries"),
        ((5, 4, 5, 1.0, 0.0), "right <= guesses <= canaries"),
        ((5, 4, 3, -1.0, 0.0), "epsilon = -1.0"),
        ((5, 4, 3, math.nan, 0.0), "epsilon"),
        ((5, 4, 3, 1.0, 1.0), "delta = 1.0"),
    ],
)
def test_bad_numbers(arguments: tuple[int, int, int, float, float], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        p_value(*arguments)


@pytest.mark.parametrize(
    ("included", "scores", "guesses", "match"),
    [
        (np.zeros(4, bool), np.zeros(5), 2, "scores"),
        (np.zeros(4), np.zeros(4), 2, "included"),
        (np.zeros(4, bool), np.full(4, np.inf), 2, "infinity"),
        (np.zeros(4, bool), np.zeros(4), 1, "guesses = 1"),
        (np.zeros(4, bool), np.zeros(4), 5, "right <= guesses"),
    ],
)
def test_bad_scores(included: np.ndarray, scores: np.ndarray, guesses: int, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        one_run(included, scores, guesses, 0.0)


def test_a_bad_confidence() -> None:
    with pytest.raises(ParameterError, match="confidence = 1"):
        epsilon_bound(5, 4, 3, 0.0, 1.0)
