"""How fast exact noise is drawn, beside NumPy's samplers and the bare keystream it is made of."""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import ModuleType

import numpy as np

from dp import NoiseSeed
from dp.coins import POPCOUNT_COINS, sample_binomial
from dp.sampling import BinomialLaw, DiscreteGaussianLaw, SkellamLaw, sample_law
from dp.sampling.inversion import WORD_BITS, inversion_table
from dp.sampling.laws import Law
from simulations.bench.limits import bare_keystream
from simulations.bench.timing import Figures, interleaved_seconds

_WORD_BYTES = WORD_BITS // 8  # of what inversion draws
_PEER_SHARE = 64
"""OpenDP draws this many times fewer samples: it is thousands of times slower."""


class SampledLaw(Enum):
    """Laws whose samplers can be measured."""

    BINOMIAL = "binomial"
    DISCRETE_GAUSSIAN = "discrete_gaussian"
    SKELLAM = "skellam"


@dataclass(frozen=True, slots=True)
class _Contest:
    """One law, drawn in two ways."""

    ours: Callable[[], object]  # draws the samples exactly
    numpy: Callable[[], object]  # draws as many of the same law, or one close to it, with NumPy
    routine: str  # what NumPy was asked for
    keystream_bytes: int  # keystream that ours consumes
    table: Law | None  # the law whose table ours looks up, or None


def bench_sampler(
    law: SampledLaw, coins: int, variance: float, samples: int, repeats: int
) -> Figures:
    """Draw vectors of noise, each from a fresh seed.

    `ratio` is our rate over NumPy's, `ratio_to_keystream` over that of the AES-CTR keystream of the
    same number of bytes. OpenDP's rate is there if OpenDP is installed.
    """
    contest = _contest(law, coins, variance, samples)
    figures: Figures = {"law": law.value, "samples": samples}
    figures |= {"coins": coins} if law is SampledLaw.BINOMIAL else {"variance": variance}
    if contest.table is not None:
        figures |= _table_figures(contest.table)
    candidates: dict[str, Callable[[], object]] = {
        "ours": contest.ours,
        "numpy": contest.numpy,
        "keystream": lambda: bare_keystream([os.urandom(16)], contest.keystream_bytes),
    }
    peer = _opendp() if law is SampledLaw.DISCRETE_GAUSSIAN else None
    peer_samples = max(samples // _PEER_SHARE, 1)
    if peer is not None:
        candidates["opendp"] = _opendp_draws(peer, variance, peer_samples)
    taken = interleaved_seconds(candidates, repeats)
    figures |= {
        "seconds": taken["ours"],
        "samples_per_second": samples / taken["ours"],
        "numpy_routine": contest.routine,
        "numpy_samples_per_second": samples / taken["numpy"],
        "ratio": taken["numpy"] / taken["ours"],
        "keystream_bytes_per_sample": contest.keystream_bytes / samples,
        "keystream_samples_per_second": samples / taken["keystream"],
        "ratio_to_keystream": taken["keystream"] / taken["ours"],
    }
    if peer is not None:
        rate = peer_samples / taken["opendp"]
        figures["opendp_samples_per_second"] = rate
        figures["ratio_to_opendp"] = samples / taken["ours"] / rate
    return figures


def _contest(law: SampledLaw, coins: int, variance: float, samples: int) -> _Contest:
    generator = np.random.default_rng(0)
    if law is SampledLaw.BINOMIAL:
        return _Contest(
            lambda: sample_binomial(NoiseSeed.fresh(), coins, samples),
            lambda: generator.binomial(coins, 0.5, samples),
            "Generator.binomial",
            coin_bytes(coins) * samples,
            BinomialLaw(coins, 0.5) if coins > POPCOUNT_COINS else None,
        )
    if law is SampledLaw.SKELLAM:
        exact: Law = SkellamLaw(variance)
        mean = variance / 2
        return _Contest(
            lambda: sample_law(exact, NoiseSeed.fresh(), samples),
            lambda: generator.poisson(mean, samples) - generator.poisson(mean, samples),
            "difference of two Generator.poisson",
            _WORD_BYTES * samples,
            exact,
        )
    gaussian = DiscreteGaussianLaw(variance)
    deviation = math.sqrt(variance)
    return _Contest(
        lambda: sample_law(gaussian, NoiseSeed.fresh(), samples),
        lambda: np.rint(generator.normal(0.0, deviation, samples)).astype(np.int64),
        "rounded Generator.normal: another law, and not exact",
        _WORD_BYTES * samples,
        gaussian,
    )


def coin_bytes(coins: int) -> int:
    """Bytes of keystream for one binomial draw, as `dp.coins` lays them out."""
    if coins > POPCOUNT_COINS:
        return _WORD_BYTES
    if coins > 64:
        return 8 * -(-coins // 64)
    return next(size for size in (0, 1, 2, 4, 8) if 8 * size >= coins)


def _table_figures(law: Law) -> Figures:
    """What the table costs, once for a law; computed anew, then kept for the measurement."""
    inversion_table.cache_clear()
    start = time.perf_counter()
    entries = inversion_table(law).words.size
    return {"table_entries": entries, "table_seconds": time.perf_counter() - start}


def _opendp() -> ModuleType | None:
    try:
        return importlib.import_module("opendp.prelude")
    except ImportError:
        return None


def _opendp_draws(opendp: ModuleType, variance: float, samples: int) -> Callable[[], object]:
    """Its Gaussian mechanism on a vector of integer zeros: discrete Gaussian noise."""
    opendp.enable_features("contrib")
    mechanism = opendp.m.make_gaussian(
        opendp.vector_domain(opendp.atom_domain(T=int)),
        opendp.l2_distance(T=float),
        math.sqrt(variance),
    )
    zeros = [0] * samples
    return lambda: mechanism(zeros)
