"""Scalars in [-1, 1]: Duchi's randomiser, the Piecewise Mechanism, and their mixture.

Each is unbiased and has a law in integers (``dp.local.windows``). Reports are messages of a fixed
number of bits; a ``ScalarReports`` reads them.

Source: Duchi, Jordan, Wainwright 2018 (arXiv 1604.02390), Section 3; Wang et al. 2019 (arXiv
1907.00782), Algorithms 1 and 2 and Section III.C.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.checks import require_integer
from dp.events import LocalRelease
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.local.base import require_epsilon, require_unit_range, require_vectors
from dp.local.windows import Moments, WindowLaw, round_inputs, window_law

MIN_BITS: Final = 2
MAX_BITS: Final = 24
DEFAULT_BITS: Final = 20
"""Bits of a message on the grid: its steps then add less than 1e-11 to a variance."""

DUCHI_BELOW: Final = 0.61
"""Up to this epsilon the mixture is Duchi's randomiser alone (Wang et al., Equation (6))."""

_WORD: Final = np.dtype("<u8")


class ScalarCodec(Protocol):
    """Reads the message of one value."""

    def estimates(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what messages say of their inputs."""
        ...


class ScalarRandomizer(ScalarCodec, Protocol):
    """A randomiser of single numbers, each of which is a report of its own."""

    @property
    def epsilon(self) -> float:
        """Return epsilon of one report."""
        ...

    @property
    def report_bits(self) -> float:
        """Return the bits of one message."""
        ...

    def messages(self, values: NDArray[np.float64], seed: NoiseSeed) -> NDArray[np.int64]:
        """Return one message for each of the float64[n] in [-1, 1]."""
        ...

    def probabilities(self, value: float) -> NDArray[np.float64]:
        """Return the law of the message of one input."""
        ...

    @property
    def moments(self) -> Moments:
        """Return the moments of the estimate, in closed form."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ScalarReports:
    """One message of each of n clients.

    Attributes:
        messages: int64[n], as sent.
        codec: the randomiser, which knows what a message says.
    """

    messages: NDArray[np.int64]
    codec: ScalarCodec

    def __len__(self) -> int:
        """Return the number n of reports."""
        return self.messages.size

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[1]: the estimate of one client's value."""
        return self.codec.estimates(self.messages[[index]])

    def total(self) -> NDArray[np.float64]:
        """Return float64[1]: the sum of all estimates."""
        return np.array([self.values().sum()])

    def values(self) -> NDArray[np.float64]:
        """Return float64[n]: every client's estimate."""
        return self.codec.estimates(self.messages)


class _OneScalar(ABC):
    """What the three randomisers do alike; each has one message for one number."""

    __slots__ = ()
    dimension: ClassVar[int] = 1
    epsilon: float

    @property
    @abstractmethod
    def law(self) -> WindowLaw:
        """The law in integers."""

    def messages(self, values: NDArray[np.float64], seed: NoiseSeed) -> NDArray[np.int64]:
        """Return one message for each value.

        Args:
            values: float64[n], each in [-1, 1].
            seed: must not have randomised other values.
        """
        law = self.law
        return law.draw(round_inputs(values, law.highest, seed), seed)

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> ScalarReports:
        """Return one report for each of n numbers.

        Args:
            vectors: float64[n, 1], each in [-1, 1].
            seed: must not have randomised other vectors.
        """
        require_vectors(vectors, 1)
        values = np.ascontiguousarray(vectors[:, 0])
        require_unit_range(values)
        return ScalarReports(self.messages(values, seed), self)

    def estimates(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return float64[n]: what messages say of their inputs, without bias."""
        return self.law.estimates(messages)

    def probabilities(self, value: float) -> NDArray[np.float64]:
        """Return float64[messages]: the law of the message of one input."""
        return self.law.probabilities(value)

    @property
    def moments(self) -> Moments:
        """Moments of the estimate, in closed form."""
        return self.law.moments

    def variance(self, value: float) -> float:
        """Return the variance of the estimate of one input in [-1, 1]."""
        return float(self.moments.variance(value))

    @property
    def worst_variance(self) -> float:
        """The largest variance over all inputs."""
        return self.moments.worst

    def event(self) -> LocalRelease:
        """Return what one report spends."""
        return LocalRelease(float(self.epsilon))


@dataclass(frozen=True, slots=True)
class Duchi(_OneScalar):
    """One bit: the input is rounded to -1 or +1, and the sign told truthfully or not.

    P[+1] = 1/2 + t/(2 c), and the estimate is +-c with c = (e^epsilon + 1)/(e^epsilon - 1), here
    with the ratio of two integers in the place of e^epsilon.

    Attributes:
        epsilon: of one report, ``MIN_EPSILON..MAX_EPSILON``.
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` if epsilon is out of range."""
        require_epsilon(self.epsilon)

    @property
    def law(self) -> WindowLaw:
        """The law in integers: two messages, a window of one."""
        return window_law(2, 1, float(self.epsilon))

    @property
    def report_bits(self) -> float:
        """One bit for a value of two signs."""
        return 1.0

    @property
    def moments(self) -> Moments:
        """The second moment is c^2 for every input."""
        return Moments((self.law.unit / 2.0) ** 2, 0.0, 1)


@dataclass(frozen=True, slots=True)
class _OnGrid(_OneScalar):
    """A randomiser whose message is one of 2^bits numbers."""

    epsilon: float
    bits: int = DEFAULT_BITS

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_integer("bits", self.bits, MIN_BITS, MAX_BITS)


@dataclass(frozen=True, slots=True)
class Piecewise(_OnGrid):
    """The Piecewise Mechanism on a grid of 2^bits messages: near the input with more probability.

    Attributes:
        epsilon: of one report, ``MIN_EPSILON..MAX_EPSILON``.
        bits: of one message, ``MIN_BITS..MAX_BITS``.
    """

    @property
    def law(self) -> WindowLaw:
        """The law in integers."""
        return _piecewise_law(1 << self.bits, float(self.epsilon))

    @property
    def report_bits(self) -> float:
        """The bits of a grid point."""
        return float(self.bits)


@dataclass(frozen=True, slots=True)
class Hybrid(_OnGrid):
    """The Piecewise Mechanism with probability 1 - e^{-epsilon/2}, Duchi's randomiser otherwise.

    Which of the two was used is seen in the report and does not depend on the input. Up to an
    epsilon of 0.61 it is Duchi's alone. Messages 0..2^bits - 3 are those of the Piecewise
    Mechanism, the last two are Duchi's.

    Attributes:
        epsilon: of one report, ``MIN_EPSILON..MAX_EPSILON``.
        bits: of one message, ``MIN_BITS..MAX_BITS``.
    """

    @property
    def law(self) -> WindowLaw:
        """The law in integers of the Piecewise Mechanism's part."""
        return _piecewise_law((1 << self.bits) - 2, float(self.epsilon))

    @property
    def duchi(self) -> Duchi:
        """The part of the mixture that is Duchi's randomiser."""
        return Duchi(self.epsilon)

    @property
    def piecewise_words(self) -> int:
        """Of 2^64 words, those that choose the Piecewise Mechanism."""
        if self.epsilon <= DUCHI_BELOW:
            return 0
        return min(round(-math.expm1(-self.epsilon / 2.0) * 2.0**64), (1 << 64) - 1)

    @property
    def share(self) -> float:
        """Probability of the Piecewise Mechanism."""
        return self.piecewise_words / 2.0**64

    @property
    def report_bits(self) -> float:
        """One bit up to an epsilon of 0.61, the bits of a message above it."""
        return float(self.bits) if self.piecewise_words else 1.0

    def messages(self, values: NDArray[np.float64], seed: NoiseSeed) -> NDArray[np.int64]:
        """Return a message for each value in [-1, 1]; the two parts have seeds of their own."""
        chosen = self._choices(values.size, seed)
        out = np.empty(values.size, dtype=np.int64)
        first, second = (seed.derive(Usage.LOCAL_CHOICE, part) for part in (0, 1))
        law = self.law
        out[chosen] = law.draw(round_inputs(values[chosen], law.highest, first), first)
        out[~chosen] = law.points + self.duchi.messages(values[~chosen], second)
        return out

    def _choices(self, count: int, seed: NoiseSeed) -> NDArray[np.bool_]:
        """Return which reports the Piecewise Mechanism makes."""
        words = np.empty(count, dtype=_WORD)
        Keystream(seed.derive(Usage.LOCAL_CHOICE)).fill(words)
        return words < np.uint64(self.piecewise_words)

    def estimates(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the estimate that each message stands for."""
        law = self.law
        from_duchi = messages >= law.points
        other = self.duchi.estimates(messages - law.points)
        return np.where(from_duchi, other, law.estimates(messages))

    def probabilities(self, value: float) -> NDArray[np.float64]:
        """Return float64[2^bits]: the law of the message of one input."""
        parts = (
            self.share * self.law.probabilities(value),
            (1.0 - self.share) * self.duchi.probabilities(value),
        )
        return np.concatenate(parts)

    @property
    def moments(self) -> Moments:
        """Those of the two parts, mixed: both estimate without bias."""
        first = self.law.moments
        constant = self.share * first.constant + (1.0 - self.share) * self.duchi.worst_variance
        return Moments(constant, self.share * first.curvature, first.highest)


def _piecewise_law(points: int, epsilon: float) -> WindowLaw:
    """Return the law with a window of N/(e^{epsilon/2} + 1) messages, rounded."""
    width = round(points * float(special.expit(-epsilon / 2.0)))
    return window_law(points, min(max(width, 1), points - 1), epsilon)
