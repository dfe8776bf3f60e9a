"""The ring R_q = Z_q[x] / (x^N + 1), q a product of primes p = 1 mod 2N below 2^27.

An element is kept by its residues modulo each prime: uint32[L, N], coefficients in order. In the
transform domain value j is a(psi^(2 bitrev(j) + 1)), psi = g^((p - 1) / 2N) with g the smallest
primitive root: products of elements are products of values. Which rings are strong enough to hide
anything is said in `secagg.oneshot.parameters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.oneshot import _ring_kernels

PRIME_BITS = 27
MAX_DEGREE = 1 << 15
"""Beyond it values of the transforms would no longer fit 32 bits."""
MAX_LIMBS = 7
"""The largest q in use has seven primes, 189 bits; wire and packing count on six 32-bit words."""

Residues = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Ring:
    """Z_q[x] / (x^N + 1) with q the product of the L largest primes p = 1 mod 2N below 2^27."""

    degree: int
    limbs: int

    def __post_init__(self) -> None:
        if (
            not isinstance(self.degree, int)
            or not 2 <= self.degree <= MAX_DEGREE
            or self.degree & (self.degree - 1)
        ):
            raise ParameterError("degree", self.degree, f"a power of two in 2 .. {MAX_DEGREE}")
        require_int("limbs", self.limbs, 1, MAX_LIMBS)

    @property
    def primes(self) -> tuple[int, ...]:
        """The primes, largest first."""
        return largest_primes(self.degree, self.limbs)

    @property
    def modulus(self) -> int:
        """The product q of the primes."""
        return prod(self.primes)

    @property
    def roots(self) -> tuple[int, ...]:
        """For each prime psi, a root of x^N + 1."""
        return tuple(_root(p, self.degree) for p in self.primes)

    @property
    def tables(self) -> Tables:
        """What the transforms look up, computed once for each ring."""
        return _tables(self)

    def reduce(self, values: NDArray[np.integer]) -> Residues:
        """Residues of integer coefficients: int64[..., N] to uint32[..., L, N]."""
        if values.ndim < 1 or values.shape[-1] != self.degree:
            raise ParameterError("values", values.shape, f"(..., {self.degree})")
        wide = values.astype(np.int64)
        if wide.ndim == 1 and max(int(wide.max()), -int(wide.min())) < self.primes[-1]:
            lifted = np.empty((self.limbs, self.degree), np.uint32)
            _ring_kernels.lift(wide, self.tables.primes, lifted)
            return lifted
        primes = np.array(self.primes, np.int64)[:, None]
        return (wide[..., None, :] % primes).astype(np.uint32)

    def forward(self, values: Residues) -> Residues:
        """Transforms of elements: uint32[..., L, N] below the primes, to new arrays like them."""
        out = self._rows(values)
        tables = self.tables
        _ring_kernels.forward(out, tables.primes, tables.forward, tables.forward_q)
        return out.reshape(values.shape)

    def inverse(self, values: Residues) -> Residues:
        """Inverse of `forward`."""
        out = self._rows(values)
        tables = self.tables
        _ring_kernels.inverse(
            out, tables.primes, tables.inverse, tables.inverse_q, tables.last, tables.last_q
        )
        return out.reshape(values.shape)

    def multiply(self, values: Residues, by: Residues) -> Residues:
        """Products, value by value, of transforms: uint32[..., L, N] times uint32[L, N]."""
        rows = self._rows(values)
        if by.dtype != np.uint32 or by.shape != (self.limbs, self.degree):
            raise ParameterError("by", f"{by.dtype}{by.shape}", f"uint32{self._shape}")
        by = np.ascontiguousarray(by)
        quotients = shoup_quotients(by, self.tables.primes)
        _ring_kernels.products(rows, by, quotients, self.tables.primes, rows)
        return rows.reshape(values.shape)

    @property
    def _shape(self) -> tuple[int, int]:
        return self.limbs, self.degree

    def _rows(self, values: Residues) -> Residues:
        """A copy as uint32[rows, L, N], contiguous."""
        if values.dtype != np.uint32 or values.shape[-2:] != self._shape:
            shape = f"(..., {self.limbs}, {self.degree})"
            raise ParameterError("values", f"{values.dtype}{values.shape}", f"uint32{shape}")
        return np.array(values, order="C").reshape(-1, *self._shape)


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Constants of the transforms, uint32[L, N] each, and for each w what `_q` holds: w 2^32 / p.

    Attributes:
        primes: uint32[L].
        forward: psi^bitrev(j).
        inverse: at t + j, for powers of two t, psi^(-j N / t).
        last: psi^-n / N.
    """

    primes: Residues
    forward: Residues
    forward_q: Residues
    inverse: Residues
    inverse_q: Residues
    last: Residues
    last_q: Residues


