"""What one client's private path costs, stage by stage, beside a copy of the vector in memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dp import BinomialMechanism, Bounded, NoiseSeed
from protocol.exchange.aggregators import IdealAggregator
from protocol.round.field_size import bits_for
from protocol.round.parameters import RoundParameters
from protocol.round.pipeline import AddNoise, Clip, Lift, Quantize, Rotate
from protocol.round.setup import RoundSetup
from secagg import FieldVector, Mode, PrimeField, SessionContext
from secagg.field import required_bits
from simulations.bench.limits import bare_keystream
from simulations.bench.sampler import coin_bytes
from simulations.bench.timing import Figures, interleaved_seconds
from sketch import PublicSeed, Rotation, SketchSpec

_CLIP = 1.0
_COHORT_SCALARS = 1 << 21
_MOST_CLIENTS = 512
"""A round of so many short updates takes milliseconds, and what is done once hardly counts."""

_EACH = 8
"""Updates that a thread encodes one after another, so that starting the threads does not count."""

_ROUNDING_BYTES = 4  # of keystream for each coordinate

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

    `clients_per_core_second` is of a simulated round of `clients` with the ideal aggregator, in
    processor time, all that it does; always rotated. Its limit, `needed_per_core_second`: for each
    client, a copy of the vector and the keystream of its rounding and coins.
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
    clients, rates = _round_rates(dim, coins, repeats)
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
        "clients": clients,
        **rates,
    }


def _round_rates(dim: int, coins: int, repeats: int) -> tuple[int, Figures]:
    """How many clients a simulated round has, and how many of them a core encodes in a second."""
    clients = min(max(_COHORT_SCALARS // dim, 1), _MOST_CLIENTS)
    updates = np.random.default_rng(0).normal(size=(clients, dim)).astype(np.float32)
    setup, vector = round_setup(dim, clients, coins=coins), updates[0].astype(np.float64)
    words = (_ROUNDING_BYTES * dim, coin_bytes(coins) * dim)

    def needed() -> None:
        for _ in range(clients):
            vector.copy()
            for count in words:
                bare_keystream([os.urandom(16)], count)

    candidates: dict[str, Callable[[], object]] = {
        "clients": lambda: IdealAggregator().run(setup, lambda index: updates[index], {}),
        "needed": needed,
    }
    taken = interleaved_seconds(candidates, repeats, time.process_time)
    rates = {f"{name}_per_core_second": clients / taken[name] for name in candidates}
    return clients, {**rates, "ratio_to_needed": taken["clients"] / taken["needed"]}


def round_setup(
    dimension: int, clients: int, rand: Callable[[int], bytes] = os.urandom, coins: int = 64
) -> RoundSetup:
    """A round without compression, so that encoding is dearest."""
    parameters = RoundParameters(
        model_digest=bytes(32),
        clip_l2=_CLIP,
        sketch=SketchSpec.identity(dimension),
        sketch_clip_l2=_CLIP,
        public_seed=PublicSeed(bytes(32)),
        scale=math.sqrt(dimension) / _CLIP,
        linf_bound=_LINF_BOUND,
        mechanism=BinomialMechanism(coins),
        tolerated_dropouts=0,
    )
    context = SessionContext(
        session_id=rand(16),
        round_number=0,
        cohort=tuple(client.to_bytes(32, "big") for client in range(clients)),
        threshold=clients,
        minimum_survivors=clients,
        mode=Mode.SEMI_HONEST,
        tolerated_colluders=0,
        bits=bits_for(parameters, clients),
        length=dimension,
        application_digest=parameters.digest(),
    )
    return RoundSetup(context, parameters)
