"""A cohort of clients and a server over an in-memory wire of bytes, for all tests of the core."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pytest

from secagg import (
    SERVER,
    ClientSession,
    FieldSum,
    FieldVector,
    Identity,
    Mode,
    ProtocolError,
    Reason,
    RemoteProtocolError,
    ServerSession,
    SessionAbortedError,
    SessionContext,
    lowest_threshold,
)
from secagg.framing import encode_message, encode_set
from secagg.keys import Rand
from secagg.pairwise.messages import (
    AnyMessage,
    MaskedInput,
    SeedShares,
    ShareBundle,
    decode_from_client,
    decode_from_server,
)
from secagg.pairwise.reference import ReferenceRound, Stage, run_secagg
from secagg.pairwise.roster import masked_input_parts
from secagg.pairwise.transitions import ClientPhase, ServerPhase
from secagg.tags import Usage, encode_index

# Probability with which a statistical test would fail for a correct program, had its seeds been
# drawn at random. They are fixed, so a test that passes once passes always.
ALPHA = 1e-6


class Direction(enum.Enum):
    """Which way a message travels."""

    UP = "client to server"
    DOWN = "server to client"


Tamper = Callable[[int, bytes], Iterable[bytes]]
"""Gets the client's index and an honest message; gives the messages that arrive instead."""


def rand(seed: bytes) -> Rand:
    """A deterministic source: SHA-256 of the seed and a running block number."""
    blocks = 0

    def draw(count: int) -> bytes:
        nonlocal blocks
        out = b""
        while len(out) < count:
            out += hashlib.sha256(seed + blocks.to_bytes(8, "big")).digest()
            blocks += 1
        return out[:count]

    return draw


@lru_cache(maxsize=256)
def identity(number: int) -> Identity:
    """Identity number `number`, the same in every run."""
    return Identity.from_private_bytes(hashlib.sha256(b"identity %d" % number).digest())


REMOVAL = (0b11, 0b01, 0b10)
"""Seeds that every survivor gives up when 0, 1, 2 clients of five are lost."""


def context(n: int = 4, mode: Mode = Mode.ACTIVE, **changes: Any) -> SessionContext:
    """A small feasible context; any parameter may be replaced."""
    colluders = changes.get("tolerated_colluders", 0)
    threshold = changes.get("threshold", lowest_threshold(n, colluders, mode))
    parameters: dict[str, Any] = {
        "session_id": bytes(range(16)),
        "round_number": 3,
        "cohort": tuple(identity(u).public for u in range(n)),
        "threshold": threshold,
        "minimum_survivors": threshold,
        "mode": mode,
        "tolerated_colluders": colluders,
        "bits": 16,
        "length": 5,
        "application_digest": hashlib.sha256(b"application").digest(),
    }
    return SessionContext(**{**parameters, **changes})


