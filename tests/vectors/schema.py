"""The JSON files as types. Bytes are lowercase hexadecimal strings, parties are indices.

A vector file is one of four kinds: `RoundVector` in rounds/, `RefusalVector` (with a `base`) or
`RoundVector` (without) in refusals/, `MessageVector` in messages/, `PrimitiveVector` in
primitives/. Rounds and refusals of the one-shot protocol, in one-shot-rounds/ and
one-shot-refusals/, have types of their own in one_shot/schema.py.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Context(TypedDict):
    """Every field of the session context, and what its hash must be."""

    session_id: str
    round_number: int
    cohort: list[str]
    """Ed25519 public keys, by index."""
    threshold: int
    minimum_survivors: int
    mode: Literal["semi_honest", "active"]
    tolerated_colluders: int
    degree: int
    removal: list[int]
    bits: int
    length: int
    application_digest: str
    security_bits: int
    opened_at: int
    """Unix seconds; 0 for a round that never expires."""
    lifetime_seconds: int
    hash: str


class Error(TypedDict):
    """What an operation must raise."""

    type: Literal[
        "RemoteProtocolError",
        "TooFewSurvivorsError",
        "WrongSharesError",
        "OpeningFailedError",
        "SessionAbortedError",
    ]
    party: NotRequired[int]
    """RemoteProtocolError: who is to blame, -1 for the server."""
    reason: NotRequired[str]
    """RemoteProtocolError: the name of a member of `Reason`."""
    role: NotRequired[str]
    """RemoteProtocolError: "member" if `party` is an index in a committee."""
    stage: NotRequired[str]
    """TooFewSurvivorsError: the stage that ended short."""
    survivors: NotRequired[int]
    needed: NotRequired[int]
    owner: NotRequired[int]
    """WrongSharesError: whose secret does not rebuild."""
    answered: NotRequired[int]
    threshold: NotRequired[int]
    dealers: NotRequired[list[int]]
    """OpeningFailedError: clients to look at."""
    members: NotRequired[list[int]]


class Result(TypedDict):
    """What `server_unmask` must give."""

    total: list[int]
    survivors: list[int]
    culprits: list[int]
    seeds: dict[str, list[str]]
    """Removable seeds that were given up, by survivor."""


class Operation(TypedDict):
    """One step of one party.

    Exactly one of `expect` and `error` tells the outcome; with neither the step must succeed and
    its output is not compared.
    """

    op: Literal[
        "client_begin",
        "client_receive",
        "client_submit",
        "server_receive",
        "server_close",
        "server_unmask",
    ]
    client: NotRequired[int]
    """Whose session takes the step; for server_receive, whom the transport names as sender."""
    data: NotRequired[str]
    """The message that comes in, by its name in `messages`."""
    expect: NotRequired[str | list[list[Any]] | Result | None]
    """The message that goes out, by name; None for nothing. For server_close all messages as pairs
    of recipient and name, by recipient; for server_unmask the result."""
    error: NotRequired[Error]
    instead_of: NotRequired[str]
    """With `error`: the honest message that is accepted in this place."""


class RoundVector(TypedDict):
    """A round, or the part of one that leads to a refusal."""

    description: str
    context: Context
    identities: list[str]
    """Ed25519 private keys, by index."""
    rand_seeds: list[str]
    """Seeds of the clients' randomness, by index."""
    inputs: list[list[int]]
    """Elements below p, by index."""
    messages: dict[str, str]
    """Every message of the file once, by name."""
    operations: list[Operation]
    success: bool
    """Whether the round ends with a sum."""


class RefusalVector(TypedDict):
    """What one party of an honest round refuses in place of an honest message."""

    description: str
    base: str
    """Name of the file in rounds/ with context, identities, seeds, inputs and messages."""
    party: int
    """The client under test, -1 for the server: of the base only its operations are played."""
    steps: int
    """How many of the base's operations, of all parties, come before."""
    messages: dict[str, str]
    """Messages that the base has not."""
    operations: list[Operation]
    """What comes instead; the last one is refused."""
    success: Literal[False]


class MessageCase(TypedDict):
    """Bytes for one decoder."""

    description: str
    sent_by: Literal["client", "member", "server"]
    party: int
    """Whom the transport names as sender, -1 for the server."""
    data: str
    limit: int
    """Longest acceptable message, in bytes."""
    name: NotRequired[str]
    """The message's name, where it is one."""
    fields: NotRequired[dict[str, int | str]]
    error: NotRequired[Error]


class MessageVector(TypedDict):
    """Messages on their own: framing only, nothing inside is looked at."""

    description: str
    cases: list[MessageCase]
    success: bool


class PrimitiveVector(TypedDict):
    """Inputs and outputs of one building block; the cases' fields are in docs/test-vectors.md."""

    description: str
    primitive: str
    cases: list[dict[str, Any]]
