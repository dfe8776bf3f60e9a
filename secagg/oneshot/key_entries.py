"""Several entries of a key in one element of GF(2^31 - 1).

What is opened is a sum of n keys, whose entries are below 9 sigma sqrt(n) except with a probability
of 2^-62 each. So with the odd base 2 ceil(9 sigma sqrt(n)) + 1 as many entries fit an element as
powers of the base are at most p, and shares become fewer by this factor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.oneshot.rounding import ceil_sqrt
from secagg.shamir import PRIME


def base_for(clients: int) -> int:
    """The odd base 2 ceil(9 sigma sqrt(n)) + 1, in exact arithmetic."""
    require_int("clients", clients, 1)
    # (9 * 6.4)^2 = 82944 / 25.
    return 2 * ceil_sqrt(82944 * clients, 25) + 1


def entries_for(clients: int) -> int:
    """The largest e with base^e <= 2^31 - 1, at least 1."""
    base, entries = base_for(clients), 1
    while base ** (entries + 1) <= PRIME:
        entries += 1
    return entries


def combine(key: NDArray[np.signedinteger], entries: int, base: int) -> NDArray[np.uint32]:
    """Secret j = sum_e key[e count + j] base^e modulo p, with count = ceil(N / entries).

    Args:
        key: int8[N] or wider.
        entries: entries of one secret, base^entries <= 2^31 - 1 unless it is 1.

    Returns:
        uint32[count]; entries beyond the key's end are 0.
    """
    _check(entries, base)
    if key.ndim != 1 or not key.size:
        raise ParameterError("key", key.shape, "(N,), N from 1 on")
    count = -(-key.size // entries)
    padded = np.zeros(entries * count, np.int64)
    padded[: key.size] = key
    powers = np.array([base**e % PRIME for e in range(entries)], np.int64)
    return (powers @ padded.reshape(entries, count) % PRIME).astype(np.uint32)


def split(secrets: NDArray[np.uint32], entries: int, base: int, degree: int) -> NDArray[np.int64]:
    """Inverse of `combine` for sums: the entries of the summed key, int64[degree].

    The lowest entries are taken off centred, in -(base - 1) / 2 .. (base - 1) / 2; the highest is
    what is left over, so that of one entry nothing is cut off.

    Args:
        secrets: uint32[ceil(degree / entries)], below 2^31 - 1.
    """
    _check(entries, base)
    count = -(-degree // entries)
    if secrets.dtype != np.uint32 or secrets.shape != (count,):
        raise ParameterError("secrets", f"{secrets.dtype}{secrets.shape}", f"uint32({count},)")
    left = secrets.astype(np.int64)
    left[left > PRIME // 2] -= PRIME
    half = (base - 1) // 2
    digits = np.empty((entries, count), np.int64)
    for e in range(entries - 1):
        digits[e] = (left + half) % base - half
        left = (left - digits[e]) // base
    digits[entries - 1] = left
    return digits.reshape(-1)[:degree]


def _check(entries: int, base: int) -> None:
    if base < 3 or base % 2 == 0:
        raise ParameterError("base", base, "odd, from 3 on")
    if entries < 1 or (entries > 1 and base**entries > PRIME):
        raise ParameterError("entries", entries, "at least 1, base^entries at most 2^31 - 1")
