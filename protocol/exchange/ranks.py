"""Processes that share the work of a round: each plays some of its clients, and parts are added up.

Every rank runs the same rounds with the same public values, so that each knows what comes next
without being told. In a round a rank makes the uploads of the clients that it owns and adds them;
one sum over all ranks then gives each of them what a single process would have. Sums of integers
have no order, so that it is the same bit for bit, however many ranks there are.

This says what a rank can do. How ranks talk to one another is the business of an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg import PrimeField

T = TypeVar("T")

_LARGEST_SUM = 1 << 63
_HALF_BITS = 31


class Ranks(Protocol):
    """This process among those that share a round. All ranks ask for the same in the same order."""

    @property
    def rank(self) -> int:
        """This process, from 0; rank 0 alone keeps what a run leaves."""

    @property
    def size(self) -> int:
        """How many there are."""

    def take(self, indices: Iterable[int]) -> None:
        """Own these members of the cohort from now on, by index; no other rank may own them."""

    def owns(self, index: int) -> bool:
        """Whether this rank plays a member of the present cohort."""

    def gather(self, facts: T) -> list[T]:
        """What every rank has to tell, in the order of ranks; small, plain values."""

    def broadcast(self, value: T) -> T:
        """What rank 0 gives; what the others give counts for nothing."""

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        """What every rank has for this one; `parts` is what this one has for each of them."""

    def add(self, *vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """The sum over all ranks of each vector, one dtype for all; int64 must not overflow."""


class Alone:
    """One process that plays everybody."""

    rank = 0
    size = 1

    def take(self, indices: Iterable[int]) -> None:
        """Everybody is ours already."""

    def owns(self, index: int) -> bool:
        """Whether we play this member: we play all of them."""
        del index
        return True

    def gather(self, facts: T) -> list[T]:
        """What we have to tell, as a list of one."""
        return [facts]

    def broadcast(self, value: T) -> T:
        """What is given, as it is."""
        return value

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        """What we have for ourselves."""
        return list(parts)

    def add(self, *vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """The vectors as they are: there is nothing to add."""
        return list(vectors)


ALONE = Alone()


def add_in_field(
    ranks: Ranks, field: PrimeField, total: NDArray[Any], *others: NDArray[np.int64]
) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Add field elements over all ranks, and other integers with them.

    Args:
        total: elements of the field, below p, of its dtype.
        others: int64, sums that do not overflow.

    Returns:
        the sum over GF(p), of the field's dtype, and the sums of the others.
    """
    wide = total.astype(np.int64)
    if field.modulus * ranks.size < _LARGEST_SUM:
        added, *rest = ranks.add(wide, *others)
        return (added % field.modulus).astype(field.dtype), rest
    low, high, *rest = ranks.add(wide & ((1 << _HALF_BITS) - 1), wide >> _HALF_BITS, *others)
    # Below 2^62 after each step, as both halves are below 2^31 times the number of ranks.
    for _ in range(_HALF_BITS):
        high = (high << 1) % field.modulus
    return ((high + low) % field.modulus).astype(field.dtype), rest
