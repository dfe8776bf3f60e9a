"""The numbers of a small one-shot round.

Clients and members are numbered from 0; sets of them are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from secagg.oneshot.committee import lowest_quorum
from secagg.oneshot.context import fewest_survivors

MOST_SECRETS = 2
"""Secrets of one polynomial, l: one, and one of those with more."""


@dataclass(frozen=True, slots=True)
class OneShotParameters:
    """What all parties of the modelled round agree on."""

    clients: int  # n
    colluders: int  # n_C, clients in the server's hands
    minimum: int  # `minimum_survivors`
    members: int  # s, of the committee of each context
    corrupt: int  # c, members of each committee in the server's hands
    quorum: int  # signatures that convince a member
    randomness: int  # T
    secrets: int  # l, of one polynomial

    @property
    def honest(self) -> int:
        """Honest clients; they are the first ones."""
        return self.clients - self.colluders

    @property
    def fewest(self) -> int:
        """The fewest honest uploads that a sum may be over, by docs/one-shot-security.md."""
        return max(self.minimum - self.colluders, 1)

    def __str__(self) -> str:
        return (
            f"n = {self.clients}, n_C = {self.colluders}, minimum_survivors = {self.minimum}, "
            f"s = {self.members}, c = {self.corrupt}, quorum = {self.quorum}, "
            f"T = {self.randomness}, l = {self.secrets}"
        )


def all_parameters(
    clients: int, members: int, low_quorum: bool = False, low_randomness: bool = False
) -> Iterator[OneShotParameters]:
    """Every choice of the other numbers that the product accepts."""
    for colluders, corrupt in product(range(clients), range(members)):
        lowest = lowest_quorum(members, corrupt)
        quorums = range(lowest - 1, lowest) if low_quorum else range(lowest, members + 1)
        least = max(corrupt, 1)
        degrees = range(corrupt - 1, corrupt) if low_randomness else range(least, members)
        for minimum in range(clients, fewest_survivors(clients, colluders) - 1, -1):
            for quorum, randomness in product(quorums, degrees):
                if randomness < 0:
                    continue
                for secrets in range(1, min(MOST_SECRETS, members - randomness) + 1):
                    yield OneShotParameters(
                        clients,
                        colluders,
                        minimum,
                        members,
                        corrupt,
                        quorum,
                        randomness,
                        secrets,
                    )
