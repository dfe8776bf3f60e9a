"""Building blocks of the one-shot protocol, by `wire` and `secagg.oneshot.reference`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from secagg.oneshot.reference import _delta, _gaussian, _packed, _primes, _value_at, _words

from .. import wire
from ..blocks import filled
from ..schema import PrimitiveVector
from .encodings import context_encoding
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
    for name in ("plain", "losses", "everyone", "rounded"):
        context = HONEST[name][1].context
        yield {"context": context, "encoded": context_encoding(dict(context)).hex()}


ALL: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "one-shot-gaussian": ("Samples of the discrete Gaussian.", gaussians),
    "one-shot-public-element": ("Public ring elements in the transform domain.", public_elements),
    "one-shot-ciphertext": ("Coefficients on the wire, rounded and not.", ciphertexts),
    "one-shot-shares": ("Packed shares, with words drawn again.", shares),
    "one-shot-context": ("One-shot contexts, encoded and hashed.", contexts),
}


def vectors() -> Iterator[tuple[str, PrimitiveVector]]:
    """All files, by name."""
    for name, (description, cases) in ALL.items():
        yield name, {"description": description, "primitive": name, "cases": list(cases())}
