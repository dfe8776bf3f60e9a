"""The Renyi bound of a run with correlated noise: exact runs, brute force, and its limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from correlated_transcripts import Game, renyi_leaf

from dp.correlated import Promises, correlated_epsilon, largest_mu
from dp.correlated.theorem import ORDERS, group_error, run_error, theta_rest

PROMISES = Promises(
    rounds=60, dimension=10**6, smallest_part=4.9, most_parts=32, kept=80.0, fresh=400.0
)


def promises_of(game: Game) -> Promises:
    return Promises(
        rounds=game.rounds,
        dimension=1,
        smallest_part=min(game.kept, game.returned),
        most_parts=2 * game.adders,
        kept=game.adders * game.kept,
        fresh=game.fresh,
    )


@pytest.mark.parametrize(
    "game", [Game(2, 1.0, 1.0, 1, 1.0), Game(2, 1.0, 2.0, 2, 1.0), Game(3, 1.0, 1.0, 1, 1.0)]
)
@pytest.mark.parametrize("order", [1.1, 2.0, 3.0])
@pytest.mark.slow
def test_exact_runs_keep_the_bound(game: Game, order: float) -> None:
    for shifts in ((1, 0, 0), (1, 0, 1), (1, 1, 1)):
        budget = game.charge(shifts[: game.rounds], (1,) * (game.rounds - 1))
        played = replace(game, budget=budget)
        played.__dict__["joints"] = game.joints  # computed once
        divergence = math.log(played.best(renyi_leaf(order))) / (order - 1)
        bound = promises_of(game).renyi(budget, order)
        assert divergence <= bound < math.inf


def classes_of_a_sum(parts: int, reach: int) -> list[tuple[int, ...]]:
    """One vector of each class of integers modulo the diagonal: the one whose first entry is 0."""
    rest = itertools.product(range(-reach, reach + 1), repeat=parts - 1)
    return [(0, *k) for k in rest if any(k)]


@pytest.mark.parametrize("variance", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_the_error_of_a_sum_bounds_the_series(variance: float, parts: int) -> None:
    """Against the terms themselves, of a box of classes that holds nearly all of them."""
    exact = sum(
        math.exp(-2 * math.pi**2 * variance * (sum(j * j for j in k) - sum(k) ** 2 / parts))
        for k in classes_of_a_sum(parts, 4 if parts < 5 else 3)
    )
    assert exact <= group_error(variance, parts)
    assert group_error(variance, 2) >= 4 * math.exp(-(math.pi**2) * variance)


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_the_error_of_a_run_bounds_the_series(rounds: int) -> None:
    returned, kept = 0.6, 1.5
    difference = np.zeros((rounds - 1, rounds))
    for t in range(rounds - 1):
        difference[t, t], difference[t, t + 1] = 1.0, -1.0
    form = np.linalg.inv(np.eye(rounds - 1) / returned + difference @ difference.T / kept)
    exact = sum(
        math.exp(-2 * math.pi**2 * float(np.array(k) @ form @ np.array(k)))
        for k in itertools.product(range(-6, 7), repeat=rounds - 1)
        if any(k)
    )
    assert exact <= run_error(returned, kept, rounds)
    assert run_error(returned, kept, 1) == 0.0


@pytest.mark.parametrize(
    ("part", "kept", "order"), [(5.4, 8.0, ORDERS[0]), (5.0, 8.0, 2.0), (13.1, 1.0, ORDERS[0])]
)
def test_what_a_million_coordinates_need(part: float, kept: float, order: float) -> None:
    """The figures of docs/correlated-noise.md: `kept` times the smallest part stays."""

    def gap(part: float) -> float:
        promises = replace(PROMISES, smallest_part=part, kept=kept * part)
        return promises.renyi(0.0, order)

    assert gap(part) <= 1e-12 < gap(part - 0.1)


def test_the_gap_is_there_and_grows_towards_order_one() -> None:
    weak = replace(PROMISES, smallest_part=2.0, kept=20.0)
    gaps = [weak.renyi(1.0, order) - order / 2 for order in ORDERS]
    assert all(a > b > 0 for a, b in itertools.pairwise(gaps))
    assert correlated_epsilon(1.0, weak, 1e-5) > 1.2 * correlated_epsilon(1.0, PROMISES, 1e-5)


@pytest.mark.parametrize("part", [0.05, 0.15])
def test_parts_that_are_too_small_promise_nothing(part: float) -> None:
    weak = Promises(rounds=3, dimension=1, smallest_part=part, most_parts=8, kept=0.5, fresh=4.0)
    assert weak.ratio_gap == math.inf
    assert correlated_epsilon(1.0, weak, 1e-5) == math.inf
    assert largest_mu(1.0, 1e-5, weak) == 0.0


def test_epsilon_is_that_of_a_gaussian() -> None:
    """At mu = 1 and delta = 1e-5: 4.38, where zero-concentrated privacy alone would give 4.73."""
    assert correlated_epsilon(1.0, PROMISES, 1e-5) == pytest.approx(4.378, abs=0.001)
    weak = replace(PROMISES, smallest_part=3.0, kept=3.0, fresh=3.9)  # not covered by that form
    assert correlated_epsilon(1.0, replace(weak, dimension=1), 1e-5) > 4.72


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_largest_mu_is_on_the_safe_side(epsilon: float) -> None:
    mu = largest_mu(epsilon, 1e-6, PROMISES)
    assert correlated_epsilon(mu * mu, PROMISES, 1e-6) <= epsilon
    assert correlated_epsilon((mu * (1 + 1e-9)) ** 2, PROMISES, 1e-6) > epsilon


def test_the_series_is_never_nothing() -> None:
    assert theta_rest(1e4) > 0.0
    assert theta_rest(2.0) == pytest.approx(2 * (math.exp(-2) + math.exp(-8) + math.exp(-18)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"most_parts": 0}, "most_parts must lie in"),
        ({"smallest_part": 0.0}, "smallest_part must be finite"),
        ({"smallest_part": math.nan}, "smallest_part must be finite"),
        ({"kept": 4.0}, "kept must be finite and at least 4.9"),
        ({"fresh": 79.0}, "fresh must be finite and at least kept"),
    ],
)
def test_bad_promises(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(PROMISES, **changes)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: correlated_epsilon(1.0, PROMISES, 0.0), "delta must lie strictly"),
        (lambda: correlated_epsilon(-1.0, PROMISES, 1e-5), "mu_squared must not be negative"),
        (lambda: largest_mu(0.0, 1e-5, PROMISES), "epsilon must be positive"),
    ],
)
def test_bad_questions(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
