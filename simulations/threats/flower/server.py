"""What a server can do with Flower's own clients: the honest round, and one request more.

Source: flwr 1.41, `_unmask` of secaggplus_mod.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from simulations.audits.base import Figures, Integers
from simulations.threats.flower.clients import (
    COLLUDER,
    HONEST,
    LOST,
    NODES,
    THRESHOLD,
    VICTIM,
    FlowerClients,
    fresh_pair_keys,
)
from simulations.threats.flower.masks import LARGEST, RING, fold
from simulations.threats.flower.our_upload import WeakUpload
from simulations.threats.seed_search.search import Peeled

SURVIVORS = (VICTIM, HONEST, COLLUDER)


def flower_upload(length: int, rng: np.random.Generator, tried_bits: int) -> WeakUpload:
    """An honest round of Flower's clients, and all masks off the victim's upload but one."""
    clients = FlowerClients(length, rng)
    uploads = _uploads(clients, SURVIVORS)
    owned = _collect(clients, {node: (SURVIVORS, (LOST,)) for node in SURVIVORS})
    left = uploads[VICTIM] - clients.mask(clients.combine(owned[VICTIM][:THRESHOLD]), length + 1)
    keys = (clients.combine(owned[LOST][:THRESHOLD]), clients.private_key(COLLUDER))
    # A client subtracts the mask that it shares with a node of a higher number.
    for key in keys:
        left = left + clients.mask(clients.pair_seed(key, VICTIM), length + 1)
    peeled = Peeled(left % RING, True, RING, LARGEST)
    last = clients.pair_seed(clients.private_key(HONEST), VICTIM)
    return WeakUpload.of(peeled, clients.inputs[VICTIM], last, tried_bits)


def varying_bits(samples: int) -> int:
    """How many bits of a folded pairwise key were seen to vary, over fresh pairs of Flower's keys.

    A bit that varies evenly is missed with probability 2^(1 - samples).
    """
    keys = [fold(key) for key in fresh_pair_keys(samples)]
    varied = int(np.bitwise_or.reduce(keys) & ~np.bitwise_and.reduce(keys))
    return varied.bit_count()


def take_both_secrets(length: int, rng: np.random.Generator) -> Figures:
    """Nobody is lost and nobody colludes; the server puts the victim on both lists.

    Each client answers one request with a share of the victim's self-mask seed and one of its key
    for pairwise masks. All of its masks are known then. All computing is done by Flower's own
    functions.
    """
    clients = FlowerClients(length, rng)
    uploads = _uploads(clients, NODES)
    asked = {node: (NODES, (VICTIM,)) for node in NODES if node != VICTIM}
    owned = _collect(clients, asked)
    halves = len(owned[VICTIM]) // 2
    seed, key = (
        clients.combine(part[:THRESHOLD]) for part in (owned[VICTIM][0::2], owned[VICTIM][1::2])
    )
    left = uploads[VICTIM] - clients.mask(seed, length + 1)
    for node in (HONEST, COLLUDER, LOST):
        left = left + clients.mask(clients.pair_seed(key, node), length + 1)
    right = left % RING == clients.inputs[VICTIM]
    again = [_is_answered(clients, node) for node in asked]
    return {
        "clients": len(NODES),
        "threshold": THRESHOLD,
        "requests": len(asked),
        "requests_answered": len(asked),
        "shares_of_each_secret": halves,
        "second_requests_answered": sum(again),
        "coordinates": int(right.size),
        "coordinates_recovered": int(np.count_nonzero(right)),
        "succeeded": bool(np.all(right)),
    }


def _uploads(clients: FlowerClients, nodes: Sequence[int]) -> dict[int, Integers]:
    """Everybody shares; these upload."""
    forwarded = clients.share()
    return {node: clients.upload(node, forwarded[node]) for node in nodes}


def _collect(
    clients: FlowerClients, asked: Mapping[int, tuple[Sequence[int], Sequence[int]]]
) -> dict[int, list[bytes]]:
    """Ask clients, each with its lists of active and dead neighbours; shares by owner."""
    owned: defaultdict[int, list[bytes]] = defaultdict(list)
    for node, (active, dead) in asked.items():
        for owner, share in clients.unmask(node, active, dead):
            owned[owner].append(share)
    return owned


def _is_answered(clients: FlowerClients, node: int) -> bool:
    """Whether a client answers a second request; the stage after the last is the first."""
    try:
        clients.unmask(node, NODES, ())
    except ValueError:
        return False
    return True
