"""EXP: the exponential mechanism over ranks.

With ranks z = 1 .. d in rising order of magnitude, P[j] is proportional to exp(epsilon z/(d - 1)).
Utilities go from 1 to d and a rank moves by d - 1 at most, so the worst ratio is e^epsilon.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 2 and Lemma 1. The paper sorts, and looks up
every rank's utility in O(d^2); here the rank is drawn first and then found in O(d).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dp.local.selection.base import RankSelector
from dp.local.selection.law import (
    MAX_WORDS,
    RankLaw,
    ratio_below,
    require_dimension,
    require_selection_epsilon,
)


@lru_cache(maxsize=32, typed=True)
def exponential(dimension: int, epsilon: float) -> RankSelector:
    """Return EXP. Its table has 16 d bytes and is kept.

    Every rank has its share of 2^62 words rounded down, and one more; no rank has more than
    floor(e^epsilon) times the words of the lowest.

    Args:
        dimension: d, in ``2..2^31``.
        epsilon: of one choice, >= 0.
    """
    require_dimension(dimension)
    require_selection_epsilon(epsilon)
    behind = np.arange(dimension, dtype=np.float64) / (dimension - 1)
    shares = np.exp(-epsilon * behind)
    # Room for the added ones, and for the rounding of the doubles' sum.
    room = (MAX_WORDS - dimension) * (1.0 - 1e-9)
    words = np.floor(shares * (room / math.fsum(shares))).astype(np.uint64) + np.uint64(1)
    limit = min(math.floor(int(words[-1]) * ratio_below(epsilon)), MAX_WORDS)
    words = np.minimum(words, np.uint64(limit))
    words.flags.writeable = False
    return RankSelector(epsilon, RankLaw(np.ones(dimension, dtype=np.int64), words))