@lru_cache(maxsize=64)
def largest_primes(degree: int, limbs: int) -> tuple[int, ...]:
    """The largest primes p = 1 mod 2 degree below 2^27, descending."""
    step = 2 * degree
    found: list[int] = []
    candidate = ((1 << PRIME_BITS) - 2) // step * step + 1
    while len(found) < limbs:
        if is_prime(candidate):
            found.append(candidate)
        candidate -= step
    return tuple(found)


def bit_reversal(degree: int) -> NDArray[np.int64]:
    """Each index below a power of two with its bits in reverse order: int64[degree]."""
    order = np.zeros(1, np.int64)
    while order.size < degree:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def shoup_quotients(constants: Residues, primes: Residues) -> Residues:
    """What the transforms need to multiply by constants w < p: floor(w 2^32 / p), uint32[L, N]."""
    found = np.empty(constants.shape, np.uint32)
    _ring_kernels.quotients(constants, primes, found)
    return found


@lru_cache(maxsize=8)
def _tables(ring: Ring) -> Tables:
    n = ring.degree
    primes = np.array(ring.primes, np.uint32)
    order = bit_reversal(n)
    forward, inverse, last = (np.empty((ring.limbs, n), np.uint32) for _ in range(3))
    for i, (p, psi) in enumerate(zip(ring.primes, ring.roots, strict=True)):
        forward[i] = _powers(psi, n, p)[order]
        descending = _powers(pow(psi, -1, p), 2 * n, p)
        inverse[i, 0] = 1
        t = 1
        while t < n:
            inverse[i, t : 2 * t] = descending[: n : n // t]
            t *= 2
        last[i] = descending[:n] * np.uint64(pow(n, -1, p)) % np.uint64(p)
    quotients = [shoup_quotients(each, primes) for each in (forward, inverse, last)]
    pairs = zip((forward, inverse, last), quotients, strict=True)
    return Tables(primes, *(table for pair in pairs for table in pair))


def _powers(base: int, count: int, p: int) -> NDArray[np.uint64]:
    """1, base, base^2, ... modulo p: uint64[count], count a power of two."""
    powers = np.ones(1, np.uint64)
    while powers.size < count:
        step = np.uint64(pow(base, powers.size, p))
        powers = np.concatenate([powers, powers * step % np.uint64(p)])
    return powers


def _root(p: int, degree: int) -> int:
    """Root psi = g^((p - 1) / 2 degree) of x^degree + 1, g the smallest primitive root of p."""
    factors = _prime_factors(p - 1)
    g = next(g for g in range(2, p) if all(pow(g, (p - 1) // f, p) != 1 for f in factors))
    return pow(g, (p - 1) // (2 * degree), p)


def _prime_factors(number: int) -> list[int]:
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            factors.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*factors, number] if number > 1 else factors


def is_prime(number: int) -> bool:
    """Miller's test, exact from 39 to 3.1e23 with these bases, of odd numbers.

    Source: Sorenson and Webster 2017, Math. Comp. 86.
    """
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power = pow(base, odd, number)
        if power != 1 and all(pow(power, 1 << k, number) != number - 1 for k in range(twos)):
            return False
    return True
