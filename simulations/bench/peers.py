"""Other systems' code, called as they call it, to be measured in the same run as ours."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import ModuleType

import numpy as np

from protocol.errors import ConfigurationError


class Peer(Enum):
    """Systems to compare with."""

    FLOWER = "flower"


@dataclass(frozen=True, slots=True)
class PeerMasks:
    """How a peer masks a vector.

    Attributes:
        masking: (elements, neighbours) -> work that adds that many masks to a vector; raises
            ConfigurationError where the peer is not installed.
        note: what has to be known to read the comparison.
    """

    masking: Callable[[int, int], Callable[[], object]]
    note: str


_FLOWER_UTILITIES = "flwr.common.secure_aggregation.secaggplus_utils"
_FLOWER_RANGE = 1 << 32
"""Flower's default ring."""


def _flower_masking(dim: int, neighbours: int) -> Callable[[], object]:
    """The loop over neighbours of SecAgg+'s client: expand, add or subtract, reduce at the end."""
    generate = _load(_FLOWER_UTILITIES, Peer.FLOWER, "flower").pseudo_rand_gen
    seeds = [os.urandom(32) for _ in range(neighbours)]
    vector = np.zeros(dim, np.int64)

    def mask() -> object:
        total = vector
        for index, seed in enumerate(seeds):
            (noise,) = generate(seed, _FLOWER_RANGE, [(dim,)])
            total = total - noise if index % 2 else total + noise
        return total & (_FLOWER_RANGE - 1)

    return mask


def _load(module: str, peer: Peer, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            "peer", f"{peer.value} cannot be imported ({error})", f'pip install "veilsum[{extra}]"'
        ) from None


PEERS = {
    Peer.FLOWER: PeerMasks(
        _flower_masking,
        "flower's generator is not cryptographic: a Mersenne Twister seeded with 32 bits; its "
        "elements are 64-bit words of a 32-bit ring, whatever --bits says",
    )
}
