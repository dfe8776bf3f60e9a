"""Compiled search loop of the domination accountant. Pure arithmetic on tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample


# The flags say "no NaN, sign of zero is irrelevant", both true of the tables; without them the
# running maximum is not vectorised. They do not change any sum or product.
@compiled(
    lambda _: (
        sample(60, kind=np.float64),
        sample(40, kind=np.float64),
        sample(40, kind=np.float64),
        np.array([0, 5, 20]),
        np.array([0.25, 0.5, 2.0]),
        np.array([0, 1, 7]),
        np.array([40, 38, 39]),
        np.zeros(3),
    ),
    answer=0xD41C24F9,
    fastmath={"nnan", "nsz"},
)
def largest_bounds(
    upper_zq: NDArray[np.float64],
    base: NDArray[np.float64],
    slope: NDArray[np.float64],
    shifts: NDArray[np.int64],
    failures: NDArray[np.float64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    best: NDArray[np.float64],
) -> None:
    """Set ``best[i]`` to the largest cheap bound of mu over the vertices of row i.

    The bound of vertex j is ``upper_zq[j + shifts[i]] + base[j] - failures[i] * slope[j]``, for
    ``first[i] <= j < last[i]``.
    """
    for row in range(shifts.size):
        start, stop = first[row], last[row]
        zq = upper_zq[start + shifts[row] : stop + shifts[row]]
        part, grade = base[start:stop], slope[start:stop]
        failure = failures[row]
        top = -np.inf
        for j in range(part.size):
            bound = zq[j] + part[j] - failure * grade[j]
            if bound > top:
                top = bound
        best[row] = top


@compiled(lambda _: (20.0, 6, 40, 0.25), answer=0x0108D6BE)
def bessel_ratios(variance: float, count: int, start: int, guess: float) -> NDArray[np.float64]:
    """Return I_{j+1}(V)/I_j(V), j = 0..count-1, from a guess for j = ``start`` >= count."""
    ratios = np.empty(count)
    ratio = guess
    for j in range(start, 0, -1):
        ratio = 1.0 / (2.0 * j / variance + ratio)
        if j <= count:
            ratios[j - 1] = ratio
    return ratios


@compiled(
    lambda _: (
        -sample(30, below=100, parts=16, kind=np.float64),
        2,
        -20,
        20,
        np.array([1.5, 3.0]),
        np.zeros(2),
    ),
    answer=0x1F37B816,
)
def log_moments(
    log_masses: NDArray[np.float64],
    shift: int,
    first: int,
    last: int,
    orders: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i]`` to ln of the sum over z = first..last of P[z]^a P[z + shift]^(1 - a).

    ``a = orders[i]``, and ``log_masses[j]`` is ln P[j] = ln P[-j]. The sum is scaled by its
    largest term, which is met first.
    """
    for i in range(orders.size):
        order = orders[i]
        top = -np.inf
        for z in range(first, last + 1):
            here = log_masses[abs(z)]
            term = order * here + (1.0 - order) * log_masses[abs(z + shift)]
            if term > top:
                top = term
        total = 0.0
        for z in range(first, last + 1):
            here = log_masses[abs(z)]
            total += np.exp(order * here + (1.0 - order) * log_masses[abs(z + shift)] - top)
        out[i] = top + np.log(total)
