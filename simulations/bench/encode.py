"""What one client's private path costs, stage by stage, beside a copy of the vector in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dp import BinomialMechanism, Bounded, NoiseSeed
from protocol.round.pipeline import AddNoise, Clip, Lift, Quantize, Rotate
from secagg import FieldVector, PrimeField
from secagg.field import required_bits
from simulations.bench.timing import Figures, interleaved_seconds
from sketch import PublicSeed, Rotation

_CLIP = 1.0
_EACH = 8
"""Updates that a thread encodes one after another, so that starting the threads does not count."""

_LINF_BOUND = 64
"""Coordinates of the scaled vector are around one, so no more than the noise is ever clipped."""


def bench_encode(dim: int, coins: int, rotate: bool, threads: int, repeats: int) -> Figures:
    """Clip, rotate unless told otherwise, round, noise and lift one update; no sketch, no masks.

    The stages are those of a round. The limit is one copy of the vector as float64. All stages run
    on one thread; then as many threads as asked for encode updates at the same time.

    For each stage its seconds and its share of their sum; `seconds` is the whole path, done in one
    go; `ratio_to_copy` is the whole over the copy. Of updates one after another:
    `one_thread_seconds` each on one thread, `threads_seconds` each on all of them, and `speedup`,
    the first over the second.
    """
    update = np.random.default_rng(0).normal(size=dim).astype(np.float32)
    clip, lift = Clip(dim, _CLIP), Lift(PrimeField(required_bits(_LINF_BOUND + coins)))
    rotation = Rotate(Rotation(dim, PublicSeed(os.urandom(32))))
    quantize = Quantize(math.sqrt(dim) / _CLIP, _LINF_BOUND)
    noise = AddNoise(BinomialMechanism(coins), None)

    def turned(bounded: Bounded) -> Bounded:
        return rotation.client(bounded) if rotate else bounded

    def whole() -> FieldVector:
        seed = NoiseSeed.fresh()
        quantized = quantize.client(turned(clip.client(update)), seed)
        return lift.client(noise.client(quantized, [seed]))

    clipped = clip.client(update)
    rotated = turned(clipped)
    quantized = quantize.client(rotated, NoiseSeed.fresh())
    noised = noise.client(quantized, [NoiseSeed.fresh()])
    stages: dict[str, Callable[[], object]] = {"clip": lambda: clip.client(update)}
    if rotate:
        stages["rotation"] = lambda: turned(clipped)
    stages["rounding"] = lambda: quantize.client(rotated, NoiseSeed.fresh())
    stages["coins"] = lambda: noise.client(quantized, [NoiseSeed.fresh()])
    stages["lift"] = lambda: lift.client(noised)
    with ThreadPoolExecutor(threads) as pool:

        def several() -> None:
            for _ in range(_EACH):
                whole()

        def on(count: int) -> None:
            for done in [pool.submit(several) for _ in range(count)]:
                done.result()

        others: dict[str, Callable[[], object]] = {"whole": whole, "copy": clipped.values.copy}
        crowds: dict[str, Callable[[], object]] = {"one": lambda: on(1), "all": lambda: on(threads)}
        taken = interleaved_seconds({**stages, **others, **crowds}, repeats)
    alone, shared = taken["one"] / _EACH, taken["all"] / (_EACH * threads)
    figures: Figures = {"dim": dim, "coins": coins, "rotate": rotate, "seconds": taken["whole"]}
    total = sum(taken[stage] for stage in stages)
    for stage in stages:
        figures[f"{stage}_seconds"] = taken[stage]
        figures[f"{stage}_share"] = taken[stage] / total
    return figures | {
        "copy_seconds": taken["copy"],
        "ratio_to_copy": taken["whole"] / taken["copy"],
        "threads": threads,
        "one_thread_seconds": alone,
        "threads_seconds": shared,
        "speedup": alone / shared,
    }
