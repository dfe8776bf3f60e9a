"""Who masks with whom, and who holds whose shares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.tags import Usage, derive


class Graph(Protocol):
    """A symmetric neighbour relation over the parties of a roster, and its share holders."""

    @property
    def members(self) -> tuple[int, ...]:
        """The parties, ascending."""

    def neighbours(self, index: int) -> tuple[int, ...]:
        """Parties that share a pairwise mask with `index`, ascending; symmetric, irreflexive."""

    def holders(self, index: int) -> tuple[int, ...]:
        """Parties that hold shares of the secrets of `index`, ascending; a symmetric relation."""


class CompleteGraph:
    """Everybody masks with everybody and holds a share of everybody's secrets, their own too.

    Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4.
    """

    def __init__(self, members: tuple[int, ...], *, own_shares: bool = True) -> None:
        self.members = members
        self._own_shares = own_shares

    def neighbours(self, index: int) -> tuple[int, ...]:
        """All other members."""
        return tuple(member for member in self.members if member != index)

    def holders(self, index: int) -> tuple[int, ...]:
        """All members: with its own share counted, any t survivors rebuild a secret."""
        return self.members if self._own_shares else self.neighbours(index)


class HararyGraph:
    """Members on a ring in a random order; neighbours are the k/2 on either side.

    Shares go to the neighbours and nobody else, as the choice of k and t assumes.

    Args:
        seed: 32 public bytes that nobody can choose alone; fixes the order.

    Source: Bell et al. 2020 (ia.cr/2020/704), section 3.
    """

    def __init__(self, members: tuple[int, ...], degree: int, seed: bytes) -> None:
        self.members = members
        # Arrays of small integers: every client of a large cohort has a ring.
        self._ring = np.array(random_order(members, seed, Usage.GRAPH), np.int32)
        self._place = np.full(members[-1] + 1, -1, np.int32)
        self._place[self._ring] = np.arange(len(members), dtype=np.int32)
        half = degree // 2
        self._steps = np.concatenate([np.arange(-half, 0), np.arange(1, half + 1)])
        self._known: dict[int, tuple[int, ...]] = {}

    def neighbours(self, index: int) -> tuple[int, ...]:
        """The k members nearest on the ring."""
        if index not in self._known:
            if not 0 <= index < self._place.size or self._place[index] < 0:
                raise KeyError(index)
            near = self._ring.take(self._place[index] + self._steps, mode="wrap")
            self._known[index] = tuple(np.sort(near).tolist())
        return self._known[index]

    def holders(self, index: int) -> tuple[int, ...]:
        """Those who hold shares of a client's secrets: its neighbours."""
        return self.neighbours(index)


def build_graph(members: tuple[int, ...], degree: int, seed: bytes) -> Graph:
    """The graph of a round: complete for degree 0, or when too few members are left."""
    if degree and len(members) <= degree + 1:
        return CompleteGraph(members, own_shares=False)
    if degree == 0:
        return CompleteGraph(members)
    return HararyGraph(members, degree, seed)


def held_by(
    index: int, participants: Collection[int], graph: Graph, *, include_self: bool = True
) -> tuple[int, ...]:
    """The participants whose shares party `index` holds, ascending.

    Holding is symmetric, like the neighbour relation it comes from. Time is that of k look-ups, so
    `participants` should be a set or a dictionary.
    """
    holders = graph.holders(index)
    return tuple(u for u in holders if u in participants and (include_self or u != index))


def random_order(members: Sequence[int], seed: bytes, usage: Usage) -> tuple[int, ...]:
    """A random order of the members: by 64-bit keys from a keystream, ties by index.

    Member i's key is the first 8 bytes, little-endian, of block i of AES-256-CTR under a key
    derived from the seed: as long as the seed, so that a bad order is not hit by its key either.
    """
    cipher = Cipher(AES(derive(seed, usage, 32)), CTR(bytes(16))).encryptor()
    blocks = np.frombuffer(cipher.update(bytes(16 * (members[-1] + 1))), "<u8")
    indices = np.array(members, np.int64)
    return tuple(indices[np.lexsort((indices, blocks[2 * indices]))].tolist())
