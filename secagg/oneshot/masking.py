"""Masked vectors, their sum, and what the sum of the keys opens.

Block b of a vector is sent as c[b] = a[b] k + e[b] + Delta m[b] modulo q: a[b] is public, the key k
and the errors e are small and secret, m is packed as in `secagg.oneshot.packing`. The error of
coefficient t of block b is sample b N + t of one stream. From the sum C over clients and the sum K
of their keys, C[b] - a[b] K = Delta M[b] + E[b].

*A key masks one vector.* Two vectors under the same key and public elements give away their
difference. Whoever calls `mask` derives the key from the vector, or draws it afresh.

*Rounding.* floor(c / 2^r) is too small by 0 .. 2^r - 1, hence by (2^r - 1) / 2 on average. Over
many clients this would be far more than its spread, for which Delta leaves room; so the server
adds the average times the number of ciphertexts, rounded down, before it decodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError
from secagg.oneshot import _mask_kernels, gaussian
from secagg.oneshot.packing import CHUNK, Packing, check_values, crt_tables
from secagg.oneshot.public_element import PublicElements
from secagg.oneshot.ring import Residues, Ring, shoup_quotients
from secagg.oneshot.wire import Ciphertext, add_into, content_shape, residues_of

_GROUP_BYTES = 512 * 1024
"""Most bytes of public elements expanded at once: they stay in the second cache level."""


def mask(
    packing: Packing,
    public_key: bytes,
    key: NDArray[np.int8],
    error_key: bytes,
    values: NDArray[np.int64],
) -> Ciphertext:
    """Mask a vector.

    Args:
        public_key: 16 bytes that the public elements are expanded from.
        key: int8[N], the client's secret key, used for nothing else.
        error_key: 16 secret bytes that the errors are drawn from, used for nothing else.
        values: int64[d], each of magnitude at most (B - 1) / 2.
    """
    check_values(values)
    ring = packing.ring
    if key.dtype != np.int8 or key.shape != (ring.degree,):
        raise ParameterError("key", f"{key.dtype}{key.shape}", f"int8({ring.degree},)")
    if int(np.abs(key.astype(np.int16)).max()) > gaussian.CUT:
        raise ParameterError("key", "out of range", f"at most {gaussian.CUT} in magnitude")
    count = packing.coefficients(values.size)
    errors = gaussian.sample(error_key, count)
    groups = _Groups(ring, public_key, key)
    tables, crt = packing.tables, crt_tables(ring)
    content = np.empty(content_shape(packing, values.size), np.uint32)
    words = np.empty((tables.weights.shape[1], min(groups.coefficients, count)), np.uint32)
    totals = np.empty(CHUNK, np.uint64)
    residues = content
    if packing.rounding_bits:
        residues = np.empty((ring.limbs, count), np.uint32)
    for first in range(0, count, groups.coefficients):
        here = min(groups.coefficients, count - first)
        packing.group(values, first, here, words)
        _mask_kernels.mask_blocks(
            groups.elements(first, here),
            *groups.constants,
            words,
            tables.weights,
            tables.constants,
            crt.word_inverses,
            groups.row,
            errors[first : first + here],
            totals,
            first,
            residues,
        )
    if packing.rounding_bits:
        crt.round_off(residues, packing.rounding_bits, content)
    return Ciphertext(packing, values.size, content)


class Accumulator:
    """The sum of ciphertexts of one round, as integers: what was sent is reduced once, at the end.

    Attributes:
        packing: ring and packing of the round.
        length: d.
        count: ciphertexts in the sum.
    """

    def __init__(self, packing: Packing, length: int) -> None:
        self.packing = packing
        self.length = length
        self.count = 0
        # 32-bit numbers of at most 2^31 clients: no sum overflows.
        self._sums = np.zeros(content_shape(packing, length), np.int64)

    @classmethod
    def together(
        cls, packing: Packing, length: int, sums: NDArray[np.int64], count: int
    ) -> Accumulator:
        """The sum of what several machines have.

        Args:
            sums: int64, of the shape of a ciphertext's content: their `sums` added up.
        """
        whole = cls(packing, length)
        if sums.dtype != np.int64 or sums.shape != whole._sums.shape:
            raise ParameterError("sums", f"{sums.dtype}{sums.shape}", f"int64{whole._sums.shape}")
        whole._check_count(count)
        whole._sums[:] = sums
        whole.count = count
        return whole

    @property
    def sums(self) -> NDArray[np.int64]:
        """Sums of the contents so far: int64, of the shape of one, read-only."""
        view = self._sums.view()
        view.flags.writeable = False
        return view

    def add(self, ciphertext: bytes) -> None:
        """Add an encoded ciphertext; the sum stays what it was if a number is out of range."""
        self._check_count(self.count + 1)
        add_into(self._sums, self.packing, self.length, ciphertext, 1)
        self.count += 1

    def subtract(self, ciphertext: bytes) -> None:
        """Take out a ciphertext that was added."""
        add_into(self._sums, self.packing, self.length, ciphertext, -1)
        self.count -= 1

    def residues(self) -> Residues:
        """Residues of the sum of what was sent: uint32[L, coefficients]."""
        return residues_of(self.packing, self._sums)

    def _check_count(self, count: int) -> None:
        if count > self.packing.clients:
            raise ParameterError("ciphertext", count, f"one of at most {self.packing.clients}")


def open(
    accumulator: Accumulator, public_key: bytes, key_sum: NDArray[np.int64]
) -> tuple[NDArray[np.int64], float]:
    """Summed vector and mean square of the errors from the sums of ciphertexts and of keys.

    Args:
        key_sum: int64[N].

    Returns:
        int64[d], and the mean square of the coefficients' errors. With a wrong key it is 27 times
        that of a right one.
    """
    packing, ring = accumulator.packing, accumulator.packing.ring
    if key_sum.dtype != np.int64 or key_sum.shape != (ring.degree,):
        raise ParameterError("key_sum", f"{key_sum.dtype}{key_sum.shape}", f"int64({ring.degree},)")
    most = gaussian.CUT * accumulator.count
    if int(key_sum.min()) < -most or int(key_sum.max()) > most:
        raise ParameterError("key_sum", "out of range", f"at most {most} in magnitude")
    groups = _Groups(ring, public_key, key_sum)
    sums = accumulator.residues()
    out = np.empty_like(sums)
    for first in range(0, sums.shape[1], groups.coefficients):
        here = min(groups.coefficients, sums.shape[1] - first)
        _mask_kernels.unmask_blocks(
            groups.elements(first, here), *groups.constants, groups.row, sums, first, out
        )
    rounded_off = accumulator.count * ((1 << packing.rounding_bits) - 1) // 2
    return packing.decode(out, accumulator.length, rounded_off)


class _Groups:
    """Public elements group by group, and the constants that multiply them by a key.

    Attributes:
        coefficients: those of one group: a number of whole blocks.
        constants: key, its quotients, primes and inverse tables, in the kernels' order.
        row: uint32[N], scratch.
    """

    def __init__(self, ring: Ring, public_key: bytes, key: NDArray[np.signedinteger]) -> None:
        self._elements = PublicElements(ring, public_key)
        self._degree = ring.degree
        blocks = max(1, _GROUP_BYTES // (4 * ring.limbs * ring.degree))
        self.coefficients = blocks * ring.degree
        transformed = ring.forward(ring.reduce(key))
        tables = ring.tables
        self.constants = (
            transformed,
            shoup_quotients(transformed, tables.primes),
            tables.primes,
            tables.inverse,
            tables.inverse_q,
            tables.last,
            tables.last_q,
        )
        self.row = np.empty(ring.degree, np.uint32)

    def elements(self, first: int, count: int) -> Residues:
        """The public elements of coefficients first .. first + count."""
        return self._elements.expand(first // self._degree, -(-count // self._degree))
