"""The JSON files of the one-shot protocol as types: as those of the other, with what differs."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from ..schema import Error


class MemberKeys(TypedDict):
    """One member of the committee."""

    identity: str
    sealing_key: str
    first_round: int
    last_round: int
    signature: str


class DrawTerms(TypedDict):
    """How the members of a drawn committee were drawn."""

    registry_root: str
    registry_size: int
    odds: int
    beacon: str


class CommitteeKeys(TypedDict):
    """Who holds shares, and how many of them are needed for what; `draw` if they were drawn."""

    kind: Literal["everyone", "named", "drawn"]
    members: list[MemberKeys]
    corrupt: int
    randomness: int
    per_polynomial: int
    quorum: int
    draw: NotRequired[DrawTerms]


class RecordFields(TypedDict):
    """What was signed for in an earlier round of a run; members by index in the committee."""

    round_number: int
    clients: int
    entered: list[int]
    returned: list[int]


class MemberUploadsTerms(TypedDict):
    """The terms of members' uploads."""

    fewest: int
    returning: bool
    fewest_returning: int
    block: str
    records: list[RecordFields]


class OneShotContext(TypedDict):
    """Every field of the context, the cohort behind its root, and what its hash must be."""

    session_id: str
    round_number: int
    cohort: list[str]
    cohort_root: str
    committee: CommitteeKeys
    minimum_survivors: int
    tolerated_colluders: int
    degree: int
    limbs: int
    rounding_bits: int
    entries: int
    allow_weak: bool
    removal: list[int]
    bits: int
    length: int
    application_digest: str
    opened_at: int
    lifetime_seconds: int
    member_uploads: NotRequired[MemberUploadsTerms]
    """There where members upload after the clients, who come first in `cohort`."""
    hash: str


class OneShotResult(TypedDict):
    """What `server_open` must give."""

    total: list[int]
    survivors: list[int]
    excluded: list[int]
    """Clients that complaints left out."""
    wrong_members: list[int]
    noisy: list[int]
    seeds: dict[str, list[str]]


class OneShotOperation(TypedDict):
    """One step of one party."""

    op: Literal[
        "client_seeds",
        "client_submit",
        "client_resend",
        "member_receive",
        "server_receive_upload",
        "server_receive_from_member",
        "server_close",
        "server_open",
    ]
    party: NotRequired[int]
    """Whose session takes the step, client or member; for the server, whom the transport names."""
    data: NotRequired[str]
    expect: NotRequired[str | list[Any] | OneShotResult | None]
    error: NotRequired[Error]
    instead_of: NotRequired[str]


class OneShotRoundVector(TypedDict):
    """A round, or the part of one that leads to its end."""

    description: str
    context: OneShotContext
    identities: list[str]
    """Ed25519 private keys of the clients."""
    member_identities: list[str]
    sealing_keys: list[str]
    """X25519 private keys of the members."""
    own: list[list[Any] | None]
    """By member that uploads: its index in the cohort, and the name of its upload or null."""
    returning: NotRequired[list[int]]
    """Uploads that say that a member takes something back."""
    rand_seeds: list[str]
    rounded: list[str]
    """What the clients' noise seeds are bound to."""
    inputs: list[list[int]]
    messages: dict[str, str]
    operations: list[OneShotOperation]
    success: bool


class OneShotRefusalVector(TypedDict):
    """What one party of an honest round refuses in place of an honest message."""

    description: str
    base: str
    role: Literal["member", "server"]
    party: int
    """Which member, or -1."""
    steps: int
    messages: dict[str, str]
    operations: list[OneShotOperation]
    success: Literal[False]
