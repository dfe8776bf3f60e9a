"""What messages and masks are made of, from docs/wire.md alone."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from operator import mul
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

M31 = 2**31 - 1
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xDC: 2, 0xDD: 4}
LETTERS = {bytes: "b", int: "i", str: "s", float: "f", bool: "o", list: "l"}


class Refused(Exception):  # noqa: N818
    """The server sent what an honest server would not have sent."""


def require(holds: bool, what: str) -> None:
    """Refuse unless it holds."""
    if not holds:
        raise Refused(what)


def pack(value: Any) -> bytes:
    """False, an integer, bytes, or a list of up to 15, in MessagePack's shortest form."""

    def shortest(head: int, number: int) -> bytes:
        step = 0 if number < 2**8 else 1 if number < 2**16 else 2
        return bytes([head + step]) + number.to_bytes(2**step, "big")

    if value is False:
        return b"\xc2"
    if isinstance(value, list):
        return bytes([0x90 + len(value)]) + b"".join(map(pack, value))
    if isinstance(value, bytes):
        return shortest(0xC4, len(value)) + value
    return bytes([value]) if value < 128 else shortest(0xCC, value)


def unpack(stream: io.BytesIO, depth: int = 3) -> Any:
    """The next MessagePack value, of the types that messages and announcements have."""

    def take(size: int) -> bytes:
        part = stream.read(size)
        require(len(part) == size, "too short")
        return part

    head = take(1)[0]
    if head < 0x80 or head in CONSTANTS:
        return CONSTANTS.get(head, head)
    if head == 0xCB:
        return struct.unpack(">d", take(8))[0]
    if 0xA0 <= head < 0xC0:
        return take(head - 0xA0).decode("ascii", "replace")
    require(0x90 <= head < 0xA0 or head in SIZES, "a type that no message has")
    number = head & 15 if head < 0xA0 else int.from_bytes(take(SIZES[head]), "big")
    if 0xCC <= head <= 0xCF:
        return number
    if 0xC4 <= head <= 0xC6:
        return take(number)
    require(depth > 0, "too deep")
    return [unpack(stream, depth - 1) for _ in range(number)]


def decode(data: bytes, version: bytes, shape: str) -> list[Any]:
    """The fields behind a version, whose types a pattern has as letters."""
    require(data.startswith(version), "version")
    stream = io.BytesIO(data[len(version) :])
    fields = unpack(stream)
    require(not stream.read(), "trailing bytes")
    require(isinstance(fields, list), "no array")
    found = "".join(LETTERS.get(type(field), "-") for field in fields)
    require(re.fullmatch(shape, found) is not None, "types of fields")
    return list(fields)


def u32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def u64(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def sized(*parts: bytes) -> bytes:
    return b"".join(u64(len(part)) + part for part in parts)


def tagged(usage: str, *parts: bytes | int) -> bytes:
    """What is hashed, derived from or signed for one usage; integers are indices."""
    encoded = (u32(part) if isinstance(part, int) else part for part in parts)
    return sized(b"veilsum/2", usage.encode(), *encoded)


def digest(usage: str, *parts: bytes | int) -> bytes:
    return sha256(tagged(usage, *parts)).digest()


def derive(secret: bytes, size: int, usage: str, *parts: bytes | int) -> bytes:
    """HKDF of a secret, for one usage."""
    return HKDF(SHA256(), size, salt=None, info=tagged(usage, *parts)).derive(secret)


def keystream(key: bytes, size: int, stream: int = 0) -> bytes:
    """The first bytes of a stream of AES-CTR."""
    counter = stream.to_bytes(4, "big") + bytes(12)
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(size))


def uniform(key: bytes, bits: int, bound: int, indices: range) -> list[int]:
    """The elements below a bound that a key expands to, at these indices."""
    width = 2 if bits <= 16 else 4 if bits <= 32 else 8
    words, elements = keystream(key, width * indices.stop), []
    for index in indices:
        stream, word = 0, words[width * index : width * (index + 1)]
        while (element := int.from_bytes(word, "little") % 2**bits) >= bound:
            stream += 1
            word = keystream(key, width * (index + 1), stream)[-width:]
        elements.append(element)
    return elements


