"""What a printed epsilon is worth if the run stops where it looks best: computed, not drawn.

After t releases the privacy loss L_t of a run of Gaussian releases is a random walk with steps
N(mu^2/2, mu^2). Whoever prints after release t the epsilon e_t that goes with the releases so far,
and stops there, has printed an epsilon that depends on the results, if the stop does. What it is
worth is the ex-post delta,

    E (1 - exp(e_T - L_T))+    at the stop T,

which is delta itself for any T that was fixed beforehand. The worst stop is found by going
backwards from the last release: V_t(L) = max(the value of stopping, E V_{t+1}(L + step)).

The steps are put on a grid in one of two ways. Rounded down, what comes out is never above the
true one, as the value grows with L. Split, such that both neighbours' chances are kept, the walk is
that of a pair from which the true one can be made; with one and the same epsilon at every stop,
what comes out is then never below the true one.

Run this file to print the table of docs/accounting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.accounting import gaussian_epsilon, gaussian_mu

Floats = NDArray[np.float64]

REACH = 12.0
"""Standard deviations of the walk that the grid covers, and of a step."""


def _cells(mu: float, step: float) -> tuple[Floats, Floats, Floats]:
    """Return cells j h .. (j + 1) h of the grid: j, and the chance of a step with and without."""
    reach = math.ceil((REACH * mu + mu**2) / step)
    edges = np.arange(-reach, reach + 1)
    with_it, without = (
        np.diff(special.ndtr(step * edges / mu - sign * mu / 2.0)) for sign in (1, -1)
    )
    return edges[:-1], with_it, without


def rounded_down(mu: float, step: float) -> Floats:
    """Return the chances of steps -r .. r in units of the grid, each step rounded down."""
    _, chance, _ = _cells(mu, step)
    return np.append(chance, 0.0)


def split(mu: float, step: float) -> Floats:
    """Return the same with each cell split between its ends: both its chances are kept."""
    cells, chance, without = _cells(mu, step)
    # a + b = chance, and without the client a e^(-j h) + b e^(-(j + 1) h) = without.
    upper = (chance - without * np.exp(step * cells)) / -math.expm1(-step)
    upper = np.clip(upper, 0.0, chance)
    return np.append(chance - upper, 0.0) + np.append(0.0, upper)


StepMaker = Callable[[float, float], Floats]


def worst_delta(
    mus: Sequence[float], printed: Sequence[float], step: float, steps: StepMaker = rounded_down
) -> float:
    """Return the largest ex-post delta over all stops, by one of the two grids."""
    square = math.fsum(mu**2 for mu in mus)
    half = math.ceil((REACH * math.sqrt(square) + square) / step)
    losses = step * np.arange(-half, half + 1)
    value = np.zeros(losses.size)
    for mu, epsilon in zip(reversed(mus), reversed(printed), strict=True):
        value = np.maximum(value, -np.expm1(np.minimum(epsilon - losses, 0.0)))
        value = _before(value, steps(mu, step))
    return float(value[half])


def _before(value: Floats, kernel: Floats) -> Floats:
    """Return the expected value before a step; off the grid it is that of the grid's end."""
    padded = np.pad(value, kernel.size // 2, mode="edge")
    return np.convolve(padded, kernel[::-1], mode="valid")


def readings(mu: float, delta: float, releases: int) -> list[float]:
    """Epsilon of the first t releases at delta, for every t: what is spent so far."""
    return [gaussian_epsilon(math.sqrt(t) * mu, delta) for t in range(1, releases + 1)]


def figures(epsilon: float, delta: float, releases: int) -> tuple[float, float]:
    """Return ex-post delta over delta: of readings at the worst stop, and of the goal."""
    mu = gaussian_mu(epsilon, delta) / math.sqrt(releases)
    step = mu / 50.0
    reading = worst_delta([mu] * releases, readings(mu, delta, releases), step)
    goal = worst_delta([mu] * releases, [epsilon] * releases, step, split)
    return reading / delta, goal / delta


def main() -> None:
    """Print the table."""
    for epsilon, delta in ((5.0, 1e-5), (1.0, 1e-5), (5.0, 1e-6)):
        for releases in (2, 8, 24, 100, 1000):
            reading, goal = figures(epsilon, delta, releases)
            print(f"{epsilon:g} {delta:g} {releases:5} {reading:7.2f} {goal:7.3f}")


if __name__ == "__main__":
    main()
