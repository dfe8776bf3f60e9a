"""What messages and masks are made of, from docs/wire.md alone."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from math import comb
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

M31 = 2**31 - 1
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD9: 1, 0xDC: 2, 0xDD: 4}


class Refused(Exception):  # noqa: N818
    """The server sent what an honest server would not have sent."""


def require(holds: bool, what: str) -> None:
    """Refuse unless it holds."""
    if not holds:
        raise Refused(what)


def answer(step: Callable[[], bytes]) -> bytes:
    """What a transport takes back: 0 and the answer, or 1 and the kind of refusal."""
    try:
        return b"\0" + step()
    except Refused:
        return b"\1RemoteProtocolError"


def pack(value: Any) -> bytes:
    """A bool, integer, byte string or list of up to 15 in MessagePack's shortest form."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, list):
        return bytes([0x90 + len(value)]) + b"".join(map(pack, value))
    if isinstance(value, bytes):
        step = 0 if len(value) < 2**8 else 1 if len(value) < 2**16 else 2
        return bytes([0xC4 + step]) + len(value).to_bytes(2**step, "big") + value
    if value < 128:
        return bytes([value])
    step = 0 if value < 2**8 else 1 if value < 2**16 else 2
    return bytes([0xCC + step]) + int(value).to_bytes(2**step, "big")


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
    number = head - 0x90 if head < 0xA0 else int.from_bytes(take(SIZES[head]), "big")
    if head in range(0xCC, 0xD0):
        return number
    if head < 0xA0 or head >= 0xDC:
        require(depth > 0, "too deep")
        return [unpack(stream, depth - 1) for _ in range(number)]
    return take(number).decode("ascii", "replace") if head == 0xD9 else take(number)


def decode(data: bytes) -> Any:
    """The one value that the bytes are."""
    stream = io.BytesIO(data)
    value = unpack(stream)
    require(not stream.read(), "trailing bytes")
    return value


def u32(*numbers: int) -> bytes:
    """Integers of 4 little-endian bytes."""
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def u64(*numbers: int) -> bytes:
    """Integers of 8 little-endian bytes."""
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def sized(*parts: bytes) -> bytes:
    """Parts, each after its length."""
    return b"".join(u64(len(part)) + part for part in parts)


def tagged(usage: str, *parts: bytes) -> bytes:
    """What is hashed, derived from or signed for one usage."""
    return sized(b"veilsum/2", usage.encode(), *parts)


def digest(usage: str, *parts: bytes) -> bytes:
    """SHA-256 of a tagged string."""
    return sha256(tagged(usage, *parts)).digest()


def derive(secret: bytes, size: int, usage: str, *parts: bytes) -> bytes:
    """HKDF of a secret, for one usage."""
    return HKDF(SHA256(), size, salt=None, info=tagged(usage, *parts)).derive(secret)


def keystream(key: bytes, size: int, stream: int = 0, block: int = 0) -> bytes:
    """Bytes of a stream of AES-CTR, from one block on."""
    counter = stream.to_bytes(4, "big") + block.to_bytes(12, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(size))


def uniform(key: bytes, bits: int, bound: int, indices: Sequence[int]) -> list[int]:
    """The elements below a bound that a key expands to, at ascending indices."""
    width = 2 if bits <= 16 else 4 if bits <= 32 else 8
    first = indices[0] * width // 16
    streams = [keystream(key, 16 * (indices[-1] * width // 16 + 1 - first), 0, first)]
    elements = []
    for index in indices:
        stream, place = 0, index * width - 16 * first
        word = streams[0][place : place + width]
        while (value := int.from_bytes(word, "little") % 2**bits) >= bound:
            stream += 1
            word = keystream(key, 16, stream, index * width // 16)[place % 16 :][:width]
        elements.append(value)
    return elements


def field_prime(bits: int) -> int:
    """The largest prime below 2^bits; Miller and Rabin's test is exact for these bases."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)

    def passes(number: int, base: int) -> bool:
        twos = ((number - 1) & (1 - number)).bit_length() - 1
        power = pow(base, (number - 1) >> twos, number)
        powers = [pow(power, 2**step, number) for step in range(twos)]
        return base % number == 0 or powers[0] == 1 or number - 1 in powers

    return next(p for p in range(2**bits - 1, 2, -2) if all(passes(p, base) for base in bases))


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


def verify(key: bytes, signature: bytes, usage: str, *parts: bytes) -> None:
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
    """Uniform elements of the shares' field."""
    drawn = [int.from_bytes(word, "little") & M31 for word in cut(rand(4 * count), 4)]
    bad = [place for place, element in enumerate(drawn) if element == M31]
    for place, element in zip(bad, draw(len(bad), rand) if bad else [], strict=True):
        drawn[place] = element
    return drawn


def deal(
    values: list[int], holders: list[int], threshold: int, rand: Callable[[int], bytes]
) -> list[bytes]:
    """For each holder a share of every value; so many of them rebuild it."""
    drawn = draw(len(values) * (threshold - 1), rand)
    rows = [values, *(drawn[at : at + len(values)] for at in range(0, len(drawn), len(values)))]
    powers = [[pow(holder + 1, degree, M31) for degree in range(threshold)] for holder in holders]
    columns = list(zip(*rows, strict=True))
    return [
        u32(*(sum(c * x for c, x in zip(column, at, strict=True)) % M31 for column in columns))
        for at in powers
    ]


def committee_of(
    members: list[int], corrupt: int, minimum: int, security_bits: int, round_hash: bytes
) -> tuple[list[int], int]:
    """Whose signatures confirm the survivors of a sparse round, and how many of them."""
    total, marked, alive = len(members), min(corrupt, len(members)), min(len(members), minimum)

    def at_least(draws: int, of: int, least: int) -> int:
        """In how many of all draws at least so many are among the marked ones."""
        return sum(comb(of, k) * comb(total - of, draws - k) for k in range(least, draws + 1))

    for size in range(64, min(total, 4097), 8):
        every = comb(total, size)
        tails = (at_least(size, marked, c + 1) << security_bits for c in range(size + 1))
        most = next(c for c, tail in enumerate(tails) if tail <= every)
        quorum = (size + most) // 2 + 1
        if (every - at_least(size, alive, quorum)) << 20 <= every:
            return in_order(members, "committee", round_hash)[:size], quorum
    return members, (total + corrupt) // 2 + 1


def in_order(members: list[int], usage: str, round_hash: bytes) -> list[int]:
    """Members in the random order that a round's hash fixes."""
    blocks = keystream(derive(round_hash, 32, usage), 16 * (members[-1] + 1))
    return sorted(members, key=lambda m: (int.from_bytes(blocks[16 * m :][:8], "little"), m))
