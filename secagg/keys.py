"""Key material: identities that sign, agreement keys that meet, seeds that mask.

Secret values have their own types, never print themselves, and compare in constant time. All
primitives come from the `cryptography` package (X25519, Ed25519).
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import NoReturn, SupportsIndex

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from secagg.errors import LocalProtocolError, ParameterError
from secagg.shamir import Rand
from secagg.tags import Usage, tagged

KEY_BYTES = 32
SIGNATURE_BYTES = 64
NONCE_BYTES = 16

_PRIME = 2**255 - 19
# Two points of order 8 on the curve; the others are plain to see. The list is Bernstein's,
# https://cr.yp.to/ecdh.html, less the second encodings.
_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
_SMALL_ORDER = frozenset(u.to_bytes(32, "little") for u in (0, 1, _PRIME - 1, *_ORDER_8))

os_random: Rand = secrets.token_bytes
"""The one default source of secrets: the operating system's generator."""


def check_public_key(public: bytes) -> None:
    """Refuse an X25519 public key that no honest party sends.

    X25519 ignores the highest bit and reduces modulo p, so that one key has several encodings
    (RFC 7748, section 5): keys are only known to differ if each has one. With a key of small order
    everybody agrees on zero.
    """
    if len(public) != KEY_BYTES:
        raise ValueError(f"public key of {len(public)} bytes, {KEY_BYTES} expected")
    if int.from_bytes(public, "little") >= _PRIME:
        raise ValueError("public key is not below 2^255 - 19")
    if public in _SMALL_ORDER:
        raise ValueError("public key is of small order")


class NeverCopied:
    """Cannot be pickled or copied: a secret leaves its process by an explicit call only."""

    __slots__ = ()

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        name = type(self).__name__
        raise LocalProtocolError(f"a secret cannot be pickled or copied: {name}")


class _Secret(NeverCopied):
    """32 secret bytes with a redacted repr and constant-time equality."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        if len(value) != KEY_BYTES:
            raise ParameterError("value", f"{len(value)} bytes", f"{KEY_BYTES} bytes")
        self._value = bytes(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and hmac.compare_digest(self._value, other.expose())

    __hash__ = None  # type: ignore[assignment]

    def expose(self) -> bytes:
        """The secret bytes, for derivation and sharing only."""
        return self._value


class SecretSeed(_Secret):
    """A client's seed: of its self mask, or one that it may have to give up."""


class AgreedSecret(_Secret):
    """What two clients agreed on, from which the keys of their seals are derived."""


class AgreementKey(_Secret):
    """An ephemeral X25519 private key."""

    __slots__ = ("_private", "public")

    public: bytes
    """The 32-byte public key."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._private: X25519PrivateKey | None = X25519PrivateKey.from_private_bytes(value)
        self.public = self._private.public_key().public_bytes_raw()

    def agree(self, peer_public: bytes) -> bytes:
        """The shared secret with a peer, to be fed to a key derivation only."""
        check_public_key(peer_public)
        private = self._private  # another thread may erase it meanwhile
        if private is None:
            raise LocalProtocolError("this agreement key is erased")
        return private.exchange(X25519PublicKey.from_public_bytes(peer_public))

    def erase(self) -> None:
        """Forget the private half, whoever else holds this object; Python wipes no memory."""
        self._value, self._private = b"", None


@dataclass(frozen=True, slots=True)
class Identity(NeverCopied):
    """A long-lived Ed25519 signing key; its public half is registered with every party."""

    _private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Identity:
        """A new identity from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_private_bytes(cls, raw: bytes) -> Identity:
        """An identity stored as its 32 private bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(raw))

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()})"

    @property
    def public(self) -> bytes:
        """The 32-byte verification key."""
        return self._private.public_key().public_bytes_raw()

    def private_bytes(self) -> bytes:
        """The 32 private bytes, for storage by their owner only."""
        return self._private.private_bytes_raw()

    def sign(self, usage: Usage, *parts: bytes) -> bytes:
        """64-byte signature over `tagged(usage, *parts)`."""
        return self._private.sign(tagged(usage, *parts))


def signature_is_valid(public: bytes, signature: bytes, usage: Usage, *parts: bytes) -> bool:
    """Whether `signature` is `public`'s over `tagged(usage, *parts)`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, tagged(usage, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True
