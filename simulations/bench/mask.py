"""How fast masks are expanded and added, beside the bare keystream they are made of."""

from __future__ import annotations

import os
from collections.abc import Callable

from secagg import PrimeField
from secagg.pairwise.prg import MASK_KEY_BYTES, accumulate_masks
from simulations.bench.flower_peer import open_peer
from simulations.bench.limits import bare_keystream
from simulations.bench.timing import Figures, interleaved_seconds
from simulations.common.peers import Peer


def bench_mask(
    dim: int, neighbours: int, bits: int, repeats: int, peer: Peer | None = None
) -> Figures:
    """Mask a vector as a client with `neighbours` neighbours does.

    The limit is the AES-CTR keystream of the same number of bytes from the same number of keys,
    written to one reused buffer and thrown away. A peer does the same work, at the same length and
    number of neighbours, in the same run.

    `elements_per_second` counts elements times neighbours; `masked_bytes_per_second` counts the
    keystream consumed; `ratio_to_keystream` is the quotient of both byte rates, `ratio_to_peer`
    that of our element rate and the peer's.
    """
    theirs = None if peer is None else open_peer(peer).masking(dim, neighbours)
    field = PrimeField(bits)
    keys = [os.urandom(MASK_KEY_BYTES) for _ in range(neighbours)]
    subtract = [index % 2 == 1 for index in range(neighbours)]
    vector = field.zeros(dim)
    mask_bytes = dim * field.dtype.itemsize
    candidates: dict[str, Callable[[], object]] = {
        "mask": lambda: accumulate_masks(vector, field, keys, subtract),
        "keystream": lambda: bare_keystream(keys, mask_bytes),
    }
    if theirs is not None:
        candidates["peer"] = theirs.mask
    taken = interleaved_seconds(candidates, repeats)
    total = mask_bytes * neighbours
    figures: Figures = {
        "dim": dim,
        "neighbours": neighbours,
        "bits": bits,
        "seconds": taken["mask"],
        "elements_per_second": dim * neighbours / taken["mask"],
        "masked_bytes_per_second": total / taken["mask"],
        "keystream_bytes_per_second": total / taken["keystream"],
        "ratio_to_keystream": taken["keystream"] / taken["mask"],
    }
    if theirs is not None:
        figures |= {
            "peer": theirs.peer.value,
            "peer_elements_per_second": dim * neighbours / taken["peer"],
            "ratio_to_peer": taken["peer"] / taken["mask"],
            "note": theirs.note,
        }
    return figures
