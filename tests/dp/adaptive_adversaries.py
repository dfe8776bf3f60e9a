"""The best that an adversary can do who chooses every release from the results before it: exactly.

The adversary plays the releases one after the other. Before each it picks noise and shift from a
menu, knowing all results so far; a filter may refuse. With c = e^epsilon times the likelihood ratio
Q/P of what was seen, its gain is

    V(c) = max(1 - c, 0)                                     when nothing more is allowed
    V(c) = max over the menu of  sum over x of p(x) V(c q(x) / p(x))

so V(e^epsilon) is the delta of the best adaptive strategy, by backward induction over all
transcripts. Nothing of dp/accounting is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Move:
    """Binomial noise of so many coins, and the shift of one coordinate that it hides."""

    coins: int
    shift: int


Allowed = Callable[[Sequence[Move]], bool]
"""Whether a filter lets these releases happen, the last of which is the one asked for."""


@cache
def _pair(move: Move) -> tuple[FloatArray, FloatArray]:
    """(p, q / p) over the outcomes that the first law can have."""
    half = move.coins // 2
    masses = [math.comb(move.coins, i) / 2**move.coins for i in range(move.coins + 1)]
    p, ratio = [], []
    for z in range(-half, half + 1):
        x = z + move.shift
        here = masses[z + half]
        there = masses[x + half] if abs(x) <= half else 0.0
        p.append(here)
        ratio.append(there / here)
    return np.array(p), np.array(ratio)


def best_gain(epsilon: float, menu: Sequence[Move], allowed: Allowed, most: int) -> float:
    """Delta at ``epsilon`` of the best adaptive strategy of at most ``most`` releases."""

    def gain(c: FloatArray, past: tuple[Move, ...]) -> FloatArray:
        found = np.maximum(1.0 - c, 0.0)
        if len(past) == most:
            return found
        for move in menu:
            if allowed((*past, move)):
                p, ratio = _pair(move)
                later = gain((c[:, None] * ratio).ravel(), (*past, move)).reshape(c.size, p.size)
                found = np.maximum(found, later @ p)
        return found

    return float(gain(np.array([math.exp(epsilon)]), ())[0])
