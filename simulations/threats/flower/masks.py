"""Flower's mask generator, written again: the weak twin of ours.

A seed of 32 bytes or more is folded to 32 bits by exclusive or, word by word, and seeds NumPy's
Mersenne Twister, which is no cryptographic generator. `randint(0, range - 1)` excludes its upper
end, so the top residue is never drawn. What is worse: the seed of a pairwise mask is not 32 bytes
of key material but their URL-safe base64, 44 ASCII characters. The top bit of each byte is zero,
before folding and after it: 28 bits of the 32 vary.

Source: flwr 1.41, common/secure_aggregation/secaggplus_utils.py (`pseudo_rand_gen`) and
crypto/symmetric_encryption.py (`generate_shared_key`). A test compares this with the original where
that is installed.
"""

from __future__ import annotations

import base64
import math
import secrets
import string
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from simulations.audits.base import Integers
from simulations.threats.seed_search.search import LOOKED_AT, Numbers, mersenne_outputs

RING: Final = 1 << 32
"""Flower's default modulus."""
LARGEST: Final = 1 << 22
"""Flower's default quantisation range: values lie in 0 .. 2^22."""
PAIR_SEED_BITS: Final = 28
"""Bits of a folded pairwise key that vary."""
_CHARACTERS: Final = 44
"""Of 32 bytes in base64: 42 of six bits, one of four, and a padding sign."""
_SEPTET: Final = 7


def fold(seed: bytes) -> int:
    """The 32 bits that Flower's generator keeps of a seed; len(seed) is a multiple of 4."""
    return int(np.bitwise_xor.reduce(np.frombuffer(seed, "<u4")))


def weak_mask(seed: bytes, modulus: int, length: int) -> Integers:
    """Flower's mask: int64[length] in 0 .. modulus - 2."""
    generator = np.random.RandomState(fold(seed))
    return generator.randint(0, modulus - 1, length, dtype=np.int64)


def weak_pair_key() -> bytes:
    """What two of Flower's clients agree on: 32 bytes of a key derivation, in base64."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32))


def second_key(key: bytes) -> bytes:
    """Another seed with the same mask: the first two words, of four bytes each, are exchanged."""
    return key[4:8] + key[:4] + key[8:]


def spread(numbers: Numbers) -> NDArray[np.uint32]:
    """The folded pairwise key of each number below 2^28: seven bits go into each byte."""
    packed = numbers.astype(np.uint32)
    spaced = np.zeros_like(packed)
    for byte in range(4):
        septet = (packed >> np.uint32(_SEPTET * byte)) & np.uint32(0x7F)
        spaced |= septet << np.uint32(8 * byte)
    return spaced


def gather(folded: int) -> int:
    """Inverse of `spread`: the number of a folded pairwise key."""
    return sum((folded >> 8 * byte & 0x7F) << _SEPTET * byte for byte in range(4))


def first_elements(numbers: Numbers) -> NDArray[np.uint32]:
    """The first `LOOKED_AT` elements of the masks of numbered pairwise keys, over `RING`.

    The generator draws again where it hits the top residue. That is left out here: it makes a
    search miss the right seed with probability 4 / 2^32.
    """
    return mersenne_outputs(spread(numbers), LOOKED_AT)


def mask_of(number: int, length: int) -> Integers:
    """The whole mask of a numbered pairwise key over `RING`: int64[length]."""
    folded = int(spread(np.array([number], np.uint64))[0])
    return weak_mask(folded.to_bytes(4, "little"), RING, length)


@lru_cache(maxsize=1)
def pair_seed_entropy() -> float:
    """Bits of Shannon entropy of a folded pairwise key, for a uniform key: a little below 28.

    Each byte of the fold is the exclusive or of eleven characters, and no character is in two
    bytes. The laws of independent characters multiply under the Walsh-Hadamard transform.
    """
    values = {
        character: i
        for i, character in enumerate(
            string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
        )
    }
    any_character = _law(tuple(values))
    # The last character of key material carries four bits; the two low ones of its six are zero.
    last = _law(tuple(c for c, i in values.items() if i % 4 == 0))
    places = [any_character] * (_CHARACTERS - 2) + [last, _law(("=",))]
    transform = hadamard(1 << _SEPTET)
    total = 0.0
    for byte in range(4):
        spectrum = np.prod([transform @ law for law in places[byte::4]], axis=0)
        law = np.clip(transform @ spectrum / (1 << _SEPTET), 0.0, 1.0)
        total -= math.fsum(p * math.log2(p) for p in law.tolist() if p > 0.0)
    return total


def _law(characters: tuple[str, ...]) -> NDArray[np.float64]:
    """The law of one of these characters as seven bits: float64[128]."""
    law = np.zeros(1 << _SEPTET)
    law[[ord(character) for character in characters]] = 1.0 / len(characters)
    return law
