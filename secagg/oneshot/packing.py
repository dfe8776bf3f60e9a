"""Several signed coordinates in one coefficient, as an integer modulo q.

A coefficient carries m = sum_j x_j B^j, x_j the next `per` coordinates, B odd and at least twice
the largest magnitude of a *summed* coordinate plus one. It is scaled by Delta, which leaves room
for the sum of the errors: Delta B^per < q. Digits come off from the lowest, centred. This is linear
over the integers: a summed coordinate that is too large comes out modulo B and moves its upper
neighbour by one. B must be odd: the digits -h .. h with h = (B - 1) / 2 then represent every
integer of magnitude below B^per / 2 once. Between B / 2 and -B / 2 of an even B a digit says
nothing.

Delta = 2 ceil(9 sqrt(n (6.4^2 + 4^r / 12))) + 1, without the second term if nothing is rounded:
nine standard deviations of a sum of n errors, and of n roundings to multiples of 2^r, on each side.

A short vector is followed by zeros, to `FEWEST_COEFFICIENTS`. They are masked and sent like the
rest, and their errors show a wrong key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.checks import require_int
from secagg.errors import CapacityError, ParameterError
from secagg.oneshot import _packing_kernels
from secagg.oneshot._packing_kernels import LIMB_BITS
from secagg.oneshot.ring import Residues, Ring, shoup_quotients
from secagg.oneshot.rounding import ceil_sqrt

DEVIATIONS = 9
"""Standard deviations of the summed error that Delta leaves room for, on each side."""
FEWEST_COEFFICIENTS = 64
"""With so many a key that was chosen without knowing the public elements passes the test on the
errors with a probability below 2^-80 (docs/one-shot-security.md has the computation)."""
MAX_MAGNITUDE = (1 << 61) - 1
MAX_ROUNDING_BITS = 29
"""With more, Delta would not be below 2^32 even for one client."""
_WORD_BITS = 32

CHUNK = 512
"""Coefficients handled at once: some twenty rows of as many words stay in the first cache."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How sums of signed integers are packed into coefficients of a ring.

    Attributes:
        ring: where the coefficients live.
        largest: largest magnitude of a summed coordinate, 1 .. 2^61 - 1.
        clients: n, how many vectors are summed at most.
        rounding_bits: r: ciphertexts are sent as floor(c / 2^r).
    """

    ring: Ring
    largest: int
    clients: int
    rounding_bits: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("largest", 1, MAX_MAGNITUDE),
            ("clients", 1, 1 << 31),
            ("rounding_bits", 0, MAX_ROUNDING_BITS),
        ):
            require_int(name, getattr(self, name), low, high)
        needed = self.delta * self.base
        if needed >= self.ring.modulus:
            raise CapacityError(needed.bit_length() + 1, self.ring.modulus.bit_length())
        if self.delta >> _WORD_BITS:
            raise ParameterError("rounding_bits", self.rounding_bits, "such that Delta < 2^32")

    @property
    def base(self) -> int:
        """B: the smallest odd number from 2 largest + 1 on."""
        return 2 * self.largest + 1

    @property
    def delta(self) -> int:
        """Delta, by which coefficients are scaled; odd."""
        return scale_for(self.clients, self.rounding_bits)

    @property
    def per(self) -> int:
        """Coordinates of a coefficient: the most with Delta B^per < q."""
        return _per(self)

    @property
    def wire_bits(self) -> int:
        """Bits of a coefficient on the wire if it is rounded: those of (q - 1) / 2^r."""
        return ((self.ring.modulus - 1) >> self.rounding_bits).bit_length()

    def coefficients(self, length: int) -> int:
        """Coefficients that are sent for a vector: `FEWEST_COEFFICIENTS` at least."""
        require_int("length", length, 1)
        return max(-(-length // self.per), FEWEST_COEFFICIENTS)

    def blocks(self, length: int) -> int:
        """Ring elements of a vector of this length, at least one."""
        return -(-self.coefficients(length) // self.ring.degree)

    @property
    def tables(self) -> Tables:
        """What the kernels look up, computed once for each packing."""
        return _tables(self)

    def encode(self, values: NDArray[np.int64]) -> Residues:
        """Residues of the scaled coefficients Delta m: int64[d] to uint32[L, coefficients]."""
        check_values(values)
        tables, ring = self.tables, self.ring
        count = self.coefficients(values.size)
        words = np.empty((tables.weights.shape[1], count), np.uint32)
        self.group(values, 0, count, words)
        residues = np.empty((ring.limbs, count), np.uint32)
        crt_tables(ring).to_residues(words, tables.weights, tables.constants, residues)
        return residues

    def group(self, values: NDArray[np.int64], first: int, count: int, words: Residues) -> None:
        """Write the words of coefficients first .. first + count to uint32[words, >= count]."""
        if not _packing_kernels.group_digits(
            values, first, count, self.per, self.tables.group, self.base, words
        ):
            raise ParameterError("values", "out of range", f"at most {self.base // 2} in magnitude")

    def rounded(
        self,
        scaled: NDArray[np.uint32],
        words: Residues,
        errors: NDArray[np.int8],
    ) -> NDArray[np.uint8]:
        """Bytes of floor(c / 2^r), c = sum_i scaled_i q / p_i + errors + Delta m modulo q.

        Args:
            scaled: uint32[blocks, L, N], below the primes.
            words: of m, as `group` writes them.
            errors: int8[count].
        """
        size = -(-errors.size * self.wire_bits // 8)
        packed = np.empty(size // 8 + 4, "<u8")
        _packing_kernels.pack_rounded(
            scaled, words, errors, *self.tables.limbs, self.wire_bits, packed
        )
        return packed.view(np.uint8)[:size]

    @property
    def error_variance(self) -> float:
        """Variance of one upload's error in a coefficient: 6.4^2, and 4^r / 12 if it is rounded."""
        return 40.96 + (4**self.rounding_bits / 12 if self.rounding_bits else 0)

    def decode(
        self, sums: Residues, length: int, offset: int = 0
    ) -> tuple[NDArray[np.int64], float]:
        """Summed coordinates from sums Delta M + E: the vector, and the mean of E^2.

        E itself says nothing: it is a remainder, and never beyond (Delta - 1) / 2. But of a wrong
        sum it is uniform, with a mean square of Delta^2 / 12.

        Args:
            sums: uint32[L, coefficients], below the primes.

        Returns:
            int64[d], each of magnitude at most (B - 1) / 2, and the mean square of E.
        """
        ring, tables = self.ring, self.tables
        count = self.coefficients(length)
        if sums.dtype != np.uint32 or sums.shape != (ring.limbs, count):
            given = f"{sums.dtype}{sums.shape}"
            raise ParameterError("sums", given, f"uint32({ring.limbs}, {count})")
        crt = crt_tables(ring)
        centre = (ring.modulus - 1) // 2 + offset
        added = np.array([centre % p for p in ring.primes], np.uint32)
        values = np.empty(length, np.int64)
        squares = 0.0
        words = np.empty((tables.decode_constant.size, min(CHUNK, count)), np.uint32)
        scratch = np.empty((2, words.shape[1]), np.uint32)
        wide = np.empty(words.shape[1], np.int64)
        for first in range(0, count, CHUNK):
            here = min(CHUNK, count - first)
            crt.to_words(sums, first, here, added, tables.decode_constant, words)
            _packing_kernels.divide(words, here, np.uint64(self.delta), scratch[0])
            rest = scratch[0, :here]
            errors = rest.astype(np.float64) - self.delta // 2
            squares += float(errors @ errors)
            _packing_kernels.split_digits(
                words, here, self.per, tables.group, self.base, values, first, scratch, wide
            )
        return values, squares / count


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Constants of a packing.

    Attributes:
        group: digits of a word; 0 if a digit has two words.
        weights: uint32[L, words]: 2^32 Delta times what a word stands for, modulo p.
        constants: uint32[L]: 2^32 times what the digits' offset contributes, taken away.
        decode_constant: uint32[words of a decoded sum]: makes quotient and remainder not negative.
        limbs: what `_packing_kernels.pack_rounded` takes from `scaled_weights` to `ratio`.
    """

    group: int
    weights: Residues
    constants: Residues
    decode_constant: Residues
    limbs: tuple[Residues, Residues, Residues, NDArray[np.int32], NDArray[np.int64], float]


@dataclass(frozen=True, slots=True, eq=False)
class CrtTables:
    """Takes residues to integers, and words to residues.

    Attributes:
        primes: uint32[L].
        inverses: uint32[L, L]: at i, j the inverse of p_j modulo p_i, j < i.
        inverses_q: their quotients, as the transforms use them.
        one_q: uint32[L], the quotients of 1.
        word_inverses: uint32[L]: p^-1 modulo 2^32.
        cofactors: uint32[L, 1]: (q / p)^-1 modulo p.
        last: uint32[L, N]: the ring's `last`, times the cofactors.
        last_q: its quotients.
    """

    primes: Residues
    inverses: Residues
    inverses_q: Residues
    one_q: Residues
    word_inverses: Residues
    cofactors: Residues
    last: Residues
    last_q: Residues

    def to_words(
        self,
        residues: Residues,
        first: int,
        count: int,
        added: Residues,
        constant: Residues,
        words: Residues,
    ) -> None:
        """Words of constant + ((x + a) mod q), for up to `CHUNK` of the x.

        Args:
            residues: uint32[L, coefficients] of all x; of these first .. first + count.
            added: uint32[L], residues of a.
            constant: uint32[W].
            words: uint32[W, >= count], output; the sum fits.
        """
        _packing_kernels.to_words(
            residues,
            first,
            count,
            added,
            self.primes,
            self.inverses,
            self.inverses_q,
            self.one_q,
            np.empty((self.primes.size, count), np.uint32),
            words,
            constant,
        )

    def to_residues(
        self,
        words: Residues,
        weights: Residues,
        constants: Residues,
        residues: Residues,
    ) -> None:
        """Residues of (constant + sum_k weight_k words[k]) / 2^32, for all columns at once.

        Args:
            words: uint32[words, count], at most 11 words.
            weights: uint32[L, words], below the primes; see `shifted_residues`.
            constants: uint32[L], below the primes.
            residues: uint32[L, count], output.
        """
        totals = np.empty(CHUNK, np.uint64)
        _packing_kernels.weighted_residues(
            words, weights, constants, self.primes, self.word_inverses, residues, totals
        )


def scale_for(clients: int, rounding_bits: int = 0) -> int:
    """Delta = 2 ceil(9 sqrt(n (6.4^2 + 4^r / 12))) + 1, in exact arithmetic; no 4^r if r = 0."""
    # 81 (6.4^2 + 4^r / 12) = 81 (12288 + 25 4^r) / 300.
    rounding = 25 << (2 * rounding_bits) if rounding_bits else 0
    return 2 * ceil_sqrt(DEVIATIONS**2 * clients * (12288 + rounding), 300) + 1


def check_values(values: NDArray[np.int64]) -> None:
    """Refuse what is no vector of 64-bit integers, with ParameterError."""
    if values.dtype != np.int64 or values.ndim != 1 or not values.size:
        raise ParameterError("values", f"{values.dtype}{values.shape}", "int64[d], d from 1 on")


def shifted_residues(numbers: Sequence[int], primes: Sequence[int]) -> Residues:
    """2^32 times each number modulo each prime: uint32[L, numbers], for `CrtTables.to_residues`."""
    return np.array([[(x << _WORD_BITS) % p for x in numbers] for p in primes], np.uint32)


def words_of(number: int, count: int) -> Residues:
    """A number as 32-bit words, least significant first: uint32[count]."""
    return np.frombuffer(number.to_bytes(4 * count, "little"), "<u4").astype(np.uint32)


@lru_cache(maxsize=64)
def _per(packing: Packing) -> int:
    product, per = packing.delta * packing.base, 0
    while product < packing.ring.modulus:
        product *= packing.base
        per += 1
    return per


@lru_cache(maxsize=16)
def crt_tables(ring: Ring) -> CrtTables:
    """What takes a ring's residues to integers, computed once for each ring."""
    primes = ring.tables.primes
    inverses = np.zeros((ring.limbs, ring.limbs), np.uint32)
    for i, p in enumerate(ring.primes):
        for j, other in enumerate(ring.primes[:i]):
            inverses[i, j] = pow(other, -1, p)
    one_q = shoup_quotients(np.ones((ring.limbs, 1), np.uint32), primes)[:, 0]
    word_inverses = np.array([pow(p, -1, 1 << _WORD_BITS) for p in ring.primes], np.uint32)
    quotients = shoup_quotients(inverses, primes)
    cofactors = np.array([[pow(ring.modulus // p, -1, p)] for p in ring.primes], np.uint32)
    last = scaled_by(ring.tables.last, cofactors, primes)
    last_q = shoup_quotients(last, primes)
    return CrtTables(primes, inverses, quotients, one_q, word_inverses, cofactors, last, last_q)


def scaled_by(residues: Residues, factors: Residues, primes: Residues) -> Residues:
    """Rows times factors: uint32[L, count] and uint32[L, 1]."""
    products = residues * factors.astype(np.uint64)
    return (products % primes[:, np.newaxis]).astype(np.uint32)


@lru_cache(maxsize=16)
def _tables(packing: Packing) -> Tables:
    base, delta, per, q = packing.base, packing.delta, packing.per, packing.ring.modulus
    group = 0
    while group < per and base ** (group + 1) < 1 << _WORD_BITS:
        group += 1
    if group:
        places = [base**j for j in range(0, per, group)]
    else:
        places = [base**j << shift for j in range(per) for shift in (0, _WORD_BITS)]
    middle = (base**per - 1) // 2
    # Decoding adds this, and then as many B^per, which no digit sees, as make every sum positive.
    offset = delta * middle + delta // 2
    lacking = max(0, (q - 1) // 2 - offset)
    offset += -(-lacking // (delta * base**per)) * delta * base**per
    count = -(-(q + offset).bit_length() // _WORD_BITS)
    primes = packing.ring.primes
    return Tables(
        group,
        shifted_residues([delta * place for place in places], primes),
        shifted_residues([-delta * middle], primes)[:, 0],
        words_of(offset - (q - 1) // 2, count),
        _limbs(packing, [delta * place for place in places], -128 - delta * middle),
    )


def _limbs(packing: Packing, places: list[int], constant: int) -> tuple[Any, ...]:
    """What packing rounded coefficients takes; `constant` is added modulo q."""
    ring, r = packing.ring, packing.rounding_bits
    q, upper = ring.modulus, -(-packing.wire_bits // LIMB_BITS)
    widths = [r, *[LIMB_BITS] * (upper - 1), _WORD_BITS]
    starts = [0, *range(r, r + upper * LIMB_BITS, LIMB_BITS)]

    def split(*numbers: int) -> Residues:
        parts = zip(starts, widths, strict=True)
        return np.array(
            [[x >> start & (1 << width) - 1 for x in numbers] for start, width in parts], np.uint32
        )

    return (
        split(*(q // p for p in ring.primes)),
        split(*places),
        split(constant % q)[:, 0].copy(),
        split(q)[:, 0].astype(np.int32),
        np.array(widths, np.int64),
        float(Fraction(1 << starts[-2], q) * (1 + Fraction(1, 1 << 48))),
    )
