"""What a member's share of one upload holds, in which order, and what it gives up of it.

A share is a row of elements of GF(2^31 - 1): values of the polynomials that hold the upload's key,
then those of each removable seed, then those of the polynomials that hide the post-mortem's
combinations. All are of one degree, T + l - 1, and are dealt in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg import _shamir_kernels
from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.keystream import BLOCK_BYTES, Keystream
from secagg.oneshot import packed_sharing
from secagg.oneshot.key_entries import base_for, combine, entries_for, split
from secagg.shamir import LIMBS, PRIME, Rand, random_elements, to_limbs
from secagg.tags import Usage, derive

CHALLENGES = 4
"""Combinations of its shares that a member gives of each upload: what is wrong with a dealer
escapes all of them with a probability of 2^-124."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLayout:
    """The elements of one share.

    Args:
        entries: key entries packed into one secret.
    """

    key_length: int
    clients: int
    entries: int
    seeds: int
    randomness: int
    per_polynomial: int
    members: int

    def __post_init__(self) -> None:
        require_int("entries", self.entries, 1, entries_for(self.clients))

    @property
    def key_secrets(self) -> int:
        """Secrets that one key makes."""
        return -(-self.key_length // self.entries)

    @property
    def key_polynomials(self) -> int:
        """Polynomials that hold one key."""
        return -(-self.key_secrets // self.per_polynomial)

    @property
    def seed_polynomials(self) -> int:
        """Polynomials that hold one removable seed."""
        return -(-LIMBS // self.per_polynomial)

    @property
    def polynomials(self) -> int:
        """Elements of one share."""
        return self.key_polynomials + self.seeds * self.seed_polynomials + CHALLENGES

    @property
    def share_bytes(self) -> int:
        """Bytes of one share, not sealed."""
        return 4 * self.polynomials

    def seed_columns(self, which: Sequence[int]) -> NDArray[np.int64]:
        """Where in a share the polynomials of some seeds are."""
        width = self.seed_polynomials
        first = [self.key_polynomials + seed * width for seed in which]
        return np.array([start + i for start in first for i in range(width)], np.int64)

    def deal(self, key: NDArray[np.int8], seeds: Sequence[bytes], rand: Rand) -> NDArray[np.uint32]:
        """Share a key, removable seeds, and polynomials of nothing but randomness.

        Args:
            key: int8[key_length].
            seeds: 32 bytes each.

        Returns:
            uint32[members, polynomials], every element below 2^31 - 1.
        """
        if len(seeds) != self.seeds:
            raise ParameterError("seeds", len(seeds), f"{self.seeds} removable seeds")
        width = self.per_polynomial
        secrets = np.zeros((self.polynomials, width), np.uint64)
        flat = secrets.reshape(-1)
        flat[: self.key_secrets] = combine(key, self.entries, base_for(self.clients))
        for number, seed in enumerate(seeds):
            start = (self.key_polynomials + number * self.seed_polynomials) * width
            flat[start : start + LIMBS] = to_limbs(seed)
        secrets[-CHALLENGES:] = random_elements(CHALLENGES * width, rand).reshape(-1, width)
        return packed_sharing.deal(flat, width, self.randomness, self.members, rand)

    def key_of(self, secrets: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The entries of a summed key, int64[key_length], of its opened secrets."""
        return split(secrets, self.entries, base_for(self.clients), self.key_length)

    def sum_keys(self, shares: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """A member's share of the sum of keys: uint32[key_polynomials].

        Args:
            shares: uint32[uploads, polynomials], of the uploads that are opened.
        """
        keys = shares[:, : self.key_polynomials]
        total: NDArray[np.uint64] = keys.sum(axis=0, dtype=np.uint64)
        return (total % np.uint64(PRIME)).astype(np.uint32)

    def checks(
        self, shares: NDArray[np.uint32], challenge: NDArray[np.uint64]
    ) -> NDArray[np.uint32]:
        """The masked combinations of each upload's shares: uint32[uploads, CHALLENGES].

        Args:
            shares: uint32[uploads, polynomials].
            challenge: uint64[CHALLENGES, key_polynomials], `challenge_of` the opened set.
        """
        keys = np.ascontiguousarray(shares[:, : self.key_polynomials].T).astype(np.uint64)
        masks = shares[:, -CHALLENGES:].astype(np.uint64)
        combined = np.empty((len(shares), CHALLENGES), np.uint32)
        sums = np.empty(len(shares), np.uint64)
        for row in range(CHALLENGES):
            _shamir_kernels.weighted_sums(challenge[row], keys, sums)
            combined[:, row] = (sums + masks[:, row]) % PRIME
        return combined

    def challenge_of(self, survivors_digest: bytes) -> NDArray[np.uint64]:
        """The public coefficients of the combinations: uint64[CHALLENGES, key_polynomials]."""
        key = derive(survivors_digest, Usage.CHALLENGE, 16)
        elements = random_elements(CHALLENGES * self.key_polynomials, reader_of(key))
        return elements.reshape(CHALLENGES, self.key_polynomials)


def reader_of(key: bytes) -> Rand:
    """A source of random bytes that reads the keystream of a 16-byte key from its beginning."""
    stream, place = Keystream(key), 0

    def read(count: int) -> bytes:
        nonlocal place
        blocks = -(-count // BLOCK_BYTES)
        taken = stream.blocks(place, blocks)[:count].tobytes()
        place += blocks
        return taken

    return read


def encode_rows(rows: NDArray[np.uint32]) -> bytes:
    """Elements as little-endian 32-bit words, row by row."""
    return rows.astype("<u4").tobytes()


def decode_rows(encoded: bytes, rows: int, columns: int) -> NDArray[np.uint32]:
    """Inverse of `encode_rows`: uint32[rows, columns]; ValueError on length or range."""
    if len(encoded) != 4 * rows * columns:
        raise ValueError(f"{len(encoded)} bytes, {rows} x {columns} elements expected")
    elements = np.frombuffer(encoded, "<u4").astype(np.uint32).reshape(rows, columns)
    if elements.size and int(elements.max()) >= PRIME:
        raise ValueError("share element is not below 2^31 - 1")
    return elements
