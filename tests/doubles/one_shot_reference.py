"""The plain reference of one-shot rounds, with its two slowest steps made quick.

Products of polynomials and public elements take the reference as many steps as the degree squared.
Here Python multiplies two large integers, and NumPy one matrix by one vector; a test compares both
with the reference's own. Everything else is the reference as it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np
import one_shot_rounds as kit

from secagg.field import centre
from secagg.keystream import Keystream
from secagg.oneshot import reference
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.layout import encode_rows
from secagg.oneshot.messages import Answer, decode_from_member, decode_upload
from secagg.tags import Usage, derive

PLACE = 24
"""Bytes for one coefficient of a product: those of two residues of 81 bits and of the count."""


def quick_product(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    """The product modulo x^n + 1 and q: both polynomials as integers, their values at 2^192."""
    n = len(a)
    one, other = (
        int.from_bytes(b"".join((x % q).to_bytes(PLACE, "little") for x in each), "little")
        for each in (a, b)
    )
    product = (one * other).to_bytes(2 * n * PLACE, "little")
    whole = [
        int.from_bytes(product[i : i + PLACE], "little") for i in range(0, len(product), PLACE)
    ]
    return [(low - high) % q for low, high in zip(whole[:n], whole[n:], strict=True)]


def quick_element(context: OneShotContext, primes: Sequence[int], block: int) -> list[int]:
    """A public element: the inverse transform as one matrix."""
    n, q = context.degree, prod(primes)
    key = derive(context.hash, Usage.PUBLIC_ELEMENT, 16)
    bits = n.bit_length() - 1
    reversed_places = [int(f"{j:0{bits}b}"[::-1], 2) for j in range(n)]
    total = np.zeros(n, object)
    for i, p in enumerate(primes):
        psi = reference._root(p, n)
        powers = np.array([pow(psi, k, p) for k in range(2 * n)], np.uint64)
        values = np.zeros(n, np.uint64)
        values[reversed_places] = _words(key, (block * len(primes) + i) * n, n, p)
        exponents = -np.outer(np.arange(n), 2 * np.arange(n) + 1) % (2 * n)
        rows = np.zeros(n, np.uint64)
        # Products have 54 bits: 512 of them fit a word.
        for first in range(0, n, 512):
            part = powers[exponents[:, first : first + 512]] @ values[first : first + 512]
            rows = (rows + part) % np.uint64(p)
        share = q // p * pow(q // p, -1, p) * pow(n, -1, p)
        total = (total + rows.astype(object) * share) % q
    return [int(value) for value in total]


def _words(key: bytes, first: int, wanted: int, p: int) -> list[int]:
    """As the reference's, one stream at a time."""
    low, high = first // 4, -(-(first + wanted) // 4)
    words = Keystream(key).blocks(low, high - low).view("<u4")
    found = [int(word) % 2**27 for word in words[first - 4 * low :][:wanted]]
    return [
        value if value < p else reference._words(key, first + i, 1, p)[0]
        for i, value in enumerate(found)
    ]


@contextmanager
def quick() -> Iterator[None]:
    """Inside, the reference takes the quick steps."""
    with (
        patch.object(reference, "_negacyclic", quick_product),
        patch.object(reference, "_public_element", quick_element),
    ):
        yield


def by_reference(
    round_: kit.Round, lost: Collection[int] = (), away: Collection[int] = ()
) -> reference.ReferenceRound:
    """A round of the kit, as the reference plays it."""
    context = round_.context
    with quick():
        return reference.run_one_shot(
            context,
            [b"rounded %d" % client for client in range(context.size)],
            [centre(round_.vector(client)).tolist() for client in range(context.size)],
            lost,
            away,
            [kit.Stream("client", client) for client in range(context.size)],
        )


def check_upload(
    context: OneShotContext, plain: reference.ReferenceRound, i: int, data: bytes
) -> None:
    """The bytes of an upload hold the reference's ciphertext and seals."""
    upload = decode_upload(data, i, len(data))
    primes = reference._primes(context.degree, context.limbs)
    packed = reference._packed(plain.ciphertexts[i], primes, context.rounding_bits)
    assert upload.ciphertext == packed
    assert upload.seals == plain.seals[i]


def check_answer(
    context: OneShotContext, plain: reference.ReferenceRound, j: int, data: bytes
) -> None:
    """The bytes of a member's answer are the reference's."""
    answer = decode_from_member(data, j, len(data))
    assert isinstance(answer, Answer)
    found = (answer.sums, answer.seeds, answer.checks)
    assert found == tuple(_bytes_of(each) for each in plain.answers[j])


def _bytes_of(elements: Any) -> bytes:
    return encode_rows(np.array(elements, np.uint32))


__all__ = [
    "by_reference",
    "check_answer",
    "check_upload",
    "quick",
    "quick_element",
    "quick_product",
]
