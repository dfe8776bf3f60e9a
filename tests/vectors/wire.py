"""docs/wire.md by hand: tags, keys, shares and framing, in plain Python.

The second implementation behind the vectors. It takes X25519, Ed25519, AES, SHA-256 and a reader of
MessagePack from their packages and nothing from secagg, so the state machines that are tested
against its output share no code with it. Slow, and no example of how to handle secrets.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

Rand = Callable[[int], bytes]

VERSION = b"\x02"
LABEL = b"veilsum/2"
SHAMIR_PRIME = 2**31 - 1
LIMBS, LIMB_BITS = 9, 30
SEED, KEY, FIRST_REMOVABLE = 0, 1, 2
"""Order of the secrets inside a share."""
LOW_ORDER_KEY = bytes(32)
"""An X25519 public key of small order: the agreed secret is zero with everybody."""
UNREDUCED_KEY = (2**255 - 19 + 9).to_bytes(32, "little")
"""Another encoding of the public key 9, not reduced."""


FIELDS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("Advertisement", ("sender", "sealing_key", "masking_key", "nonce", "signature")),
    2: ("Roster", ("members", "root", "proof", "entries")),
    3: ("ShareBundle", ("sender", "commitments", "sealed", "signature")),
    4: ("DeliveredShares", ("participants", "sealed")),
    5: ("MaskedInput", ("sender", "vector", "signature")),
    6: ("SurvivorSet", ("survivors",)),
    7: ("Confirmation", ("sender", "signature")),
    8: ("ConfirmationSet", ("confirmers", "signatures")),
    9: ("UnmaskShares", ("sender", "shares", "seeds", "signature")),
    10: ("SeedRequest", ("missing",)),
    11: ("SeedShares", ("sender", "shares", "signature")),
    32: (
        "Upload",
        ("sender", "ephemeral_key", "ciphertext", "commitments", "seals", "returns", "signature"),
    ),
    33: ("Delivery", ("cohort", "uploaded", "headers", "seals")),
    34: ("Complaints", ("sender", "bad", "signature")),
    35: ("Proposal", ("survivors",)),
    36: ("Confirmation", ("sender", "signature")),
    37: ("Quorum", ("signers", "signatures")),
    38: ("Answer", ("sender", "sums", "seeds", "checks", "signature")),
}
"""By number, what a message is called and what its fields are, behind its context."""


def bad_keys(entry: bytes) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Names, descriptions and keys that are not acceptable, some made of those of an entry."""
    for kind, own in (("sealing", entry[:32]), ("masking", entry[32:64])):
        for name, what, key in (
            ("", "of small order", LOW_ORDER_KEY),
            ("-high-bit", "with the highest bit set", own[:31] + bytes([own[31] | 0x80])),
            ("-unreduced", "that is not below 2^255 - 19", UNREDUCED_KEY),
        ):
            yield f"bad-key-{kind}{name}", f"a {kind} key {what}.", {kind: key}


def counter_rand(seed: bytes) -> Rand:
    """The vectors' randomness: SHA-256 of the seed and a block number of 8 big-endian bytes.

    A call takes as many whole blocks as it needs and cuts the last; the next goes on behind it.
    """
    blocks = 0

    def rand(count: int) -> bytes:
        nonlocal blocks
        first, blocks = blocks, blocks + (count + 31) // 32
        numbers = (number.to_bytes(8, "big") for number in range(first, blocks))
        return b"".join(hashlib.sha256(seed + number).digest() for number in numbers)[:count]

    return rand


# -- tagged strings ---------------------------------------------------------------------------


def parts(*strings: bytes) -> bytes:
    """Every string preceded by its length."""
    return b"".join(len(string).to_bytes(8, "little") + string for string in strings)


def tagged(usage: str, *strings: bytes) -> bytes:
    """What is hashed, derived from or signed."""
    return parts(LABEL, usage.encode(), *strings)


def digest(usage: str, *strings: bytes) -> bytes:
    """SHA-256 of a tagged string."""
    return hashlib.sha256(tagged(usage, *strings)).digest()


def derive(secret: bytes, usage: str, length: int, *strings: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) without salt, the tagged string as info."""
    key = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    out, block, number = b"", b"", 1
    while len(out) < length:
        info = block + tagged(usage, *strings) + bytes([number])
        block = hmac.new(key, info, hashlib.sha256).digest()
        out, number = out + block, number + 1
    return out[:length]


def index(party: int) -> bytes:
    """A party inside a tagged string."""
    return party.to_bytes(4, "little")


def sign(private: bytes, usage: str, *strings: bytes) -> bytes:
    """Ed25519 over a tagged string."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(tagged(usage, *strings))


