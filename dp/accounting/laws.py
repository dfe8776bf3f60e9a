"""Noise laws: what an accountant must know about one coordinate of noise.

Every law here is symmetric about zero, lives on the integers, and is log-concave: the three
properties on which the theorems of docs/accounting.md rest. Sums of independent noise are again
such laws, since convolution keeps log-concavity and symmetry.

A law tabulates ln P[Z = j] and states how far off the table may be. Nothing here computes a
privacy figure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp.accounting._kernels import bessel_ratios
from dp.checks import require_in, require_integer

FloatArray: TypeAlias = NDArray[np.float64]

MAX_TOTAL_COINS: Final = 1 << 32
"""Largest N examined: the tables grow with sqrt(N)."""

MAX_VARIANCE: Final = MAX_TOTAL_COINS / 4
MIN_VARIANCE: Final = 1e-3
"""Below this a law has practically no noise, and nothing is promised."""

_EXACT_COINS: Final = 4096
_LARGEST: Final = 1 << 62
"""Beyond every integer that is looked for."""

_NORMAL_RANGE: Final = -60.0
"""ln of the probability that a normaliser may neglect: 1e-26."""


@dataclass(frozen=True, slots=True, eq=False)
class LogMasses:
    """A table of ln P[Z = j].

    Attributes:
        values: float64[reach + 1], j = 0..reach.
        error: each value is off by at most this beyond plain rounding, in nats; infinite if
            nothing can be said.
    """

    values: FloatArray
    error: float = 0.0


class NoiseLaw(Protocol):
    """A symmetric log-concave law on the integers; equal laws are equal and hash alike."""

    @property
    def variance(self) -> float:
        """Return the variance, in squared integer units (for planning and yardsticks)."""
        ...

    @property
    def support(self) -> float:
        """Return the largest integer of positive probability; ``inf`` if there is none."""
        ...

    def last_likely(self, log_probability: float) -> int:
        """Return some j with ln P[Z >= i] <= ``log_probability`` for all i > j."""
        ...

    def log_masses(self, reach: int) -> LogMasses:
        """Tabulate ln P[Z = j] for j = 0..reach, where ``1 <= reach <= support``."""
        ...

    def __hash__(self) -> int:
        """Return a hash: tables are cached by law."""
        ...


@dataclass(frozen=True, slots=True)
class BinomialNoise:
    """Bin(N, 1/2) - N/2 for an even number of coins.

    The logarithm of a probability is the exact log ratio of neighbours, summed from the centre;
    the centre is an exact integer quotient up to 4096 coins and Stirling's series above (off by
    less than 1/(640 (N/2)^5), under 1e-19).
    """

    coins: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless the coins are even and in range."""
        if not 2 <= self.coins <= MAX_TOTAL_COINS or self.coins % 2:
            raise ValueError(
                f"coins must be even and lie in 2..{MAX_TOTAL_COINS}, got {self.coins}"
            )

    @property
    def variance(self) -> float:
        """Return N/4, the variance of N coins."""
        return self.coins / 4

    @property
    def support(self) -> float:
        """Return N/2, the largest magnitude of N centred coins."""
        return self.coins // 2

    def last_likely(self, log_probability: float) -> int:
        """Return the root of Hoeffding's bound: U(j) <= exp(-2 j^2 / N)."""
        return math.ceil(math.sqrt(self.coins / 2 * -log_probability)) + 1

    def log_masses(self, reach: int) -> LogMasses:
        """Tabulate log masses by the ratio P[j+1]/P[j] = (N/2 - j)/(N/2 + j + 1)."""
        half = self.coins // 2
        j = np.arange(reach, dtype=np.float64)
        log_ratios = np.log1p(-(2.0 * j + 1.0) / (half + j + 1.0))
        return LogMasses(_log_centre(self.coins) + np.concatenate([[0.0], np.cumsum(log_ratios)]))


def law_of_coins(coins: int) -> BinomialNoise | None:
    """Return the law of N coins, without the odd one and of those that tables reach; None if none.

    Adding further coins is a post-processing of the release without them.
    """
    require_integer("coins", coins, 0)
    coins = min(coins, MAX_TOTAL_COINS)
    return BinomialNoise(coins - coins % 2) if coins >= 2 else None


def _log_centre(coins: int) -> float:
    """Return ln P[Z = 0] for an even number of coins."""
    half = coins // 2
    if coins <= _EXACT_COINS:
        # Division of two Python integers is correctly rounded, however long they are.
        return math.log(math.comb(coins, half) / 2**coins)
    return -0.5 * math.log(math.pi * half) - 1 / (8 * half) + 1 / (192 * half**3)


@dataclass(frozen=True, slots=True)
class SkellamNoise:
    """The difference of two Poisson variables of mean variance/2: P[j] = e^-V I_j(V).

    The ratios r_j = I_{j+1}(V)/I_j(V) obey r_{j-1} = 1/(2j/V + r_j). Run downwards this has no
    subtraction, and an error in r_j returns multiplied by r_j r_{j-1} < 1. The recurrence starts
    five standard deviations beyond the table, at Amos' estimate, so that the error of the start
    is gone. Probabilities are normalised by their sum.

    Source: Amos 1974, Computation of modified Bessel functions and their ratios, Eq. (9) and (11).
    """

    variance: float

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if the variance is out of range."""
        require_variance("variance", self.variance)

    @property
    def support(self) -> float:
        """Return infinity: every integer can be drawn."""
        return math.inf

    def last_likely(self, log_probability: float) -> int:
        """Return where the Chernoff bound V (cosh t - 1) - t j, sinh t = j/V, passes it."""
        return bisect_left(
            range(_LARGEST),
            True,
            lo=1,
            key=lambda j: _skellam_exponent(self.variance, j) <= log_probability,
        )

    def log_masses(self, reach: int) -> LogMasses:
        """Tabulate by Bessel ratios, normalised by the sum of all masses."""
        count = max(reach, self.last_likely(_NORMAL_RANGE))
        start = count + 16 + math.ceil(5.0 * math.sqrt(self.variance))
        order = start + 0.5
        guess = self.variance / (order + math.hypot(order, self.variance))
        ratios = bessel_ratios(self.variance, count, start, guess)
        with np.errstate(divide="ignore"):  # a ratio that underflows is a mass of zero
            return LogMasses(normalised(np.cumsum(np.log(ratios)))[: reach + 1])


def _skellam_exponent(variance: float, j: int) -> float:
    """Return the Chernoff exponent: an upper bound of ln P[Z >= j]."""
    tilt = math.asinh(j / variance)
    # V (cosh t - 1) without cancellation: cosh t - 1 = sinh^2 t / (cosh t + 1).
    return j * j / (variance + math.hypot(variance, j)) - j * tilt


def normalised(log_ratios: FloatArray) -> FloatArray:
    """Return ln P[j], j = 0.., from ln P[j]/P[0], j = 1.., that reach far into the tail."""
    log_centre = -math.log1p(2.0 * float(np.sum(np.exp(log_ratios[::-1]))))
    return log_centre + np.concatenate([[0.0], log_ratios])


def require_variance(name: str, value: float) -> None:
    """Raise ``ValueError`` unless a variance can be tabulated."""
    require_in(name, value, MIN_VARIANCE, MAX_VARIANCE)
