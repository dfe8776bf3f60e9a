"""What a client and a member know in each phase of a one-shot round: one frozen value for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.framing import Message
from secagg.keys import AgreementKey, Identity, SecretSeed
from secagg.oneshot.header import Header
from secagg.oneshot.records import RoundRecord
from secagg.oneshot.transitions import ClientPhase, MemberPhase
from secagg.shamir import Rand


@dataclass(frozen=True, slots=True)
class ClientParty:
    """What does not change during a client's session.

    Attributes:
        context: that of the protocol.
        returns: whether the upload is a member's that takes something back.
    """

    context: Any
    index: int
    identity: Identity
    rand: Rand
    returns: bool = False


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing has been drawn yet."""

    phase = ClientPhase.FRESH


@dataclass(frozen=True, slots=True)
class Seeded:
    """The root of the upload's secrets is drawn, and the noise's seeds are fixed."""

    phase = ClientPhase.SEEDED
    root: SecretSeed
    removable: tuple[SecretSeed, ...]
    own: SecretSeed


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The upload is out. Nothing secret is left; the same bytes may be sent again."""

    phase = ClientPhase.UPLOADED
    upload: bytes = field(repr=False)
    header_digest: bytes


@dataclass(frozen=True, slots=True)
class ClientAborted:
    """An error has ended the session."""

    phase = ClientPhase.ABORTED


ClientState = Fresh | Seeded | Uploaded | ClientAborted


@dataclass(frozen=True, slots=True)
class MemberParty:
    """What does not change during a member's session.

    Attributes:
        context: that of the protocol.
        own: for a member that is a client of the round, its index in the cohort and the digest of
            its own upload's header, None if it sent none.
        registry: identities that a cohort may have; None for any.
    """

    context: Any
    index: int
    identity: Identity
    sealing: AgreementKey
    own: tuple[int, bytes | None] | None
    registry: frozenset[bytes] | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing has arrived yet."""

    phase = MemberPhase.WAITING


@dataclass(frozen=True, slots=True)
class Checked:
    """Headers are checked and our seals opened: `shares[i]` belongs to `headers[i]`."""

    phase = MemberPhase.CHECKED
    headers: tuple[Header, ...]
    shares: NDArray[np.unsignedinteger] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One set is signed; only the shares of its uploads are kept.

    Attributes:
        record: what the set adds to the run's records, where members upload as well.
    """

    phase = MemberPhase.CONFIRMED
    signed: bytes
    survivors: tuple[int, ...]
    record: RoundRecord | None
    shares: NDArray[np.unsignedinteger] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    """The one answer is given."""

    phase = MemberPhase.FINISHED


@dataclass(frozen=True, slots=True)
class MemberAborted:
    """An error has ended the session."""

    phase = MemberPhase.ABORTED


MemberState = Waiting | Checked | Confirmed | Finished | MemberAborted


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and the message to the server, if any."""

    state: ClientState | MemberState
    outbound: Message | None
