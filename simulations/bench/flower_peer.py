"""Flower's SecAgg+ at work: what its server's workflow and its clients' modifier call.

Source: flwr 1.41, secaggplus_workflow.py (unmask_stage) and secaggplus_mod.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from simulations.common.peers import FLOWER_CLIENT, Arrays, Masking, Peer, Sharing, Unmasking, load

SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"
RING = 1 << 32
"""Modulus that Flower uses by default."""

_GENERATOR = (
    "flower's generator is not cryptographic: a Mersenne Twister seeded with 32 bits; its "
    "elements are 64-bit words of a 32-bit ring, whatever --bits says"
)
_SHARES = (
    "flower shares in pure Python over GF(2^128), 16 bytes at a time: three times for a secret of "
    "32 bytes, which it pads"
)
_WORKFLOW = (
    "flower's server combines all shares that arrived, not a threshold of them, and expands the "
    "masks between two lost clients too; a lost client's secret is a P-384 key as PEM"
)


class Flower:
    """Flower as a peer: the complete graph, its default ring."""

    def __init__(self) -> None:
        self._server = _Side(load(SERVER, Peer.FLOWER))
        self._client = _Side(load(FLOWER_CLIENT, Peer.FLOWER))

    def masking(self, dim: int, neighbours: int) -> Masking:
        """The client's loop over neighbours: expand, add or subtract, reduce at the end."""
        seeds = [os.urandom(32) for _ in range(neighbours)]
        vector = _with_weight(np.zeros(dim, np.int64))

        def mask() -> Arrays:
            total = vector
            for index, seed in enumerate(seeds):
                total = self._client.masked(total, seed, subtract=index % 2 == 1)
            return self._client.reduced(total)

        return Masking(peer=Peer.FLOWER, note=_GENERATOR, mask=mask)

    def sharing(self, secrets: Sequence[bytes], holders: int, threshold: int) -> Sharing:
        """Secret by secret; the last holders answer, as in our own benchmark."""

        def create() -> list[list[bytes]]:
            return [self._client.shares(secret, threshold, holders) for secret in secrets]

        arrived = [shares[holders - threshold :] for shares in create()]
        return Sharing(
            peer=Peer.FLOWER,
            note=_SHARES,
            create=create,
            combine=lambda: [self._server.secret(shares) for shares in arrived],
        )

    def unmasking(self, clients: int, dim: int, dropped: int, threshold: int) -> Unmasking:
        """What the workflow does once it has sorted the arrived shares by their owners.

        The last clients are lost after sharing their secrets.
        """
        survivors = range(clients - dropped)
        private, public = self._client.key_pairs(clients)
        seeds = {u: os.urandom(32) for u in survivors}
        plain = _with_weight(np.frombuffer(os.urandom(4 * dim), "<u4").astype(np.int64))
        shares = {
            u: self._client.shares(secret, threshold, clients)[: len(survivors)]
            for u, secret in (private | seeds).items()
        }
        masked = self._masked_sum(plain, seeds, private, public)
        step = _UnmaskStage(self._server, survivors, public, shares, masked)
        return Unmasking(
            peer=Peer.FLOWER,
            note=f"{_WORKFLOW}; {_SHARES}; {_GENERATOR}",
            rebuild=step.rebuild,
            remove=step.remove,
            masks=len(survivors) + dropped * (clients - 1),
            plain=plain,
        )

    def _masked_sum(
        self,
        plain: Arrays,
        seeds: Mapping[int, bytes],
        private: Mapping[int, bytes],
        public: Mapping[int, bytes],
    ) -> Arrays:
        """The survivors' sum; the masks between two survivors cancel and are left out."""
        total = plain
        for u, seed in seeds.items():
            total = self._client.masked(total, seed, subtract=False)
            for v in public.keys() - seeds.keys():
                key = self._client.agreed(private[u], public[v])
                total = self._client.masked(total, key, subtract=u <= v)
        return self._client.reduced(total)


@dataclass(frozen=True, slots=True)
class _Side:
    """The names that one of the two modules calls, with types."""

    code: ModuleType

    def key_pairs(self, count: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Private and public keys, as they are shared and sent."""
        pairs = {u: self.code.generate_key_pairs() for u in range(count)}
        private = {u: self.code.private_key_to_bytes(pair[0]) for u, pair in pairs.items()}
        public = {u: self.code.public_key_to_bytes(pair[1]) for u, pair in pairs.items()}
        return private, public

    def agreed(self, private: bytes, public: bytes) -> bytes:
        """Both keys are parsed at each agreement, as Flower does."""
        key: bytes = self.code.generate_shared_key(
            self.code.bytes_to_private_key(private), self.code.bytes_to_public_key(public)
        )
        return key

    def shares(self, secret: bytes, threshold: int, holders: int) -> list[bytes]:
        created: list[bytes] = self.code.create_shares(secret, threshold, holders)
        return created

    def secret(self, shares: list[bytes]) -> bytes:
        combined: bytes = self.code.combine_shares(shares)
        return combined

    def masked(self, total: Arrays, seed: bytes, *, subtract: bool) -> Arrays:
        noise = self.code.pseudo_rand_gen(seed, RING, [array.shape for array in total])
        apply = self.code.parameters_subtraction if subtract else self.code.parameters_addition
        changed: Arrays = apply(total, noise)
        return changed

    def reduced(self, total: Arrays) -> Arrays:
        residues: Arrays = self.code.parameters_mod(total, RING)
        return residues


@dataclass(frozen=True, slots=True)
class _UnmaskStage:
    """What the workflow holds when all shares have arrived."""

    side: _Side
    survivors: Sequence[int]
    public: Mapping[int, bytes]
    shares: Mapping[int, list[bytes]]
    masked: Arrays

    def rebuild(self) -> dict[int, bytes]:
        return {owner: self.side.secret(shares) for owner, shares in self.shares.items()}

    def remove(self, secrets: Mapping[int, bytes]) -> Arrays:
        total = self.masked
        for owner, secret in secrets.items():
            if owner in self.survivors:
                total = self.side.masked(total, secret, subtract=True)
            else:
                total = self._without_pairs(total, owner, secret)
        return self.side.reduced(total)

    def _without_pairs(self, total: Arrays, owner: int, secret: bytes) -> Arrays:
        """The workflow's loop over all neighbours, lost ones too: their masks cancel."""
        for neighbour, public in self.public.items():
            if neighbour != owner:
                key = self.side.agreed(secret, public)
                total = self.side.masked(total, key, subtract=owner <= neighbour)
        return total


def _with_weight(words: NDArray[np.int64]) -> Arrays:
    """A client's weight goes before its vector."""
    return [np.ones(1, np.int64), words]


def open_peer(peer: Peer) -> Flower:
    """Load a peer's code; another one would need the same three methods."""
    return {Peer.FLOWER: Flower}[peer]()
