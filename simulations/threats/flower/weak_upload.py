"""An upload under Flower's masks with one of them left on it: the twin of `our_upload`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulations.audits.base import Integers
from simulations.threats.flower.masks import (
    LARGEST,
    PAIR_SEED_BITS,
    RING,
    first_elements,
    fold,
    gather,
    mask_of,
    weak_mask,
    weak_pair_key,
)
from simulations.threats.seed_search import Numbers, Peeled


@dataclass(frozen=True, slots=True, eq=False)
class WeakUpload:
    """A victim's upload with one mask left, and what is told about the folded key of that mask.

    Attributes:
        plain: int64[length], the victim's vector.
        told: the high bits of the folded key's number.
        tried_bits: how many low bits are not told, of 28; all of these are tried.
    """

    peeled: Peeled
    plain: Integers
    told: int
    tried_bits: int

    @classmethod
    def of(cls, peeled: Peeled, plain: Integers, key: bytes, tried_bits: int) -> WeakUpload:
        """An upload whose last mask has this key; only its high bits are kept."""
        return cls(peeled, plain, gather(fold(key)) >> tried_bits, tried_bits)

    def candidates(self) -> range:
        """All that agree with what is told."""
        return range(self.told << self.tried_bits, (self.told + 1) << self.tried_bits)

    def first_elements(self, numbers: Numbers) -> NDArray[np.uint32]:
        """The first elements of candidates' masks: uint32[`LOOKED_AT`, N]."""
        return first_elements(numbers)

    def mask(self, number: int) -> Integers:
        """The whole mask of a candidate: int64[length]."""
        return mask_of(number, self.plain.size)


def weak_upload(
    length: int, rng: np.random.Generator, tried_bits: int = PAIR_SEED_BITS
) -> WeakUpload:
    """The round of `our_upload` under weak masks.

    The victim's self mask comes off because its seed is rebuilt, the mask with the lost client
    because its key is, and the mask with the colluder because it tells its own. The mask with the
    honest survivor stays.

    Args:
        length: coordinates, at least 4.
        tried_bits: how many bits of the last mask's seed the server is not told, at most 28.
    """
    plain = rng.integers(0, LARGEST + 1, length)
    seed = secrets.token_bytes(32)
    lost, colluder, honest = (weak_pair_key() for _ in range(3))
    known = [weak_mask(key, RING, length) for key in (seed, lost, colluder)]
    # The victim has the lowest number of all, so it subtracts pairwise masks.
    upload = (plain + known[0] - known[1] - known[2] - weak_mask(honest, RING, length)) % RING
    left = (upload - known[0] + known[1] + known[2]) % RING
    return WeakUpload.of(Peeled(left, True, RING, LARGEST), plain, honest, tried_bits)
