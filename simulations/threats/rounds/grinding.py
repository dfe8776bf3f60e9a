"""A server that tries one roster after the other until its colluders surround an honest client.

docs/security.md, "Grinding the ring". Once the honest clients have advertised, the server draws new
keys for one of its own clients again and again, and shows the clients none but a ring where all who
hold shares of some honest client are its own. Then it opens that client's upload, a sum over one.

The rings here have a few bits of security instead of eighty, so that a laptop does in a second what
takes a large server many years. Nothing else is scaled down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from protocol import ClientPolicy, RoundClient, RoundSetup
from protocol.exchange.stages import PEER_ERRORS
from protocol.round.rings import UnixClock
from secagg import (
    ClientSession,
    Identity,
    Mode,
    ProtocolError,
    ServerSession,
    SessionContext,
    lift,
    lowest_threshold,
)
from secagg.pairwise.messages import Advertisement, MaskedInput
from secagg.pairwise.roster import RoundRoster
from simulations.audits.base import derived_bytes, identities_of, noise_seed, public_keys
from simulations.threats.game.contexts import counter_rand
from simulations.threats.game.knowledge import Knowledge
from simulations.threats.game.victims import sent_as
from simulations.threats.rounds.announced import plain_parameters
from simulations.threats.rounds.parties import Participant

CLIENTS: Final = 24
COLLUDERS: Final = 7
"""The last ones of the cohort."""
DEGREE: Final = 6
SCALED_BITS: Final = 5
"""Of the ring under attack. One in some thousand rings surrounds somebody."""
DIMENSION: Final = 16
OPENED: Final = 1_750_000_000
LIFETIME_SECONDS: Final = 60
SECONDS_PER_TRY: Final = LIFETIME_SECONDS
"""By the clock of this model: time for the first ring, and the next one is late."""
MOST_TRIES: Final = 40_000
"""No ring is found in so many once in 10^15 attempts: then something else stops the attack."""


def scaled_round(seed: int, number: int, bits: int = SCALED_BITS) -> RoundSetup:
    """A round on a ring of so few bits, as a server announces it; it expires."""
    public = derived_bytes(seed, "public", number)
    parameters = plain_parameters(public, 0, length=DIMENSION, scale=64.0, linf_bound=64)
    threshold = lowest_threshold(CLIENTS, COLLUDERS, Mode.ACTIVE, DEGREE, security_bits=SCALED_BITS)
    context = SessionContext(
        session_id=derived_bytes(seed, "session")[:16],
        round_number=number,
        cohort=public_keys(people_of(seed)),
        threshold=threshold,
        minimum_survivors=CLIENTS,
        mode=Mode.ACTIVE,
        tolerated_colluders=COLLUDERS,
        degree=DEGREE,
        bits=24,
        length=parameters.length,
        application_digest=parameters.digest(),
        security_bits=bits,
        opened_at=OPENED,
        lifetime_seconds=LIFETIME_SECONDS,
    )
    return RoundSetup(context, parameters)


def people_of(seed: int) -> list[Identity]:
    """The cohort, the server's clients last."""
    return identities_of(seed, CLIENTS)


@dataclass
class Ground:
    """What a server came to."""

    tries: int = 0
    opened: bool = False
    refusals: list[Exception] = field(default_factory=list)


