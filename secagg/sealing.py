"""Sealed client-to-client messages that travel through the server.

AES-256-SIV (RFC 5297): deterministic, without a nonce to manage, and safe even if a host were to
replay a stored client. The key is used for one message: it depends on both ephemeral keys, the
round hash, the sender and the recipient, which are also the associated data.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from secagg.tags import Usage, derive, encode_index, tagged

SEAL_OVERHEAD_BYTES = 16
_KEY_BYTES = 64


def seal(shared: bytes, round_hash: bytes, sender: int, recipient: int, plain: bytes) -> bytes:
    """Seal a message under an agreed secret.

    Post: len(result) == len(plain) + SEAL_OVERHEAD_BYTES
    """
    cipher, bound = _cipher(shared, round_hash, sender, recipient)
    return cipher.encrypt(plain, [bound])


def unseal(shared: bytes, round_hash: bytes, sender: int, recipient: int, sealed: bytes) -> bytes:
    """Open a sealed message."""
    cipher, bound = _cipher(shared, round_hash, sender, recipient)
    try:
        return cipher.decrypt(sealed, [bound])
    except InvalidTag:
        raise ValueError("sealed message does not open") from None


def _cipher(shared: bytes, round_hash: bytes, sender: int, recipient: int) -> tuple[AESSIV, bytes]:
    parts = (round_hash, encode_index(sender), encode_index(recipient))
    return AESSIV(derive(shared, Usage.SEAL, _KEY_BYTES, *parts)), tagged(Usage.SEAL, *parts)
