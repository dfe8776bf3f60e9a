"""Shamir secret sharing of 32-byte secrets over GF(2^31 - 1), many secrets and holders at once.

A secret is cut into 9 limbs of at most 30 bits. Each limb is the constant term of its own random
polynomial of degree threshold - 1; holder h (an index >= 0) gets the values at the point h + 1.

Source: Shamir 1979; limb layout: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from secagg import _shamir_kernels
from secagg.checks import require_int
from secagg.errors import ParameterError

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
LIMBS = 9
_LIMB_BITS = 30
SHARE_BYTES = 4 * LIMBS

Rand = Callable[[int], bytes]
"""A source of random bytes: rand(count) -> bytes. The product passes the operating system's."""


def split(
    secrets: Sequence[bytes], holders: Sequence[int], threshold: int, rand: Rand
) -> NDArray[np.uint32]:
    """Share secrets so that any `threshold` holders rebuild them and fewer learn nothing.

    Args:
        secrets: 32 bytes each.

    Returns:
        uint32[holders, secrets, LIMBS], every element below 2^31 - 1.
    """
    points = points_of(holders)
    require_int("threshold", threshold, 1, len(holders), ", the holders")
    if any(len(secret) != SECRET_BYTES for secret in secrets):
        raise ParameterError("secrets", "a secret of another length", f"{SECRET_BYTES} bytes each")
    columns = len(secrets) * LIMBS
    coefficients = np.empty((threshold, columns), np.uint64)
    coefficients[0] = np.concatenate([to_limbs(secret) for secret in secrets])
    coefficients[1:] = random_elements((threshold - 1) * columns, rand).reshape(-1, columns)
    values = np.empty((len(holders), columns), np.uint64)
    _shamir_kernels.evaluate_polynomials(coefficients, points, values)
    return values.astype(np.uint32).reshape(len(holders), len(secrets), LIMBS)


def combine(shares: NDArray[np.uint32], holders: Sequence[int]) -> list[bytes | None]:
    """Rebuild secrets from exactly `threshold` holders' shares.

    Args:
        shares: uint32[holders, secrets, LIMBS].

    Returns:
        The secrets; None where the limbs belong to no 32-byte secret, so a share must be wrong.
    """
    if shares.ndim != 3 or shares.shape[0] != len(holders) or shares.shape[2] != LIMBS:
        raise ParameterError("shares", shares.shape, f"({len(holders)}, secrets, {LIMBS})")
    weights = np.empty(len(holders), np.uint64)
    _shamir_kernels.lagrange_weights(points_of(holders), np.uint64(0), weights)
    count = shares.shape[1]
    limbs = np.empty(count * LIMBS, np.uint64)
    _shamir_kernels.weighted_sums(
        weights, shares.reshape(len(holders), -1).astype(np.uint64), limbs
    )
    return [from_limbs(limbs[i * LIMBS : (i + 1) * LIMBS]) for i in range(count)]


def to_limbs(secret: bytes) -> NDArray[np.uint64]:
    """The 9 limbs of a secret, least significant first, of its little-endian integer."""
    value = int.from_bytes(secret, "little")
    mask = (1 << _LIMB_BITS) - 1
    return np.array([(value >> (_LIMB_BITS * i)) & mask for i in range(LIMBS)], np.uint64)


def from_limbs(limbs: NDArray[np.uint64]) -> bytes | None:
    """Inverse of `to_limbs`; None when a limb or the whole is too large."""
    values = [int(limb) for limb in limbs]
    if any(value >> _LIMB_BITS for value in values):
        return None
    whole = sum(value << (_LIMB_BITS * i) for i, value in enumerate(values))
    if whole >> (8 * SECRET_BYTES):
        return None
    return whole.to_bytes(SECRET_BYTES, "little")


def random_elements(count: int, rand: Rand) -> NDArray[np.uint64]:
    """Exactly uniform elements of GF(2^31 - 1): 31-bit words, the word 2^31 - 1 drawn again."""
    words = _words_31(rand(4 * count))
    while (bad := np.flatnonzero(words == PRIME)).size:
        words[bad] = _words_31(rand(4 * bad.size))
    return words


def encode_share(share: NDArray[np.uint32]) -> bytes:
    """One holder's limbs of one or more secrets as little-endian 32-bit words."""
    return share.astype("<u4").tobytes()


def decode_share(encoded: bytes, secrets: int) -> NDArray[np.uint32]:
    """Inverse of `encode_share`: uint32[secrets, LIMBS]; ValueError on length or range."""
    return decode_elements(encoded, secrets * LIMBS).reshape(secrets, LIMBS)


def decode_elements(encoded: bytes, count: int) -> NDArray[np.uint32]:
    """Elements of GF(2^31 - 1) from little-endian 32-bit words; ValueError on length or range."""
    if len(encoded) != 4 * count:
        raise ValueError(f"share of {len(encoded)} bytes, {4 * count} expected")
    elements = np.frombuffer(encoded, "<u4").astype(np.uint32)
    if count and int(elements.max()) >= PRIME:
        raise ValueError("share element is not below 2^31 - 1")
    return elements


def _words_31(raw: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(raw, "<u4").astype(np.uint64) & np.uint64(PRIME)


def points_of(holders: Sequence[int]) -> NDArray[np.uint64]:
    """Where each holder's shares are values: uint64[holders]."""
    if not holders or len(set(holders)) != len(holders):
        raise ParameterError("holders", list(holders), "at least one, all distinct")
    if min(holders) < 0 or max(holders) >= PRIME - 1:
        raise ParameterError("holders", "out of range", f"in 0 .. {PRIME - 2}")
    return np.array([holder + 1 for holder in holders], np.uint64)