class Grinder:
    """One round under attack."""

    def __init__(
        self,
        setup: RoundSetup,
        seed: int,
        policy: ClientPolicy,
        keeps_time: bool,
    ) -> None:
        self._setup = setup
        self._people = people_of(seed)
        self._salt = derived_bytes(seed, "grind", setup.context.round_number)
        # What the clients' clocks show goes on while the server tries.
        self._seconds = float(OPENED)
        honest = range(CLIENTS - COLLUDERS)
        clock: UnixClock | None = (lambda: self._seconds) if keeps_time else None
        self._honest = {u: self._participant(u, seed, policy, clock) for u in honest}
        self._own = {u: self._session(u, 0) for u in range(CLIENTS - COLLUDERS, CLIENTS)}
        self._found = Ground()

    def run(self) -> Ground:
        """Announce, try, and follow the protocol on the ring that was found."""
        advertised = {u: self._own[u].begin_bytes() for u in self._own}
        for u, person in self._honest.items():
            try:
                advertised[u] = person.open()
            except PEER_ERRORS as error:
                self._found.refusals.append(error)
        if len(advertised) == CLIENTS and (roster := self._ground(advertised)):
            self._found.opened = self._opens(roster, advertised)
        return self._found

    def _participant(
        self, u: int, seed: int, policy: ClientPolicy, clock: UnixClock | None
    ) -> Participant:
        context = self._setup.context
        client = RoundClient(self._people[u], context.cohort, policy, clock=clock)
        drawn = np.random.default_rng([seed, context.round_number, u]).normal(size=DIMENSION)
        update = drawn / np.linalg.norm(drawn)
        return Participant(
            client,
            self._setup.announce(),
            bytes(32),
            update,
            noise_seed(seed, "noise", context.round_number, u),
        )

    def _session(self, u: int, attempt: int) -> ClientSession:
        rand = counter_rand(self._salt + b"%d|%d" % (u, attempt))
        return ClientSession(self._setup.context, u, self._people[u], rand)

    def _ground(self, advertised: dict[int, bytes]) -> RoundRoster | None:
        """The first roster on which colluders hold all shares of an honest client."""
        known = {u: sent_as(Advertisement, data, u) for u, data in advertised.items()}
        changed = CLIENTS - 1
        for attempt in range(MOST_TRIES):
            self._found.tries += 1
            roster = RoundRoster.build(self._setup.context, known)
            if any(self._surrounded(roster)):
                return roster
            self._seconds += SECONDS_PER_TRY
            self._own[changed] = self._session(changed, attempt + 1)
            advertised[changed] = self._own[changed].begin_bytes()
            known[changed] = sent_as(Advertisement, advertised[changed], changed)
        return None

    def _surrounded(self, roster: RoundRoster) -> Iterator[int]:
        for u in self._honest:
            if self._own.keys() >= set(roster.graph.holders(u)):
                yield u

    def _opens(self, roster: RoundRoster, advertised: dict[int, bytes]) -> bool:
        """Whether the upload of a surrounded client can be read."""
        context = self._setup.context
        target = next(self._surrounded(roster))
        knowledge, server = Knowledge(context), ServerSession(context)
        down = self._pass_on(server, advertised)
        bundles = {u: answer for u, data in down if (answer := self._ask(u, data)) is not None}
        try:
            down = self._pass_on(server, bundles)
        except ProtocolError:
            return False  # so many refused that the server's own session ends
        for u, data in down:
            if u in self._own:
                self._ask(u, data)
                state: Any = self._own[u].hand_over()[1]
                knowledge.learn_held(roster, u, state.held)
            elif u == target and self._ask(u, data) is None:
                upload = sent_as(MaskedInput, self._honest[u].submit(), u)
                knowledge.learn_upload(roster, tuple(range(CLIENTS)), upload)
        right = lift(self._honest[target].sent(), context.field).elements
        sums = {opened.members: opened.vector for opened in knowledge.sums()}
        return (target,) in sums and np.array_equal(sums[target,], right)

    def _pass_on(self, server: ServerSession, up: dict[int, bytes]) -> list[tuple[int, bytes]]:
        for u, data in up.items():
            server.receive_bytes(u, data)
        return server.close_round_bytes()

    def _ask(self, u: int, data: bytes) -> bytes | None:
        try:
            if u in self._own:
                return self._own[u].receive_bytes(data)
            return self._honest[u].receive(data)
        except PEER_ERRORS as error:
            self._found.refusals.append(error)
            return None
