"""Every legal move of a client, a member and a server of a one-shot round, as data.

A move that is not listed is an error, and a test walks all (phase, event) pairs of the three
tables. The diagrams in docs/one-shot.md are generated from them.
"""

from __future__ import annotations

import enum

from secagg.oneshot.messages import (
    Answer,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    Upload,
)
from secagg.session import Moves


class ClientPhase(enum.Enum):
    """Where a client is; `ABORTED` is final."""

    FRESH = "fresh"
    SEEDED = "seeds drawn"
    UPLOADED = "uploaded"
    ABORTED = "aborted"


class MemberPhase(enum.Enum):
    """Where a member of the committee is; `ABORTED` and `FINISHED` are final."""

    WAITING = "waiting"
    CHECKED = "uploads checked"
    CONFIRMED = "survivors signed"
    FINISHED = "answered"
    ABORTED = "aborted"


class ServerPhase(enum.Enum):
    """What the server is collecting; `ABORTED` and `FINISHED` are final."""

    COLLECTING = "uploads"
    CHECKING = "complaints"
    CONFIRMING = "confirmations"
    OPENING = "answers"
    FINISHED = "sum released"
    ABORTED = "aborted"


class Local(enum.Enum):
    """Events that come from the caller instead of the wire."""

    SEEDS = "noise seeds"
    INPUT = "input vector"
    RESEND = "send again"
    DEADLINE = "deadline"
    OPEN = "open"


def _to(*phases: enum.Enum) -> frozenset[enum.Enum]:
    return frozenset(phases)


CLIENT_MOVES: Moves = {
    (ClientPhase.FRESH, Local.SEEDS): _to(ClientPhase.SEEDED),
    (ClientPhase.SEEDED, Local.INPUT): _to(ClientPhase.UPLOADED),
    (ClientPhase.UPLOADED, Local.RESEND): _to(ClientPhase.UPLOADED),
}

MEMBER_MOVES: Moves = {
    (MemberPhase.WAITING, Delivery): _to(MemberPhase.CHECKED),
    (MemberPhase.CHECKED, Proposal): _to(MemberPhase.CONFIRMED),
    (MemberPhase.CONFIRMED, Quorum): _to(MemberPhase.FINISHED),
}

SERVER_MOVES: Moves = {
    (ServerPhase.COLLECTING, Upload): _to(ServerPhase.COLLECTING),
    (ServerPhase.COLLECTING, Local.DEADLINE): _to(ServerPhase.CHECKING),
    (ServerPhase.CHECKING, Complaints): _to(ServerPhase.CHECKING),
    (ServerPhase.CHECKING, Local.DEADLINE): _to(ServerPhase.CONFIRMING),
    (ServerPhase.CONFIRMING, Confirmation): _to(ServerPhase.CONFIRMING),
    (ServerPhase.CONFIRMING, Local.DEADLINE): _to(ServerPhase.OPENING),
    (ServerPhase.OPENING, Answer): _to(ServerPhase.OPENING),
    (ServerPhase.OPENING, Local.OPEN): _to(ServerPhase.FINISHED),
}