def identity_public(private: bytes) -> bytes:
    """The registered half of an Ed25519 key."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


# -- keys -------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def public_key(private: bytes) -> bytes:
    """The public half of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@lru_cache(maxsize=4096)
def agree(private: bytes, public: bytes) -> bytes:
    """The X25519 agreed secret."""
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(public)
    )


def seal(shared: bytes, round_hash: bytes, sender: int, recipient: int, plain: bytes) -> bytes:
    """AES-256-SIV; the associated data is the string that the key was derived with."""
    bound = (round_hash, index(sender), index(recipient))
    key = derive(shared, "seal shares", 64, *bound)
    return AESSIV(key).encrypt(plain, [tagged("seal shares", *bound)])


def pair_mask_key(shared: bytes, round_hash: bytes, u: int, v: int) -> bytes:
    """Key of the mask of the pair {u, v}."""
    low, high = index(min(u, v)), index(max(u, v))
    return derive(shared, "pairwise mask", 16, round_hash, low, high)


def self_mask_key(seed: bytes, round_hash: bytes, u: int) -> bytes:
    """Key of a client's own mask."""
    return derive(seed, "self mask", 16, round_hash, index(u))


def commitment(round_hash: bytes, u: int, number: int, seed: bytes) -> bytes:
    """Commitment to the self-mask seed (0) or to removable seed i (1 + i)."""
    return digest("commit seed", round_hash, index(u), index(number), seed)


# -- shares -----------------------------------------------------------------------------------


def limbs(secret: bytes) -> list[int]:
    """A secret as numbers of 30 bits, least significant first."""
    value = int.from_bytes(secret, "little")
    return [value >> LIMB_BITS * i & (1 << LIMB_BITS) - 1 for i in range(LIMBS)]


def coefficients(count: int, rand: Rand) -> list[int]:
    """Elements of GF(2^31 - 1): 31 bits of each word; refused words are drawn again, together."""
    found: dict[int, int] = {}
    while missing := [i for i in range(count) if i not in found]:
        raw = rand(4 * len(missing))
        for place, i in enumerate(missing):
            word = int.from_bytes(raw[4 * place : 4 * place + 4], "little") & 0x7FFFFFFF
            if word != SHAMIR_PRIME:
                found[i] = word
    return [found[i] for i in range(count)]


def split(
    secrets: Sequence[bytes], holders: Sequence[int], threshold: int, rand: Rand
) -> dict[int, bytes]:
    """Each holder's share of all secrets.

    Random coefficients are drawn in one call: those of degree 1 for every limb of every secret,
    then those of degree 2, and so on.
    """
    constants = [limb for secret in secrets for limb in limbs(secret)]
    drawn = coefficients((threshold - 1) * len(constants), rand)
    shares = {}
    for holder in holders:
        words = []
        for j, constant in enumerate(constants):
            polynomial = [constant, *drawn[j :: len(constants)]]
            value = sum(c * (holder + 1) ** i for i, c in enumerate(polynomial)) % SHAMIR_PRIME
            words.append(value.to_bytes(4, "little"))
        shares[holder] = b"".join(words)
    return shares


def share_of(block: bytes, which: int) -> bytes:
    """One secret's 36 bytes out of a share of all of them."""
    return block[36 * which : 36 * which + 36]


# -- the tree and the ring --------------------------------------------------------------------


def tree_root(entries: Sequence[bytes]) -> bytes:
    """RFC 6962, section 2.1: split at the largest power of two below n."""
    if len(entries) == 1:
        return digest("tree leaf", entries[0])
    half = 1 << (len(entries) - 1).bit_length() - 1
    return digest("tree node", tree_root(entries[:half]), tree_root(entries[half:]))


def tree_proof(entries: Sequence[bytes], place: int) -> bytes:
    """RFC 6962, section 2.1.1: the siblings, lowest first."""
    if len(entries) == 1:
        return b""
    half = 1 << (len(entries) - 1).bit_length() - 1
    if place < half:
        return tree_proof(entries[:half], place) + tree_root(entries[half:])
    return tree_proof(entries[half:], place - half) + tree_root(entries[:half])


def random_order(members: Sequence[int], round_hash: bytes, usage: str) -> list[int]:
    """Members in the order of the ring, or in that of the committee."""
    key = derive(round_hash, usage, 32)

    def rank(u: int) -> tuple[int, int]:
        counter = u.to_bytes(16, "big")
        block = Cipher(AES(key), CTR(counter)).encryptor().update(bytes(16))
        return int.from_bytes(block[:8], "little"), u

    return sorted(members, key=rank)


