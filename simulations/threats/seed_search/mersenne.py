"""First outputs of many Mersenne Twisters: what a search for a 32-bit seed looks at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg import ParameterError
from simulations.threats.seed_search._kernels import LANES, MOST_OUTPUTS, first_outputs


def mersenne_outputs(seeds: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """The first 32-bit outputs for each seed, as `numpy.random.RandomState(seed)` gives them.

    Args:
        seeds: uint32[N].

    Returns:
        uint32[count, N]: all first outputs, then all second ones, and so on.
    """
    if seeds.dtype != np.uint32 or seeds.ndim != 1:
        raise ParameterError("seeds", f"{seeds.dtype}{seeds.shape}", "uint32[N]")
    if not 1 <= count <= MOST_OUTPUTS:
        raise ParameterError("count", count, f"in 1 .. {MOST_OUTPUTS}")
    padded = np.zeros(-(-seeds.size // LANES) * LANES, np.uint32)
    padded[: seeds.size] = seeds
    outputs = np.empty((count, padded.size), np.uint32)
    first_outputs(padded, outputs)
    return outputs[:, : seeds.size]
