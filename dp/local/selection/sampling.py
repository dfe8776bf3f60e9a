"""PS: one of the k largest magnitudes, or one of the others.

With probability e^epsilon k/(d - k + e^epsilon k) a uniform index of the k largest, else a uniform
index of the rest. An index of the k largest is then e^epsilon times as likely as one of the rest.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 4 and Lemma 3.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dp.local.selection.base import RankSelector
from dp.local.selection.law import (
    MAX_WORDS,
    ratio_below,
    require_selection_epsilon,
    require_top,
    two_groups,
)


@lru_cache(maxsize=256, typed=True)
def perturbed_sampling(dimension: int, top: int, epsilon: float) -> RankSelector:
    """Return PS.

    Args:
        dimension: d, in ``2..2^31``.
        top: k, in ``1..d - 1``.
        epsilon: of one choice, >= 0.
    """
    require_top(top, dimension)
    require_selection_epsilon(epsilon)
    ratio, others = ratio_below(epsilon), dimension - top
    rest = max(1, math.floor(MAX_WORDS / (top * ratio + others)))
    # The ratio is at most 2^62, so a law that has one word for the least still has room for it.
    most = min(math.floor(rest * ratio), (MAX_WORDS - others * rest) // top)
    return RankSelector(epsilon, two_groups(dimension, top, most, rest))
