"""How fast secrets are shared and rebuilt, beside a bare matrix product of the same size."""

from __future__ import annotations

import os

from secagg.shamir import LIMBS, PRIME, SECRET_BYTES, combine, random_elements, split
from simulations.bench.limits import modular_product
from simulations.bench.timing import Figures, interleaved_seconds


def bench_shamir(secrets: int, holders: int, threshold: int, repeats: int) -> Figures:
    """Share secrets with every holder, and rebuild them from `threshold` of them.

    The limits are plain NumPy matrix products with as many modular multiplications: powers of the
    points times coefficients, and weights times shares. They leave out what is not a matrix
    product: drawing the coefficients, computing the weights, cutting and joining the limbs.

    Raises:
        ParameterError: the threshold is not in 1 .. holders.
    """
    chosen = [os.urandom(SECRET_BYTES) for _ in range(secrets)]
    shares = split(chosen, range(holders), threshold, os.urandom)
    # Any holders do; the last ones have the largest points.
    answering = range(holders - threshold, holders)
    correct = combine(shares[answering.start :], answering) == chosen
    columns = secrets * LIMBS
    matrix = random_elements(holders * threshold, os.urandom).reshape(holders, threshold)
    coefficients = random_elements(threshold * columns, os.urandom).reshape(threshold, columns)
    taken = interleaved_seconds(
        {
            "create": lambda: split(chosen, range(holders), threshold, os.urandom),
            "create_limit": lambda: modular_product(matrix, coefficients, PRIME),
            "combine": lambda: combine(shares[answering.start :], answering),
            "combine_limit": lambda: modular_product(matrix[:1], coefficients, PRIME),
        },
        repeats,
    )
    return {
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
