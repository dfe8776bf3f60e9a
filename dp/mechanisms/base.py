"""What a mechanism is: how noise gets into a sum, and what it then has to be called.

A mechanism has a client half, which turns ``Quantized`` into ``Noised``, and a server half, which
says what the sum has to be corrected by. It describes itself as an event and never computes
epsilon; an accountant reads the event and never adds noise.

Mechanisms are frozen dataclasses: equal parameters make equal mechanisms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from dp.checks import require_between_0_and_1, require_float, require_integer, require_positive
from dp.event_kinds import Event
from dp.keystream import NoiseSeed
from dp.noised import Noise, Noised
from dp.rounding import Quantized
from dp.sampling import DiscreteGaussianLaw, SkellamLaw, accumulate_law


@dataclass(frozen=True, slots=True)
class Sensitivities:
    """How much one client can change the sum, in integer units.

    Attributes:
        l2: Euclidean, finite, > 0.
        linf: largest coordinate, >= 1.
    """

    l2: float
    linf: int

    def __post_init__(self) -> None:
        require_float("l2", self.l2)
        require_positive("l2", self.l2)
        require_integer("linf", self.linf, 1)


class Mechanism(Protocol):
    """Noise for sums of ``Quantized`` vectors."""

    @property
    def noise(self) -> Noise:
        """What one client adds; equal to the ``noise`` of the vectors it makes."""
        ...

    @property
    def variance(self) -> float:
        """Variance per coordinate that one client adds, integer units squared."""
        ...

    @property
    def residual_offset(self) -> float:
        """Mean of one client's noise: the server subtracts it from the sum once per client."""
        ...

    @property
    def proxy_variance(self) -> float | None:
        """Variance of a Gaussian whose moment generating function is nowhere below the noise's.

        That of the noise less its mean; None where there is no such Gaussian.
        """
        ...

    def add_noise(self, quantized: Quantized, seed: NoiseSeed) -> Noised:
        """Add the client's own noise.

        Args:
            quantized: the client's bounded integers.
            seed: secret; must not have drawn the noise of another vector.

        Post: ``result.noise == self.noise``; both bounds are those of ``quantized``.
        """
        ...

    def event(self, sensitivities: Sensitivities, contributors: int, dimension: int) -> Event:
        """Return what the release of a sum has to be accounted as.

        Args:
            sensitivities: of the sum to one client, rounding included.
            contributors: honest clients whose noise remained in the sum, >= 0.
            dimension: number of coordinates, >= 1.
        """
        ...

    def total_limit(
        self, clients: int, dimension: int, wrap_probability: float, batches: int = 1
    ) -> int:
        """Return a bound on the noise of every coordinate of the sum, to size the field by.

        The noise may exceed the result somewhere, in any of the ``dimension`` coordinates, with
        probability at most ``wrap_probability``: then a coordinate wraps around the field. That
        spoils the result, not its privacy, since what is released is still a function of the noisy
        sum.

        Args:
            clients: n, clients whose noise may be in the sum, >= 1.
            dimension: number of coordinates, >= 1.
            wrap_probability: in [0, 1); 0 for a sure bound, which bounded noise alone has.
            batches: in how many parts each client draws its noise, >= 1.
        """
        ...


class SymmetricNoise(ABC):
    """What mechanisms do alike whose clients draw from a symmetric law."""

    __slots__ = ()

    @property
    @abstractmethod
    def noise(self) -> DiscreteGaussianLaw | SkellamLaw:
        """The law of one draw."""

    @property
    def residual_offset(self) -> float:
        """Zero: the law is symmetric."""
        return 0.0

    def add_noise(self, quantized: Quantized, seed: NoiseSeed) -> Noised:
        """Draw under ``Usage.INVERSION``. Args: as for ``Mechanism``."""
        values = quantized.values.copy()
        accumulate_law(self.noise, seed, values)
        return Noised(values, self.noise, quantized.square_bound, quantized.linf_bound)


def require_wrap(
    clients: int, dimension: int, wrap_probability: float, bounded: bool = True
) -> None:
    """Raise unless these are arguments of ``Mechanism.total_limit``.

    Args:
        bounded: whether the noise has a largest value, so that a probability of 0 is possible.
    """
    require_integer("clients", clients, 1)
    require_integer("dimension", dimension, 1)
    require_float("wrap_probability", wrap_probability)
    if wrap_probability != 0.0 or not bounded:
        require_between_0_and_1("wrap_probability", wrap_probability)
