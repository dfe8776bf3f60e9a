"""How fast a client of validated rounds masks a vector, beside the bare transforms this takes."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from secagg.oneshot.gaussian import sample
from secagg.validated.context import DEGREE
from secagg.validated.messages import pack
from secagg.validated.ring import PrimeRing
from simulations.bench.timing import Figures, interleaved_seconds

_BITS = 46
"""Of the prime, in the middle of what is used."""


def bench_validated_mask(dim: int, repeats: int) -> Figures:
    """Draw a key and errors, and mask a vector, to bytes; no proof, which `bench validated` has.

    The limit is the transforms alone: the key's to the transform domain, and one back for each
    block. Keys are as those of the other schemes.
    """
    ring, blocks = PrimeRing(DEGREE, _BITS), -(-dim // DEGREE)
    values = np.random.default_rng(0).integers(-1000, 1001, dim)
    public_key, secret = os.urandom(16), os.urandom(16)

    def masked() -> object:
        key = ring.reduce(sample(secret, DEGREE).reshape(1, -1))
        added = sample(secret[::-1], blocks * DEGREE).astype(np.int64)
        added[:dim] += values
        elements = ring.elements(public_key, 0, blocks)
        masks = ring.multiply(elements, ring.forward(key)[0])
        return pack(ring, (masks + ring.reduce(added).reshape(masks.shape)) % ring.q)

    element, every = np.zeros((1, DEGREE), np.uint64), np.zeros((blocks, DEGREE), np.uint64)

    def bare() -> None:
        ring.forward(element)
        ring.inverse(every)

    candidates: dict[str, Callable[[], object]] = {"mask": masked, "transforms": bare}
    taken = interleaved_seconds(candidates, repeats)
    return {
        "dim": dim,
        "degree": DEGREE,
        "ring_bits": _BITS,
        "blocks": blocks,
        "seconds": taken["mask"],
        "elements_per_second": dim / taken["mask"],
        "transforms_seconds": taken["transforms"],
        "ratio_to_transforms": taken["mask"] / taken["transforms"],
    }
