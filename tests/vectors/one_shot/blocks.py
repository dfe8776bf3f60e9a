"""Building blocks of the one-shot protocol, by `wire` and `secagg.oneshot.reference`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from secagg.oneshot.reference import _delta, _gaussian, _packed, _primes, _value_at, _words

from .. import wire
from ..blocks import filled
from ..corpus import flip
from ..handmade import SESSION_ID
from ..schema import PrimitiveVector
from .encodings import context_encoding, draw_seed, joint_proof, ticket
from .played import ROUND_NUMBER
from .rounds import HONEST

Case = dict[str, Any]


def gaussians() -> Iterator[Case]:
    """Samples of three keys; the last stands at both ends of the first bits."""
    for label in ("gaussian a", "gaussian b", "gaussian c"):
        key = filled(label, 16)
        yield {"key": key.hex(), "samples": _gaussian(key, 200)}


def public_elements() -> Iterator[Case]:
    """One element each; with refused words in the largest ring."""
    for degree, limbs, block in ((1024, 1, 0), (1024, 1, 5), (2048, 2, 1), (8192, 7, 0)):
        key, primes = filled(f"public {degree}", 16), _primes(degree, limbs)
        values = [
            _words(key, (block * limbs + i) * degree, degree, p) for i, p in enumerate(primes)
        ]
        every = b"".join(value.to_bytes(4, "little") for row in values for value in row)
        yield {
            "degree": degree,
            "limbs": limbs,
            "primes": primes,
            "key": key.hex(),
            "block": block,
            "first": [row[:6] for row in values],
            "sha256": hashlib.sha256(every).hexdigest(),
        }


def ciphertexts() -> Iterator[Case]:
    """Coefficients on the wire; null where the bytes must be refused."""
    for degree, limbs, rounding, clients, largest in (
        (1024, 1, 0, 5, 1000),
        (1024, 1, 5, 5, 300),
        (2048, 2, 0, 100, 1 << 20),
        (2048, 2, 7, 100, 1 << 11),
        (8192, 7, 0, 1000, 1 << 22),
        (8192, 7, 11, 1000, 1 << 40),
    ):
        primes = _primes(degree, limbs)
        q, base, delta = prod(primes), 2 * largest + 1, _delta(clients, rounding)
        per = max(e for e in range(1, 200) if delta * base**e < q)
        # As many as are sent of a short vector, or some more.
        count = 64 if limbs > 1 else 67
        drawn = filled(f"coefficients {limbs} {rounding}", 32 * (count - 2))
        values = [0, q - 1]
        values += [
            int.from_bytes(drawn[i : i + 32], "little") % q for i in range(0, len(drawn), 32)
        ]
        coefficients = [value >> rounding for value in values]
        encoded = _packed(coefficients, primes, rounding)
        case = {
            "degree": degree,
            "limbs": limbs,
            "rounding_bits": rounding,
            "clients": clients,
            "largest": largest,
            "delta": delta,
            "per": per,
            "length": per * (3 if count == 64 else count),
        }
        yield {**case, "coefficients": coefficients, "encoded": encoded.hex()}
        for bad in (
            encoded[:-1],
            encoded + b"\0",
            b"\xff" * 26 + encoded[26:] if limbs > 1 else b"\xff" * 4 + encoded[4:],
            *([encoded[:-1] + bytes([encoded[-1] | 0x80])] if count % 8 else []),
        ):
            yield {**case, "coefficients": None, "encoded": bad.hex()}


def shares() -> Iterator[Case]:
    """Packed shares for given randomness, with words that are drawn again."""
    p = wire.SHAMIR_PRIME
    for per, randomness, members, count in (
        (1, 1, 3, 3),
        (2, 1, 4, 5),
        (4, 3, 9, 10),
        (3, 2, 5, 3),
    ):
        secrets = wire.coefficients(count, wire.counter_rand(b"secrets %d" % per))
        secrets[0], secrets[-1] = 0, p - 1
        rows = -(-count // per)
        first = bytearray(filled(f"draw {per}", 4 * randomness * rows))
        again = b""
        if per == 4:
            first[4:8], again = b"\xff\xff\xff\xff", filled("again", 4)
        draws = [bytes(first), *([again] if again else [])]
        pending = list(draws)
        drawn = wire.coefficients(randomness * rows, lambda _, left=pending: left.pop(0))
        padded = [*secrets, *[0] * (rows * per - count)]
        dealt = [[0] * rows for _ in range(members)]
        for row in range(rows):
            known = {p - 1 - i: padded[row * per + i] for i in range(per)}
            known |= {h + 1: drawn[h * rows + row] for h in range(randomness)}
            for h in range(members):
                dealt[h][row] = _value_at(known, h + 1)
        yield {
            "secrets": secrets,
            "per_polynomial": per,
            "randomness": randomness,
            "members": members,
            "draws": [each.hex() for each in draws],
            "shares": dealt,
        }


def contexts() -> Iterator[Case]:
    """Encoded contexts and their hashes."""
    for name in ("plain", "losses", "everyone", "rounded", "drawn", "drawn-by-beacon",
        "members-upload", "members-take-back",
    ):  # fmt: skip
        context = HONEST[name][1].context
        yield {"context": context, "encoded": context_encoding(dict(context)).hex()}


def draws() -> Iterator[Case]:
    """Tickets, the members' joint proof, and proofs that must be refused."""
    for name in ("drawn", "drawn-by-beacon"):
        round_ = HONEST[name][1]
        proof, places = joint_proof(round_.registry, round_.positions), round_.positions
        session, number = SESSION_ID, ROUND_NUMBER
        case = {
            "draw": round_.draw,
            "session_id": session.hex(),
            "round_number": number,
            "registry": [key.hex() for key in round_.registry],
            "seed": draw_seed(round_.draw, session, number).hex(),
            "tickets": round_.tickets,
        }
        yield {**case, "positions": places, "proof": proof.hex(), "valid": True}
        others = [place for place in range(round_.registered) if place not in places]
        for positions, bad in (
            (places, proof[:-32]),
            (places, proof + bytes(32)),
            (places, proof[:-1]),
            (places, flip()(proof)),
            (places[::-1], proof),
            ([places[0], *places[:-1]], proof),
            ([*places[:-1], others[-1]], proof),
            ([*places[:-1], round_.registered], proof),
            (places[:-1], proof),
            ([], proof),
        ):
            yield {**case, "positions": positions, "proof": bad.hex(), "valid": False}


