"""How fast masks are expanded and added, beside the bare keystream they are made of."""

from __future__ import annotations

import os

from secagg import PrimeField
from secagg.prg import CHUNK_BYTES, MASK_KEY_BYTES, accumulate_masks, keystream
from simulations.bench.timing import interleaved_seconds

Figures = dict[str, int | float | bool]


def bench_mask(dim: int, neighbours: int, bits: int, repeats: int) -> Figures:
    """Mask a vector as a client with `neighbours` neighbours does.

    The limit is the AES-CTR keystream of the same number of bytes from the same number of keys,
    in chunks of the same size, written to one reused buffer and thrown away.

    Returns:
        `elements_per_second` counts elements times neighbours; `masked_bytes_per_second` counts
        the keystream consumed; `ratio_to_keystream` is the quotient of both byte rates.
    """
    field = PrimeField(bits)
    keys = [os.urandom(MASK_KEY_BYTES) for _ in range(neighbours)]
    subtract = [index % 2 == 1 for index in range(neighbours)]
    vector = field.zeros(dim)
    mask_bytes = dim * field.dtype.itemsize
    zeros, sink = bytes(CHUNK_BYTES), bytearray(CHUNK_BYTES + 16)

    def mask() -> None:
        accumulate_masks(vector, field, keys, subtract)

    def bare_keystream() -> None:
        for key in keys:
            stream = keystream(key, 0)
            for start in range(0, mask_bytes, CHUNK_BYTES):
                stream.update_into(memoryview(zeros)[: min(CHUNK_BYTES, mask_bytes - start)], sink)

    taken = interleaved_seconds({"mask": mask, "keystream": bare_keystream}, repeats)
    total = mask_bytes * neighbours
    return {
        "dim": dim,
        "neighbours": neighbours,
        "bits": bits,
        "seconds": taken["mask"],
        "elements_per_second": dim * neighbours / taken["mask"],
        "masked_bytes_per_second": total / taken["mask"],
        "keystream_bytes_per_second": total / taken["keystream"],
        "ratio_to_keystream": taken["keystream"] / taken["mask"],
    }
