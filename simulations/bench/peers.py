"""Other systems' code, called as they call it, to be measured in the same run as ours.

Inputs are drawn and prepared when a part is asked for; only the callables of the part are work.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from protocol.errors import ConfigurationError

Arrays: TypeAlias = list[NDArray[Any]]


class Peer(Enum):
    """Systems to compare with."""

    FLOWER = "flower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something a peer can do.

    Attributes:
        note: what has to be known to read the comparison.
    """

    peer: Peer
    note: str


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
    """The server's last step in two halves, from the moment when the last share has arrived.

    Attributes:
        rebuild: the secrets by client.
        remove: the sum without the masks that these secrets tell.
        masks: how many masks `remove` expands.
        plain: what `remove` must return.
    """

    rebuild: Callable[[], Mapping[int, bytes]]
    remove: Callable[[Mapping[int, bytes]], Arrays]
    masks: int
    plain: Arrays


class System(Protocol):
    """A system to compare with: the same work as ours, by its own code."""

    def masking(self, dim: int, neighbours: int) -> Masking:
        """Mask a vector of `dim` elements as a client with so many neighbours does."""

    def sharing(self, secrets: Sequence[bytes], holders: int, threshold: int) -> Sharing:
        """Share these secrets with every holder."""

    def unmasking(self, clients: int, dim: int, dropped: int, threshold: int) -> Unmasking:
        """Unmask on the complete graph; the last clients are lost after sharing their secrets."""


def open_peer(peer: Peer) -> System:
    """Load a peer's code.

    Raises:
        ConfigurationError: it is not installed.
    """
    from simulations.bench.flower import Flower

    return {Peer.FLOWER: Flower}[peer]()


def load(module: str, peer: Peer) -> ModuleType:
    """Import a module of a peer, whose extra has the peer's name.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            "peer",
            f"{peer.value} cannot be imported ({error})",
            f'pip install "veilsum[{peer.value}]"',
        ) from None
