"""Laws on the integers, each with its distribution function to any number of bits.

``Law`` is all that the sampler asks for. Parameters are read as the exact rational numbers that
floats are: nothing is rounded before the certified arithmetic begins.

Source: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Definition 1, for the discrete Gaussian;
Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995), Definition 2.1, for Skellam noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, Protocol

from mpmath import libmp

from dp.checks import require_between_0_and_1, require_float, require_in, require_integer
from dp.sampling.certified import SPARE_BITS, Cumulative, Interval, floors, window

MIN_VARIANCE: Final = 2.0**-20
"""Below it, a draw differs from zero with probability under 2^-700000: no noise at all."""

MAX_VARIANCE: Final = 2.0**31
"""Above it, the table of a law would have more than 2^20 entries."""

MAX_TRIALS: Final = 1 << 24
MAX_PROBABILITY_BITS: Final = 64

_EXACT_BITS: Final = 4096
"""Up to this denominator a binomial distribution function is computed as a whole number."""

_LIBRARY_UNITS: Final = 1 << 16
"""Error allowed to a value of the multiple-precision library, which promises a few units."""


class Law(Protocol):
    """A probability law on the integers. Implementations are hashable: tables are kept by law."""

    def cumulative(self, bits: int) -> Cumulative:
        """Return ``floor(2^bits F(x))`` wherever it says anything.

        Args:
            bits: leading bits of the distribution function, >= 1.
        """
        ...

    def __hash__(self) -> int:
        """Equal laws have equal hashes."""
        ...


def require_variance(name: str, value: float) -> None:
    """Raise unless ``value`` is a float in ``MIN_VARIANCE..MAX_VARIANCE``."""
    require_float(name, value)
    # Written so that NaN fails the test.
    if not MIN_VARIANCE <= value <= MAX_VARIANCE:
        raise ValueError(
            f"{name} must lie in [{MIN_VARIANCE:g}, {MAX_VARIANCE:g}], got {value!r}: "
            "choose another scale of the integers"
        )


class SymmetricLaw(ABC):
    """What laws do alike that are symmetric around zero and reach every integer."""

    __slots__ = ()

    @property
    def noise_limit(self) -> None:
        """There is none: every integer has a positive probability."""
        return None

    def cumulative(self, bits: int) -> Cumulative:
        """Args and Raises: as for ``Law``."""
        # One object for both sides: ``floors`` then adds up one of them only.
        ratios = self._ratios
        return floors(0, ratios, ratios, bits)

    @abstractmethod
    def _ratios(self, precision: int, bits: int) -> Iterator[Interval]:
        """Yield enclosures of w(k)/w(k - 1) for k = 1, 2, ...; see ``dp.sampling.certified``."""


@dataclass(frozen=True, slots=True)
class DiscreteGaussianLaw(SymmetricLaw):
    """P[z] proportional to exp(-z^2 / (2 ``sigma_squared``)) on the integers.

    Attributes:
        sigma_squared: the parameter, integer units squared, ``MIN_VARIANCE..MAX_VARIANCE``. It is
            an upper bound of the variance, and within 1e-14 of it from 4 on.
    """

    sigma_squared: float

    def __post_init__(self) -> None:
        require_variance("sigma_squared", self.sigma_squared)

    @property
    def variance(self) -> float:
        """The variance of one draw."""
        if self.sigma_squared >= 4.0:
            return self.sigma_squared
        weights = [math.exp(-z * z / (2.0 * self.sigma_squared)) for z in range(1, 100)]
        moment = sum(z * z * weight for z, weight in enumerate(weights, 1))
        return 2.0 * moment / (1.0 + 2.0 * sum(weights))

    def _ratios(self, precision: int, bits: int) -> Iterator[Interval]:
        """Yield w(k)/w(k - 1) = q^(2k - 1) with q = exp(-1 / (2 sigma^2))."""
        exponent = -1 / (2 * Fraction(self.sigma_squared))
        low, high = exponential_interval(exponent, precision)
        step_low, step_high = exponential_interval(2 * exponent, precision)
        while True:
            yield low, high
            low = low * step_low >> precision
            high = -(-high * step_high >> precision)


@dataclass(frozen=True, slots=True)
class SkellamLaw(SymmetricLaw):
    """The difference of two independent Poisson variables, both of mean ``variance`` / 2.

    P[k] = exp(-variance) I_|k|(variance), I the modified Bessel function of the first kind.

    Attributes:
        variance: integer units squared, ``MIN_VARIANCE..MAX_VARIANCE``.
    """

    variance: float

    def __post_init__(self) -> None:
        require_variance("variance", self.variance)

    def _ratios(self, precision: int, bits: int) -> Iterator[Interval]:
        """Yield r(k) = I_k / I_(k-1), from r(k) = 1 / (2k/variance + r(k + 1)).

        Going down, an error in r(k + 1) shrinks by r(k)^2 < 1. The start needs no accuracy: any
        ratio lies between 0 and 1.
        """
        reach = self._reach(bits)
        yield from self._ratios_up_to(reach, precision)
        # Ending in silence would say that the support ends here.
        raise ArithmeticError(f"weights of {self} are not negligible beyond {reach}")

    def _ratios_up_to(self, reach: int, precision: int) -> list[Interval]:
        """Return the enclosures of r(1), ..., r(reach)."""
        exact = Fraction(self.variance)
        low, high = 0, 1 << precision
        square = 1 << (2 * precision)
        ratios: list[Interval] = []
        for k in range(reach, 0, -1):
            whole, rest = divmod(2 * k * exact.denominator << precision, exact.numerator)
            # The larger denominator gives the lower bound.
            low, high = (
                square // (whole + (rest > 0) + high),
                min(-(-square // (whole + low)), 1 << precision),
            )
            ratios.append((low, high))
        ratios.reverse()
        return ratios

    def _reach(self, bits: int) -> int:
        """Return a k beyond which the weights are negligible, with room to spare.

        Bernstein: P[X >= k] <= exp(-k^2 / (2 (variance + k/3))); the weight of the mode, by which
        all is divided, is at least 1 / (1 + 3 sqrt(variance)).
        """
        wanted = (bits + SPARE_BITS + 40) * math.log(2.0)
        return math.ceil(wanted / 1.5 + math.sqrt(2.0 * self.variance * wanted)) + 2


@dataclass(frozen=True, slots=True)
class BinomialLaw:
    """The number of successes in ``trials`` independent trials.

    Attributes:
        trials: m, ``0 <= trials <= MAX_TRIALS``.
        probability: p of one success, strictly between 0 and 1, a/2^b with b <= 64.
    """

    trials: int
    probability: float

    def __post_init__(self) -> None:
        require_integer("trials", self.trials, 0, MAX_TRIALS)
        require_float("probability", self.probability)
        require_between_0_and_1("probability", self.probability)
        if self._bits > MAX_PROBABILITY_BITS:
            raise ValueError(
                f"probability must be a multiple of 2^-{MAX_PROBABILITY_BITS}, "
                f"got {self.probability!r}"
            )

    @property
    def mean(self) -> float:
        """Mean of the law: m p."""
        return self.trials * self.probability

    @property
    def variance(self) -> float:
        """Variance of the law: m p (1 - p)."""
        return self.trials * self.probability * (1.0 - self.probability)

    @property
    def _bits(self) -> int:
        """b, where p = a/2^b in lowest terms."""
        return Fraction(self.probability).denominator.bit_length() - 1

    def cumulative(self, bits: int) -> Cumulative:
        """Args and Raises: as for ``Law``."""
        if self.trials * self._bits <= _EXACT_BITS:
            return self._exact(bits)
        success = Fraction(self.probability)
        failure = 1 - success
        mode = math.floor((self.trials + 1) * success)
        # An odd number of fair trials is as often below its middle as above.
        halved = success == failure and self.trials % 2 == 1
        right = partial(_binomial_ratios, self.trials - mode, mode, success / failure)
        left = partial(_binomial_ratios, mode, self.trials - mode, failure / success)
        return floors(mode, left, right, bits, halved)

    def _exact(self, bits: int) -> Cumulative:
        """Add up binomial coefficients; denominators are powers of two."""
        success = Fraction(self.probability)
        success_units, units = success.numerator, success.denominator
        failure_units = units - success_units
        shift = self.trials * self._bits
        total, words = 0, []
        for x in range(self.trials + 1):
            choose = math.comb(self.trials, x)
            total += choose * success_units**x * failure_units ** (self.trials - x)
            words.append((total << bits) >> shift)
        return window(0, words, bits)


@dataclass(frozen=True, slots=True)
class RoundedGaussianLaw:
    """A normal variable of mean zero, rounded to the nearest integer.

    F(x) = Phi((x + 1/2) / sigma).

    Attributes:
        sigma: standard deviation before rounding, integer units, ``MIN_SIGMA..MAX_SIGMA``.
    """

    MIN_SIGMA = 1.0
    MAX_SIGMA = 4096.0

    sigma: float

    def __post_init__(self) -> None:
        require_float("sigma", self.sigma)
        require_in("sigma", self.sigma, self.MIN_SIGMA, self.MAX_SIGMA)

    def cumulative(self, bits: int) -> Cumulative:
        """Args and Raises: as for ``Law``."""
        tails: list[int] = []
        while not tails or tails[-1]:
            tails.append(self._tail(len(tails), bits))
        below = tails[::-1]
        above = [(1 << bits) - 1 - tail for tail in tails]
        return window(-len(tails), below + above, bits)

    def _tail(self, k: int, bits: int) -> int:
        """Return floor(2^bits P[X > k]) = floor(2^bits erfc((k + 1/2) / (sigma sqrt 2)) / 2)."""
        square = Fraction(2 * k + 1, 2) ** 2 / (2 * Fraction(self.sigma) ** 2)
        for guard in (64, 128, 256, 512):
            precision = bits + guard
            argument = libmp.mpf_sqrt(_mpf(square, precision), precision)
            value: int = libmp.to_fixed(libmp.mpf_erfc(argument, precision), precision)
            low, high = value - _LIBRARY_UNITS, value + _LIBRARY_UNITS
            # Probabilities are positive, whatever the error says.
            floor = max(low, 0) >> (guard + 1)
            if floor == high >> (guard + 1):
                return floor
        raise ArithmeticError(f"2^{bits} F({k}) could not be told from an integer, sigma {self}")


def _binomial_ratios(
    remaining: int, passed: int, odds: Fraction, precision: int, bits: int
) -> Iterator[Interval]:
    """Yield ((remaining - k + 1) / (passed + k)) odds for k = 1 .. remaining."""
    for k in range(1, remaining + 1):
        numerator = (remaining - k + 1) * odds.numerator << precision
        low, rest = divmod(numerator, (passed + k) * odds.denominator)
        yield low, low + (rest > 0)


def exponential_interval(exponent: Fraction, precision: int) -> Interval:
    """Enclose exp(exponent), exponent < 0, in units of 2^-precision."""
    spare = 32
    argument = _mpf(exponent, precision + spare)
    value = libmp.to_fixed(libmp.mpf_exp(argument, precision + spare), precision + spare)
    low, high = value - _LIBRARY_UNITS, value + _LIBRARY_UNITS
    return max(low >> spare, 0), min(-(-high >> spare), 1 << precision)


def _mpf(value: Fraction, precision: int) -> tuple[int, int, int, int]:
    """Return the library's number nearest to a fraction."""
    result: tuple[int, int, int, int] = libmp.from_rational(
        value.numerator, value.denominator, precision
    )
    return result
