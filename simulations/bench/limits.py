"""Physical limits: what the work must cost at least, done bare, measured beside the real thing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

_CHUNK_BYTES = 128 * 1024
"""The chunk at which the bare keystream is fastest: it stays in a second cache level of 1 MiB."""
_ZEROS = memoryview(bytes(_CHUNK_BYTES))


def bare_keystream(keys: Sequence[bytes], mask_bytes: int) -> None:
    """AES-CTR keystream of `mask_bytes` bytes from each key, thrown away in one reused buffer."""
    # `update_into` wants room for one block more than it writes.
    sink = bytearray(_CHUNK_BYTES + 16)
    for key in keys:
        stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
        for start in range(0, mask_bytes, _CHUNK_BYTES):
            stream.update_into(_ZEROS[: min(_CHUNK_BYTES, mask_bytes - start)], sink)


def modular_product(
    left: NDArray[np.uint64], right: NDArray[np.uint64], modulus: int
) -> NDArray[np.uint64]:
    """Matrix product modulo a prime below 2^31, in plain NumPy: every product reduced, then summed.

    Args:
        left: uint64[rows, inner], below the modulus.
        right: uint64[inner, columns], below the modulus; inner < 2^33.
    """
    p = np.uint64(modulus)
    return np.array([((row[:, None] * right) % p).sum(axis=0) % p for row in left])