@dataclass
class Cohort:
    """Both ends of one round. Nothing but bytes passes between them.

    Args:
        tampers: by (stage, direction); down messages belong to the stage that they end.

    After `run`, `refused` holds what the server refused, `failed` the error that ended a client,
    `wire` every honest message as (stage, direction, client) -> bytes.
    """

    context: SessionContext
    drops: Mapping[int, Stage] = field(default_factory=dict)
    tampers: Mapping[tuple[Stage, Direction], Tamper] = field(default_factory=dict)
    contexts: Mapping[int, SessionContext] = field(default_factory=dict)
    seed: bytes = b"cohort"

    def __post_init__(self) -> None:
        self.n = self.context.size
        self.server = ServerSession(self.context)
        self.clients = [
            ClientSession(self.contexts.get(u, self.context), u, identity(u), self.rand(u))
            for u in range(self.n)
        ]
        rng = np.random.default_rng(list(self.seed))
        modulus = self.context.field.modulus
        self.inputs = rng.integers(0, modulus, (self.n, self.context.length), np.uint64)
        self.inputs = self.inputs.astype(self.context.field.dtype)
        self.refused: list[RemoteProtocolError] = []
        self.failed: dict[int, ProtocolError] = {}
        self.wire: dict[tuple[Stage, Direction, int], bytes] = {}

    def rand(self, u: int) -> Rand:
        """A fresh copy of client u's deterministic randomness."""
        return rand(self.seed + b"|%d|" % u)

    @property
    def stages(self) -> list[Stage]:
        """The stages of this mode."""
        skipped = [] if self.context.mode is Mode.ACTIVE else [Stage.CONFIRM]
        return [stage for stage in Stage if stage not in skipped]

    def vector(self, u: int) -> FieldVector:
        """The input vector of client u."""
        return FieldVector(self.context.field, self.inputs[u].copy())

    def removable_seeds(self, u: int) -> list[bytes]:
        """Client u's removable seeds: drawn after two keys, a nonce and the self-mask seed."""
        rand = self.rand(u)
        for size in (32, 32, 16, 32):
            rand(size)
        return [rand(32) for _ in range(self.context.seeds)]

    def expected(self, survivors: Iterable[int]) -> list[int]:
        """The plain sum of the survivors' inputs modulo p."""
        return [
            sum(int(self.inputs[u][i]) for u in survivors) % self.context.field.modulus
            for i in range(self.context.length)
        ]

    def reference(self) -> ReferenceRound:
        """The same round by the plain reference."""
        return run_secagg(
            self.context,
            [identity(u).private_bytes() for u in range(self.n)],
            self.inputs.tolist(),
            self.drops,
            [self.rand(u) for u in range(self.n)],
        )

    def run(self, until: Stage | None = None, executor: Executor | None = None) -> FieldSum | None:
        """Run all stages, or all before `until` (whose downward messages are not yet due).

        An error of the server's deadline or of `unmask` comes out; those of one message are kept.
        """
        down: dict[int, bytes | None] = dict.fromkeys(range(self.n))
        for stage in self.stages:
            if stage is until:
                self.pending = down
                return None
            answers = self.answers(stage, down)
            if stage is Stage.UNMASK:
                self.released = tuple(answers)
            for u, data in answers.items():
                self.wire[stage, Direction.UP, u] = data
                self.send_up(stage, u, data)
            if stage is Stage.RECOVER:
                break
            down = dict(self.server.close_round_bytes())
            for u, data in down.items():
                self.wire[stage, Direction.DOWN, u] = data
        total = self.server.unmask(executor)
        over = {ClientPhase.FINISHED, ClientPhase.RELEASED}
        assert {self.clients[u].phase for u in self.released if u not in self.failed} <= over
        assert self.server.phase is ServerPhase.FINISHED
        return total

    def answers(self, stage: Stage, down: Mapping[int, bytes | None]) -> dict[int, bytes]:
        """What the clients send in a stage, given what the server sent to them."""
        sent: dict[int, bytes] = {}
        for u, data in down.items():
            if u in self.failed or (u in self.drops and self.drops[u] <= stage):
                continue
            try:
                answer = self.answer(stage, u, data)
            except ProtocolError as error:
                self.failed[u] = error
                assert self.clients[u].phase is ClientPhase.ABORTED
                continue
            if answer is not None:
                sent[u] = answer
        return sent

    def answer(self, stage: Stage, u: int, data: bytes | None) -> bytes | None:
        """One client's message of a stage, after what arrives of the server's last message."""
        client = self.clients[u]
        if data is None:
            return encode_message(client.begin())
        hook = self.tampers.get((self.stages[self.stages.index(stage) - 1], Direction.DOWN))
        out = None
        for arriving in [data] if hook is None else hook(u, data):
            if client.phase is ClientPhase.FINISHED:
                # Delivered twice: the first answer stands, there is no second one.
                with pytest.raises(SessionAbortedError):
                    client.receive_bytes(arriving)
                continue
            out = client.receive_bytes(arriving)
        if stage is Stage.MASK and client.phase is ClientPhase.READY:
            out = encode_message(client.submit(self.vector(u)))
        return out

    def send_up(self, stage: Stage, u: int, data: bytes) -> None:
        """Deliver a client's message, or what a tamper hook makes of it."""
        hook = self.tampers.get((stage, Direction.UP))
        for arriving in [data] if hook is None else hook(u, data):
            before = (self.server.phase, self.server.answered)
            try:
                self.server.receive_bytes(u, arriving)
            except RemoteProtocolError as error:
                self.refused.append(error)
                # A refused message changes nothing.
                assert (self.server.phase, self.server.answered) == before

    def resigned(self, message: AnyMessage) -> AnyMessage:
        """A changed message with the signature its malicious sender would make."""
        round_hash = self.round_hash()
        signer, index = identity(message.sender), encode_index(message.sender)
        if isinstance(message, MaskedInput):
            parts = masked_input_parts(round_hash, message.sender, message.vector)
            signature = signer.sign(Usage.INPUT, *parts)
        elif isinstance(message, ShareBundle):
            parts = (round_hash, index, message.commitments, message.sealed)
            signature = signer.sign(Usage.SHARE, *parts)
        elif isinstance(message, SeedShares):
            bitmap = encode_set(self.server._checked_surplus().missing, self.n)
            parts = (round_hash, index, bitmap, message.shares)
            signature = signer.sign(Usage.RECOVER, *parts)
        else:
            bitmap = encode_set(self.server.survivors, self.n)
            parts = (round_hash, index, bitmap, message.shares, message.seeds)
            signature = signer.sign(Usage.UNMASK, *parts)
        return msgspec.structs.replace(message, signature=signature)

    def incoming(self, u: int = 0) -> Any:
        """The honest server message that client u is waiting for."""
        return decode_from_server(self.pending[u], SERVER, len(self.pending[u]))

    def confirmed_by(
        self, signers: Sequence[int], survivors: Iterable[int] | None = None
    ) -> AnyMessage:
        """Signatures that these clients rightly made over the survivor set, or another one."""
        signed = encode_set(self.server.survivors if survivors is None else survivors, self.n)
        parts = (Usage.CONFIRM, self.round_hash(), signed)
        return msgspec.structs.replace(
            self.incoming(),
            confirmers=encode_set(signers, self.n),
            signatures=b"".join(identity(u).sign(*parts) for u in signers),
        )

    def round_hash(self) -> bytes:
        """The hash that the server binds this round to."""
        return self.server._checked_roster().hash

    def client_refuses(
        self, message: AnyMessage, reason: Reason, party: int = SERVER, u: int = 0
    ) -> None:
        """Client u refuses the message, and is unusable afterwards even with the honest one."""
        with pytest.raises(RemoteProtocolError) as raised:
            self.clients[u].receive(message)
        assert (raised.value.reason, raised.value.party) == (reason, party)
        self.assert_over(u)
        with pytest.raises(SessionAbortedError):
            self.clients[u].receive_bytes(self.pending[u])

    def assert_over(self, u: int) -> None:
        """Client u is aborted and takes nothing any more."""
        assert self.clients[u].phase is ClientPhase.ABORTED
        with pytest.raises(SessionAbortedError):
            self.clients[u].begin()


def before(stage: Stage, mode: Mode = Mode.ACTIVE, **options: Any) -> Cohort:
    """Five clients and a server before a stage; t = minimum = 3.

    Seeds are asked for only when a survivor goes away without giving up its own: the cohort before
    `RECOVER` has lost client 4, after its upload.
    """
    changes: dict[str, Any] = {"threshold": 3}
    if stage is Stage.RECOVER:
        changes["removal"] = REMOVAL
        options.setdefault("drops", {4: Stage.UNMASK})
    cohort = Cohort(context(5, mode, **changes), **options)
    cohort.run(until=stage)
    return cohort


def on_up(
    stage: Stage, change: Callable[[int, Any], AnyMessage]
) -> dict[tuple[Stage, Direction], Tamper]:
    """Tamper hooks that change the decoded messages of clients in a stage."""

    def hook(u: int, data: bytes) -> list[bytes]:
        return [encode_message(change(u, decode_from_client(data, u, len(data))))]

    return {(stage, Direction.UP): hook}
