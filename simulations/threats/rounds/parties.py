"""Clients of a round under attack: real ones that write down why they refuse, and victims.

`Participant` is a `RoundClient` with what it was told and what it would send. `UnboundClient` is
the victim that lacks one defence: nothing that it was told goes into its context hash.
`OwnClient` is a client of the server's, or one that cheats: it follows the protocol and submits any
integers it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from dp.rounding import MAX_LINF_BOUND
from protocol import ClientPolicy, Pipeline, RoundClient, RoundSetup
from protocol.adapters.memory import PEER_ERRORS
from protocol.setup import ANNOUNCEMENT_VERSION, Announcement
from secagg import (
    ClientSession,
    Identity,
    RemoteProtocolError,
    SessionContext,
    centre,
    lift,
)
from secagg.keys import os_random
from secagg.shamir import Rand
from simulations.audits.base import Floats, Integers, derived_bytes

TRUSTING: Final = ClientPolicy(
    minimum_noise_multiplier=0.0, allow_semi_honest=True, largest_linf_bound=MAX_LINF_BOUND
)
"""Takes part in anything: what stops an attack on such a client is not its policy."""

NO_HASH: Final = bytes(32)


class Joining(Protocol):
    """What a participant drives: a `RoundClient`, or a victim with the same methods."""

    def join(self, announcement: bytes, model_digest: bytes) -> bytes:
        """Answer an announcement."""

    def receive(self, data: bytes) -> bytes | None:
        """Answer the server; None means that it waits for the update."""

    def submit(self, update: NDArray[np.float64], noise: NoiseSeed) -> bytes:
        """Encode and mask the update."""


@dataclass
class Participant:
    """A client, what it was told, and what it would send; a `protocol.adapters.memory.Peer`.

    Attributes:
        client: real, or a victim.
        announcement: what the server told this client.
        model_digest: of the model that the server sent to this client.
        update: float64[d].
        noise: fixed, so that what it sent can be computed again and compared.
        error: the typed error with which it left the round.
    """

    client: Joining
    announcement: bytes
    model_digest: bytes
    update: Floats = field(repr=False)
    noise: NoiseSeed = field(repr=False)
    error: Exception | None = None

    def open(self) -> bytes:
        """The advertisement."""
        try:
            return self.client.join(self.announcement, self.model_digest)
        except PEER_ERRORS as error:
            self.error = error
            raise

    def receive(self, data: bytes) -> bytes | None:
        """The answer to a message."""
        try:
            return self.client.receive(data)
        except PEER_ERRORS as error:
            self.error = error
            raise

    def submit(self) -> bytes:
        """The masked update."""
        return self.client.submit(self.update, self.noise)

    @property
    def setup(self) -> RoundSetup:
        """The round as this client was told it."""
        return RoundSetup.from_announcement(self.announcement, self.model_digest)

    @property
    def understands(self) -> bool:
        """Whether what this client was told is a round at all."""
        try:
            return bool(self.setup)
        except RemoteProtocolError:
            return False

    def sent(self) -> Integers:
        """int64[L]: the integers that it would put behind its masks, if no noise is removable."""
        return centre(Pipeline(self.setup).encode(self.update, self.noise))


def real_client(
    identity: Identity,
    registry: Collection[bytes],
    policy: ClientPolicy = TRUSTING,
    rand: Rand = os_random,
) -> RoundClient:
    """A client of the product for one round; its secrets are fresh unless `rand` repeats."""
    return RoundClient(identity, registry, policy, rand=rand)


def unbound(context: SessionContext) -> SessionContext:
    """The same context with a hash that nothing goes into."""
    free = replace(context)
    object.__setattr__(free, "hash", NO_HASH)
    return free


class UnboundClient:
    """The victim without bound parameters: takes part in what it is told, and hashes none of it."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._joined: tuple[ClientSession, Pipeline] | None = None

    def join(self, announcement: bytes, model_digest: bytes) -> bytes:
        """As `RoundClient.join`, in a context without a hash."""
        setup = RoundSetup.from_announcement(announcement, model_digest)
        index = setup.context.cohort.index(self._identity.public)
        session = ClientSession(unbound(setup.context), index, self._identity)
        self._joined = session, Pipeline(setup)
        return session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """As `RoundClient.receive`."""
        return self._session().receive_bytes(data)

    def submit(self, update: NDArray[np.float64], noise: NoiseSeed) -> bytes:
        """As `RoundClient.submit`."""
        session = self._session()
        assert self._joined is not None  # noqa: S101 - there is a session
        removable = [NoiseSeed(seed.expose()) for seed in session.removable_seeds]
        return session.submit_bytes(self._joined[1].encode(update, noise, removable))

    def _session(self) -> ClientSession:
        if self._joined is None:
            raise RuntimeError("join a round first")
        return self._joined[0]


class OwnClient:
    """A client that submits any integers, without noise; a `protocol.adapters.memory.Peer`.

    Args:
        setup: of the round.
        identity: its signing key.
        values: int64[L].
        rand: source of its secrets.
    """

    def __init__(
        self, setup: RoundSetup, identity: Identity, values: Integers, rand: Rand = os_random
    ) -> None:
        index = setup.context.cohort.index(identity.public)
        self._session = ClientSession(setup.context, index, identity, rand)
        self._vector = lift(values, setup.context.field)

    def open(self) -> bytes:
        """The advertisement."""
        return self._session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """The answer to a message."""
        return self._session.receive_bytes(data)

    def submit(self) -> bytes:
        """The masked integers."""
        return self._session.submit_bytes(self._vector)


def identities_of(seed: int, count: int, label: str = "identity") -> list[Identity]:
    """Identities that follow from a seed."""
    return [
        Identity.from_private_bytes(derived_bytes(seed, label, index)) for index in range(count)
    ]


def public_keys(identities: Sequence[Identity]) -> tuple[bytes, ...]:
    """Their registered halves."""
    return tuple(identity.public for identity in identities)


def edited(announcement: bytes, **changes: object) -> bytes:
    """An announcement with some of its fields changed, by the names of `Announcement`."""
    told = msgspec.msgpack.decode(announcement[1:], type=Announcement)
    return bytes([ANNOUNCEMENT_VERSION]) + msgspec.msgpack.encode(
        msgspec.structs.replace(told, **changes)
    )