def is_prime(number: int) -> bool:
    """Fermat's test, which is right about every number that the fields and rings lead to."""
    return all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7))


def field_prime(bits: int) -> int:
    """The largest prime below 2^bits, for 4 bits or more."""
    return next(number for number in range(2**bits - 1, 1, -2) if is_prime(number))


def pack_bits(numbers: Sequence[int], bits: int) -> bytes:
    """Numbers of so many bits each, in little-endian bit order."""
    text = "".join(format(number, f"0{bits}b") for number in reversed(numbers))
    return int(text, 2).to_bytes((len(text) + 7) // 8, "little")


def cut(data: bytes, size: int) -> list[bytes]:
    """The items of a list."""
    require(len(data) % size == 0, "length of a list")
    return [data[at : at + size] for at in range(0, len(data), size)]


def indices_in(bitmap: bytes, size: int) -> list[int]:
    """The members of a set over so many parties."""
    number = int.from_bytes(bitmap, "little")
    require(len(bitmap) == (size + 7) // 8 and number >> size == 0, "length of a set")
    return [index for index in range(size) if number >> index & 1]


def verify(key: bytes, signature: bytes, usage: str, *parts: bytes | int) -> None:
    """Refuse a wrong signature."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, tagged(usage, *parts))
    except (InvalidSignature, ValueError):
        raise Refused("a signature is wrong") from None


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """The secret shared with the owner of a key, which is reduced and of large order."""
    require(int.from_bytes(public, "little") < 2**255 - 19, "a key in a second encoding")
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Refused("a key of small order") from None


def seal(secret: bytes, shares: bytes, *parts: bytes | int) -> bytes:
    """Shares that only the owner of an agreed secret can open."""
    cipher = AESSIV(derive(secret, 64, "seal shares", *parts))
    return cipher.encrypt(shares, [tagged("seal shares", *parts)])


def unseal(secret: bytes, box: bytes, *parts: bytes | int) -> bytes:
    """What was sealed; every word of it is an element."""
    cipher = AESSIV(derive(secret, 64, "seal shares", *parts))
    try:
        shares = cipher.decrypt(box, [tagged("seal shares", *parts)])
    except InvalidTag:
        raise Refused("shares do not open") from None
    require(all(int.from_bytes(word, "little") < M31 for word in cut(shares, 4)), "shares")
    return shares


def commit(seeds: list[bytes], *parts: bytes | int) -> bytes:
    """Commitments to seeds, which are numbered."""
    return b"".join(digest("commit seed", *parts, i, seed) for i, seed in enumerate(seeds))


def root_above(entry: bytes, place: int, size: int, proof: bytes) -> bytes:
    """The root of a hash tree over so many entries, from one of them and its siblings."""
    node, siblings = digest("tree leaf", entry), cut(proof, 32)
    while size > 1:
        if place ^ 1 < size:  # else the last node of a level goes up alone
            require(bool(siblings), "a short proof")
            pair = (siblings.pop(0), node) if place % 2 else (node, siblings.pop(0))
            node = digest("tree node", *pair)
        place, size = place // 2, (size + 1) // 2
    require(not siblings, "a long proof")
    return node


def limbs(secret: bytes) -> list[int]:
    """A secret of 32 bytes as 9 elements of the shares' field."""
    number = int.from_bytes(secret, "little")
    return [number >> shift & (2**30 - 1) for shift in range(0, 270, 30)]


def draw(count: int, rand: Callable[[int], bytes]) -> list[int]:
    """Uniform elements of the shares' field; a word that is not below M31 is replaced."""
    drawn = [int.from_bytes(word, "little") & M31 for word in cut(rand(4 * count), 4)]
    while M31 in drawn:
        drawn[drawn.index(M31)] = int.from_bytes(rand(4), "little") & M31
    return drawn


def combine(polynomials: list[list[int]], weights: list[list[int]]) -> list[bytes]:
    """For each row of weights, that combination of what each polynomial is made from."""
    return [u32(*(sum(map(mul, row, each)) % M31 for each in polynomials)) for row in weights]
