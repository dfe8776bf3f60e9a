"""The ring Z_q[x] / (x^N + 1) with one prime q = 1 mod 2N of up to 50 bits, and its field GF(q).

Value j of an element's transform is that at psi^(2 bitrev(j) + 1), so value N - 1 - j is that of
its conjugate. Why one prime: docs/validated.md, "Setting".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.keystream import BLOCK_BYTES, Keystream
from secagg.oneshot.ring import bit_reversal, is_prime
from secagg.shamir import Rand
from secagg.validated import _ring_kernels

MAX_BITS = 50
"""Products take their quotient from a double."""
MIN_BITS = 42
MAX_DEGREE = 1 << 15
WORD_BYTES = 8
_PER_BLOCK = BLOCK_BYTES // WORD_BYTES

Residues = NDArray[np.uint64]


@dataclass(frozen=True)
class PrimeRing:
    """Z_q[x] / (x^N + 1), q the largest prime of so many bits that is 1 modulo 2N.

    Args:
        degree: N, a power of two.
        bits: of q.
    """

    degree: int
    bits: int

    def __post_init__(self) -> None:
        require_int("degree", self.degree, 2, MAX_DEGREE)
        if self.degree & (self.degree - 1):
            raise ParameterError("degree", self.degree, f"a power of two in 2 .. {MAX_DEGREE}")
        require_int("bits", self.bits, MIN_BITS, MAX_BITS)

    @cached_property
    def modulus(self) -> int:
        """The prime q."""
        return _largest_prime(self.degree, self.bits)

    @cached_property
    def q(self) -> np.uint64:
        """The prime as the kernels take it."""
        return np.uint64(self.modulus)

    @cached_property
    def psi(self) -> int:
        """A root of x^N + 1: the first of g^((q - 1) / 2N), g = 2, 3, ..., that is one."""
        q, n = self.modulus, self.degree
        powers = (pow(g, (q - 1) // (2 * n), q) for g in range(2, q))
        return next(x for x in powers if pow(x, n, q) == q - 1)

    @cached_property
    def _roots(self) -> tuple[Residues, Residues]:
        """Powers psi^bitrev(j) and psi^-bitrev(j)."""
        order = bit_reversal(self.degree)
        found = []
        for base in (self.psi, pow(self.psi, -1, self.modulus)):
            powers = [1]
            while len(powers) < self.degree:
                powers.append(powers[-1] * base % self.modulus)
            found.append(np.array(powers, np.uint64)[order])
        return found[0], found[1]

    def reduce(self, values: NDArray[np.signedinteger]) -> Residues:
        """Integers of magnitude below q as residues."""
        wide = values.astype(np.int64)
        return np.where(wide < 0, wide + self.modulus, wide).astype(np.uint64)

    def centre(self, values: Residues) -> NDArray[np.int64]:
        """Residues of least magnitude."""
        wide = values.astype(np.int64)
        return np.where(wide > self.modulus // 2, wide - self.modulus, wide)

    def forward(self, values: Residues) -> Residues:
        """Transforms of elements: uint64[blocks, N]."""
        out = np.array(values, np.uint64, order="C")
        _ring_kernels.forward(out, self._roots[0], self.q)
        return out

    def inverse(self, values: Residues) -> Residues:
        """Inverse of `forward`."""
        out = np.array(values, np.uint64, order="C")
        scale = np.uint64(pow(self.degree, -1, self.modulus))
        _ring_kernels.inverse(out, self._roots[1], scale, self.q)
        return out

    def multiply(self, elements: Residues, by: Residues) -> Residues:
        """The coefficients of products: uint64[blocks, N] of transforms uint64[blocks, N], [N]."""
        out = np.empty_like(elements)
        scale = np.uint64(pow(self.degree, -1, self.modulus))
        _ring_kernels.masks(elements, by, self._roots[1], scale, self.q, out)
        return out

    def adjoint(self, elements: Residues, vector: Residues) -> Residues:
        """The transform of sum_b a_b* v_b: uint64[N].

        Args:
            elements: the transforms of the a_b, uint64[blocks, N].
            vector: the coefficients of the v_b, uint64[blocks, N].
        """
        out = np.zeros(self.degree, np.uint64)
        _ring_kernels.add_adjoint(elements, vector.copy(), self._roots[0], self.q, out)
        return out

    def square(self, elements: Residues) -> Residues:
        """The transform of sum_b a_b* a_b: uint64[N]."""
        out = np.zeros(self.degree, np.uint64)
        _ring_kernels.add_squares(elements, self.q, out)
        return out

    def dot(self, one: Residues, other: Residues) -> int:
        """The inner product modulo q."""
        return int(_ring_kernels.dot(one.reshape(-1), other.reshape(-1), self.q))

    def product(self, matrix: Residues, columns: Residues) -> Residues:
        """The product of matrices modulo q."""
        out = np.empty((matrix.shape[0], columns.shape[1]), np.uint64)
        _ring_kernels.matrix_product(matrix, columns, self.q, out)
        return out

    def times(self, values: Residues, factor: int) -> Residues:
        """Multiples of residues."""
        column = np.array([[factor % self.modulus]], np.uint64)
        return self.product(column, values.reshape(1, -1)).reshape(values.shape)

    def by(self, one: Residues, other: Residues) -> Residues:
        """Products of residues, one by one."""
        out = np.empty_like(one)
        _ring_kernels.products(one, other, self.q, out)
        return out

    def inverses(self, values: Residues) -> Residues:
        """Inverses of residues that are not 0."""
        out = np.empty_like(values)
        _ring_kernels.inverses(values, self.q, out)
        return out

    def interpolation(self, points: Residues, targets: Residues) -> Residues:
        """Takes values at points to values at targets: uint64[targets, points]."""
        out = np.empty((targets.size, points.size), np.uint64)
        _ring_kernels.interpolation_matrix(points, targets, self.q, out)
        return out

    def random(self, count: int, rand: Rand) -> Residues:
        """Exactly uniform residues; refused words are drawn again, all at a time."""
        words = self._masked(rand(WORD_BYTES * count))
        while (refused := np.flatnonzero(words >= self.q)).size:
            words[refused] = self._masked(rand(WORD_BYTES * refused.size))
        return words

    def elements(self, key: bytes, first: int, count: int) -> Residues:
        """Public elements first .. first + count of a 16-byte key, as transforms.

        Value j of element b is the first word at place b N + j of streams 0, 1, ... of the key that
        is below q. uint64[count, N].
        """
        stream, start = Keystream(key), first * self.degree
        raw = stream.blocks(start // _PER_BLOCK, count * self.degree // _PER_BLOCK)
        words = self._masked(raw.tobytes())
        number = 1
        while (refused := np.flatnonzero(words >= self.q)).size:
            blocks = stream.words_at(number, start, refused, _PER_BLOCK).view("<u8")
            drawn = blocks.reshape(-1, _PER_BLOCK)
            which = (start + refused) % _PER_BLOCK
            words[refused] = self._masked(drawn[np.arange(refused.size), which].tobytes())
            number += 1
        return words.reshape(count, self.degree)

    def _masked(self, raw: bytes) -> Residues:
        return np.frombuffer(raw, "<u8") & np.uint64((1 << self.bits) - 1)


@lru_cache(maxsize=16)
def _largest_prime(degree: int, bits: int) -> int:
    step = 2 * degree
    candidate = ((1 << bits) - 2) // step * step + 1
    while not is_prime(candidate):
        candidate -= step
    return candidate
