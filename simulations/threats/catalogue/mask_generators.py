"""A20: masks from a generator that is weak or biased.

Three attacks on the generator, on ours and on Flower's (`simulations.threats.flower.masks`):

* **Unmasking.** A curious server takes every mask off an upload that it can after an honest round,
  and searches the seed of the last one. It needs the view of one round, a victim with one surviving
  honest neighbour (the others are lost or work for the server), and the public range of the
  quantiser to recognise the right seed: see `simulations.threats.seed_search.search`. To stay quick
  it is told bits of the seed, in both worlds the same number, and the cost of all seeds is worked
  out from a timed search. The full effort tries all 2^28 seeds without being told anything.
  Two honest neighbours are not tried here. Flower's uploads begin with the client's weight, which
  is sent in the clear beside them; so a sorted table of 2^28 first elements and as many look-ups
  would leave some 2^24 pairs of seeds to be checked.
* **A second key.** Two different keys with the same mask: trivial if the seed is folded.
* **Bias.** Elements of a small field, by chi-square and by residues that never occur.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy import stats

from secagg import PrimeField
from secagg.pairwise.prg import MASK_KEY_BYTES, expand_mask
from simulations.audits.base import ALPHA, Figures, Integers, derived_bytes, derived_seed
from simulations.threats.attack import Attack, Effort, Findings
from simulations.threats.flower.masks import (
    PAIR_SEED_BITS,
    pair_seed_entropy,
    second_key,
    weak_mask,
)
from simulations.threats.flower.our_upload import our_upload, weak_upload
from simulations.threats.seed_search.search import recovers, unmask

LENGTH: Final = 100
"""Coordinates of an upload."""
SMALL_FIELD: Final = PrimeField(8)
"""Its 251 residues are few enough to look for each."""
SECOND_KEYS: Final = 64
_PAIR_KEY_BYTES: Final = 44

Generator = Callable[[bytes, int], Integers]
"""A mask over `SMALL_FIELD` from a key: (key, length) -> int64[length]."""


def our_elements(key: bytes, length: int) -> Integers:
    """The elements of a mask as the product expands it."""
    return expand_mask(SMALL_FIELD, key, length).astype(np.int64)


def weak_elements(key: bytes, length: int) -> Integers:
    """Flower's mask over the same residues."""
    return weak_mask(key, SMALL_FIELD.modulus, length)


def same_masks(generator: Generator, key_bytes: int, seed: int) -> int:
    """How many of `SECOND_KEYS` keys give the mask of a different key, made of the same words."""
    keys = (derived_bytes(seed, "key", i) * 2 for i in range(SECOND_KEYS))
    pairs = ((key[:key_bytes], second_key(key[:key_bytes])) for key in keys)
    return sum(np.array_equal(generator(a, 8), generator(b, 8)) for a, b in pairs)


def bias(elements: Integers, residues: int) -> Figures:
    """Hold elements int64[N] against the uniform law on 0 .. residues - 1, at level `ALPHA`.

    A residue of a uniform law is missing with probability exp(-N / residues): exp(-1044) for 2^18
    elements of 251 residues.
    """
    counts = np.bincount(elements, minlength=residues)
    expected = elements.size / residues
    statistic = float(np.sum(np.square(counts - expected)) / expected)
    p_value = float(stats.chi2.sf(statistic, residues - 1))
    missing = int(np.count_nonzero(counts == 0))
    return {
        "elements": int(elements.size),
        "residues": residues,
        "residues_never_drawn": missing,
        "chi_square_p_value": p_value,
        "alpha": ALPHA,
        "biased": missing > 0 or p_value < ALPHA,
    }


def examine(generator: Generator, key_bytes: int, size: int, seed: int) -> Figures:
    """The attacks that look at the generator alone."""
    key = derived_bytes(seed, "bias") * 2
    found = bias(generator(key[:key_bytes], size), SMALL_FIELD.modulus)
    same = same_masks(generator, key_bytes, seed)
    return {**found, "second_keys": SECOND_KEYS, "second_keys_with_the_same_mask": same}


def timed_search(tried_bits: int, rng: np.random.Generator) -> Figures:
    """A larger search of weak seeds, and what all of them cost."""
    found, search = recovers(weak_upload(LENGTH, rng, tried_bits))
    return {**search.cost(1 << PAIR_SEED_BITS), "timed_search_found_it": found}


def _run(effort: Effort, seed: int) -> Findings:
    """A20: any attack on ours counts, and every one on the twin has to succeed."""
    trials, tried_bits = effort.choose(5, 20), effort.choose(14, 18)
    rng = np.random.default_rng(derived_seed(seed, "A20"))
    told_bits = PAIR_SEED_BITS - tried_bits
    size = effort.choose(1 << 18, 1 << 22)
    real = unmask([our_upload(LENGTH, rng, told_bits, tried_bits) for _ in range(trials)])
    real |= examine(our_elements, MASK_KEY_BYTES, size, seed)
    real |= {"bits_told": told_bits, "key_bits": 8 * MASK_KEY_BYTES}
    twin = unmask([weak_upload(LENGTH, rng, tried_bits) for _ in range(trials)])
    twin |= examine(weak_elements, _PAIR_KEY_BYTES, size, seed)
    twin |= {"bits_told": told_bits, "key_bits": PAIR_SEED_BITS}
    twin |= {"key_entropy_bits": pair_seed_entropy()}
    twin |= timed_search(effort.choose(20, PAIR_SEED_BITS), rng)
    return Findings(
        real | {"succeeded": any(_successes(real))},
        twin | {"succeeded": all(_successes(twin)) and bool(twin["timed_search_found_it"])},
    )


def _successes(found: Figures) -> tuple[bool, bool, bool]:
    """Which of the three attacks succeeded."""
    same = bool(found["second_keys_with_the_same_mask"])
    return bool(found["succeeded"]), same, bool(found["biased"])


ATTACKS: tuple[Attack, ...] = (
    Attack(
        id="A20",
        promise="P5",
        name="weak mask generator",
        title="the seed of a mask is searched, or its mask is not uniform",
        says="searches the seeds, or exploits residues that never occur",
        stopped_by="AES-CTR under 128-bit keys, exact rejection",
        run=_run,
    ),
)
