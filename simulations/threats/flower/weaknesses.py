"""Two exhibits against Flower's SecAgg+, with our clients in the same place."""

from __future__ import annotations

import importlib.util
from typing import Final

import numpy as np

from secagg.pairwise.prg import MASK_KEY_BYTES
from simulations.audits.base import Check, Figures, derived_seed
from simulations.threats.attack import Attack, Effort, Findings, refusal
from simulations.threats.flower.clients import flower_upload, take_both_secrets, varying_bits
from simulations.threats.flower.masks import PAIR_SEED_BITS, pair_seed_entropy
from simulations.threats.flower.our_upload import CLIENTS, ask_for_both_secrets, our_upload
from simulations.threats.seed_search.search import recovers, unmask

LENGTH: Final = 200
"""Coordinates of an update."""
ROUNDS: Final = 4
SAMPLES: Final = 64
"""Fresh keys whose bits are looked at."""


def flower_weaknesses(effort: Effort = Effort.QUICK, seed: int = 1) -> list[Check]:
    """Attack Flower's clients, and ours in the same way.

    "F1": the seed of a pairwise mask has 28 bits. In QUICK the server is told bits of each seed; in
    FULL it is told none of one seed and tries all 2^28. "F2": a client gives up shares of both
    secrets of a neighbour that the server puts on both lists.
    """
    if importlib.util.find_spec("flwr") is None:
        return []
    return [attack.check(effort, seed) for attack in WEAKNESSES]


def double_share_release(effort: Effort, seed: int) -> Findings:
    """F2: one request for shares of both secrets of one client."""
    del effort
    rng = np.random.default_rng(derived_seed(seed, "F2"))
    refused = ask_for_both_secrets(LENGTH, rng)
    real: Figures = {
        "clients": CLIENTS,
        "requests": len(refused),
        "requests_answered": refused.count(None),
        "refused_with": ", ".join(dict.fromkeys(refusal(each) for each in refused if each)),
        "succeeded": None in refused,
    }
    return Findings(real, take_both_secrets(LENGTH, rng))


def mask_seed_search(effort: Effort, seed: int) -> Findings:
    """F1: the seed of the one mask that is left on an upload after an honest round is searched."""
    tried_bits = effort.choose(14, 18)
    told_bits = PAIR_SEED_BITS - tried_bits
    rng = np.random.default_rng(derived_seed(seed, "F1"))
    ours = [our_upload(LENGTH, rng, told_bits, tried_bits) for _ in range(ROUNDS)]
    flower = [flower_upload(LENGTH, rng, tried_bits) for _ in range(ROUNDS)]
    found, timed = recovers(flower_upload(LENGTH, rng, effort.choose(20, PAIR_SEED_BITS)))
    real, twin = unmask(ours), unmask(flower)
    return Findings(
        real | {"key_bits": 8 * MASK_KEY_BYTES, "bits_told": told_bits},
        twin
        | {"key_bits": PAIR_SEED_BITS, "bits_told": told_bits}
        | {"varying_bits_seen": varying_bits(SAMPLES), "key_entropy_bits": pair_seed_entropy()}
        | timed.cost(1 << PAIR_SEED_BITS)
        | {"timed_search_found_it": found, "succeeded": found and bool(twin["succeeded"])},
    )


WEAKNESSES: Final = (
    Attack(
        id="F1",
        promise="P10",
        name="a short seed of a mask",
        says="searches the seed of the one mask that is left on an upload",
        title="Flower's SecAgg+: the seed of a pairwise mask is searched",
        stopped_by="mask keys of 128 bits",
        run=mask_seed_search,
    ),
    Attack(
        id="F2",
        promise="P10",
        name="both shares from one client",
        says="puts one client on both lists of a request",
        title="Flower's SecAgg+: a client gives up shares of both secrets of a neighbour",
        stopped_by="clients derive what to give up from one signed set, once",
        run=double_share_release,
    ),
)
