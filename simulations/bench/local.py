"""What making one report costs a client of local privacy, beside what it must cost at least."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from dp.local import Piecewise, sampled_piecewise
from dp.local.calibration import printed_priv_quant
from dp.local.selection import exponential, perturbed_encoding, perturbed_sampling
from simulations.bench.limits import bare_keystream
from simulations.bench.timing import Figures, interleaved_seconds

TOP_SHARE = 10
"""One coordinate in so many counts as large, as in FedSel."""

_WORD_BYTES = 8
_SAMPLED_EPSILON = 2.5
"""Epsilon of a coordinate in the sampled form, which so samples them all here."""


def bench_local(
    dim: int, levels: int, epsilon: float, selection_epsilon: float, repeats: int
) -> Figures:
    """Make one report of one vector in every way; laws that many reports share are at hand.

    `piecewise_seconds` randomises every coordinate, `sampled_seconds` draws k of them first, with k
    so many that each gets an epsilon of 2.5 out of `epsilon`. The limits are one copy of the vector
    as float64, `np.partition` of the magnitudes at the place of the top tenth, which a choice by
    rank must do at least, and the bare keystream: of two words for every coordinate, which
    Piecewise takes, and of one byte for every coordinate, as PrivQuant needs with up to 256 levels.
    """
    generator = np.random.default_rng(0)
    vector = generator.uniform(-1.0, 1.0, (1, dim))
    magnitudes = np.abs(vector)
    top = max(dim // TOP_SHARE, 1)
    taken = interleaved_seconds(
        {
            **_candidates(vector, levels, epsilon),
            **_selections(magnitudes, top, selection_epsilon),
            "copy": vector.copy,
            "partition": lambda: np.partition(magnitudes, dim - top, axis=1),
            "keystream_two_words": lambda: bare_keystream([os.urandom(16)], 2 * _WORD_BYTES * dim),
            "keystream_one_byte": lambda: bare_keystream([os.urandom(16)], dim),
        },
        repeats,
    )
    figures: Figures = {
        "dim": dim,
        "levels": levels,
        "epsilon": epsilon,
        "selection_epsilon": selection_epsilon,
        "top": top,
    }
    figures |= {f"{name}_seconds": seconds for name, seconds in taken.items()}
    figures["piecewise_ratio_to_keystream"] = taken["piecewise"] / taken["keystream_two_words"]
    figures["privquant_ratio_to_keystream"] = taken["privquant"] / taken["keystream_one_byte"]
    for name in ("exp", "pe", "ps"):
        figures[f"{name}_ratio_to_partition"] = taken[name] / taken["partition"]
    return figures


def _candidates(
    vector: NDArray[np.float64], levels: int, epsilon: float
) -> dict[str, Callable[[], object]]:
    """Randomisers of values."""
    dim = vector.size
    quantised = printed_priv_quant(dim, levels, 1.0, epsilon)
    piecewise, sampled = Piecewise(_SAMPLED_EPSILON), sampled_piecewise(dim, epsilon)
    column = vector.reshape(-1, 1)
    return {
        "privquant": lambda: quantised.randomize(vector, NoiseSeed.fresh()),
        "piecewise": lambda: piecewise.randomize(column, NoiseSeed.fresh()),
        "sampled": lambda: sampled.randomize(vector, NoiseSeed.fresh()),
    }


def _selections(
    magnitudes: NDArray[np.float64], top: int, epsilon: float
) -> dict[str, Callable[[], object]]:
    """Private choices of one coordinate."""
    dim = magnitudes.size
    by_rank = exponential(dim, epsilon)
    encoded = perturbed_encoding(dim, top, epsilon)
    drawn = perturbed_sampling(dim, top, epsilon)
    return {
        "exp": lambda: by_rank.select(magnitudes, NoiseSeed.fresh()),
        "pe": lambda: encoded.select(magnitudes, NoiseSeed.fresh()),
        "ps": lambda: drawn.select(magnitudes, NoiseSeed.fresh()),
    }
