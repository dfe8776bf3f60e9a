"""How much of a round's noise should come back, and what a model gains by it.

For a schedule of rounds the planner looks for the returned share under which the noise in the
model is smallest at equal privacy. What counts is the noise in the *model*, which adds up sums of
rounds with the weights of its optimiser.

Source: docs/correlated-noise.md, "What it is worth".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dp.checks import require_integer

Weights = NDArray[np.float64]

LARGEST_ROUNDS: Final = 4096
_MOST_RETURNED: Final = 0.9999
WORTH_IT: Final = 1.01
"""Less than one per cent is not worth the committee."""


class Optimiser(Enum):
    """How a model adds up the sums of its rounds."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    DECAY = "decay"
    AVERAGE = "average"

    def weights(self, rounds: int, momentum: float = 0.9) -> Weights:
        """float[rounds, rounds], lower triangular: model t is the sum of these times the sums."""
        lag = np.subtract.outer(np.arange(rounds), np.arange(rounds)).astype(np.float64)
        lower = np.tril(np.ones((rounds, rounds)))
        match self:
            case Optimiser.SGD:
                return lower
            case Optimiser.MOMENTUM:
                powers = np.where(lag >= 0, momentum ** np.maximum(lag + 1, 0), 0.0)
                return np.asarray(lower * (1.0 - powers) / (1.0 - momentum))
            case Optimiser.DECAY:
                return np.asarray(lower * (1.0 - np.arange(rounds) / rounds))
            case Optimiser.AVERAGE:
                counts = np.arange(1, rounds + 1, dtype=np.float64)
                return np.asarray(np.cumsum(lower, axis=0) / counts[:, None])


@dataclass(frozen=True, slots=True)
class ServerSteps:
    """How a server's own rates and momentum add up the sums of the rounds."""

    rates: tuple[float, ...]
    momentum: float = 0.0

    def weights(self, rounds: int) -> Weights:
        """float[rounds, rounds], lower triangular: as for `Optimiser.weights`."""
        rates = np.array([self.rates[min(t, len(self.rates) - 1)] for t in range(rounds)])
        lag = np.subtract.outer(np.arange(rounds), np.arange(rounds))
        kept = np.where(lag >= 0, self.momentum ** np.maximum(lag, 0).astype(np.float64), 0.0)
        return np.asarray(np.cumsum(rates[:, None] * kept, axis=0))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who takes part when."""

    rounds: int
    participations: int
    apart: int

    def __post_init__(self) -> None:
        require_integer("rounds", self.rounds, 1, LARGEST_ROUNDS)
        require_integer("participations", self.participations, 1, self.rounds)
        require_integer("apart", self.apart, 1)
        if (self.participations - 1) * self.apart >= self.rounds:
            raise ValueError(
                f"participations must be at most {1 + (self.rounds - 1) // self.apart}, for "
                f"{self.rounds} rounds that are {self.apart} apart, got {self.participations}"
            )


@dataclass(frozen=True)
class ModelNoise:
    """Noise in the model: mean square over the rounds, for fresh noise of variance 1 in each.

    Args:
        weights: float[T, T], lower triangular: model t adds up the sums of the rounds with row t;
            None for plain sums (`Optimiser.SGD`).
    """

    rounds: int
    weights: Weights | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless the weights are those of such a run."""
        shape, weights = (self.rounds, self.rounds), self._weights
        if weights.shape != shape or not np.isfinite(weights).all() or np.triu(weights, 1).any():
            raise ValueError(f"weights must be finite, lower triangular and {shape}")

    @cached_property
    def independent(self) -> float:
        """Of noise that stays."""
        return float((self._weights**2).sum() / self.rounds)

    def returned(self, share: float) -> float:
        """Of noise of which this share comes back in the next round."""
        return self.independent + share * self._change

    @cached_property
    def _weights(self) -> Weights:
        return Optimiser.SGD.weights(self.rounds) if self.weights is None else self.weights

    @cached_property
    def _change(self) -> float:
        """What is added if all comes back: with the weight of the next round, and other sign."""
        w = self._weights
        later, products = (w[:, 1:] ** 2).sum(), (w[:, 1:] * w[:, :-1]).sum()
        return float((later - 2.0 * products) / self.rounds)


