"""A21: noise that can be predicted.

The product's seeds are 256 bits from the operating system. The twin's coins are a Mersenne
Twister's under a 32-bit seed, as `numpy.random.seed` makes it: chosen at random, with some bits
told so that the search stays short and the cost of all 2^32 worked out from a timed one; or the
second at which the round ran, with nothing told but the day. `seed_search.noise` has the adversary.

A second attack counts seeds that occur twice: of N seeds of 32 bits none do with probability
exp(-N^2 / 2^33). It would also find a product whose seeds are stretched from few bits.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Final

import numpy as np

from dp import NoiseSeed
from simulations.audits.base import ALPHA, Figures, derived_seed
from simulations.threats.attack import Attack, Effort, Findings, both, either, rate
from simulations.threats.seed_search.noise import (
    SEED_BITS,
    WEAK_BITS,
    search_ours,
    search_time_stamp,
    search_weak,
    told_window,
)

SEEDS_DRAWN: Final = math.ceil(math.sqrt(2.0 * (1 << WEAK_BITS) * -math.log(ALPHA)))
"""So many that seeds of 32 bits are all different with probability `ALPHA` at most."""


def repeated(seeds: Sequence[bytes] | Sequence[int]) -> int:
    """How many seeds occurred before."""
    return len(seeds) - len(set(seeds))


def attack_ours(trials: int, tried_bits: int, rng: np.random.Generator) -> Figures:
    """Both attacks on the product's seeds."""
    told_bits = WEAK_BITS - tried_bits
    exact = rate(sum(search_ours(rng, told_bits, tried_bits) for _ in range(trials)), trials)
    again = repeated([NoiseSeed.fresh().material for _ in range(SEEDS_DRAWN)])
    return either(exact, again > 0, seed_bits=SEED_BITS, repeated_seeds=again)


def attack_weak(trials: int, tried_bits: int, rng: np.random.Generator) -> Figures:
    """Both attacks on seeds of 32 bits, and on time stamps."""
    numbers = [secrets.randbits(WEAK_BITS) for _ in range(trials)]
    played = [search_weak(rng, each, told_window(each, tried_bits)) for each in numbers]
    exact = rate(sum(success for success, _ in played), trials)
    few = np.frombuffer(secrets.token_bytes(WEAK_BITS // 8 * SEEDS_DRAWN), "<u4")
    again = repeated(few.tolist())
    stamp_found, stamp = search_time_stamp(rng)
    told: Figures = {
        "seed_bits": WEAK_BITS,
        "repeated_seeds": again,
        "time_stamp_found": stamp_found,
        "time_stamp_candidates": stamp.tried,
        "time_stamp_core_seconds": stamp.core_seconds,
    }
    return both(exact, again > 0 and stamp_found, **told)


def timed_search(tried_bits: int, rng: np.random.Generator) -> Figures:
    """A larger search of the twin's seeds, and what all of them would cost."""
    number = secrets.randbits(WEAK_BITS)
    found, search = search_weak(rng, number, told_window(number, tried_bits))
    return {**search.cost(1 << WEAK_BITS), "timed_search_found_it": found}


def _run(effort: Effort, seed: int) -> Findings:
    """A21: predict noise from seeds of 32 bits, and look for seeds that occur twice."""
    trials, tried_bits = effort.choose(5, 20), effort.choose(11, 14)
    rng = np.random.default_rng(derived_seed(seed, "A21"))
    common: Figures = {
        "candidates_each": 1 << tried_bits,
        "bits_told": WEAK_BITS - tried_bits,
        "seeds_drawn": SEEDS_DRAWN,
    }
    real = attack_ours(trials, tried_bits, rng)
    twin = attack_weak(trials, tried_bits, rng)
    timed = timed_search(effort.choose(20, 26), rng)
    found = bool(timed["timed_search_found_it"])
    return Findings(common | real, common | both(twin, found, **timed))


ATTACKS: tuple[Attack, ...] = (
    Attack(
        id="A21",
        promise="P5",
        name="predictable noise",
        title="the seed of a client's noise is guessed, and the noise subtracted",
        says="searches 32-bit seeds, or clock values, and removes the noise",
        stopped_by="256-bit seeds from the operating system",
        run=_run,
    ),
)
