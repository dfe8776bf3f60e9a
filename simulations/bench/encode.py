"""What one client's private path costs, stage by stage, beside a copy of the vector in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np

from dp import Bounded, Noised, NoiseSeed, add_coins, clip_l2, quantize
from simulations.bench.timing import Figures, interleaved_seconds
from sketch import PublicSeed, Rotation

_CLIP = 1.0
_LINF_BOUND = 64
"""Coordinates of the scaled vector are around one, so no more than the noise is ever clipped."""


def bench_encode(dim: int, coins: int, rotate: bool, repeats: int) -> Figures:
    """Clip, rotate if asked for, round and noise one update; no sketch, no masks.

    The limit is one copy of the vector as float64. All stages run on one thread.

    Returns:
        for each stage its seconds and its share of their sum; `seconds` is the whole path, done
        in one go; `ratio_to_copy` is the whole over the copy.
    """
    update = np.random.default_rng(0).normal(size=dim).astype(np.float32)
    scale = math.sqrt(dim) / _CLIP
    rotation = Rotation(dim, PublicSeed(os.urandom(32)))

    def turned(bounded: Bounded) -> Bounded:
        return bounded.map_isometry(rotation.forward) if rotate else bounded

    def whole() -> Noised:
        seed = NoiseSeed.fresh()
        bounded = turned(clip_l2(update, _CLIP))
        return add_coins(quantize(bounded, scale, _LINF_BOUND, seed), coins, seed)

    clipped = clip_l2(update, _CLIP)
    rotated = turned(clipped)
    quantized = quantize(rotated, scale, _LINF_BOUND, NoiseSeed.fresh())
    stages: dict[str, Callable[[], object]] = {"clip": lambda: clip_l2(update, _CLIP)}
    if rotate:
        stages["rotation"] = lambda: turned(clipped)
    stages["rounding"] = lambda: quantize(rotated, scale, _LINF_BOUND, NoiseSeed.fresh())
    stages["coins"] = lambda: add_coins(quantized, coins, NoiseSeed.fresh())
    taken = interleaved_seconds(
        {**stages, "whole": whole, "copy": lambda: clipped.values.copy()}, repeats
    )
    figures: Figures = {"dim": dim, "coins": coins, "rotate": rotate, "seconds": taken["whole"]}
    total = sum(taken[stage] for stage in stages)
    for stage in stages:
        figures[f"{stage}_seconds"] = taken[stage]
        figures[f"{stage}_share"] = taken[stage] / total
    return figures | {
        "copy_seconds": taken["copy"],
        "ratio_to_copy": taken["whole"] / taken["copy"],
    }