def undrawn() -> Iterator[Case]:
    """Contexts with a member that was not drawn in this round; and draws that are none."""
    low = HONEST["drawn"][1]
    context = low.context
    entries = context["committee"]["members"]
    highest = max(low.tickets[place] for place in low.positions)

    def drawn(number: int, draw: dict[str, Any]) -> bool:
        seed = draw_seed({**low.draw, **draw}, SESSION_ID, number)
        members = (bytes.fromhex(each["identity"]) for each in entries)
        return all(ticket(seed, member) < low.odds for member in members)

    # Other values of which at least one member would not have been drawn.
    numbers = (number for number in range(ROUND_NUMBER + 1, 9) if not drawn(number, {}))
    sizes = (
        size
        for size in range(low.registered + 1, 99)
        if not drawn(ROUND_NUMBER, {"registry_size": size})
    )
    fills = [f"{byte:02x}" * 32 for byte in range(99)]
    roots = (fill for fill in fills if not drawn(ROUND_NUMBER, {"registry_root": fill}))
    beacons = (fill for fill in fills if not drawn(ROUND_NUMBER, {"beacon": fill}))
    for changes, draw, argument in (
        ({"round_number": next(numbers)}, {}, "members"),
        ({}, {"odds": highest}, "members"),
        ({}, {"registry_size": next(sizes)}, "members"),
        ({}, {"registry_root": next(roots)}, "members"),
        ({}, {"beacon": next(beacons)}, "members"),
        ({}, {"odds": 0}, "odds"),
        ({}, {"registry_size": 0}, "registry_size"),
        ({}, {"beacon": "00" * 31}, "beacon"),
        ({}, {"registry_root": "00" * 31}, "registry_root"),
    ):
        terms = {**context["committee"], "members": entries, "draw": {**low.draw, **draw}}
        yield {"context": {**context, "committee": terms, **changes}, "argument": argument}
    for kind in ("named", "everyone"):
        terms = {**context["committee"], "kind": kind}
        yield {"context": {**context, "committee": terms}, "argument": "draw"}
    bare = {key: value for key, value in context["committee"].items() if key != "draw"}
    yield {"context": {**context, "committee": bare}, "argument": "draw"}


ALL: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "one-shot-gaussian": ("Samples of the discrete Gaussian.", gaussians),
    "one-shot-public-element": ("Public ring elements in the transform domain.", public_elements),
    "one-shot-ciphertext": ("Coefficients on the wire, rounded and not.", ciphertexts),
    "one-shot-shares": ("Packed shares, with words drawn again.", shares),
    "one-shot-context": ("One-shot contexts, encoded and hashed.", contexts),
    "one-shot-draw": ("Tickets, and where members are in a registry.", draws),
    "one-shot-undrawn": ("Contexts of drawn committees that are refused.", undrawn),
}


def vectors() -> Iterator[tuple[str, PrimitiveVector]]:
    """All files, by name."""
    for name, (description, cases) in ALL.items():
        yield name, {"description": description, "primitive": name, "cases": list(cases())}
