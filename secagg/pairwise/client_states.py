"""What a client knows in each phase of a round: one frozen value for each.

Secrets that are no longer needed are not carried on: a later state cannot give away what an
earlier one held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from secagg.keys import AgreedSecret, AgreementKey, Identity, SecretSeed, os_random
from secagg.pairwise.context import SessionContext
from secagg.pairwise.messages import Advertisement, AnyMessage
from secagg.pairwise.roster import RoundRoster
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import Rand


@dataclass(frozen=True, slots=True)
class Party:
    """What does not change during a session."""

    context: SessionContext
    index: int
    identity: Identity
    rand: Rand = os_random


@dataclass(frozen=True, slots=True)
class Fresh:
    """No message has been sent yet."""

    phase = ClientPhase.FRESH


@dataclass(frozen=True, slots=True)
class Advertised:
    """Two ephemeral keys are out."""

    phase = ClientPhase.ADVERTISED
    sealing: AgreementKey
    masking: AgreementKey
    advertisement: Advertisement


@dataclass(frozen=True, slots=True)
class Shared:
    """Shares of the self-mask seed and of the masking key are out.

    `agreed[u]` is the secret behind the seals between us and u, in both directions.
    """

    phase = ClientPhase.SHARED
    agreed: dict[int, AgreedSecret]
    masking: AgreementKey
    seed: SecretSeed
    roster: RoundRoster
    own_share: bytes = field(repr=False)
    removable: tuple[SecretSeed, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Shares of every participant that we hold are in: `held[u]` is a share of both secrets."""

    phase = ClientPhase.READY
    masking: AgreementKey
    seed: SecretSeed
    roster: RoundRoster
    participants: tuple[int, ...]
    held: dict[int, bytes] = field(repr=False)
    removable: tuple[SecretSeed, ...]


@dataclass(frozen=True, slots=True)
class Masked:
    """The masked input is out; the secrets of our masks are forgotten."""

    phase = ClientPhase.MASKED
    roster: RoundRoster
    participants: tuple[int, ...]
    held: dict[int, bytes] = field(repr=False)
    removable: tuple[SecretSeed, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One survivor set is signed; no other will be answered."""

    phase = ClientPhase.CONFIRMED
    masked: Masked
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """Shares are released; shares of survivors' surplus seeds may still be asked for, once."""

    phase = ClientPhase.RELEASED
    masked: Masked
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to do."""

    phase = ClientPhase.FINISHED


@dataclass(frozen=True, slots=True)
class Aborted:
    """An error has ended the session."""

    phase = ClientPhase.ABORTED


State = Fresh | Advertised | Shared | Ready | Masked | Confirmed | Released | Finished | Aborted


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and the message to the server, if any."""

    state: State
    outbound: AnyMessage | None
