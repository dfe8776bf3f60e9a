"""Compiled packing of signed coordinates into coefficients, and back.

Coordinates x in -h .. h, h = (B - 1) / 2, are handled as digits x + h in 0 .. B - 1: what that adds
to a coefficient is a constant. Several digits make a *word* below 2^32, or one digit makes two;
a coefficient is a sum of words times constants, which each prime takes modulo itself.

Many-word integers are kept word by word, least significant first: uint32[words, coefficients], so
that every step runs over neighbouring coefficients. Loops have unsigned indices, and divisions go
by floating-point quotients that are off by one at most and then corrected: both so that they
vectorise, as do rows only of arrays that are contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg._kernels import word_at
from secagg.oneshot._ring_kernels import PRIMES, _at_most, constants, residues, times
from veilsum.compiled import compiled, sample

Words = NDArray[np.uint32]

_U = np.uint32
_I = np.uint64
_LOW = 0xFFFF_FFFF

_STRETCH = 1024
"""Coefficients that are gathered, packed or added at once: few enough to stay in the cache."""
LIMB_BITS = 28
"""Of a limb, times those of a word: several products fit 64 bits."""
_FIELDS = 3
"""64-bit words of a rounded coefficient: seven primes have 189 bits."""


def _words(*shape: int) -> Words:
    return sample(*shape, below=1 << 32, kind=np.uint32)


@compiled(
    lambda _: (
        sample(191, low=-(500), below=1001, kind=np.int64),
        1,
        40,
        5,
        2,
        1001,
        np.zeros((3, 40), np.uint32),
    ),
    lambda _: (
        sample(77, low=-(1 << 39), below=(1 << 40) + 1, kind=np.int64),
        1,
        40,
        2,
        0,
        (1 << 40) + 1,
        np.zeros((4, 40), np.uint32),
    ),
    answer=0x7CC40B70,
)
def group_digits(
    values: NDArray[np.int64],
    first: int,
    count: int,
    per: int,
    group: int,
    base: int,
    words: Words,
) -> bool:
    """Write the words of coefficients first .. first + count; whether every coordinate is in range.

    Args:
        values: int64[d]; coordinates beyond the end are 0.
        words: uint32[words, >= count], output.
    """
    words[:, :count] = _U(0)
    # Coefficients of which every coordinate is there.
    full = min(count, max(0, values.size // per - first))
    most = np.uint64(0)
    for low in range(0, full, _STRETCH):
        high = min(low + _STRETCH, full)
        start, end = (first + low) * per, (first + high) * per
        most = max(most, _group_some(values[start:end], per, group, base, words, low))
    if full < count:
        rest = np.zeros((count - full) * per, np.int64)
        start = (first + full) * per
        if start < values.size:
            end = min(values.size, start + rest.size)
            rest[: end - start] = values[start:end]
        most = max(most, _group_some(rest, per, group, base, words, full))
    return bool(most < np.uint64(base))


@compiled()
def _group_some(
    values: NDArray[np.int64], per: int, group: int, base: int, words: Words, low: int
) -> Any:
    """Group the digits of whole coefficients, the first of them number `low`; the largest digit."""
    half, scale = np.uint64(base // 2), _U(base & _LOW)
    count = values.size // per
    most = np.uint64(0)
    digits = np.empty(values.size if group > 0 else 0, np.uint32)
    # In order first: whatever is then gathered is half as wide.
    for n in range(digits.size):
        digit = np.uint64(values[_I(n)]) + half
        most = max(most, digit)
        digits[_I(n)] = _U(digit & _I(_LOW))
    for j in range(per - 1, -1, -1):
        place = _I(j)
        if group == 0:
            lower = words[2 * j, low : low + count]
            upper = words[2 * j + 1, low : low + count]
            for t in range(count):
                i = _I(t)
                digit = np.uint64(values[place + i * _I(per)]) + half
                most = max(most, digit)
                lower[i] = _U(digit & _I(_LOW))
                upper[i] = _U(digit >> _I(32))
        else:
            own = words[j // group, low : low + count]
            for t in range(count):
                i = _I(t)
                own[i] = _U(own[i] * scale + digits[place + i * _I(per)])
    return most


@compiled()
def _add_weighted(
    words: Words, low: int, count: int, weights: Words, totals: NDArray[np.uint64]
) -> None:
    """totals[t] += sum_k weights[k] words[k, low + t], of uint32 all; the sums fit 64 bits."""
    rows = words.shape[0]
    for k in range(0, rows, 3):
        # Words that are not there count as the last one, times nothing.
        second, third = min(k + 1, rows - 1), min(k + 2, rows - 1)
        a, x = np.uint64(weights[k]), words[k, low : low + count]
        b, y = np.uint64(weights[second] * _U(second > k)), words[second, low : low + count]
        c, z = np.uint64(weights[third] * _U(third > second)), words[third, low : low + count]
        for t in range(count):
            i = _I(t)
            totals[i] += a * np.uint64(x[i]) + b * np.uint64(y[i]) + c * np.uint64(z[i])


@compiled()
def _reduce_wide(total: Any, p: Any, inverse: Any) -> Any:
    """Return total / 2^32 modulo p, at most total / 2^32 + p, for a uint64.

    Source: Montgomery 1985; inverse = p^-1 modulo 2^32.
    """
    low, high = _U(total & np.uint64(_LOW)), _U(total >> np.uint64(32))
    multiple = np.uint64(_U(low * inverse)) * np.uint64(p)
    return _U(high + p - _U(multiple >> np.uint64(32)))


@compiled()
def _below_prime(value: Any, p: Any) -> Any:
    """Reduce a uint32 below 16p."""
    p2 = _U(p + p)
    p4 = _U(p2 + p2)
    value = _at_most(_at_most(value, _U(p4 + p4)), p4)
    return _at_most(_at_most(value, p2), p)


@compiled(
    lambda _: (
        _words(3, 40),
        residues(2, 3),
        residues(2),
        PRIMES,
        _words(2),
        np.zeros((2, 40), np.uint32),
        np.zeros(16, np.uint64),
    ),
    answer=0x154BACDC,
)
def weighted_residues(
    words: Words,
    weights: Words,
    constants: Words,
    primes: Words,
    inverses: Words,
    residues: Words,
    totals: NDArray[np.uint64],
) -> None:
    """Residues of (constant + sum_k weight_k words[k]) / 2^32 modulo every prime.

    Args:
        words: uint32[words, count], at most 11 words.
        weights: uint32[L, words], below the primes.
        constants: uint32[L], below the primes.
        primes: uint32[L].
        inverses: uint32[L]: p^-1 modulo 2^32.
        residues: uint32[L, count], output, below the primes.
        totals: uint64[chunk], scratch.
    """
    count = words.shape[1]
    for i in range(primes.size):
        p = primes[i]
        for low in range(0, count, totals.size):
            high = min(low + totals.size, count)
            totals[: high - low] = np.uint64(constants[i])
            _add_weighted(words, low, high - low, weights[i], totals)
            row = residues[i, low:high]
            for t in range(high - low):
                j = _I(t)
                row[j] = _below_prime(_reduce_wide(totals[j], p, inverses[i]), p)


@compiled(
    lambda _: (
        residues(2, 40),
        3,
        30,
        residues(2),
        PRIMES,
        *constants(2),
        constants(1)[1].ravel(),
        np.zeros((2, 30), np.uint32),
        np.zeros((3, 30), np.uint32),
        _words(3),
    ),
    answer=0x2A225ECF,
)
def to_words(
    residues: Words,
    first: int,
    count: int,
    added: Words,
    primes: Words,
    inverses: Words,
    inverses_q: Words,
    one_q: Words,
    digits: Words,
    words: Words,
    constant: Words,
) -> None:
    """Words of constant + ((x + a) mod q), x and a given by their residues.

    Garner's mixed radix digits v_i, then x = v_0 + p_0 (v_1 + p_1 (v_2 + ...)).

    Args:
        residues: uint32[L, coefficients], below the primes; of these first .. first + count.
        added: uint32[L], below the primes.
        primes: uint32[L].
        inverses: uint32[L, L]: at i, j the inverse of p_j modulo p_i, j < i.
        inverses_q: uint32[L, L], their quotients as in `times`.
        one_q: uint32[L], quotients of 1.
        digits: uint32[L, >= count], scratch.
        words: uint32[W, >= count], output; the whole fits.
        constant: uint32[W].
    """
    limbs = primes.size
    for i in range(limbs):
        p = primes[i]
        p2 = _U(p + p)
        own, source = digits[i], residues[i, first : first + count]
        for t in range(count):
            own[_I(t)] = _U(source[_I(t)] + added[i])
        for j in range(i):
            other, inverse, inverse_q = digits[j], inverses[i, j], inverses_q[i, j]
            for t in range(count):
                k = _I(t)
                own[k] = times(_U(own[k] - other[k] + p2), inverse, inverse_q, p)
        for t in range(count):
            own[_I(t)] = _at_most(times(own[_I(t)], _U(1), one_q[i], p), p)
    words[:, :count] = _U(0)
    words[0, :count] = digits[limbs - 1, :count]
    for i in range(limbs - 2, -1, -1):
        multiply_add(words, count, np.uint64(primes[i]), digits[i])
    add_constant(words, count, constant, digits[0])


@compiled()
def multiply_add(words: Words, count: int, factor: Any, carry: Words) -> None:
    """Multiply by a factor below 2^32 and add a carry, which is used up."""
    for w in range(words.shape[0]):
        row = words[w]
        for t in range(count):
            i = _I(t)
            value = np.uint64(row[i]) * factor + np.uint64(carry[i])
            row[i] = _U(value & _I(_LOW))
            carry[i] = _U(value >> _I(32))


@compiled()
def add_constant(words: Words, count: int, constant: Words, carry: Words) -> None:
    """Add a constant of as many words; carry is scratch."""
    for t in range(count):
        carry[_I(t)] = _U(0)
    for w in range(words.shape[0]):
        row, addend = words[w], np.uint64(constant[w])
        for t in range(count):
            i = _I(t)
            value = np.uint64(row[i]) + addend + np.uint64(carry[i])
            row[i] = _U(value & _I(_LOW))
            carry[i] = _U(value >> _I(32))


@compiled(
    lambda _: (_words(3, 40), 40, np.uint64(1_000_003), np.zeros(40, np.uint32)),
    answer=0x1A6CB302,
    error_model="numpy",
)
def divide(words: Words, count: int, divisor: Any, remainders: Words) -> None:
    """Divide by a divisor in 1 .. 2^32 - 1: quotients in place, and the remainders.

    A quotient q < 2^32 of doubles has an error below 1 + 2^-18, so its floor is off by one at most.

    Args:
        words: uint32[W, >= count], in place.
        divisor: uint64.
        remainders: uint32[>= count], output.
    """
    reciprocal = 1.0 / np.float64(divisor)
    for t in range(count):
        remainders[_I(t)] = _U(0)
    for w in range(words.shape[0] - 1, -1, -1):
        row = words[w]
        for t in range(count):
            i = _I(t)
            value = (np.uint64(remainders[i]) << _I(32)) | np.uint64(row[i])
            quotient = np.uint64(np.float64(value) * reciprocal)
            rest = np.int64(value - quotient * divisor)
            less, more = np.int64(rest < 0), np.int64(rest >= np.int64(divisor))
            row[i] = _U(np.int64(quotient) - less + more)
            remainders[i] = _U(rest + (less - more) * np.int64(divisor))


@compiled(error_model="numpy")
def _divide_by_large(words: Words, count: int, divisor: Any, remainders: NDArray[np.int64]) -> None:
    """Divide like `divide`, by anything in 2^32 .. 2^62: a few bits of a word at a time."""
    step = 16
    while divisor >> np.uint64(64 - step):
        step //= 2
    mask = (np.uint64(1) << np.uint64(step)) - np.uint64(1)
    for t in range(count):
        rest = np.uint64(0)
        for w in range(words.shape[0] - 1, -1, -1):
            word, result = np.uint64(words[w, t]), np.uint64(0)
            for low in range(32 - step, -1, -step):
                rest = (rest << np.uint64(step)) | ((word >> np.uint64(low)) & mask)
                quotient = rest // divisor
                rest -= quotient * divisor
                result = (result << np.uint64(step)) | quotient
            words[w, t] = _U(result)
        remainders[t] = np.int64(rest)


@compiled(
    lambda _: (
        _words(3, 40),
        40,
        5,
        2,
        1001,
        np.zeros(203, np.int64),
        1,
        np.zeros((2, 40), np.uint32),
        np.zeros(40, np.int64),
    ),
    lambda _: (
        _words(3, 40),
        40,
        2,
        0,
        (1 << 40) + 1,
        np.zeros(81, np.int64),
        1,
        np.zeros((2, 40), np.uint32),
        np.zeros(40, np.int64),
    ),
    answer=0x7730C12E,
)
def split_digits(
    words: Words,
    count: int,
    per: int,
    group: int,
    base: int,
    values: NDArray[np.int64],
    first: int,
    scratch: Words,
    wide: NDArray[np.int64],
) -> None:
    """Write the coordinates of coefficients first .. first + count, taken off from the lowest.

    Args:
        words: uint32[W, >= count]: each the sum of digits times B^j and what lies above; used up.
        values: int64[d], output; what lies beyond the end is left out.
        scratch: uint32[2, >= count].
        wide: int64[>= count], scratch.
    """
    half = np.int64(base // 2)
    scale = np.uint64(base)
    width = max(1, group)
    for j in range(0, per, width):
        taken = min(width, per - j)
        if group == 0:
            _divide_by_large(words, count, scale, wide)
        else:
            divide(words, count, np.uint64(base) ** np.uint64(taken), scratch[0])
        for k in range(j, j + taken):
            if group > 0:
                if k + 1 < j + taken:
                    divide(scratch[:1], count, scale, scratch[1])
                    digits = scratch[1]
                else:
                    digits = scratch[0]
                for t in range(count):
                    wide[_I(t)] = np.int64(digits[_I(t)])
            place = first * per + k
            for t in range(min(count, (values.size - place + per - 1) // per)):
                values[_I(place) + _I(t) * _I(per)] = wide[_I(t)] - half


def _to_pack(constant: int, *values: Any) -> tuple[Any, ...]:
    """Arguments of `pack_rounded` for five bits that are taken off."""
    p, other = PRIMES.tolist()
    widths = np.array([5, LIMB_BITS, 32])

    def limbs(*numbers: int) -> Words:
        parts = [[x & 31, x >> 5 & (1 << LIMB_BITS) - 1, x >> (5 + LIMB_BITS)] for x in numbers]
        return np.array(parts, np.uint32).T.copy()

    weights = limbs(other, p), limbs(3, 1 << 20), limbs(constant)[:, 0].copy()
    modulus = limbs(p * other)[:, 0].astype(np.int32)
    return *values, *weights, modulus, widths, 32.0000001 / (p * other), 49, np.zeros(35, _I)


@compiled(
    lambda _: _to_pack(
        1 << 50, residues(2, 2, 22), _words(2, 40), sample(40, low=-128, below=256, kind=np.int8)
    ),
    # The largest number, one below q.
    lambda _: _to_pack(
        int(np.prod(PRIMES.astype(_I))) - 1,
        np.zeros((2, 2, 22), np.uint32),
        np.zeros((2, 40), np.uint32),
        np.full(40, -128, np.int8),
    ),
    answer=0x6E40EAE2,
)
def pack_rounded(
    scaled: NDArray[np.uint32],
    words: Words,
    errors: NDArray[np.int8],
    scaled_weights: Words,
    word_weights: Words,
    constant: Words,
    modulus: NDArray[np.int32],
    widths: NDArray[np.int64],
    ratio: float,
    bits: int,
    packed: NDArray[np.uint64],
) -> None:
    """Write floor((x mod q) / 2^r) as bit fields, x = 128 + error + constant + weighted rows.

    Numbers have a limb of the r bits that are taken off, limbs of `LIMB_BITS`, and on top one of
    32, which holds all of x: it is below 16 q, and the top limb of q has `LIMB_BITS` at most.

    Args:
        scaled: uint32[blocks, L, N], below 2^27.
        words: uint32[words, >= count], those of a coefficient below 6 * 2^32 together.
        errors: int8[count]: of the coefficients that are wanted.
        scaled_weights: uint32[limbs, L], word_weights: uint32[limbs, words], constant:
            uint32[limbs], modulus: int32[limbs], q: all by their limbs.
        widths: int64[limbs], bits of each.
        ratio: what the second highest limb counts, as a multiple of q, rounded up.
        bits: of a field.
        packed: uint64[> bits count / 64 + 3], output; zeros follow the last field.
    """
    degree = scaled.shape[2]
    limbs = np.empty((modulus.size, _STRETCH), np.uint32)
    fields = np.empty((_FIELDS, _STRETCH), np.uint64)
    totals = np.empty(_STRETCH, np.uint64)
    factors = np.empty(_STRETCH, np.int32)
    for b in range(scaled.shape[0]):
        end = min((b + 1) * degree, errors.size)
        for low in range(b * degree, end, _STRETCH):
            count = min(_STRETCH, end - low)
            for t in range(count):
                totals[_I(t)] = np.uint64(np.int64(errors[_I(low) + _I(t)]) + 128)
            for w in range(modulus.size):
                # How many values the words can have, each 2^32 at most, multiplies to about B^per,
                # below 2^189: their sum is at most that of five of 2^32 and one of 2^29. With a
                # limb of 29 bits totals are below 2^29 (6 * 2^32 + 7 * 2^27 + 1) + 2^36 < 2^64.
                _add_weighted(scaled[b], low - b * degree, count, scaled_weights[w], totals)
                _add_weighted(words, low, count, word_weights[w], totals)
                _take_limb(totals, count, constant[w], widths[w], limbs[w])
            _estimate(limbs, count, widths[-2], ratio, factors)
            if _subtract(limbs, count, factors, modulus, widths):
                _subtract(limbs, count, factors, modulus, widths)
            _join(limbs, count, fields)
            _store(fields, count, _I(bits), _I(low), packed)


@compiled()
def _take_limb(
    totals: NDArray[np.uint64], count: int, constant: Any, width: Any, limb: Words
) -> None:
    """Add a constant, move the lowest bits to a limb, and keep what lies above."""
    added, down = np.uint64(constant), np.uint64(width)
    mask = (_I(1) << down) - _I(1)
    for t in range(count):
        i = _I(t)
        total = totals[i] + added
        limb[i] = _U(total & mask)
        totals[i] = total >> down


@compiled()
def _estimate(limbs: Words, count: int, width: Any, ratio: float, factors: Any) -> None:
    """floor(x / q), or one more: never less, as the ratio and what lies below are rounded up.

    What lies below counts less than q / 2^27, or than 1; rounding ratio and product, less than
    2^-43.
    """
    upper, lower = limbs[limbs.shape[0] - 1], limbs[limbs.shape[0] - 2]
    for t in range(count):
        i = _I(t)
        value = (np.int64(upper[i]) << width) + np.int64(lower[i]) + np.int64(1)
        factors[i] = np.int32(np.float64(value) * ratio)


@compiled()
def _subtract(
    limbs: Words,
    count: int,
    factors: NDArray[np.int32],
    modulus: NDArray[np.int32],
    widths: NDArray[np.int64],
) -> bool:
    """Subtract factors times q; whether any result is negative: its factor is -1 then, else 0."""
    carries = np.zeros(count, np.int64)
    for w in range(modulus.size):
        row, part, width = limbs[w], np.int64(modulus[w]), widths[w]
        mask = (np.int64(1) << width) - np.int64(1)
        for t in range(count):
            i = _I(t)
            value = np.int64(row[i]) - np.int64(factors[i]) * part + carries[i]
            row[i] = _U(value & mask)
            carries[i] = value >> width
    least = np.int64(0)
    for t in range(count):
        i = _I(t)
        factors[i] = np.int32(carries[i])
        least = min(least, carries[i])
    return bool(least < 0)


@compiled()
def _join(limbs: Words, count: int, fields: NDArray[np.uint64]) -> None:
    """Put all limbs but the lowest into 64-bit words."""
    fields[:, :count] = _I(0)
    for w in range(limbs.shape[0] - 1):
        row, place = limbs[w + 1], w * LIMB_BITS // 64
        shift = np.uint64(w * LIMB_BITS % 64)
        word = fields[place]
        for t in range(count):
            word[_I(t)] |= np.uint64(row[_I(t)]) << shift
        if shift + _I(LIMB_BITS) > _I(64) and place + 1 < _FIELDS:
            word = fields[place + 1]
            for t in range(count):
                word[_I(t)] |= np.uint64(row[_I(t)]) >> (_I(64) - shift)


@compiled()
def _store(
    fields: NDArray[np.uint64], count: int, bits: Any, first: Any, packed: NDArray[np.uint64]
) -> None:
    """Write numbers of `bits` bits behind what is there, each with zeros that the next replaces."""
    position = first * bits
    low, middle, high = fields[0], fields[1], fields[2]
    for t in range(count):
        i = _I(t)
        x, y, z = low[i], middle[i], high[i]
        place, up = position >> _I(6), position & _I(63)
        held = packed[place] & ((_I(1) << up) - _I(1))
        # Two shifts, because one by 64 would not clear the word when up is 0.
        down = _I(63) - up
        packed[place] = held | x << up
        packed[place + _I(1)] = x >> _I(1) >> down | y << up
        packed[place + _I(2)] = y >> _I(1) >> down | z << up
        packed[place + _I(3)] = z >> _I(1) >> down
        position += bits


def _fields(whole: bool, *most: int) -> tuple[Any, ...]:
    widths = np.array([32, 13], np.uint64)
    sums = sample(2, 40, below=1 << 40, kind=np.int64)
    return sample(30, below=1 << 63), widths, np.array(most, np.uint64), whole, sums, -1


@compiled(
    # The largest number is 0x1FB9_8DDE6E43, the largest lower word 0xFF347810: in range and beyond.
    lambda _: _fields(True, 0x8DDE_6E43, 0x1FB9),
    lambda _: _fields(True, 0x8DDE_6E42, 0x1FB9),
    lambda _: _fields(False, 0xFF34_7810, 0x1FB9),
    lambda _: _fields(False, 0xFF34_780F, 0x1FB9),
    answer=0xED462396,
)
def add_fields(
    packed: NDArray[np.uint64],
    widths: NDArray[np.uint64],
    most: NDArray[np.uint64],
    whole: bool,
    sums: NDArray[np.int64],
    sign: int,
) -> bool:
    """Add packed numbers to sums, or with a sign of -1 subtract them, if all are in range.

    Otherwise the sums are what they were.

    Args:
        packed: uint64[> count sum(widths) / 64], consecutive little-endian bit fields: those of the
            first number from the lowest word up, and so on; one word more than is needed.
        widths: uint64[W], bits of each word, at most 32.
        most: uint64[W], largest values.
        whole: whether these are the words of the largest number; otherwise each word has a limit.
        sums: int64[W, count], in place.
    """
    fits = _add_fields(packed, widths, most, whole, sums, sign)
    if not fits:
        _add_fields(packed, widths, most, whole, sums, -sign)
    return fits


@compiled()
def _add_fields(
    packed: NDArray[np.uint64],
    widths: NDArray[np.uint64],
    most: NDArray[np.uint64],
    whole: bool,
    sums: NDArray[np.int64],
    sign: int,
) -> bool:
    count, bits = sums.shape[1], widths.sum()
    fits = True
    for low in range(0, count, _STRETCH):
        high = min(low + _STRETCH, count)
        place = _I(low) * bits
        for w in range(widths.size):
            row, mask = sums[w, low:high], (_I(1) << widths[w]) - _I(1)
            largest = _I(0)
            for t in range(high - low):
                i = _I(t)
                value = word_at(packed, place + i * bits) & mask
                row[i] += sign * np.int64(value)
                largest = max(largest, value)
            fits = fits and (whole or largest <= most[w])
            place += widths[w]
        # The highest word decides, unless it is the limit's.
        if whole and largest >= most[-1]:
            for t in range(low, high):
                fits = fits and not _is_above(packed, _I(t + 1) * bits, widths, most)
    return fits


@compiled()
def _is_above(
    packed: NDArray[np.uint64], end: Any, widths: NDArray[np.uint64], most: NDArray[np.uint64]
) -> bool:
    """Whether a number, the bits below `end`, is larger than `most`."""
    for w in range(widths.size - 1, -1, -1):
        end -= widths[w]
        value = word_at(packed, end) & ((_I(1) << widths[w]) - _I(1))
        if value != most[w]:
            return bool(value > most[w])
    return False
