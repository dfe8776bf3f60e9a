"""Who masks with whom, and who holds whose shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Graph(Protocol):
    """A symmetric neighbour relation over the parties of a roster, and its share holders."""

    @property
    def members(self) -> tuple[int, ...]:
        """The parties, ascending."""

    def neighbours(self, index: int) -> tuple[int, ...]:
        """Parties that share a pairwise mask with `index`, ascending; symmetric, irreflexive."""

    def holders(self, index: int) -> tuple[int, ...]:
        """Parties that hold shares of the secrets of `index`, ascending."""


@dataclass(frozen=True, slots=True)
class CompleteGraph:
    """Everybody masks with everybody and holds a share of everybody's secrets, their own too.

    Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4.
    """

    members: tuple[int, ...]

    def neighbours(self, index: int) -> tuple[int, ...]:
        """All other members."""
        return tuple(member for member in self.members if member != index)

    def holders(self, index: int) -> tuple[int, ...]:
        """All members: with its own share counted, any t survivors rebuild a secret."""
        return self.members
