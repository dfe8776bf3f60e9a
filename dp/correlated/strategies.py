"""Banded strategy matrices: the noise of a trusted server that knows the whole run beforehand.

Round t's noise is row t of C^-1 Z, where the rows of Z are independent. C is lower triangular, has
as many diagonals as rounds lie between two participations of a client, and columns of norm 1. So
the columns of one client's rounds do not overlap, and its sensitivity is known exactly.

It is the baseline for noise that comes back without a trusted server: C^-1 has entries that are no
integers, so such noise cannot be made by parties that add whole numbers.

Source: Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization" (arXiv 2306.08153),
section 3 and Theorem 2; Toeplitz matrices as in McKenna 2024 (arXiv 2405.15913), as a start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from dp.correlated.planning import WORTH_IT, Optimiser, Schedule, Weights

Floats = NDArray[np.float64]

MOST_STEPS: Final = 300
"""Of the search; it stops earlier, where nothing is left to gain."""

USUAL_BANDS: Final = 32
"""Most that are used unless told otherwise: a server keeps a vector of the model's size for each,
and more of them gain little."""


@dataclass(frozen=True, eq=False)
class BandedStrategy:
    """C, by its diagonals.

    Args:
        diagonals: float64[T, b], entry (t, j) is C[t, t - j]; 0 where t < j. The diagonal itself,
            j = 0, is positive, and every column of C has norm 1.
    """

    diagonals: Floats

    def __post_init__(self) -> None:
        """Check what privacy rests on."""
        found = self.diagonals
        if found.ndim != 2 or not 1 <= found.shape[1] <= found.shape[0]:
            raise ValueError(f"diagonals must be float64[T, b], 1 <= b <= T, got {found.shape}")
        if not np.isfinite(found).all() or not (found[:, 0] > 0.0).all():
            raise ValueError("diagonals must be finite, and the first positive")
        norms = np.linalg.norm(self.matrix, axis=0)
        if not np.allclose(norms, 1.0, rtol=0.0, atol=1e-9):
            raise ValueError(f"columns must have norm 1, got {norms.min():g} to {norms.max():g}")

    @property
    def rounds(self) -> int:
        """T, of the run."""
        return int(self.diagonals.shape[0])

    @property
    def bands(self) -> int:
        """b: as many rounds must lie between two participations, at least."""
        return int(self.diagonals.shape[1])

    @cached_property
    def matrix(self) -> Floats:
        """C, float64[T, T]."""
        return _matrix(self.diagonals)

    @cached_property
    def round_variances(self) -> Floats:
        """float64[T], the variance of each round's noise where rows of Z have variance 1."""
        inverse = solve_triangular(self.matrix, np.eye(self.rounds), lower=True)
        return np.asarray((inverse**2).sum(axis=1))

    def sensitivity_squared(self, schedule: Schedule) -> float:
        """mu^2 of the worst client with contributions of norm 1, rows of Z having variance 1."""
        if schedule.rounds != self.rounds:
            raise ValueError(f"a schedule of {self.rounds} rounds, got {schedule.rounds}")
        if schedule.participations > 1 and schedule.apart < self.bands:
            raise ValueError(f"apart must be at least {self.bands}, got {schedule.apart}")
        return float(schedule.participations)

    def noise(self, number: int, fresh: Floats, before: Floats) -> Floats:
        """Noise of one round, float64[d]: row `number` of C^-1 Z.

        Args:
            fresh: float64[d], row t of Z: independent of all before.
            before: float64[min(t, b - 1), d], the noise of the rounds just before, the last one
                first.
        """
        own = self.diagonals[number]
        if len(before) != min(number, self.bands - 1):
            known = min(number, self.bands - 1)
            raise ValueError(f"before must be the noise of {known} rounds, got {len(before)}")
        return np.asarray((fresh - own[1 : 1 + len(before)] @ before) / own[0])


@dataclass(frozen=True, slots=True)
class BandedPlan:
    """The best banded matrix that was found, and what it is worth.

    Attributes:
        strategy: the matrix.
        gain: by how much the noise in the model is smaller than with independent noise, in
            standard deviations, at equal mu.
        model_variances: float64[T], of the noise in the model after every round, where rows of Z
            have variance 1.
    """

    strategy: BandedStrategy
    gain: float
    model_variances: Floats

    @property
    def pays(self) -> bool:
        """Whether it is worth more than independent noise."""
        return self.gain >= WORTH_IT


