"""Clients of a round under attack: real ones that write down why they refuse, and the server's.

`Participant` is a `RoundClient` with what it was told and what it would send. `OwnClient` is a
client of the server's, or one that cheats: it follows the protocol and submits any integers it
likes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dp import NoiseSeed
from dp.mechanisms import MECHANISMS
from dp.rounding import MAX_LINF_BOUND
from protocol import (
    ClientHistory,
    ClientPolicy,
    Dropouts,
    MemoryRound,
    Pipeline,
    RoundClient,
    RoundSetup,
)
from protocol.exchange.in_memory import Peer
from protocol.exchange.stages import PEER_ERRORS
from protocol.round.clauses import PairwiseClauses
from protocol.round.setup import ANNOUNCEMENT_VERSION, Announcement
from secagg import (
    ClientSession,
    FieldSum,
    Identity,
    RemoteProtocolError,
    ServerSession,
    SessionContext,
    centre,
    lift,
)
from secagg.keys import os_random
from secagg.pairwise.client_states import Ready
from secagg.pairwise.roster import RoundRoster
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import Rand
from simulations.audits.base import Floats, Integers
from simulations.threats.game.knowledge import Knowledge

TRUSTING: Final = ClientPolicy(
    minimum_noise_multiplier=0.0,
    schemes=(PairwiseClauses(allow_semi_honest=True),),
    largest_linf_bound=MAX_LINF_BOUND,
    mechanisms=tuple(MECHANISMS),
)
"""Takes part in anything: what stops an attack on such a client is not its policy."""


@dataclass
class Participant:
    """A client, what it was told, and what it would send; a `protocol.exchange.in_memory.Peer`."""

    client: RoundClient
    announcement: bytes
    model_digest: bytes
    update: Floats = field(repr=False)  # float64[d]
    noise: NoiseSeed = field(repr=False)
    error: Exception | None = None

    def open(self) -> bytes:
        """Join the round and return the advertisement."""
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
    return RoundClient(identity, registry, policy, ClientHistory(policy.goal), rand=rand)


def trusting_participant(
    setup: RoundSetup, identity: Identity, update: Floats, noise: NoiseSeed, rand: Rand = os_random
) -> Participant:
    """A client of the product that is told a round as it is, and takes part in anything."""
    client = real_client(identity, setup.context.cohort, rand=rand)
    return Participant(client, setup.announce(), setup.parameters.model_digest, update, noise)


def opened_sum(
    context: SessionContext, people: Mapping[int, Peer], dropouts: Dropouts | None = None
) -> FieldSum:
    """The sum of an honest server's round over these clients; `ProtocolError` if it ends before."""
    return MemoryRound(ServerSession(context), context.mode, people, dropouts or {}).run().total


class OwnClient:
    """A client that submits any integers, without noise; a `protocol.exchange.in_memory.Peer`."""

    def __init__(
        self, setup: RoundSetup, identity: Identity, values: Integers, rand: Rand = os_random
    ) -> None:
        index = setup.context.cohort.index(identity.public)
        self._session = ClientSession(setup.context, index, identity, rand)
        self._vector = lift(values, setup.context.field)

    def open(self) -> bytes:
        """Return the advertisement."""
        return self._session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """The answer to a message."""
        return self._session.receive_bytes(data)

    def submit(self) -> bytes:
        """The masked integers."""
        return self._session.submit_bytes(self._vector)


class TellingClient(OwnClient):
    """A client of the server's that tells it every share that it was given."""

    def __init__(
        self,
        setup: RoundSetup,
        identity: Identity,
        values: Integers,
        knowledge: Knowledge,
        rand: Rand = os_random,
    ) -> None:
        super().__init__(setup, identity, values, rand)
        self._knowledge = knowledge
        self.roster: RoundRoster | None = None

    def receive(self, data: bytes) -> bytes | None:
        """The answer to a message; once the shares are in, they are told."""
        answer = super().receive(data)
        if self._session.phase is ClientPhase.READY:
            party, state = self._session.hand_over()
            self._session = ClientSession.from_state(party, state)
            if isinstance(state, Ready):
                self.roster = state.roster
                self._knowledge.learn_held(state.roster, party.index, state.held)
        return answer


def edited(announcement: bytes, **changes: object) -> bytes:
    """An announcement with some of its fields changed, by the names of `Announcement`."""
    told = msgspec.msgpack.decode(announcement[1:], type=Announcement)
    return bytes([ANNOUNCEMENT_VERSION]) + msgspec.msgpack.encode(
        msgspec.structs.replace(told, **changes)
    )
