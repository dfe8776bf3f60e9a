"""What a round did, as immutable values that accountants read.

A mechanism never computes epsilon and an accountant never adds noise; an event is all that
passes between them. Rules for changing this module:

* An event says what *happened*, with the coins that really remained, not what was planned.
* Fields are in integer units, after scaling. A field is never given a new meaning: a new
  mechanism is a new class, with a new tag in the ledger's registry.
* An accountant that has no theorem for an event refuses it. It never guesses.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


class Adjacency(enum.Enum):
    """Which two inputs must be hard to tell apart. The text is printed next to every epsilon."""

    ZERO_OUT = "zero-out: one client's contribution replaced by the zero vector"

    def __str__(self) -> str:
        """Return the text to print."""
        return self.value


def _require_integer(name: str, value: object, smallest: int) -> None:
    """Raise unless ``value`` is an int of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < smallest:
        raise ValueError(f"{name} must be at least {smallest}, got {value}")


@dataclass(frozen=True, slots=True)
class BinomialRelease:
    """The server saw ``sum of integer vectors + Bin(N, 1/2) - N/2`` in every coordinate.

    Mathematics: M(x) = x + Z with Z_i independent, Z_i ~ Bin(N, 1/2) - N/2, N = ``coins``.
    Two adjacent inputs differ by an integer vector v with ``|v|_2 <= l2_sensitivity`` and
    ``max |v_i| <= linf_sensitivity``.

    Assumptions: the coins are fair, independent, and unknown to the adversary. ``coins``
    therefore counts the coins of honest clients whose input is in the sum and whose noise
    seeds were not revealed; coins of colluding clients do not count. The cohort is known to
    the adversary, so nothing is gained from sampling it.

    Attributes:
        coins: N, per coordinate, >= 0.
        l2_sensitivity: integer units, finite, >= 0.
        linf_sensitivity: integer units, >= 1.
        dimension: number of coordinates, >= 1.
    """

    coins: int
    l2_sensitivity: float
    linf_sensitivity: int
    dimension: int

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` naming the field that is out of range."""
        _require_integer("coins", self.coins, 0)
        _require_integer("linf_sensitivity", self.linf_sensitivity, 1)
        _require_integer("dimension", self.dimension, 1)
        if isinstance(self.l2_sensitivity, bool) or not isinstance(self.l2_sensitivity, float):
            raise TypeError(
                f"l2_sensitivity must be a float, got {type(self.l2_sensitivity).__name__}"
            )
        if not 0.0 <= self.l2_sensitivity < math.inf:
            raise ValueError(
                f"l2_sensitivity must be finite and not negative, got {self.l2_sensitivity!r}"
            )


@dataclass(frozen=True, slots=True)
class NonPrivateRelease:
    """Something was released without noise. Its epsilon is infinite for every delta < 1.

    It exists so that an ablation runs through the same accounting and says plainly what it is
    worth. Secure aggregation alone is this event: it hides single inputs, but states no
    epsilon.
    """


@dataclass(frozen=True, slots=True)
class Composition:
    """Several releases that belong together, for instance the two sums of one round.

    Equal to composing the parts one after the other, except that an accountant takes all of
    them or none.

    Attributes:
        parts: the releases, in order; at least one.
    """

    parts: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Raise unless the parts are a tuple with at least one member."""
        if not isinstance(self.parts, tuple):
            raise TypeError(f"parts must be a tuple, got {type(self.parts).__name__}")
        if not self.parts:
            raise ValueError("a composition needs at least one part, got none")


Event: TypeAlias = BinomialRelease | NonPrivateRelease | Composition


def leaves(event: object) -> Iterator[object]:
    """Yield the simple events inside ``event``, in order, whatever their type."""
    if isinstance(event, Composition):
        for part in event.parts:
            yield from leaves(part)
    else:
        yield event