@dataclass(frozen=True)
class _Problem:
    schedule: Schedule
    noise: ModelNoise

    def cost(self, share: float) -> float:
        """Variance in the model at equal privacy."""
        return self.noise.returned(share) * self.charge(share)

    def charge(self, share: float) -> float:
        """mu^2 of the worst client with contributions of norm 1, variance 1 being fresh."""
        schedule, rounds = self.schedule, self.schedule.rounds
        covariance = np.zeros((2, rounds))  # above the diagonal, and on it
        covariance[0, 1:], covariance[1, 0], covariance[1, 1:] = -share, 1.0, 1.0 + share
        taken_part = schedule.apart * np.arange(schedule.participations)
        starts = np.arange(rounds - int(taken_part[-1]))
        clients = np.zeros((rounds, starts.size))
        clients[taken_part[:, None] + starts, starts] = 1.0
        return float((clients * scipy.linalg.solveh_banded(covariance, clients)).sum(axis=0).max())


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """The best share of noise to take back, and what it is worth.

    Attributes:
        returned_share: lambda, of a round's fresh variance; 0 if nothing is gained.
        gain: by how much the noise in the model is smaller, in standard deviations, at equal mu.
        charge: mu^2 of the worst client at the end, in units of its squared norm over the fresh
            variance of a round.
        fresh_ratio: fresh variance of a round over that of independent noise at equal mu.
        round_noise_ratio: standard deviation of the noise of one round over that of independent
            noise: what the range of the integers must hold.
        kept_ratio: variance that never comes back over that of independent noise: what is left if
            the whole committee works for the server.
    """

    returned_share: float
    gain: float
    charge: float
    fresh_ratio: float
    round_noise_ratio: float
    kept_ratio: float

    @property
    def pays(self) -> bool:
        """Whether the gain is worth a committee."""
        return self.gain >= WORTH_IT


def best_share(cost: Callable[[float], float]) -> float:
    """The returned share at which a cost is smallest, 0 .. 0.9999."""
    options = {"xatol": 1e-5}
    found = scipy.optimize.minimize_scalar(
        cost, bounds=(0.0, _MOST_RETURNED), method="bounded", options=options
    )
    return float(found.x)


def plan_noise(
    schedule: Schedule, weights: Weights | None = None, returned_share: float | None = None
) -> NoisePlan:
    """The returned share with the least noise in the model, at equal privacy.

    The charge is that of a client in rounds exactly `apart` apart, at the worst place of the run.
    It is what is planned with; what a run has cost is computed from its record.

    Args:
        weights: float[T, T], lower triangular: model t adds up the sums of the rounds with row t;
            None for plain sums (`Optimiser.SGD`).
    """
    noise = ModelNoise(schedule.rounds, weights)
    problem = _Problem(schedule, noise)
    if returned_share is None:
        returned_share = best_share(problem.cost)
        if problem.cost(returned_share) >= noise.independent * schedule.participations:
            returned_share = 0.0
    elif not 0.0 <= returned_share <= _MOST_RETURNED:
        raise ValueError(f"returned_share must lie in 0..{_MOST_RETURNED}, got {returned_share!r}")
    charge = problem.charge(returned_share)
    fresh_ratio = charge / schedule.participations
    return NoisePlan(
        returned_share=returned_share,
        gain=math.sqrt(noise.independent / (noise.returned(returned_share) * fresh_ratio)),
        charge=charge,
        fresh_ratio=fresh_ratio,
        round_noise_ratio=math.sqrt(
            fresh_ratio * (1.0 + (returned_share if schedule.rounds > 1 else 0.0))
        ),
        kept_ratio=(1.0 - returned_share) * fresh_ratio,
    )
