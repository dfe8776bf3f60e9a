"""Compiled inner loops: scatter, gather, medians, sign flips, checked copies and selection.

Plain loops over arrays that the callers have checked: no validation, no randomness, no
allocation but a selection's counts. They see hash *words*, never keys.

Every loop reads sign bits in little-endian order within a byte: the sign of coordinate q is
bit q % 8 of byte q // 8, and a set bit means -1. The loops over whole bytes have a fixed inner
length of eight so that the compiler unrolls them; a short last byte follows on its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_FLOATS = (np.float32, np.float64)
_PATTERNS = (np.uint32, np.uint64)


@compiled()
def _sign(sign_byte: int, position: int) -> float:
    """The sign that one bit of a byte stands for: 1.0, or -1.0 if it is set."""
    return 1.0 - 2.0 * ((np.uint32(sign_byte) >> np.uint32(position)) & np.uint32(1))


@compiled(
    lambda kind: (
        sample(70, low=-1000, below=2001, parts=8, kind=kind),
        sample(70, below=1 << 32, kind=np.uint32),
        sample(9, below=256, kind=np.uint8),
        np.zeros(16),
    ),
    kinds=_FLOATS,
    answer=0x229E5671,
)
def scatter_add(
    values: NDArray[np.floating],
    words: NDArray[np.uint32],
    sign_bytes: NDArray[np.uint8],
    row: NDArray[np.float64],
) -> None:
    """Add sign(q) * values[q] to row[bucket(q)] for every q of one chunk, in place.

    Args:
        values: float32[m] or float64[m], the chunk.
        words: uint32[m], the bucket words; bucket = floor(word * P / 2^32).
        sign_bytes: uint8[>= m / 8], the sign bits of the chunk from bit 0 on.
        row: float64[P], updated in place.
    """
    columns = np.uint64(row.size)
    whole = values.size // 8
    for b in range(whole):
        for j in range(8):
            q = 8 * b + j
            bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
            row[bucket] += _sign(sign_bytes[b], j) * values[q]
    for q in range(8 * whole, values.size):
        bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
        row[bucket] += _sign(sign_bytes[whole], q - 8 * whole) * values[q]


@compiled(
    lambda _: (
        sample(16, low=-1000, below=2001, parts=8, kind=np.float64),
        sample(70, below=1 << 32, kind=np.uint32),
        sample(9, below=256, kind=np.uint8),
        np.zeros(70),
    ),
    answer=0x09AF13CA,
)
def gather_add(
    row: NDArray[np.float64],
    words: NDArray[np.uint32],
    sign_bytes: NDArray[np.uint8],
    out: NDArray[np.float64],
) -> None:
    """Add sign(q) * row[bucket(q)] to out[q] for every q of one chunk, in place.

    Args:
        row: float64[P], one row of a sketch.
        words: uint32[m], the bucket words; bucket = floor(word * P / 2^32).
        sign_bytes: uint8[>= m / 8], the sign bits of the chunk from bit 0 on.
        out: float64[m], updated in place.
    """
    columns = np.uint64(row.size)
    whole = out.size // 8
    for b in range(whole):
        for j in range(8):
            q = 8 * b + j
            bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
            out[q] += _sign(sign_bytes[b], j) * row[bucket]
    for q in range(8 * whole, out.size):
        bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
        out[q] += _sign(sign_bytes[whole], q - 8 * whole) * row[bucket]


@compiled(lambda _: (sample(5, 70, kind=np.float64), np.zeros(66)), answer=0x70D59E7D)
def median_columns(estimates: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """The median of each of the first m columns, for an odd number of rows.

    Args:
        estimates: float64[M, at least m], M odd; these columns are left sorted.
        out: float64[m], overwritten.
    """
    copies, count = estimates.shape[0], out.size
    # An odd-even transposition network: compares whole rows, so the compiler vectorises it.
    for turn in range(copies):
        for low in range(turn & 1, copies - 1, 2):
            first, second = estimates[low], estimates[low + 1]
            for j in range(count):
                a, b = first[j], second[j]
                first[j], second[j] = min(a, b), max(a, b)
    middle = estimates[copies // 2]
    for j in range(count):
        out[j] = middle[j]


@compiled(
    lambda _: (sample(135, kind=np.float64), sample(17, below=256, kind=np.uint8)),
    answer=0x7A027D8A,
)
def flip_signs(values: NDArray[np.float64], sign_bytes: NDArray[np.uint8]) -> None:
    """Negate values[q] where bit q of `sign_bytes` is set, in place.

    Args:
        values: float64[m], contiguous; updated in place.
        sign_bytes: uint8[>= m / 8].
    """
    # The sign of a float64 is its top bit. One word of signs for 64 values leaves an inner loop
    # that compilers turn into vector shifts; with a byte for eight they do not.
    patterns = values.view(np.uint64)
    whole = values.size // 64
    for w in range(whole):
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(sign_bytes[8 * w + k]) << np.uint64(8 * k)
        run = patterns[64 * w : 64 * w + 64]
        for j in range(64):
            run[j] ^= (word >> np.uint64(j)) << np.uint64(63)
    for q in range(64 * whole, values.size):
        values[q] *= _sign(sign_bytes[q >> 3], q & 7)


@compiled(
    lambda kind: (sample(70, kind=kind), np.zeros(70)),
    lambda kind: (np.array([0.0, np.inf, 1.0], kind), np.zeros(3)),
    kinds=_FLOATS,
    answer=0xF26CFA27,
)
def copy_finite(values: NDArray[np.floating], out: NDArray[np.float64]) -> bool:
    """Copy `values` to `out` in one pass that also tells whether all of them are finite.

    Args:
        values: float32[m] or float64[m].
        out: float64[m], overwritten.
    """
    bad = 0
    for q in range(values.size):
        value = np.float64(values[q])
        out[q] = value
        # Zero for every number; undefined for an infinite or undefined entry.
        bad |= (value - value) != 0.0
    return bad == 0


@compiled(
    lambda kind: (
        sample(70, below=5, kind=kind) + kind(1),
        20,
        12,
        0x7F80_0000 if kind is np.uint32 else 0x7FF0 << 48,
    ),
    kinds=_PATTERNS,
    answer=0x16898ABB,
)
def magnitude_border(
    words: NDArray[np.unsignedinteger], k: int, digit_bits: int, not_finite: int
) -> tuple[np.int64, np.int64]:
    """Radix selection of the k-th largest word, its top bit (the sign of a float) left out.

    The bits of a float without its sign, read as an integer, order floats by magnitude. A digit at
    a time, from the most significant one: count how often each value of the digit occurs among the
    words that share all digits before it, and walk down the counts until k words are seen.

    Args:
        words: uint32[m] or uint64[m], the bit patterns.
        digit_bits: bits of a digit, more than those of the format's exponent.
    """
    low = 8 * words.itemsize - 1
    mask = (np.uint64(1) << np.uint64(low)) - np.uint64(1)
    counts = np.empty(1 << digit_bits, np.int64)
    prefix, wanted = np.uint64(0), np.int64(k)
    while low > 0:
        step = min(digit_bits, low)
        above, shift = np.uint64(low), np.uint64(low - step)
        digit = (np.uint64(1) << np.uint64(step)) - np.uint64(1)
        counts[:] = 0
        for q in range(words.size):
            word = np.uint64(words[q]) & mask
            if word >> above == prefix:
                counts[(word >> shift) & digit] += 1
        first = low == 8 * words.itemsize - 1
        if first and counts[np.int64(np.uint64(not_finite) >> shift) :].any():
            return np.int64(0), np.int64(0)
        bucket = np.int64(digit)
        while counts[bucket] < wanted:
            wanted -= counts[bucket]
            bucket -= 1
        prefix = (prefix << np.uint64(step)) | np.uint64(bucket)
        low -= step
        # The whole bucket is kept: no need to know its members apart.
        if counts[bucket] == wanted:
            break
    return np.int64(prefix << np.uint64(low)), wanted


@compiled(
    lambda kind: (sample(70, below=9, kind=kind), np.int64(5), np.int64(2), np.zeros(71, np.int64)),
    kinds=_PATTERNS,
    answer=0x9EFA41A7,
)
def collect_above(
    words: NDArray[np.unsignedinteger], border: np.int64, ties: np.int64, out: NDArray[np.int64]
) -> None:
    """The indices, in order, of the words that `magnitude_border` found.

    Args:
        words: uint32[m] or uint64[m], the bit patterns.
        out: int64[k + 1]; the first k are overwritten, the last one is scratch.
    """
    mask = (np.uint64(1) << np.uint64(8 * words.itemsize - 1)) - np.uint64(1)
    edge, left, found = np.uint64(border), ties, 0
    for q in range(words.size):
        word = np.uint64(words[q]) & mask
        # Written in any case and kept by counting: no branch that a processor could mispredict.
        out[found] = q
        tie = int(word == edge) & int(left > 0)
        found += int(word > edge) | tie
        left -= tie


@compiled(
    lambda kind: (sample(70, kind=kind), 30_000, np.zeros(71, np.int64)),
    kinds=_PATTERNS,
    answer=0x7DD4D033,
)
def collect_from(words: NDArray[np.unsignedinteger], floor: int, out: NDArray[np.int64]) -> int:
    """The indices, in order, of the words that without their top bit are not below a floor.

    Args:
        words: uint32[m] or uint64[m], the bit patterns.
        floor: a pattern without its top bit.
        out: int64[m + 1]; as many as are found are overwritten, and the next one.
    """
    mask = (np.uint64(1) << np.uint64(8 * words.itemsize - 1)) - np.uint64(1)
    edge, found = np.uint64(floor), 0
    for q in range(words.size):
        out[found] = q
        found += int((np.uint64(words[q]) & mask) >= edge)
    return found
