"""Every legal move of a client and of a server, as data.

A move that is not listed is an error, and a test walks all (phase, event) pairs of both tables.
The diagrams in docs/protocol.md are generated from them. Events are messages and three things that
only the caller can say: begin, here is the input, the deadline has passed.
"""

from __future__ import annotations

import enum

from secagg.pairwise.messages import (
    Advertisement,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
)
from secagg.session import Moves


class ClientPhase(enum.Enum):
    """Where a client is; `ABORTED` and `FINISHED` are final."""

    FRESH = "fresh"
    ADVERTISED = "keys advertised"
    SHARED = "secrets shared"
    READY = "shares received"
    MASKED = "input masked"
    CONFIRMED = "survivors confirmed"
    RELEASED = "shares released"
    FINISHED = "finished"
    ABORTED = "aborted"


class ServerPhase(enum.Enum):
    """What the server is collecting; `ABORTED` and `FINISHED` are final."""

    ADVERTISING = "advertisements"
    SHARING = "shares"
    MASKING = "masked inputs"
    CONFIRMING = "confirmations"
    UNMASKING = "unmask shares"
    RECOVERING = "seed shares"
    FINISHED = "sum released"
    ABORTED = "aborted"


class Local(enum.Enum):
    """Events that come from the caller instead of the wire."""

    BEGIN = "begin"
    INPUT = "input vector"
    DEADLINE = "deadline"
    UNMASK = "unmask"


def _to(*phases: enum.Enum) -> frozenset[enum.Enum]:
    return frozenset(phases)


CLIENT_MOVES: Moves = {
    (ClientPhase.FRESH, Local.BEGIN): _to(ClientPhase.ADVERTISED),
    (ClientPhase.ADVERTISED, Roster): _to(ClientPhase.SHARED),
    (ClientPhase.SHARED, DeliveredShares): _to(ClientPhase.READY),
    (ClientPhase.READY, Local.INPUT): _to(ClientPhase.MASKED),
    # Without the consistency round the survivor set is answered with shares at once.
    (ClientPhase.MASKED, SurvivorSet): _to(
        ClientPhase.CONFIRMED, ClientPhase.RELEASED, ClientPhase.FINISHED
    ),
    # Without removable seeds nothing is left to do after the shares are released.
    (ClientPhase.CONFIRMED, ConfirmationSet): _to(ClientPhase.RELEASED, ClientPhase.FINISHED),
    (ClientPhase.RELEASED, SeedRequest): _to(ClientPhase.FINISHED),
}

SERVER_MOVES: Moves = {
    (ServerPhase.ADVERTISING, Advertisement): _to(ServerPhase.ADVERTISING),
    (ServerPhase.ADVERTISING, Local.DEADLINE): _to(ServerPhase.SHARING),
    (ServerPhase.SHARING, ShareBundle): _to(ServerPhase.SHARING),
    (ServerPhase.SHARING, Local.DEADLINE): _to(ServerPhase.MASKING),
    (ServerPhase.MASKING, MaskedInput): _to(ServerPhase.MASKING),
    (ServerPhase.MASKING, Local.DEADLINE): _to(ServerPhase.CONFIRMING, ServerPhase.UNMASKING),
    (ServerPhase.CONFIRMING, Confirmation): _to(ServerPhase.CONFIRMING),
    (ServerPhase.CONFIRMING, Local.DEADLINE): _to(ServerPhase.UNMASKING),
    (ServerPhase.UNMASKING, UnmaskShares): _to(ServerPhase.UNMASKING),
    (ServerPhase.UNMASKING, Local.DEADLINE): _to(ServerPhase.RECOVERING),
    (ServerPhase.RECOVERING, SeedShares): _to(ServerPhase.RECOVERING),
    (ServerPhase.RECOVERING, Local.UNMASK): _to(ServerPhase.FINISHED),
}
