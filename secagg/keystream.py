"""AES-CTR keystream of one key, at any place of any stream.

Stream j has the 16-byte counter blocks j (4 bytes) followed by a block number (12 bytes), both
big-endian. CTR keystream is the block cipher applied to the counter blocks, and so they are
encrypted as they are: one encryption for each of them, wherever it lies.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from secagg import _kernels
from secagg.errors import ParameterError

KEY_BYTES = 16
LONG_KEY_BYTES = 32
"""Of AES-256, where somebody else chooses what has to differ from what most keys give."""
BLOCK_BYTES = 16
MAX_BLOCKS = 1 << 60
"""Blocks of one stream that can be asked for: their counters fit a signed 64-bit number."""


def block_cipher(key: bytes) -> CipherContext:
    """The cipher that turns counter blocks into keystream."""
    # ECB of counter blocks, all distinct under a key, is CTR keystream.
    return Cipher(AES(key), ECB()).encryptor()  # noqa: S305


class Keystream:
    """Keystream of one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) not in (KEY_BYTES, LONG_KEY_BYTES):
            raise ParameterError(
                "key", f"{len(key)} bytes", f"{KEY_BYTES} or {LONG_KEY_BYTES} bytes"
            )
        self._cipher = block_cipher(key)

    def blocks(self, first: int, count: int) -> NDArray[np.uint8]:
        """Blocks first .. first + count of stream 0: uint8[16 count]."""
        if first < 0 or count < 0 or first + count > MAX_BLOCKS:
            raise ParameterError("blocks", (first, count), f"blocks below {MAX_BLOCKS}")
        counters = np.empty((count, 2), np.uint64)
        _kernels.counter_blocks(first, counters)
        return self._encrypted(counters)

    def words_at(
        self, stream: int, start: int, positions: NDArray[np.int64], per_block: int
    ) -> NDArray[np.uint8]:
        """The blocks of a stream that hold the words start + positions[i]: uint8[16 count].

        Args:
            positions: int64[count].
        """
        counters = np.empty((positions.size, 2), np.uint64)
        _kernels.scattered_counter_blocks(stream, start, positions, per_block, counters)
        return self._encrypted(counters)

    def _encrypted(self, counters: NDArray[np.uint64]) -> NDArray[np.uint8]:
        # `update_into` wants room for one block more than it writes.
        size = counters.shape[0] * BLOCK_BYTES
        buffer = np.empty(size + BLOCK_BYTES, np.uint8)
        if size:
            self._cipher.update_into(counters.data.cast("B"), buffer.data)
        return buffer[:size]