def committee_size(
    members: int, corrupt: int, alive: int, security_bits: int = 80
) -> tuple[int, int]:
    """Size and quorum, by counting the committees in which something goes wrong."""
    for size in range(64, min(members, 4097), 8):

        def share(of: int, marked: int, size: int = size) -> Fraction:
            """The share of committees with exactly so many of the marked members."""
            ways = comb(marked, of) * comb(members - marked, size - of) if of <= size else 0
            return Fraction(ways, comb(members, size))

        drawn = corrupt
        while drawn and sum(share(c, corrupt) for c in range(drawn, corrupt + 1)) <= Fraction(
            1, 2**security_bits
        ):
            drawn -= 1
        quorum = (size + drawn) // 2 + 1
        if sum(share(a, alive) for a in range(quorum)) <= Fraction(1, 2**20):
            return size, quorum
    return members, (members + corrupt) // 2 + 1


def neighbours(members: Sequence[int], degree: int, round_hash: bytes) -> dict[int, list[int]]:
    """Who masks with whom: everybody, or the degree / 2 nearest on either side of the ring."""
    if degree == 0 or len(members) <= degree + 1:
        return {u: [v for v in members if v != u] for u in members}
    order = random_order(members, round_hash, "graph")
    near = {}
    for place, u in enumerate(order):
        steps = [s for s in range(-degree // 2, degree // 2 + 1) if s]
        near[u] = sorted(order[(place + s) % len(order)] for s in steps)
    return near


# -- encodings --------------------------------------------------------------------------------


def bitmap(members: Sequence[int], size: int) -> bytes:
    """A set of parties."""
    return sum(1 << u for u in members).to_bytes((size + 7) // 8, "little")


def pack_vector(elements: Sequence[int], bits: int) -> bytes:
    """`bits` bits for each element, little-endian."""
    whole = sum(element << bits * i for i, element in enumerate(elements))
    return whole.to_bytes((bits * len(elements) + 7) // 8, "little")


@lru_cache(maxsize=64)
def prime(bits: int) -> int:
    """The largest prime below 2^bits, for bits up to 62."""
    candidate = (1 << bits) - 1
    while not _is_prime(candidate):
        candidate -= 2
    return candidate


def _is_prime(n: int) -> bool:
    """Miller-Rabin; these bases decide every odd n below 3.3 10^24 (Sorenson and Webster 2015)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    if n in bases:
        return True
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    for base in bases:
        x = pow(base, (n - 1) >> twos, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True


def context_encoding(context: Mapping[str, Any]) -> bytes:
    """The encoded context: see docs/test-vectors.md; `context` as in `schema.Context`."""
    names = ("round_number", "threshold", "minimum_survivors", "tolerated_colluders", "degree")
    later = ("security_bits", "opened_at", "lifetime_seconds")
    numbers = [context[name] for name in (*names, "bits", "length", *later)]
    return parts(
        bytes.fromhex(context["session_id"]),
        context["mode"].encode(),
        b"".join(number.to_bytes(8, "little") for number in numbers),
        b"".join(mask.to_bytes(8, "little") for mask in context["removal"]),
        b"".join(bytes.fromhex(key) for key in context["cohort"]),
        bytes.fromhex(context["application_digest"]),
    )


def message(number: int, *fields: bytes | int) -> bytes:
    """A version byte and a MessagePack array in its shortest form."""
    return VERSION + bytes([0x90 | 1 + len(fields)]) + b"".join(map(pack, (number, *fields)))


def pack(value: bytes | int) -> bytes:
    """A boolean, non-negative integer or byte string in MessagePack, in its shortest form."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if value < 128:
            return bytes([value])
        size = next(size for size in (1, 2, 4, 8) if value >> 8 * size == 0)
        return bytes([0xCB + size.bit_length()]) + value.to_bytes(size, "big")
    size = next(size for size in (1, 2, 4) if len(value) >> 8 * size == 0)
    return bytes([0xC3 + size.bit_length()]) + len(value).to_bytes(size, "big") + value


def fields_of(data: bytes) -> tuple[int, dict[str, Any]]:
    """A message's number, and its fields by their names."""
    number, *values = msgspec.msgpack.decode(data[len(VERSION) :])
    return number, dict(zip(("context", *FIELDS[number][1]), values, strict=True))
