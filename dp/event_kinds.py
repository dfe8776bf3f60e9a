"""What is asked of every event, and the kinds of events that theorems are about.

A property or a method here is what every mechanism can answer alike. What only one theorem asks
stays with that theorem.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dp.errors import UnsupportedEventError


@dataclass(frozen=True, slots=True)
class Event:
    """What a round did.

    Attributes:
        tag: the name of the class in ledgers.
    """

    tag: ClassVar[str]

    @property
    def released(self) -> Event:
        """Return what the server did with the cohort it had: the event, but for sampling."""
        return self

    def replace_one(self) -> Event:
        """Return an event whose zero-out epsilon is the replace-one epsilon of this one.

        Events bound what one client's contribution can change when it is replaced by the *zero*
        vector. Replacing it by *another* contribution within the same bounds changes the sum by
        v = u - w with |u|_2, |w|_2 <= D2 and |u_i|, |w_i| <= Dinf, each surely and after rounding.
        So |v|_2 <= 2 D2 and |v_i| <= 2 Dinf, and every theorem about integer vectors within bounds
        applies with both doubled.

        Raises:
            UnsupportedEventError: no theorem here says what a replacement changes: a sampled
                cohort, or sensitivities that hold with a probability only.

        Source: docs/accounting.md, "Replace-one".
        """
        raise UnsupportedEventError(f"no theorem covers {self!r} under replace-one adjacency")

    def own_noise(self, contributors: int) -> Event:
        """Return this release with one client's share of its noise: the Sybil worst case.

        Args:
            contributors: clients from whom the noise came in equal parts, >= 1; for a sum of
                discrete Gaussians its own number is used.

        Raises:
            UnsupportedEventError: the noise is not the sum of clients' noise.
        """
        raise UnsupportedEventError(f"clients add no noise of their own in {self!r}")


class NoisyRelease(Event, metaclass=ABCMeta):
    """A sum with noise that is symmetric about zero: what a sampled cohort may be the source of.

    Attributes:
        l2_sensitivity: largest Euclidean norm of a change.
    """

    __slots__ = ()

    l2_sensitivity: float

    @property
    @abstractmethod
    def noise_variance(self) -> float:
        """Return the variance of one coordinate's noise."""

    @property
    def is_silent(self) -> bool:
        """Say whether no change but zero fits the sensitivity."""
        return self.l2_sensitivity == 0.0


class IntegerRelease(NoisyRelease):
    """A release whose noise is symmetric, log-concave, and on the integers.

    Attributes:
        linf_sensitivity: largest coordinate of a change.
        dimension: number of coordinates.
    """

    __slots__ = ()

    linf_sensitivity: int
    dimension: int

    @property
    def is_silent(self) -> bool:
        """Say whether no change but zero fits the sensitivity."""
        return self.l2_sensitivity < 1.0

    def replace_one(self) -> Self:
        """Double both sensitivities."""
        l2, linf = 2.0 * self.l2_sensitivity, 2 * self.linf_sensitivity
        return replace(self, **{"l2_sensitivity": l2, "linf_sensitivity": linf})


class PureRelease(Event, metaclass=ABCMeta):
    """A release by a trusted server whose privacy loss is bounded surely, by ``epsilon``.

    Attributes:
        sensitivity: by how much what is asked changes between neighbours, integer units.
    """

    __slots__ = ()

    sensitivity: int

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Return the pure epsilon."""

    def replace_one(self) -> Self:
        """Double the sensitivity."""
        return replace(self, **{"sensitivity": 2 * self.sensitivity})


class SampledRelease(Event):
    """A release over a cohort that was drawn, seen by an outsider.

    Attributes:
        event: what a cohort releases.
    """

    __slots__ = ()

    event: NoisyRelease

    @property
    def released(self) -> NoisyRelease:
        """Return what a cohort releases."""
        return self.event
