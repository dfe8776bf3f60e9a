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

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError
from secagg.oneshot import _mask_kernels, gaussian
from secagg.oneshot.packing import CrtTables, Packing, check_values, crt_tables
from secagg.oneshot.public_element import PublicElements
from secagg.oneshot.ring import Residues, Ring, Tables, shoup_quotients
from secagg.oneshot.wire import (
    Ciphertext,
    add_into,
    content_shape,
    residues_of,
    wire_bytes,
)

_GROUP_BYTES = 512 * 1024
"""Most bytes of public elements expanded at once: they stay in the second cache level."""


def mask(
    packing: Packing,
    public_key: bytes,
    key: NDArray[np.int8],
    error_key: bytes,
    values: NDArray[np.int64],
) -> bytes:
    """Mask a vector; the bytes that are sent.

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
    if not packing.rounding_bits:
        residues = packing.encode(values)
        primes = ring.tables.primes[:, np.newaxis]
        for part, products in _multiplied(ring, public_key, key, ring.tables, count):
            sums = residues[:, part] + _in_rows(products, part)
            # A negative error wraps around, and back when the prime is added: below 3p + 84.
            sums += primes + errors[part].astype(np.uint32)
            residues[:, part] = _below(_below(sums, 2 * primes), primes)
        return Ciphertext(packing, values.size, residues).encode()
    sent = BytesIO()
    # All of it at once: what grows is moved.
    sent.seek(wire_bytes(packing, values.size) - 1)
    sent.write(b"\0")
    sent.seek(0)
    room = min(count, _group_blocks(ring) * ring.degree)
    words = np.empty((packing.tables.weights.shape[1], room), np.uint32)
    for part, products in _multiplied(ring, public_key, key, crt_tables(ring), count):
        packing.group(values, part.start, part.stop - part.start, words)
        sent.write(packing.rounded(products, words, errors[part]).data)
    return sent.getvalue()


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

    def together(self, add: Callable[..., Sequence[NDArray[np.int64]]]) -> Accumulator:
        """The sum of those of several machines.

        Args:
            add: adds int64 arrays up, each over all machines.
        """
        sums, count = add(self._sums, np.array([self.count]))
        whole = Accumulator(self.packing, self.length)
        if sums.dtype != np.int64 or sums.shape != whole._sums.shape:
            raise ParameterError("sums", f"{sums.dtype}{sums.shape}", f"int64{whole._sums.shape}")
        whole._check_count(int(count[0]))
        whole._sums[:] = sums
        whole.count = int(count[0])
        return whole

    @property
    def sums(self) -> NDArray[np.int64]:
        """Sums of the numbers sent so far: int64, of `wire.content_shape`, read-only."""
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
    residues = accumulator.residues()
    primes = ring.tables.primes[:, np.newaxis]
    for part, products in _multiplied(ring, public_key, key_sum, ring.tables, residues.shape[1]):
        residues[:, part] = _below(residues[:, part] + primes - _in_rows(products, part), primes)
    rounded_off = accumulator.count * ((1 << packing.rounding_bits) - 1) // 2
    return packing.decode(residues, accumulator.length, rounded_off)


def _multiplied(
    ring: Ring,
    public_key: bytes,
    key: NDArray[np.signedinteger],
    last: Tables | CrtTables,
    count: int,
) -> Iterator[tuple[slice, NDArray[np.uint32]]]:
    """Products of public elements and a key, group by group: uint32[blocks, L, N].

    Args:
        last: whose `last` ends the inverse transform.
        count: coefficients; each group comes with those that it has.
    """
    elements, tables = PublicElements(ring, public_key), ring.tables
    transformed = ring.forward(ring.reduce(key))
    quotients = shoup_quotients(transformed, tables.primes)
    blocks = _group_blocks(ring)
    for block in range(0, -(-count // ring.degree), blocks):
        part = slice(block * ring.degree, min((block + blocks) * ring.degree, count))
        products = elements.expand(block, -(-(part.stop - part.start) // ring.degree))
        _mask_kernels.multiply_by_key(
            products,
            transformed,
            quotients,
            tables.primes,
            tables.inverse,
            tables.inverse_q,
            last.last,
            last.last_q,
        )
        yield part, products


def _group_blocks(ring: Ring) -> int:
    """Blocks of public elements that are expanded at once: of coefficients that fill bytes."""
    fewest = max(1, 8 // ring.degree)
    return max(1, _GROUP_BYTES // (4 * ring.limbs * ring.degree) // fewest) * fewest


def _in_rows(products: NDArray[np.uint32], part: slice) -> Residues:
    """Products of several blocks side by side: uint32[L, coefficients of the part]."""
    rows = products.swapaxes(0, 1).reshape(products.shape[1], -1)
    return rows[:, : part.stop - part.start]


def _below(values: Residues, primes: Residues) -> Residues:
    """Residues of values below twice the primes."""
    below: Residues = np.minimum(values, values - primes)
    return below