def plan_banded(
    schedule: Schedule, weights: Weights | None = None, bands: int | None = None
) -> BandedPlan:
    """The banded matrix with the least noise in the model, at equal privacy.

    From the best Toeplitz matrix, its columns divided by their norms, the search goes on over all
    entries of the band.

    Args:
        weights: float64[T, T], lower triangular: model t adds up the sums of the rounds with row
            t; None for plain sums.
    """
    rounds = schedule.rounds
    if weights is None:
        weights = Optimiser.SGD.weights(rounds)
    if weights.shape != (rounds, rounds):
        raise ValueError(f"weights must be ({rounds}, {rounds}), got {weights.shape}")
    most = rounds if schedule.participations == 1 else min(schedule.apart, rounds)
    if bands is None:
        bands = min(most, schedule.apart, USUAL_BANDS)
    if not 1 <= bands <= most:
        raise ValueError(f"bands must be in 1..{most}, got {bands}")
    problem = _Banded(rounds, bands, weights)
    strategy = BandedStrategy(problem.best())
    noise = _times_inverse(weights, strategy.matrix)
    variances = (noise**2).sum(axis=1)
    gain = math.sqrt(float((weights**2).sum()) / float(variances.sum()))
    return BandedPlan(strategy, gain, variances)


@dataclass(frozen=True)
class _Banded:
    """Looks for the entries of the band; columns are divided by their norms."""

    rounds: int
    bands: int
    weights: Weights

    def best(self) -> Floats:
        start = self._toeplitz()
        if self.bands == 1:
            return _normed(start)
        found = minimize(
            self._loss,
            start[self._free],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MOST_STEPS},
        )
        best = _normed(self._entries(found.x))
        # Signs do not matter for columns of norm 1; a positive diagonal is what is promised.
        return best * np.sign(_along_columns(best[:, 0], self.bands))

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        """bool[T, b]: entries inside of the matrix."""
        return np.arange(self.rounds)[:, None] >= np.arange(self.bands)

    def _entries(self, values: Floats) -> Floats:
        found = np.zeros((self.rounds, self.bands))
        found[self._free] = values
        return found

    def _toeplitz(self) -> Floats:
        """The best matrix with constant, falling diagonals before its columns are divided."""

        def constant(ratios: Floats) -> Floats:
            falling = np.cumprod(np.concatenate([[1.0], expit(ratios)]))
            return np.where(self._free, falling, 0.0)

        if self.bands == 1:
            return constant(np.zeros(0))
        found = minimize(
            lambda ratios: self._error(_normed(constant(ratios))),
            np.linspace(0.0, 2.0, self.bands - 1),
            method="L-BFGS-B",
            options={"maxiter": 50},
        )
        return constant(found.x)

    def _error(self, diagonals: Floats) -> float:
        """The logarithm of the model's noise, in squares over all rounds."""
        return math.log(float((_times_inverse(self.weights, _matrix(diagonals)) ** 2).sum()))

    def _loss(self, values: Floats) -> tuple[float, Floats]:
        """The same by the free entries, and its gradient."""
        raw = self._entries(values)
        norms = _norms(raw)
        normed = raw / _along_columns(norms, self.bands)
        matrix = _matrix(normed)
        noise = _times_inverse(self.weights, matrix)
        total = float((noise**2).sum())
        # d |W C^-1|^2 / dC = -2 (W C^-1)' (W C^-1) C^-T, inside of the band.
        slope = -2.0 * solve_triangular(matrix, noise.T @ noise, lower=True).T
        inner = np.where(self._free, _diagonals(slope, self.bands), 0.0)
        # A column's length does not matter, so what points along it is taken off.
        along = np.zeros(self.rounds)
        columns = np.arange(self.rounds)[:, None] - np.arange(self.bands)
        np.add.at(along, columns[self._free], (inner * normed)[self._free])
        inner -= normed * _along_columns(along, self.bands)
        gradient = inner / _along_columns(norms, self.bands) / total
        return math.log(total), gradient[self._free]


def _matrix(diagonals: Floats) -> Floats:
    """float64[T, T] from float64[T, b]."""
    rounds, bands = diagonals.shape
    found = np.zeros((rounds, rounds))
    for lag in range(bands):
        at = np.arange(lag, rounds)
        found[at, at - lag] = diagonals[lag:, lag]
    return found


def _diagonals(matrix: Floats, bands: int) -> Floats:
    """float64[T, b] from float64[T, T]; 0 outside of it."""
    rounds = len(matrix)
    found = np.zeros((rounds, bands))
    for lag in range(bands):
        found[lag:, lag] = np.diagonal(matrix, -lag)
    return found


def _norms(diagonals: Floats) -> Floats:
    """float64[T], of the columns."""
    return np.asarray(np.linalg.norm(_matrix(diagonals), axis=0))


def _normed(diagonals: Floats) -> Floats:
    return diagonals / _along_columns(_norms(diagonals), diagonals.shape[1])


def _along_columns(values: Floats, bands: int) -> Floats:
    """float64[T, b]: at every place of the band the value of its column; 1 outside of it."""
    rounds = len(values)
    columns = np.arange(rounds)[:, None] - np.arange(bands)
    return np.where(columns >= 0, values[np.maximum(columns, 0)], 1.0)


def _times_inverse(weights: Weights, matrix: Floats) -> Floats:
    """W C^-1, the weights times the inverse of the strategy."""
    return np.asarray(solve_triangular(matrix, weights.T, lower=True, trans="T").T)
