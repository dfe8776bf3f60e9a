"""How fast secrets are shared and rebuilt, beside a bare matrix product of the same size."""

from __future__ import annotations

import os
from collections.abc import Callable

from secagg.shamir import LIMBS, PRIME, SECRET_BYTES, combine, random_elements, split
from simulations.bench.flower_peer import open_peer
from simulations.bench.limits import modular_product
from simulations.bench.timing import Figures, interleaved_seconds
from simulations.common.peers import Peer


def bench_shamir(
    secrets: int, holders: int, threshold: int, repeats: int, peer: Peer | None = None
) -> Figures:
    """Share secrets with every holder, and rebuild them from `threshold` of them.

    The limits are plain NumPy matrix products with as many modular multiplications: powers of the
    points times coefficients, and weights times shares. They leave out what is not a matrix
    product: drawing the coefficients, computing the weights, cutting and joining the limbs. A peer
    shares and rebuilds the same secrets, from as many shares, in the same run.

    Seconds of both halves, with the quotients of our time and the limit's, of the peer's time and
    ours; `correct` and `peer_correct`: the secrets came back.
    """
    chosen = [os.urandom(SECRET_BYTES) for _ in range(secrets)]
    shares = split(chosen, range(holders), threshold, os.urandom)
    theirs = None if peer is None else open_peer(peer).sharing(chosen, holders, threshold)
    # Any holders do; the last ones have the largest points.
    answering = range(holders - threshold, holders)
    correct = combine(shares[answering.start :], answering) == chosen
    columns = secrets * LIMBS
    matrix = random_elements(holders * threshold, os.urandom).reshape(holders, threshold)
    coefficients = random_elements(threshold * columns, os.urandom).reshape(threshold, columns)
    candidates: dict[str, Callable[[], object]] = {
        "create": lambda: split(chosen, range(holders), threshold, os.urandom),
        "create_limit": lambda: modular_product(matrix, coefficients, PRIME),
        "combine": lambda: combine(shares[answering.start :], answering),
        "combine_limit": lambda: modular_product(matrix[:1], coefficients, PRIME),
    }
    if theirs is not None:
        candidates |= {"peer_create": theirs.create, "peer_combine": theirs.combine}
    taken = interleaved_seconds(candidates, repeats)
    figures: Figures = {
        "secrets": secrets,
        "holders": holders,
        "threshold": threshold,
        "create_seconds": taken["create"],
        "create_limit_seconds": taken["create_limit"],
        "create_ratio_to_limit": taken["create"] / taken["create_limit"],
        "combine_seconds": taken["combine"],
        "combine_limit_seconds": taken["combine_limit"],
        "combine_ratio_to_limit": taken["combine"] / taken["combine_limit"],
        "correct": correct,
    }
    if theirs is not None:
        figures |= {
            "peer": theirs.peer.value,
            "peer_create_seconds": taken["peer_create"],
            "create_ratio_to_peer": taken["peer_create"] / taken["create"],
            "peer_combine_seconds": taken["peer_combine"],
            "combine_ratio_to_peer": taken["peer_combine"] / taken["combine"],
            "peer_correct": theirs.combine() == chosen,
            "note": theirs.note,
        }
    return figures
