"""The portable hashes against a second implementation in plain Python, bit for bit.

HKDF from hmac, AES-128 from its definition over GF(256): nothing here is shared with the library.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from sketch import PublicSeed
from sketch.hashing import Usage, buckets, derive_key, signs

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "vectors" / "hashing.json").read_text()
)["vectors"]

STREAMS = [usage for usage in Usage if usage is not Usage.PROBE]


def double(a: int) -> int:
    """Multiplication by x in GF(256) modulo x^8 + x^4 + x^3 + x + 1."""
    return (a << 1) ^ (0x11B if a & 0x80 else 0)


def multiply(a: int, b: int) -> int:
    """Product in GF(256)."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = double(a), b >> 1
    return product


def substitute(a: int) -> int:
    """The AES S-box: inverse in GF(256), then an affine map."""
    inverse = next((b for b in range(256) if multiply(a, b) == 1), 0)
    doubled = inverse | inverse << 8
    return 0x63 ^ inverse ^ sum_xor((doubled >> (8 - k)) & 0xFF for k in range(1, 5))


def sum_xor(values: Any) -> int:
    """Exclusive or of all values."""
    result = 0
    for value in values:
        result ^= value
    return result


SBOX = [substitute(a) for a in range(256)]


def round_keys(key: bytes) -> list[bytes]:
    """The eleven round keys of AES-128 (FIPS 197, section 5.2)."""
    words = [key[i : i + 4] for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        last = words[-1]
        if i % 4 == 0:
            last = bytes(SBOX[b] for b in last[1:] + last[:1])
            last = bytes([last[0] ^ constant]) + last[1:]
            constant = double(constant)
        words.append(bytes(a ^ b for a, b in zip(words[-4], last, strict=True)))
    return [b"".join(words[i : i + 4]) for i in range(0, 44, 4)]


def encrypt_block(keys: list[bytes], block: bytes) -> bytes:
    """One block of AES-128 (FIPS 197, section 5.1)."""
    state = [a ^ k for a, k in zip(block, keys[0], strict=True)]
    for number, key in enumerate(keys[1:], start=1):
        state = [SBOX[state[(5 * i) % 16]] for i in range(16)]
        if number < 10:
            state = [
                double(state[c + r])
                ^ multiply(3, state[c + (r + 1) % 4])
                ^ state[c + (r + 2) % 4]
                ^ state[c + (r + 3) % 4]
                for c in range(0, 16, 4)
                for r in range(4)
            ]
        state = [a ^ k for a, k in zip(state, key, strict=True)]
    return bytes(state)


def plain_derivation(seed: bytes, usage: int, row: int) -> bytes:
    """HKDF-SHA256 with an empty salt, its first output block of 32 bytes (RFC 5869)."""
    secret = hmac.digest(bytes(32), seed, hashlib.sha256)
    info = b"veilsum/sketch/1" + bytes([usage]) + row.to_bytes(4, "little")
    return hmac.digest(secret, info + b"\x01", hashlib.sha256)


def plain_key(seed: bytes, usage: int, row: int) -> bytes:
    """The key of a stream: the first half of the block."""
    return plain_derivation(seed, usage, row)[:16]


class PlainStream:
    """Bytes of the AES-128 counter-mode keystream by position."""

    def __init__(self, seed: str, usage: int, row: int) -> None:
        self.keys = round_keys(plain_key(bytes.fromhex(seed), usage, row))

    def byte(self, position: int) -> int:
        """One byte of the keystream; the counter is the index of its block, big-endian."""
        block = encrypt_block(self.keys, (position // 16).to_bytes(16, "big"))
        return block[position % 16]


def plain_bucket(stream: PlainStream, columns: int, q: int) -> int:
    """The bucket floor(w * P / 2^32) of a word w."""
    word = sum(stream.byte(4 * q + i) << (8 * i) for i in range(4))
    return word * columns >> 32


def plain_sign(stream: PlainStream, q: int) -> int:
    """-1 if bit q is set."""
    return -1 if stream.byte(q // 8) >> (q % 8) & 1 else 1


def test_second_implementation_of_aes_agrees_with_the_standard() -> None:
    keys = round_keys(bytes(range(16)))
    block = encrypt_block(keys, bytes.fromhex("00112233445566778899aabbccddeeff"))
    assert block.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"  # FIPS 197, appendix C.1


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"] + "-" + v["seed"][:4])
class TestVectors:
    """Both implementations give what the file holds."""

    def test_keys(self, vector: dict[str, Any]) -> None:
        seed = bytes.fromhex(vector["seed"])
        assert set(vector["keys"]) == {usage.name for usage in STREAMS}
        for usage in STREAMS:
            expected = bytes.fromhex(vector["keys"][usage.name])
            assert plain_key(seed, usage.value, vector["row"]) == expected
            assert derive_key(PublicSeed(seed), usage, vector["row"]) == expected

    def test_probe_seed(self, vector: dict[str, Any]) -> None:
        seed = bytes.fromhex(vector["seed"])
        expected = bytes.fromhex(vector["probe_seed"])
        assert plain_derivation(seed, Usage.PROBE.value, 0) == expected
        assert PublicSeed(seed).probe() == PublicSeed(expected)

    def test_buckets(self, vector: dict[str, Any]) -> None:
        row, columns = vector["row"], vector["columns"]
        stream = PlainStream(vector["seed"], 1, row)
        coordinates = range(vector["start"], vector["stop"])
        seed = PublicSeed(bytes.fromhex(vector["seed"]))
        assert [plain_bucket(stream, columns, q) for q in coordinates] == vector["buckets"]
        ours = buckets(seed, row, columns, vector["start"], vector["stop"])
        assert ours.tolist() == vector["buckets"]

    def test_signs(self, vector: dict[str, Any]) -> None:
        row = vector["row"]
        stream = PlainStream(vector["seed"], 2, row)
        coordinates = range(vector["start"], vector["stop"])
        seed = PublicSeed(bytes.fromhex(vector["seed"]))
        assert [plain_sign(stream, q) for q in coordinates] == vector["signs"]
        assert signs(seed, row, vector["start"], vector["stop"]).tolist() == vector["signs"]


def test_rotation_signs_follow_the_same_definition() -> None:
    seed = bytes(range(32))
    for usage in (Usage.ROTATION_FIRST, Usage.ROTATION_LAST):
        stream = PlainStream(seed.hex(), usage.value, 0)
        expected = [plain_sign(stream, q) for q in range(5, 40)]
        assert signs(PublicSeed(seed), 0, 5, 40, usage).tolist() == expected
