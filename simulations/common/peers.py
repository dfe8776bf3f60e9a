"""Other systems' code, called as they call it, to be measured in the same run as ours.

Inputs are drawn and prepared when a part is asked for; only the callables of the part are work.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, TypeAlias

from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from veilsum.extras import install_command

Arrays: TypeAlias = list[NDArray[Any]]


NO_CALLS_HOME = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment of a peer that is measured."""


FLOWER_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
"""Where Flower has a client's half of SecAgg+."""


class Peer(Enum):
    """Systems to compare with."""

    FLOWER = "flower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something a peer can do."""

    peer: Peer
    note: str  # what has to be known to read the comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking(Part):
    """A client's part: `mask` adds every neighbour's mask to a vector."""

    mask: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing(Part):
    """Secret sharing: `create` shares all secrets, `combine` rebuilds them from a threshold."""

    create: Callable[[], object]
    combine: Callable[[], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmasking(Part):
    """The server's last step in two halves, from the moment when the last share has arrived."""

    rebuild: Callable[[], Mapping[int, bytes]]  # the secrets by client
    # the sum without the masks that these secrets tell
    remove: Callable[[Mapping[int, bytes]], Arrays]
    masks: int  # how many masks `remove` expands
    plain: Arrays  # what `remove` must return


def load(module: str, peer: Peer) -> ModuleType:
    """Import a module of a peer, whose extra has the peer's name."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            "peer",
            f"{peer.value} cannot be imported ({error})",
            install_command(peer.value),
        ) from None
