"""Our clients where Flower's were: the same round, the same server, real sessions.

Four clients. One is lost after it shared its secrets, one works for the server, and two are honest
survivors: the victim and its only honest neighbour.
"""

from __future__ import annotations

import secrets

import numpy as np

from secagg import (
    ClientSession,
    FieldVector,
    Identity,
    Mode,
    ProtocolError,
    ServerSession,
    SessionContext,
    lowest_threshold,
)
from secagg.framing import encode_set
from secagg.pairwise.client_states import Ready
from secagg.pairwise.messages import SurvivorSet, context_tag
from simulations.audits.base import Integers
from simulations.threats.flower.masks import LARGEST

VICTIM, HONEST, COLLUDER, LOST = range(4)
CLIENTS = 4
BITS = 32


class OurRound:
    """A round of four real clients and an honest server, stage by stage.

    Attributes:
        inputs: int64[4, length] in 0 .. 2^22, the range of Flower's quantiser.
    """

    def __init__(self, length: int, rng: np.random.Generator) -> None:
        identities = [Identity.generate() for _ in range(CLIENTS)]
        self.context = SessionContext(
            session_id=secrets.token_bytes(16),
            round_number=1,
            cohort=tuple(identity.public for identity in identities),
            threshold=lowest_threshold(CLIENTS, 1, Mode.ACTIVE, 0),
            minimum_survivors=CLIENTS - 1,
            mode=Mode.ACTIVE,
            tolerated_colluders=1,
            bits=BITS,
            length=length,
            application_digest=bytes(32),
        )
        self.inputs: Integers = rng.integers(0, LARGEST + 1, (CLIENTS, length))
        self._server = ServerSession(self.context)
        self._clients = [ClientSession(self.context, u, each) for u, each in enumerate(identities)]

    def until_shared(self) -> None:
        """Everybody has shared its secrets and waits for its input."""
        for u, client in enumerate(self._clients):
            self._server.receive_bytes(u, client.begin_bytes())
        self._stage()
        self._stage()

    def until_masked(self) -> dict[int, bytes]:
        """All but the lost client have uploaded; their uploads."""
        uploads = {}
        for u in (VICTIM, HONEST, COLLUDER):
            vector = FieldVector(self.context.field, self.inputs[u].astype(np.uint32))
            uploads[u] = self._clients[u].submit_bytes(vector)
            self._server.receive_bytes(u, uploads[u])
        return uploads

    def until_confirmed(self) -> None:
        """Survivors have signed who is in the sum."""
        self._stage()

    def until_released(self) -> None:
        """Survivors have given up their shares."""
        self._stage()

    def look_into(self, u: int) -> Ready:
        """What a client knows before it uploads; it goes on as if nobody had looked."""
        party, state = self._clients[u].hand_over()
        if not isinstance(state, Ready):
            raise TypeError(f"client {u} is {state.phase.value!r}, not ready")
        self._clients[u] = ClientSession.from_state(party, state)
        return state

    def told(self, u: int, survivors: tuple[int, ...]) -> ProtocolError | None:
        """Tell a client who survived, out of turn: the error that it refused with, if it did."""
        bitmap = encode_set(survivors, self.context.size)
        message = SurvivorSet(context_tag(self.context), bitmap)
        try:
            self._clients[u].receive(message)
        except ProtocolError as error:
            return error
        return None

    def _stage(self) -> None:
        """The server closes a stage, and clients answer."""
        for u, data in self._server.close_round_bytes():
            answer = self._clients[u].receive_bytes(data)
            if answer is not None:
                self._server.receive_bytes(u, answer)


def ask_for_both_secrets(length: int, rng: np.random.Generator) -> list[ProtocolError | None]:
    """The server asks clients for shares of both secrets of the victim, which is in the sum.

    There is no message that names a client on two lists: clients are told one set of survivors and
    derive from it what to give up. So the server can only ask again: for another set before the
    first is answered, and after it.
    """
    refusals = []
    for answered in (False, True):
        round_ = OurRound(length, rng)
        round_.until_shared()
        round_.until_masked()
        round_.until_confirmed()
        if answered:
            round_.until_released()
        refusals += [round_.told(u, (HONEST, COLLUDER)) for u in (HONEST, COLLUDER)]
    return refusals
