"""Building blocks on their own, by `wire` and `secagg.pairwise.reference`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from secagg.field import PrimeField
from secagg.pairwise.reference import expand_element

from . import wire
from .positive import HONEST
from .schema import PrimitiveVector

Case = dict[str, Any]

MASK_KEY = bytes(range(16))
# (bits, start, length). Found by search over this key's stream 0: at 31 (8 bits), 13684 (16),
# 38467 (18), 12123645 (24), 735907263 (31, 32) and 3704866830 (33) one word is refused, at 4610
# (8), 30807722 (16) and 6220940044 (18) two, at 59042 (8) three.
MASKS = (
    (8, 0, 40),
    (8, 4608, 8),
    (8, 59041, 3),
    (9, 1, 9),
    (16, 0, 9),
    (16, 13683, 3),
    (16, 30807719, 8),
    (17, 3, 5),
    (18, 38466, 3),
    (18, 6220940043, 3),
    (24, 0, 5),
    (24, 12123643, 5),
    (31, 735907262, 3),
    (32, 0, 5),
    (32, 735907262, 3),
    (33, 1, 3),
    (33, 3704866829, 3),
    (61, 0, 3),
    (62, (1 << 48) - 3, 3),
)


def filled(label: str, size: int) -> bytes:
    """Fixed bytes that look random."""
    return wire.counter_rand(label.encode())(size)


def masks() -> Iterator[Case]:
    """Elements start .. start + length of the mask of a key."""
    for bits, start, length in MASKS:
        field = PrimeField(bits)
        found = [expand_element(field, MASK_KEY, i) for i in range(start, start + length)]
        yield {
            "bits": bits,
            "key": MASK_KEY.hex(),
            "start": start,
            "elements": [element for element, _ in found],
            "refused": [refused for _, refused in found],
        }


def shamir() -> Iterator[Case]:
    """Shares for given randomness, one string for each call; and secrets from shares."""
    secrets = [bytes(32), b"\xff" * 32, bytes(range(32)), filled("secret", 32)]
    for holders, threshold, count in (
        ([0], 1, 1),
        ([0, 1], 2, 1),
        ([0, 1, 2, 3, 4], 3, 2),
        ([1, 4, 6, 7], 4, 4),
        ([3, 1000, (1 << 20) - 1], 2, 3),
    ):
        drawn = filled(f"coefficients {threshold}", 4 * (threshold - 1) * 9 * count)
        yield shamir_case(secrets[:count], holders, threshold, [drawn])
    # The first and the last word of the first draw, and one of the second, are 2^31 - 1.
    refused = (0xFFFFFFFF).to_bytes(4, "little"), (0x7FFFFFFF).to_bytes(4, "little")
    first = refused[0] + filled("middle", 4 * 7) + refused[1]
    second = filled("second", 4) + refused[0]
    yield shamir_case(secrets[3:], [0, 2, 5], 2, [first, second, filled("third", 4)])


def shamir_case(
    secrets: list[bytes], holders: list[int], threshold: int, draws: list[bytes]
) -> Case:
    """Shares, and that the last t of them rebuild the secrets."""
    pending = list(draws)

    def rand(count: int) -> bytes:
        if not count:
            return b""
        drawn = pending.pop(0)
        if len(drawn) != count:
            raise AssertionError(f"a draw of {count} bytes, {len(drawn)} prepared")
        return drawn

    shares = wire.split(secrets, holders, threshold, rand)
    return {
        "secrets": [secret.hex() for secret in secrets],
        "holders": holders,
        "threshold": threshold,
        "draws": [drawn.hex() for drawn in draws if drawn],
        "shares": [shares[holder].hex() for holder in holders],
    }


def rings() -> Iterator[Case]:
    """Ring order, and the neighbours of every member."""
    for members, degree in (
        (list(range(7)), 4),
        (list(range(8)), 6),
        ([1, 2, 5, 8, 9, 300], 2),
        (list(range(5)), 4),
    ):
        for label in ("ring a", "ring b"):
            seed = filled(label, 32)
            near = wire.neighbours(members, degree, seed)
            yield {
                "round_hash": seed.hex(),
                "members": members,
                "degree": degree,
                "key": wire.derive(seed, "graph", 16).hex(),
                "order": wire.random_order(members, seed, "graph"),
                "neighbours": [near[u] for u in members],
            }


def committees() -> Iterator[Case]:
    """Who confirms the survivor set of a sparse round, and how many must."""
    for count, corrupt, alive, bits in (
        (20, 1, 18, 80),
        (64, 0, 60, 80),
        (65, 0, 64, 80),
        (100, 5, 90, 80),
        (300, 15, 210, 80),
        (300, 60, 200, 80),
        (1000, 50, 900, 80),
        (1000, 50, 900, 40),
        (1000, 50, 900, 128),
    ):
        members = [u for u in range(count + 3) if u not in (2, 3, 17)]
        seed = filled(f"committee {count}", 32)
        size, quorum = wire.committee_size(count, corrupt, alive, bits)
        yield {
            "round_hash": seed.hex(),
            "members": members,
            "corrupt": corrupt,
            "alive": alive,
            "security_bits": bits,
            "size": size,
            "quorum": quorum,
            "key": wire.derive(seed, "committee", 16).hex(),
            "committee": sorted(wire.random_order(members, seed, "committee")[:size]),
        }


def trees() -> Iterator[Case]:
    """Roots and proofs, and proofs that are none."""
    for count in range(1, 10):
        entries = [filled(f"entry {i}", 5) for i in range(count)]
        yield {
            "entries": [entry.hex() for entry in entries],
            "root": wire.tree_root(entries).hex(),
            "proofs": [wire.tree_proof(entries, i).hex() for i in range(count)],
        }


def seals() -> Iterator[Case]:
    """Shares sealed for their recipients."""
    shared, round_hash = filled("shared", 32), filled("round", 32)
    for sender, recipient, size in ((0, 1, 72), (1, 0, 72), (5, 300, 144)):
        plain = filled("plain", size)
        bound = round_hash, wire.index(sender), wire.index(recipient)
        yield {
            "shared": shared.hex(),
            "round_hash": round_hash.hex(),
            "sender": sender,
            "recipient": recipient,
            "key": wire.derive(shared, "seal shares", 64, *bound).hex(),
            "associated_data": wire.tagged("seal shares", *bound).hex(),
            "plain": plain.hex(),
            "sealed": wire.seal(shared, round_hash, sender, recipient, plain).hex(),
        }


def commitments() -> Iterator[Case]:
    """Commitments to seeds."""
    round_hash = filled("round", 32)
    for party, number in ((0, 0), (0, 1), (1, 0), (1 << 16, 63)):
        seed = filled(f"seed {party}", 32)
        yield {
            "round_hash": round_hash.hex(),
            "party": party,
            "number": number,
            "seed": seed.hex(),
            "commitment": wire.commitment(round_hash, party, number, seed).hex(),
        }


def contexts() -> Iterator[Case]:
    """Encoded contexts and their hashes."""
    for name in ("active", "semi-honest-drop", "sparse", "recovery", "recovery-semi-honest"):
        context = HONEST[name][1].context
        yield {"context": context, "encoded": wire.context_encoding(dict(context)).hex()}


def keys() -> Iterator[Case]:
    """Agreement and mask keys of two clients."""
    round_hash = filled("round", 32)
    for u, v in ((0, 1), (7, 2)):
        own, peer, seed = (filled(f"{kind} {u}", 32) for kind in ("own", "peer", "seed"))
        shared = wire.agree(own, wire.public_key(peer))
        yield {
            "u": u,
            "v": v,
            "private_u": own.hex(),
            "private_v": peer.hex(),
            "public_u": wire.public_key(own).hex(),
            "public_v": wire.public_key(peer).hex(),
            "agreed": shared.hex(),
            "round_hash": round_hash.hex(),
            "pair_mask_key": wire.pair_mask_key(shared, round_hash, u, v).hex(),
            "seed_u": seed.hex(),
            "self_mask_key_u": wire.self_mask_key(seed, round_hash, u).hex(),
        }


USAGES = (
    "context",
    "roster",
    "tree leaf",
    "tree node",
    "graph",
    "committee",
    "sign advertisement",
    "sign shares",
    "sign masked input",
    "sign survivors",
    "sign unmask shares",
    "sign seed shares",
    "seal shares",
    "pairwise mask",
    "self mask",
    "store session",
    "commit seed",
    "sign claim to a node",
    "one-shot context",
    "sign sealing key",
    "public ring element",
    "derive noise seeds",
    "derive upload secrets",
    "hash ciphertext",
    "hash seals",
    "sign upload",
    "sign one-shot survivors",
    "post-mortem challenge",
    "sign answer",
    "sign complaints",
    "seed of a draw",
    "ticket of a draw",
    "records of a run",
    "signed registry",
    "announced session",
    "sign announcement",
    "sign rotation",
)


def tags() -> Iterator[Case]:
    """Tagged strings, and what is made of them."""
    secret, private = filled("secret", 32), hashlib.sha256(b"identity 0").digest()
    for usage in USAGES:
        for strings in ([b""], [b"a", b"", wire.index(258)]):
            yield {
                "usage": usage,
                "parts": [string.hex() for string in strings],
                "tagged": wire.tagged(usage, *strings).hex(),
                "digest": wire.digest(usage, *strings).hex(),
                "secret": secret.hex(),
                "derived": wire.derive(secret, usage, 48, *strings).hex(),
                "private": private.hex(),
                "signature": wire.sign(private, usage, *strings).hex(),
            }


def fields() -> Iterator[Case]:
    """The prime of every field, and vectors packed."""
    for bits in range(8, 63):
        p = wire.prime(bits)
        elements = [0, 1, p - 1, p // 2, p // 3]
        packed = wire.pack_vector(elements, bits)
        yield {"bits": bits, "prime": p, "elements": elements, "packed": packed.hex()}


def sets() -> Iterator[Case]:
    """Bitmaps; without members those that are refused."""
    for size, members in (
        (2, []),
        (3, [0, 1, 2]),
        (8, [0, 7]),
        (9, [8]),
        (20, [1, 8, 19]),
        (64, [0, 31, 32, 63]),
    ):
        encoded = wire.bitmap(members, size).hex()
        yield {"size": size, "members": members, "bitmap": encoded}
    for size, encoded in ((3, "08"), (3, "80"), (3, "0700"), (3, ""), (9, "ff"), (9, "0002")):
        yield {"size": size, "members": None, "bitmap": encoded}


ALL: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "mask": ("Mask expansion for every word size, with refused words.", masks),
    "shamir": ("Shares of 32-byte secrets, with words drawn again.", shamir),
    "ring": ("Order of the ring and neighbours.", rings),
    "committee": ("Who confirms a survivor set on a sparse graph.", committees),
    "tree": ("Hash trees over one to nine entries.", trees),
    "seal": ("Sealed shares.", seals),
    "commitment": ("Commitments to seeds.", commitments),
    "context": ("Contexts, encoded and hashed.", contexts),
    "keys": ("Key agreement and mask keys.", keys),
    "tagged": ("Tagged strings of every usage: hashed, derived from, signed.", tags),
    "field": ("Primes and packed vectors.", fields),
    "set": ("Bitmaps of sets of parties.", sets),
}


def vectors() -> Iterator[tuple[str, PrimitiveVector]]:
    """All files, by name."""
    for name, (description, cases) in ALL.items():
        yield name, {"description": description, "primitive": name, "cases": list(cases())}
