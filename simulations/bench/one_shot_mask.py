"""How fast a one-shot client masks a vector, beside the bare transforms that this takes."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from protocol.schemes.committee import CommitteeNumbers, choose_ring
from secagg import PrimeField
from secagg.oneshot import _ring_kernels, gaussian
from secagg.oneshot.masking import mask
from secagg.oneshot.packing import Packing
from secagg.oneshot.ring import Ring
from simulations.bench.timing import Figures, interleaved_seconds

_KEY_BYTES = 16


def bench_one_shot_mask(
    dim: int, clients: int, bits: int, repeats: int, numbers: CommitteeNumbers
) -> Figures:
    """Draw a key and mask a vector, to bytes, on the ring that is planned for such a round.

    The limit is the transforms alone: the key's to the transform domain, and one back for each
    block, modulo every prime, in place in a buffer that stays in the cache.

    `elements_per_second` counts elements; `ratio_to_transforms` is our time as a multiple of the
    limit.
    """
    chosen = choose_ring(clients, dim, bits, 0, numbers)
    ring = Ring(chosen.degree, chosen.limbs)
    largest = PrimeField(bits).largest_centred
    packing = Packing(ring, largest, clients, chosen.rounding_bits)
    most = largest // clients
    values = np.random.default_rng(0).integers(-most, most + 1, dim)
    public_key, secret = os.urandom(_KEY_BYTES), os.urandom(_KEY_BYTES)

    def masked() -> object:
        key = gaussian.sample(secret, ring.degree)
        return mask(packing, public_key, key, secret[::-1], values)

    blocks = -(-packing.coefficients(dim) // ring.degree)
    candidates: dict[str, Callable[[], object]] = {
        "mask": masked,
        "transforms": bare_transforms(ring, blocks),
    }
    taken = interleaved_seconds(candidates, repeats)
    return {
        "dim": dim,
        "clients": clients,
        "bits": bits,
        "degree": ring.degree,
        "limbs": ring.limbs,
        "rounding_bits": chosen.rounding_bits,
        "blocks": blocks,
        "seconds": taken["mask"],
        "elements_per_second": dim / taken["mask"],
        "transforms_seconds": taken["transforms"],
        "ratio_to_transforms": taken["mask"] / taken["transforms"],
    }


def bare_transforms(ring: Ring, blocks: int) -> Callable[[], None]:
    """The transforms of a key and of so many blocks, in place in one element."""
    tables = ring.tables
    element = np.zeros((1, ring.limbs, ring.degree), np.uint32)

    def work() -> None:
        _ring_kernels.forward(element, tables.primes, tables.forward, tables.forward_q)
        for _ in range(blocks):
            _ring_kernels.inverse(
                element, tables.primes, tables.inverse, tables.inverse_q, tables.last, tables.last_q
            )

    return work
