"""The numbers of a round on the complete graph, and the sets of clients as bit masks.

Client i is bit i of a set. The same expressions serve Python integers and integer arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from secagg import Mode, lowest_threshold


@dataclass(frozen=True, slots=True)
class Parameters:
    """What all clients of the modelled round agree on."""

    size: int  # n, clients in the cohort
    mode: Mode  # what the server may do
    colluders: int  # n_C, the clients that the round tolerates in the server's hands
    threshold: int  # t, shares that rebuild a secret; on the complete graph also the quorum
    minimum: int  # `minimum_survivors`, the fewest members of any set that a client accepts

    @property
    def everybody(self) -> int:
        """The whole cohort as a set."""
        return (1 << self.size) - 1

    @property
    def fewest(self) -> int:
        """The fewest honest clients that a released sum may be over, by docs/security.md."""
        return max(self.minimum - self.colluders, 1)

    def __str__(self) -> str:
        return (
            f"n = {self.size}, {self.mode.value}, n_C = {self.colluders}, t = {self.threshold}, "
            f"minimum_survivors = {self.minimum}"
        )


def all_parameters(size: int, mode: Mode, below: int = 0) -> Iterator[Parameters]:
    """Every choice of n_C, t and minimum_survivors that the product accepts for `size` clients.

    Largest minima first: a counterexample that survives a large minimum says more.
    """
    for colluders in range(size):
        lowest = lowest_threshold(size, colluders, mode)
        if below:
            thresholds = range(lowest - below, lowest - below + 1)
        else:
            thresholds = range(lowest, size + 1)
        for threshold in thresholds:
            if threshold < 1:
                continue
            for minimum in range(size, threshold - 1, -1):
                yield Parameters(size, mode, colluders, threshold, minimum)


def members(mask: int) -> tuple[int, ...]:
    """The clients of a set, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def subsets(mask: int) -> Iterator[int]:
    """All subsets of a set, the empty one and itself included, ascending."""
    part = 0
    while True:
        yield part
        if part == mask:
            return
        part = (part - mask) & mask
