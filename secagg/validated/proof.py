"""What a client proves of its upload: rows, bits and masks, challenges, and the functional.

The server computes the same functional. All of it is linear in what is secret, or a sum of
products of shares; why it says what it says is in docs/validated.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.keystream import KEY_BYTES, LONG_KEY_BYTES, Keystream
from secagg.oneshot.layout import reader_of
from secagg.shamir import Rand
from secagg.tags import Usage, derive, encode_index
from secagg.validated import _ring_kernels
from secagg.validated.parameters import ROWS, Parameters
from secagg.validated.ring import Residues
from secagg.validated.sharing import deal, packed

_ROW_BYTES = 2 * ROWS // 8
_CHUNK = 1 << 13
"""Coordinates whose rows are expanded at a time: 256 KiB."""
_BYTE = (np.arange(256)[:, np.newaxis] >> np.arange(8)) & 1


class Rows:
    """The rows of one upload: entries in -1, 0, 0, 1, from what it was committed to first.

    Coordinate i has blocks 2 i and 2 i + 1 of a keystream: row r adds it if bit r of the first is
    set, and takes it away if that of the second is.
    """

    def __init__(self, parameters: Parameters, root1: bytes) -> None:
        self._p = parameters
        # A vector can be made that passes the rows of many keys: not of a share of 2^256.
        self._stream = Keystream(derive(root1, Usage.CHALLENGE, LONG_KEY_BYTES, b"rows"))

    def products(self, vector: NDArray[np.int64]) -> NDArray[np.int64]:
        """The products of all rows with a vector: int64[R].

        Args:
            vector: int64[B N], of which any subset adds up to less than 2^62.
        """
        sums = np.zeros((ROWS // 8, 256), np.int64)
        for low in range(0, vector.size, _CHUNK):
            part = vector[low : low + _CHUNK]
            _ring_kernels.add_by_byte(self._bits(low, part.size), part, sums)
        return (sums @ _BYTE).reshape(-1)[: self._p.rows]

    def combined(self, weights: Residues) -> Residues:
        """Sums of the rows with weights: uint64[repetitions, B N] of uint64[repetitions, R]."""
        ring, count = self._p.ring, len(weights)
        padded = np.zeros((count, ROWS), np.uint64)
        padded[:, : self._p.rows] = weights
        bytewise = ring.product(padded.reshape(-1, 8), _BYTE.T.astype(np.uint64))
        tables = bytewise.reshape(count, ROWS // 8, 256)
        found = np.empty((count, self._p.blocks * ring.degree), np.uint64)
        for low in range(0, found.shape[1], _CHUNK):
            part = found[:, low : low + _CHUNK]
            bits = self._bits(low, part.shape[1])
            _ring_kernels.combine_rows(bits, tables, ring.q, part)
        return found

    def _bits(self, first: int, count: int) -> NDArray[np.uint8]:
        return self._stream.blocks(2 * first, 2 * count).reshape(count, _ROW_BYTES)


@dataclass(frozen=True, slots=True)
class Challenges:
    """The weights of all repetitions, uint64[t, ...] each.

    Attributes:
        eta: of the norm, [t].
        gamma: of the rows, [t, R].
        theta: of the padding slots of f, then of f', [t, 2 padding].
        zeta: of the polynomials of bits.
        lam: of the polynomials of f, f' and bits.
    """

    eta: Residues
    gamma: Residues
    theta: Residues
    zeta: Residues
    lam: Residues

    @classmethod
    def of(cls, p: Parameters, root2: bytes) -> Challenges:
        """Those that follow from all that was committed to."""
        bits = p.bit_polynomials
        sizes = (1, p.rows, 2 * p.padding, bits, 2 * p.key_polynomials + bits)
        drawn = []
        for repetition in range(p.repetitions):
            parts = (b"weights", encode_index(repetition))
            rand = reader_of(derive(root2, Usage.CHALLENGE, KEY_BYTES, *parts))
            drawn.append([p.ring.random(size, rand) for size in sizes])
        eta, *rest = (np.stack(column) for column in zip(*drawn, strict=True))
        return cls(eta[:, 0], *rest)

    def bit_weights(self, p: Parameters) -> Residues:
        """What each bit counts for in V1: uint64[t, polynomials, l]."""
        factors = np.concatenate([self.eta[:, np.newaxis], self.gamma], axis=1)
        powers = np.array([[1 << j for j in range(max(p.bits))]], np.uint64)
        every = p.ring.product(factors.reshape(-1, 1), powers).reshape(*factors.shape, -1)
        counted = np.arange(powers.size) < np.array(p.bits)[:, np.newaxis]
        return packed(every[:, counted], p.per_polynomial)


def witness(p: Parameters, room: int, products: NDArray[np.int64], rand: Rand) -> Residues:
    """Shares of the bits and of the masks m1, m2 and m3 of all repetitions.

    Args:
        room: by how much the squared norm is below its bound.
        products: of the rows, int64[R] in -tau .. tau - 1.

    Returns:
        uint64[members, bit polynomials + 3 t].
    """
    numbers = np.concatenate([[room], products + p.tau])
    every = numbers[:, np.newaxis] >> np.arange(max(p.bits)) & 1
    counted = np.arange(max(p.bits)) < np.array(p.bits)[:, np.newaxis]
    bits = packed(every[counted].astype(np.uint64), p.per_polynomial)
    shares = deal(p, bits, p.share_degree, rand)
    width, count = p.per_polynomial, p.repetitions
    slots = np.zeros((2 * count, width), np.uint64)
    free = p.ring.random((width - 1) * count, rand).reshape(count, width - 1)
    slots[:count, :-1] = free
    # Sums of fewer than 2^14 residues do not overflow.
    slots[:count, -1] = (p.ring.q - free.sum(axis=1, dtype=np.uint64) % p.ring.q) % p.ring.q
    uniform = p.ring.random(width * count, rand).reshape(count, width)
    masks = deal(p, slots, p.product_degree, rand), deal(p, uniform, p.share_degree, rand)
    return np.concatenate([shares, *masks], axis=1)


@dataclass(frozen=True, slots=True)
class Functional:
    """The linear functional of f and f', for all repetitions.

    Attributes:
        coefficients: slot by slot, of f and then of f': uint64[t, 2 polynomials, l].
        constants: kappa, uint64[t].
    """

    coefficients: Residues
    constants: Residues

    @classmethod
    def of(
        cls,
        p: Parameters,
        elements: Residues,
        squares: Residues,
        ciphertext: Residues,
        rows: Rows,
        challenges: Challenges,
        bound: int,
    ) -> Functional:
        """That of an upload whose squared norm is bounded.

        Args:
            elements: transforms of the a_b, uint64[B, N].
            squares: of sum_b a_b* a_b, uint64[N].
            ciphertext: uint64[B, N].
        """
        ring, half, q = p.ring, p.ring.degree // 2, p.ring.modulus
        combined = rows.combined(challenges.gamma)
        norm, plain = ring.dot(ciphertext, ciphertext), ring.adjoint(elements, ciphertext)
        inverses = ring.inverses(squares[:half])
        coefficients, constants = [], []
        for t, vector in enumerate(combined):
            eta, gamma = int(challenges.eta[t]), challenges.gamma[t]
            h = ring.adjoint(elements, vector.reshape(ciphertext.shape))
            h = ring.times((h + ring.times(plain, -2 * eta)) % ring.q, pow(ring.degree, -1, q))
            ones, others = h[: half - 1 : -1], ring.by(h[:half], inverses)
            theta = challenges.theta[t].reshape(2, p.padding)
            sides = [np.concatenate(pair) for pair in zip((ones, others), theta, strict=True)]
            coefficients.append(np.concatenate([packed(x, p.per_polynomial) for x in sides]))
            kappa = eta * (norm - bound) - p.tau * sum(map(int, gamma))
            constants.append((kappa - ring.dot(vector, ciphertext)) % q)
        return cls(np.stack(coefficients), np.array(constants, np.uint64))
