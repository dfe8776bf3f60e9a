"""What all local randomisers share: vectors in, private reports out, a server that adds up.

A report is a discrete message. Its law is exact, and so is the promise: for any two inputs of a
client and any message, the two probabilities differ by a factor of at most e^epsilon. There is
no delta, no cohort to hide in, and no noise of others.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_in, require_integer, require_number
from dp.clipping import require_finite
from dp.errors import SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed

MAX_EPSILON: Final = 1e6
"""Largest epsilon of one report: beyond what any experiment asks, within what a float can hold."""

MIN_EPSILON: Final = 1e-6
"""Smallest epsilon of one report: below it, rounding to 64-bit probabilities would show."""

MAX_DIMENSION: Final = 1 << 30
"""Most coordinates: they and their signs are numbered in 31 bits."""

_DIGITS: Final = 60


class Reports(Protocol):
    """The reports of n clients, as a server received them."""

    def __len__(self) -> int:
        """Return the number n of reports."""
        ...

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: what one client's report says of its vector, without bias."""
        ...

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates, without n d numbers in memory."""
        ...


class LocalRandomizer(Protocol):
    """Something that makes the report of one client private by itself."""

    @property
    def dimension(self) -> int:
        """Return d, the number of coordinates of a vector."""
        ...

    @property
    def epsilon(self) -> float:
        """Return epsilon of one report, exact and pure, for any two inputs."""
        ...

    @property
    def report_bits(self) -> float:
        """Return the bits that one report takes on the wire."""
        ...

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> Reports:
        """Return one report per row of ``vectors``.

        Args:
            vectors: float64[n, d], finite; one client is n = 1.
            seed: must not have randomised other vectors.

        Raises:
            TypeError, ValueError, NonFiniteUpdateError: the vectors are not as described.
        """
        ...

    def event(self) -> LocalRelease:
        """Return what one report spent."""
        ...


def require_epsilon(epsilon: float) -> None:
    """Raise unless epsilon is a float in ``[MIN_EPSILON, MAX_EPSILON]``."""
    require_number("epsilon", epsilon)
    require_in("epsilon", epsilon, MIN_EPSILON, MAX_EPSILON)


def require_dimension(dimension: int) -> None:
    """Raise unless ``dimension`` is an int in ``1..MAX_DIMENSION``."""
    require_integer("dimension", dimension, 1, MAX_DIMENSION)


def exponential_below(epsilon: float) -> Fraction:
    """Return a rational number below e^epsilon, by less than 10^-54 of it."""
    with localcontext() as context:
        context.prec = _DIGITS
        # Correctly rounded to 60 digits, then lowered by far more than that rounding.
        return Fraction(Decimal(epsilon).exp()) * (1 - Fraction(1, 10 ** (_DIGITS - 5)))


def shared_epsilon(epsilon: float, parts: int) -> float:
    """Return the largest float of which ``parts`` together are at most ``epsilon``, exactly."""
    share = epsilon / parts
    while Fraction(share) * parts > Fraction(epsilon):
        share = math.nextafter(share, 0.0)
    return share


def summed_epsilon(*parts: float) -> float:
    """Return the smallest float that is at least the exact sum of some epsilons."""
    exact = sum(map(Fraction, parts), start=Fraction(0))
    total = float(exact)
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)


def require_vectors(vectors: NDArray[np.float64], dimension: int) -> None:
    """Raise unless ``vectors`` is a finite float64[n, ``dimension``] with n >= 1."""
    if not isinstance(vectors, np.ndarray):
        raise TypeError(f"vectors must be a NumPy array, got {type(vectors).__name__}")
    if vectors.dtype != np.float64:
        raise TypeError(f"vectors must have dtype float64, got {vectors.dtype}")
    if vectors.ndim != 2 or vectors.shape[1] != dimension or vectors.shape[0] == 0:
        raise ValueError(
            f"vectors must have shape (clients, {dimension}) with at least one client, got "
            f"{vectors.shape}"
        )
    require_finite(vectors.reshape(-1))


def require_unit_range(values: NDArray[np.float64]) -> None:
    """Raise ``SensitivityExceededError`` unless all of the finite ``values`` lie in [-1, 1].

    The message gives the number of such coordinates and no value: the vector is private.
    """
    outside = int(np.count_nonzero(np.abs(values) > 1.0))
    if outside:
        raise SensitivityExceededError(
            f"{outside} of {values.size} coordinates lie outside [-1, 1]: scale and clip first"
        )
