"""Compiled inner loops over keystream words, packed bits and shares.

Every kernel works on caller-owned buffers and allocates nothing of their size. Arithmetic carries
explicit casts, because numba widens unsigned operands, and runs in blocks that stay in the first
cache level, so that the compiler vectorises it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

Words = NDArray[np.unsignedinteger[Any]]

_BLOCK = 4096
"""Elements of one slice of every row: long enough to hide what making the slices costs."""

_STRETCH = 512
"""Elements between two looks at the largest word: few enough that 16-bit words, of which 15 in
65536 are refused, leave most stretches of a row without one."""

POSITION_BITS = 48
"""A refused word is noted as row << POSITION_BITS | position."""


_WORD_KINDS = (np.uint16, np.uint32, np.uint64)
_REFUSED = (sample(9, below=4, kind=np.int64) << POSITION_BITS) | sample(9, kind=np.int64)


@compiled()
def _swap_bytes(value: Any) -> Any:
    """The 8 bytes of a uint64 in reverse order; compiles to one instruction."""
    low = np.uint64(0x00FF_00FF_00FF_00FF)
    pairs = np.uint64(0x0000_FFFF_0000_FFFF)
    value = ((value >> np.uint64(8)) & low) | ((value & low) << np.uint64(8))
    value = ((value >> np.uint64(16)) & pairs) | ((value & pairs) << np.uint64(16))
    return (value >> np.uint64(32)) | (value << np.uint64(32))


@compiled(lambda _: (0x0123_4567_89AB, np.zeros((9, 2), np.uint64)), answer=0xE3E02863)
def counter_blocks(first: int, blocks: NDArray[np.uint64]) -> None:
    """Write the counter blocks first, first + 1, ... of stream 0 as 16-byte big-endian numbers.

    Args:
        blocks: uint64[count, 2], output.
    """
    for i in range(blocks.shape[0]):
        blocks[i, 0] = np.uint64(0)
        blocks[i, 1] = _swap_bytes(np.uint64(first) + np.uint64(i))


@compiled(
    lambda _: (0x89AB, 77, sample(9, below=1 << 40, kind=np.int64), 8, np.zeros((9, 2), np.uint64)),
    answer=0xCA473ECE,
)
def scattered_counter_blocks(
    stream: int,
    start: int,
    positions: NDArray[np.int64],
    per_block: int,
    blocks: NDArray[np.uint64],
) -> None:
    """Write the counter blocks of a stream that hold the words start + positions[i].

    Args:
        positions: int64[count].
        blocks: uint64[count, 2], output.
    """
    prefix = _swap_bytes(np.uint64(stream) << np.uint64(32))
    for i in range(positions.size):
        blocks[i, 0] = prefix
        block = np.uint64(start + positions[i]) // np.uint64(per_block)
        blocks[i, 1] = _swap_bytes(block)


@compiled(
    lambda _: (_REFUSED.copy(), np.zeros(9, np.int64), np.zeros(5, np.int64)),
    answer=0x336C6353,
)
def group_by_row(
    refused: NDArray[np.int64], positions: NDArray[np.int64], starts: NDArray[np.int64]
) -> None:
    """Sort notes row << POSITION_BITS | position by row, in linear time.

    Args:
        refused: int64[count].
        positions: int64[count], output: those of row 0, then those of row 1, ...
        starts: int64[rows + 1], output: row r has positions[starts[r]:starts[r + 1]].
    """
    starts[:] = 0
    for note in refused:
        starts[(note >> POSITION_BITS) + 1] += 1
    for row in range(1, starts.size):
        starts[row] += starts[row - 1]
    for note in refused:
        row = note >> POSITION_BITS
        positions[starts[row]] = note & ((1 << POSITION_BITS) - 1)
        starts[row] += 1
    # Each start has moved on to its end, the next row's start.
    for row in range(starts.size - 1, 0, -1):
        starts[row] = starts[row - 1]
    starts[0] = 0


@compiled(
    lambda kind: (
        sample(40, below=65_521, kind=kind),
        sample(9, 8, kind=kind),
        3,
        True,
        65_521,
        0xFFFF,
        np.arange(0, 36, 4),
        np.array([0, 2, 2, 7, 9]),
    ),
    kinds=_WORD_KINDS,
    answer=0xF2527CD4,
)
def take_words(
    accumulator: Words,
    words: Words,
    start: int,
    subtract: bool,
    modulus: int,
    word_mask: int,
    positions: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> None:
    """Add or subtract one word for each position; keep the positions whose word is refused.

    Args:
        positions: int64[>= count], grouped by row; in place, the refused ones move to the front.
        starts: int64[rows + 1], as in `group_by_row`; in place.
    """
    kind = accumulator.dtype.type
    p = kind(modulus)
    mask = kind(word_mask)
    per_block = words.shape[1]
    kept = 0
    first = starts[0]
    for row in range(starts.size - 1):
        last = starts[row + 1]
        for i in range(first, last):
            position = positions[i]
            word = kind(words[i, (start + position) % per_block] & mask)
            if word >= p:
                positions[kept] = position
                kept += 1
                continue
            before = accumulator[position]
            operand = word if subtract else kind(p - word)
            after = kind(before - operand)
            accumulator[position] = kind(after + p) if before < operand else after
        starts[row + 1] = kept
        first = last


@compiled()
def _add_word(total: Any, word: Any, p: Any, gap: Any, spare: bool) -> Any:
    """Return total + word modulo p; total itself if the word is refused. Compiles to no branch.

    With a spare bit, total <= p and the result is below p. Without one, total is any residue below
    2^W and so is the result: a carry is worth gap = 2^W - p, and adding that cannot carry again,
    because total + word <= (2^W - 1) + (p - 1) = 2^(W+1) - gap - 2.
    """
    kind = type(total)
    after = kind(total + word) if word < p else total
    if spare:
        return min(after, kind(after - p))
    return kind(after + gap) if after < total else after


@compiled()
def _first_total(total: Any, p: Any, subtract: bool) -> Any:
    """What words are added to: the total, or its negative in 1 .. p."""
    return type(total)(p - total) if subtract else total


@compiled()
def _last_total(total: Any, p: Any, subtract: bool) -> Any:
    """Reduce to [0, p), and undo the negation."""
    kind = type(total)
    total = min(total, kind(total - p))
    if subtract:
        return kind(p - total) if total > kind(0) else total
    return total


@compiled()
def _find_refused(
    words: Words, p: Any, mask: Any, note: int, refused: NDArray[np.int64], found: int
) -> int:
    """Write note + i for every masked word i >= p to `refused`, from index `found` on.

    A vectorised pass over all words counts them and finds the last one; there are seldom more.
    """
    kind = words.dtype.type
    below = kind(words.size)
    left = 1
    while left > 0:
        last = count = kind(0)
        for i in range(words.size):
            hit = kind(words[i] & mask) >= p and kind(i) < below
            last = max(last, kind(i) if hit else kind(0))
            count = kind(count + (kind(1) if hit else kind(0)))
        left = int(count)
        if left > 0:
            refused[found] = note + int(last)
            found += 1
        left -= 1
        below = last
    return found


@compiled()
def _add_four_rows(
    total: Words,
    a: Words,
    b: Words,
    c: Words,
    d: Words,
    p: Any,
    mask: Any,
    subtract: bool,
    note: int,
    refused: NDArray[np.int64],
    found: int,
) -> int:
    """Add a + b + c + d to the total, kept in a register in between; see `accumulate_words`."""
    kind = total.dtype.type
    gap = kind(kind(0) - p)
    spare = kind(~mask) != kind(0)
    one_row = 1 << POSITION_BITS
    for low in range(0, total.size, _STRETCH):
        high = min(low + _STRETCH, total.size)
        most_a = most_b = most_c = most_d = kind(0)
        for j in range(high - low):
            # Unsigned, so that no index can mean one counted from the end.
            i = np.uint64(low) + np.uint64(j)
            word_a = kind(a[i] & mask)
            word_b = kind(b[i] & mask)
            word_c = kind(c[i] & mask)
            word_d = kind(d[i] & mask)
            most_a = max(most_a, word_a)
            most_b = max(most_b, word_b)
            most_c = max(most_c, word_c)
            most_d = max(most_d, word_d)
            value = _first_total(total[i], p, subtract)
            value = _add_word(value, word_a, p, gap, spare)
            value = _add_word(value, word_b, p, gap, spare)
            value = _add_word(value, word_c, p, gap, spare)
            value = _add_word(value, word_d, p, gap, spare)
            total[i] = _last_total(value, p, subtract)
        here = note + low
        if max(max(most_a, most_b), max(most_c, most_d)) >= p:
            if most_a >= p:
                found = _find_refused(a[low:high], p, mask, here, refused, found)
            if most_b >= p:
                found = _find_refused(b[low:high], p, mask, here + one_row, refused, found)
            if most_c >= p:
                found = _find_refused(c[low:high], p, mask, here + 2 * one_row, refused, found)
            if most_d >= p:
                found = _find_refused(d[low:high], p, mask, here + 3 * one_row, refused, found)
    return found


@compiled()
def _add_one_row(
    total: Words,
    a: Words,
    p: Any,
    mask: Any,
    subtract: bool,
    note: int,
    refused: NDArray[np.int64],
    found: int,
) -> int:
    """Add a to the total; see `accumulate_words`."""
    kind = total.dtype.type
    gap = kind(kind(0) - p)
    spare = kind(~mask) != kind(0)
    for low in range(0, total.size, _STRETCH):
        high = min(low + _STRETCH, total.size)
        most = kind(0)
        for j in range(high - low):
            i = np.uint64(low) + np.uint64(j)
            word = kind(a[i] & mask)
            most = max(most, word)
            value = _first_total(total[i], p, subtract)
            value = _add_word(value, word, p, gap, spare)
            total[i] = _last_total(value, p, subtract)
        if most >= p:
            found = _find_refused(a[low:high], p, mask, note + low, refused, found)
    return found


def _six_rows(kind: Any, subtract: bool) -> tuple[Any, ...]:
    """Arguments of `accumulate_words`."""
    total, words = sample(1100, below=32_749, kind=kind), sample(6, 1090, kind=kind)
    noted = np.zeros(6480, np.int64)
    return total, 10, 1090, words, 6, 5, subtract, 32_749, 0x7FFF, 2, noted, 1


@compiled(
    lambda kind: _six_rows(kind, False),
    lambda kind: _six_rows(kind, True),
    kinds=_WORD_KINDS,
    answer=0xEE1E51E1,
)
def accumulate_words(
    accumulator: Words,
    low: int,
    high: int,
    words: Words,
    rows: int,
    skip: int,
    subtract: bool,
    modulus: int,
    word_mask: int,
    first_row: int,
    refused: NDArray[np.int64],
    found: int,
) -> int:
    """Add or subtract rows of keystream words to accumulator[low:high] over GF(modulus), in place.

    A word is first masked to the field's bit length. A masked word that is not below the modulus
    counts as zero, and the note (first_row + row) << POSITION_BITS | position goes to `refused`:
    the caller takes the next stream's word instead.

    Args:
        word_mask: 2^bits - 1, not below p.
        refused: int64[>= found + rows * (high - low)], output.
    """
    kind = accumulator.dtype.type
    p = kind(modulus)
    mask = kind(word_mask)
    for start in range(low, high, _BLOCK):
        total = accumulator[start : min(start + _BLOCK, high)]
        first = skip + start - low
        last = first + total.size
        row = 0
        while row + 4 <= rows:
            a, b = words[row, first:last], words[row + 1, first:last]
            c, d = words[row + 2, first:last], words[row + 3, first:last]
            note = ((first_row + row) << POSITION_BITS) + start
            found = _add_four_rows(total, a, b, c, d, p, mask, subtract, note, refused, found)
            row += 4
        while row < rows:
            note = ((first_row + row) << POSITION_BITS) + start
            a = words[row, first:last]
            found = _add_one_row(total, a, p, mask, subtract, note, refused, found)
            row += 1
    return found


@compiled(
    lambda kind: (sample(70, below=65_521, kind=kind), sample(70, below=65_519, kind=kind), 65_521),
    kinds=_WORD_KINDS,
    answer=0x02CE3D18,
)
def add_vectors(accumulator: Words, other: Words, modulus: int) -> None:
    """Add other to accumulator over GF(modulus), in place; both uintW[length] below p."""
    kind = accumulator.dtype.type
    p = kind(modulus)
    for i in range(accumulator.size):
        before = accumulator[i]
        complement = kind(p - other[i])
        value = kind(before - complement)
        accumulator[i] = kind(value + p) if before < complement else value


@compiled(
    lambda kind: (sample(70, low=-32_000, below=64_001, kind=np.int64), 65_521, np.zeros(70, kind)),
    kinds=_WORD_KINDS,
    answer=0x3155AE7B,
)
def lift_values(values: NDArray[np.int64], modulus: int, lifted: Words) -> Any:
    """Write signed integers as elements of GF(modulus); returns the largest magnitude.

    What was written means something only if that magnitude fits the field. The magnitude of the
    smallest int64 is returned as the largest one: it fits no field either.

    Args:
        values: int64[length].
    """
    kind = lifted.dtype.type
    low, high = np.int64(0), np.int64(0)
    for i in range(values.size):
        value = values[i]
        low, high = min(low, value), max(high, value)
        lifted[i] = kind(value + modulus) if value < 0 else kind(value)
    return max(high, -max(low, -np.int64(0x7FFFFFFFFFFFFFFF)))


@compiled(
    lambda kind: (sample(70, below=65_521, kind=kind), 65_521, 32_760, np.zeros(70, np.int64)),
    kinds=_WORD_KINDS,
    answer=0x030796E9,
)
def centre_elements(elements: Words, modulus: int, largest: int, signed: NDArray[np.int64]) -> None:
    """Write elements of GF(modulus) as signed integers: those above `largest` less the modulus.

    Args:
        signed: int64[length], output.
    """
    for i in range(elements.size):
        value = np.int64(elements[i])
        signed[i] = value - modulus if value > largest else value


@compiled(
    lambda kind: (sample(71, below=1 << 13, kind=kind), 13, np.zeros(15, np.uint64)),
    kinds=_WORD_KINDS,
    answer=0xB0BE0065,
)
def pack_bits(values: Words, bits: int, packed: NDArray[np.uint64]) -> None:
    """Write values as consecutive little-endian bit fields of `bits` bits.

    Args:
        values: uintW[length], every element below 2^bits.
        packed: uint64[>= ceil(length * bits / 64)], output; the last word is padded with zeros.
    """
    word = np.uint64(0)
    held = 0
    out = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        word |= value << np.uint64(held)
        held += bits
        if held >= 64:
            packed[out] = word
            out += 1
            held -= 64
            word = value >> np.uint64(bits - held)
    if held > 0:
        packed[out] = word


@compiled()
def word_at(packed: NDArray[np.uint64], position: Any) -> Any:
    """The 64 bits from a position on, which is uint64: a signed index would be tested for signs."""
    word, shift = position >> np.uint64(6), position & np.uint64(63)
    # Two shifts, because one by 64 would not clear the word when shift is 0.
    high = (packed[word + np.uint64(1)] << np.uint64(1)) << (np.uint64(63) - shift)
    return (packed[word] >> shift) | high


@compiled(
    lambda kind: (sample(16, below=1 << 63), 13, np.zeros(71, kind)),
    kinds=_WORD_KINDS,
    answer=0x419ABE7D,
)
def unpack_bits(packed: NDArray[np.uint64], bits: int, values: Words) -> None:
    """Inverse of `pack_bits`; `values` is uintW[length], output.

    Args:
        packed: uint64[> length * bits / 64], the bit fields and at least one word of padding.
    """
    kind = values.dtype.type
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    # Up to 32 bits, a word has two fields.
    paired = values.size & ~1 if bits <= 32 else 0
    for i in range(0, paired, 2):
        word = word_at(packed, np.uint64(i) * width)
        values[i] = kind(word & mask)
        values[i + 1] = kind((word >> width) & mask)
    for i in range(paired, values.size):
        values[i] = kind(word_at(packed, np.uint64(i) * width) & mask)
