"""Every integer vector within a norm, and the divergence of binomial noise for each of them.

Independent of dp/accounting/losses.py: exact integer binomials, Fourier transforms, whole batches
of vectors at once. Losses are split between neighbouring grid points so that both probabilities
are kept (``rounding="split"``: an upper estimate, off in the second order of the step), or rounded
down (``rounding="floor"``: a lower estimate, by which an excess would be a proof).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from dp.accounting.domination import effective_sigma
from dp.accounting.gaussian import gaussian_delta

DELTA0S = (1e-2, 1e-4, 1e-6)
EPSILONS = 24
POINTS = 64
"""Grid points per standard deviation of the loss of a shift by one, 1/sigma: splitting then adds
less than one part in 10^4 to its variance."""


def step_of(coins: int) -> float:
    """Step of the loss grid."""
    return float(2.0 ** -math.ceil(math.log2(POINTS * math.sqrt(coins / 4))))


def vectors(square: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All falling vectors of positive integers with squared norm exactly ``square``."""
    if square == 0:
        yield ()
        return
    for first in range(min(largest, math.isqrt(square)), 0, -1):
        for rest in vectors(square - first * first, first):
            yield (first, *rest)


@cache
def _spectrum(coins: int, shift: int, size: int, rounding: str) -> tuple[np.ndarray, float]:
    """(Fourier transform of the finite losses of a shift, their total mass)."""
    half, step = coins // 2, step_of(coins)
    log_p = [math.log(math.comb(coins, i) / 2**coins) for i in range(coins + 1)]
    grid = np.zeros(size)
    for z in range(-half, half - shift + 1):
        loss, mass = log_p[z + half] - log_p[z + shift + half], math.exp(log_p[z + half])
        index = math.floor(loss / step)
        offset = loss - index * step
        up = math.expm1(-offset) / math.expm1(-step) if rounding == "split" else 0.0
        # Losses beyond the grid would wrap round; they belong to masses below 1e-13.
        index = max(-size // 2, min(size // 2 - 2, index))
        grid[index % size] += mass * (1.0 - up)
        grid[(index + 1) % size] += mass * up
    return np.fft.rfft(grid), float(grid.sum())


@cache
def _power(coins: int, shift: int, count: int, size: int, rounding: str) -> np.ndarray:
    """Fourier transform of the losses of ``count`` equal coordinates."""
    one = _spectrum(coins, shift, size, rounding)[0]
    return one if count == 1 else _power(coins, shift, count - 1, size, rounding) * one


def divergences(
    coins: int, batch: list[tuple[int, ...]], epsilons: np.ndarray, size: int, rounding: str
) -> np.ndarray:
    """Hockey-stick divergences, one row for each vector and one column for each epsilon."""
    product = np.ones((len(batch), size // 2 + 1), dtype=complex)
    finite = np.ones(len(batch))
    for row, vector in enumerate(batch):
        for shift in set(vector):
            count = vector.count(shift)
            product[row] *= _power(coins, shift, count, size, rounding)
            finite[row] *= _spectrum(coins, shift, size, rounding)[1] ** count
    masses = np.maximum(np.fft.irfft(product, size, axis=1), 0.0)
    losses = np.fft.fftfreq(size, 1.0 / size) * step_of(coins)
    gains = -np.expm1(np.minimum(epsilons[None, :] - losses[:, None], 0.0))
    return masses @ gains + (1.0 - finite)[:, None]


def grid_size(coins: int, square: int) -> int:
    """Grid points for the losses of vectors of a squared norm: mean and ten deviations."""
    mu = math.sqrt(4.0 * square / coins)
    return int(2 ** math.ceil(math.log2(2.0 * (mu**2 / 2 + 10.0 * mu + 4.0) / step_of(coins))))


def bound(coins: int, square: int, largest: int, epsilons: np.ndarray) -> np.ndarray:
    """The theorem's bound at the best delta0 of a few, for D2^2 = square and Dinf = largest."""
    rows = []
    for delta0 in DELTA0S:
        sigma = effective_sigma(coins, math.sqrt(square), largest, delta0)
        mu = math.sqrt(square) / sigma if sigma > 0.0 else math.inf
        rows.append([delta0 + (1 - delta0) * gaussian_delta(float(e), mu) for e in epsilons])
    return np.min(rows, axis=0)


def campaign(coins: int, squares: range, rounding: str, batch_size: int = 64) -> tuple[int, float]:
    """Check every vector of these squared norms: (vectors checked, largest excess)."""
    checked, worst = 0, -math.inf
    for square in squares:
        mu = math.sqrt(4.0 * square / coins)
        epsilons = np.linspace(0.0, mu**2 / 2 + 5.0 * mu, EPSILONS)
        size = grid_size(coins, square)
        for largest in range(1, math.isqrt(square) + 1):
            limit = bound(coins, square, largest, epsilons)
            remaining = square - largest * largest
            pending = [(largest, *rest) for rest in vectors(remaining, largest)]
            for start in range(0, len(pending), batch_size):
                batch = pending[start : start + batch_size]
                excess = divergences(coins, batch, epsilons, size, rounding) - limit
                checked, worst = checked + len(batch), max(worst, float(excess.max()))
    return checked, worst


def main() -> None:
    """The long campaign: every vector with D2^2 <= 128, and every one with D2^2 = 256.

    Adding to a vector only makes it easier to tell from zero, so those with D2^2 = 256 stand for
    all shorter ones at the bound of D2 = 16.
    """
    for coins in (64, 256, 1024):
        for squares in (range(1, 129), range(256, 257)):
            for rounding in ("split", "floor"):
                checked, worst = campaign(coins, squares, rounding)
                print(coins, squares, rounding, checked, f"{worst:.3g}", flush=True)


if __name__ == "__main__":
    main()
