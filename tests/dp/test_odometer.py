"""An epsilon that holds wherever a run stops, against the best stop: computed, not drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from stopping import _before, readings, rounded_down, split, worst_delta

from dp.accounting import gaussian_epsilon, gaussian_mu, renyi_to_epsilon
from dp.odometer import Odometer

GOALS = [(5.0, 1e-5, 8), (1.0, 1e-5, 24), (5.0, 1e-6, 24), (0.2, 1e-3, 4)]


def walked(goal: tuple[float, float, int]) -> tuple[float, Odometer]:
    """Mu of one release, and the odometer of the run."""
    epsilon, delta, releases = goal
    mu = gaussian_mu(epsilon, delta)
    return mu / math.sqrt(releases), Odometer(mu * mu, delta)


@pytest.mark.parametrize("goal", GOALS)
def test_it_holds_at_the_worst_stop_where_what_is_spent_does_not(
    goal: tuple[float, float, int],
) -> None:
    _, delta, releases = goal
    mu, odometer = walked(goal)
    squares = [t * mu * mu for t in range(1, releases + 1)]
    printed = [odometer.epsilon(u) for u in squares]
    assert 0.1 < worst_delta([mu] * releases, printed, mu / 50, split) / delta <= 1.0
    # Twins: what is spent so far, and a minimum over many orders that share no delta.
    orders = 1.0 + 2.0 ** np.arange(-2.0, 8.0, 0.25)
    unshared = [min(renyi_to_epsilon(a, a * u / 2, delta) for a in orders) for u in squares]
    assert (
        worst_delta([mu] * releases, readings(mu, delta, releases), mu / 50, rounded_down)
        > 1.5 * delta
    )
    if releases > 8:
        assert worst_delta([mu] * releases, unshared, mu / 50, rounded_down) > 1.1 * delta


def best_game(mus: Sequence[float], most: int, printed: Callable[[int], float]) -> float:
    """Delta of who chooses every release's size, and the stop, by the results: backwards.

    Sizes are multiples of the first, and mu^2 is counted in squares of it, up to ``most``.
    """
    step = mus[0] / 30
    half = math.ceil((12 * mus[0] * math.sqrt(most) + most * mus[0] ** 2) / step)
    losses = step * np.arange(-half, half + 1)
    kernels = {round((mu / mus[0]) ** 2): split(mu, step) for mu in mus}
    values: dict[int, np.ndarray] = {}
    for spent in range(most, -1, -1):
        options = [
            _before(values[spent + weight], kernel)
            for weight, kernel in kernels.items()
            if spent + weight <= most
        ]
        stop = -np.expm1(np.minimum(printed(spent) - losses, 0.0))
        values[spent] = np.max([stop, *options], axis=0)
    return float(values[0][half])


def test_it_holds_if_results_choose_the_sizes_as_well() -> None:
    mu, odometer = walked((5.0, 1e-5, 18))
    mus = (mu, 2 * mu, 3 * mu)
    found = best_game(mus, 18, lambda t: odometer.epsilon(t * mu * mu))
    assert 0.1e-5 < found <= 1e-5
    # That no more follows than was planned is a condition of the goal, not of this.
    assert best_game(mus, 30, lambda t: odometer.epsilon(t * mu * mu)) <= 1e-5
    spent = best_game(mus, 18, lambda t: gaussian_epsilon(math.sqrt(t) * mu, 1e-5) if t else 0.0)
    assert spent > 3e-5


def test_before_the_first_release_nothing_is_spent() -> None:
    assert Odometer(1.0, 1e-5).epsilon(0.0) == 0.0 < Odometer(1.0, 1e-5).epsilon(1e-9)


def test_its_price() -> None:
    """The table of docs/accounting.md."""
    for epsilon, delta in ((1.0, 1e-5), (5.0, 1e-5), (8.0, 1e-5), (5.0, 1e-8)):
        mu, odometer = walked((epsilon, delta, 1))
        for part in (1 / 24, 1 / 8, 1 / 4, 1 / 2, 1.0):
            spent = gaussian_epsilon(mu * math.sqrt(part), delta)
            assert 1.08 < odometer.epsilon(part * mu * mu) / spent < 1.22
