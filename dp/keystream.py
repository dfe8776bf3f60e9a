"""Secret seeds of noise, and the AES-CTR keystream that they open into.

All randomness on the private path is bytes of this keystream: fair coins, and the uniform
integers of stochastic rounding. The operating system is asked for entropy in one place only,
``NoiseSeed.fresh``; everything else is a function of a seed, so that test vectors are exact
and a seed that was secret-shared rebuilds the very same noise.

Assumptions: AES-128 in counter mode is a pseudo-random generator and HKDF-SHA256 a
pseudo-random function. Noise is therefore computationally, not statistically, binomial.

Source: NIST SP 800-38A (counter mode), RFC 5869 (HKDF).
"""

from __future__ import annotations

import enum
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray

from dp.errors import CopiedSecretError

SEED_BYTES: Final = 32
CHUNK_BYTES: Final = 1 << 18
"""Bytes made per call of the cipher: large against the cost of a call, small enough that the
consumer still finds them in the second-level cache."""

_KEY_BYTES: Final = 16
_BLOCK_BYTES: Final = 16
_ZEROS: Final = memoryview(bytes(CHUNK_BYTES))
_HASH: Final = SHA256()
_DOMAIN: Final = b"veilsum/dp/noise/v1/"


class Usage(enum.Enum):
    """What a sub-seed is for. Two usages of one seed give independent streams."""

    ROUNDING = b"rounding"
    COINS = b"coins"
    INVERSION = b"inversion 32"
    REFINEMENT = b"refinement 32"
    SERVER_NOISE = b"server noise"
    KEYSTREAM = b"keystream"
    LOCAL_REPORT = b"local report"
    LOCAL_CHOICE = b"local choice"
    LOCAL_COORDINATES = b"local coordinates"
    LOCAL_VERTEX = b"local vertex"
    AGREEMENT_SIDE = b"agreement side"
    AGREEMENT_COUNT = b"agreement count"
    AGREEMENT_PLACES = b"agreement places"
    OTHER_LEVELS = b"other levels"
    LOCAL_SELECTION = b"local selection"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class NoiseSeed:
    """Thirty-two secret bytes from which noise is drawn.

    Whoever knows a seed can subtract its noise, so the bytes never appear in ``repr``. A seed
    must be used for one vector only: using it twice cancels the noise in the difference.

    Attributes:
        material: the secret bytes, ``len(material) == 32``.
    """

    material: bytes

    def __post_init__(self) -> None:
        """Refuse anything but exactly 32 bytes; the message does not show them."""
        if not isinstance(self.material, bytes):
            raise TypeError(f"a noise seed is bytes, not {type(self.material).__name__}")
        if len(self.material) != SEED_BYTES:
            raise ValueError(f"a noise seed has {SEED_BYTES} bytes, got {len(self.material)}")

    @classmethod
    def fresh(cls) -> NoiseSeed:
        """Draw a new seed from the operating system."""
        return cls(secrets.token_bytes(SEED_BYTES))

    def derive(self, usage: Usage, index: int | None = None) -> NoiseSeed:
        """Return the sub-seed for one usage, or for one numbered part of it.

        Post: sub-seeds of different usages or indices are independent, and none reveals this seed.

        Args:
            usage: what the sub-seed is for.
            index: number of the part, ``0 <= index < 2**64``; without one, the usage as a whole.
        """
        return NoiseSeed(self._expand(usage, SEED_BYTES, index))

    def _expand(self, usage: Usage, length: int, index: int | None = None) -> bytes:
        """Return ``length`` bytes bound to ``usage`` (HKDF-Expand: the seed is uniform)."""
        info = _DOMAIN + usage.value
        if index is not None:
            if not 0 <= index < 1 << 64:
                raise ValueError(f"index must lie in 0..2^64 - 1, got {index}")
            # No usage's value contains a slash, so nothing else has this label.
            info += b"/" + index.to_bytes(8, "big")
        return HKDFExpand(algorithm=_HASH, length=length, info=info).derive(self.material)

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied: whoever gets a seed can subtract its noise."""
        raise CopiedSecretError("a NoiseSeed is secret: it cannot be pickled or copied")

    def __repr__(self) -> str:
        """Hide the bytes."""
        return "NoiseSeed(<secret>)"

    def __eq__(self, other: object) -> bool:
        """Compare without a data-dependent early exit."""
        if not isinstance(other, NoiseSeed):
            return NotImplemented
        return hmac.compare_digest(self.material, other.material)

    __hash__ = None  # type: ignore[assignment]


class Keystream:
    """The AES-128-CTR keystream of one seed, written into the caller's arrays.

    Successive calls of ``fill`` continue the stream: filling one array of 2n bytes equals
    filling two arrays of n bytes one after the other.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, seed: NoiseSeed) -> None:
        """Key the cipher; key and first counter block both come from the seed."""
        secret = seed._expand(Usage.KEYSTREAM, _KEY_BYTES + _BLOCK_BYTES)
        cipher = Cipher(algorithms.AES(secret[:_KEY_BYTES]), modes.CTR(secret[_KEY_BYTES:]))
        self._encryptor = cipher.encryptor()

    def fill(self, buffer: NDArray[Any]) -> None:
        """Overwrite ``buffer`` with the next ``buffer.nbytes`` bytes of the stream."""
        if not (buffer.flags.c_contiguous and buffer.flags.writeable):
            raise ValueError("a keystream buffer must be C-contiguous and writable")
        octets = buffer.reshape(-1).view(np.uint8).data
        for start in range(0, len(octets), CHUNK_BYTES):
            piece = octets[start : start + CHUNK_BYTES]
            self._encryptor.update_into(_ZEROS[: len(piece)], piece)

    def chunks(self, dtype: np.dtype[Any], total: int) -> Iterator[NDArray[Any]]:
        """Yield ``total`` words of the stream in arrays that fit the cache.

        The arrays are views of one reused buffer: each is valid until the next is asked for.
        """
        buffer = np.empty(min(total, CHUNK_BYTES // dtype.itemsize), dtype=dtype)
        octets = buffer.view(np.uint8).data
        for start in range(0, total, max(buffer.size, 1)):
            piece = buffer[: total - start]
            self._encryptor.update_into(_ZEROS[: piece.nbytes], octets[: piece.nbytes])
            yield piece
