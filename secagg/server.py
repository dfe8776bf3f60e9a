"""The server's side of a round: a state machine that streams, and trusts nobody's bytes.

A client's bad message is refused with a `RemoteProtocolError` that names it, and changes nothing:
otherwise anyone who can reach the server could end every round. The session itself aborts when
too few clients are left, or when rebuilt secrets do not check. Memory is one vector and O(n k)
small items: each masked vector is added to one accumulator as it arrives.

Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.client import held_by
from secagg.context import Mode, SessionContext
from secagg.errors import (
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
)
from secagg.field import FieldVector, add_into, unpack
from secagg.keys import AgreementKey, SecretSeed, os_random, signature_is_valid
from secagg.messages import (
    SEALED_SHARE_BYTES,
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_client,
    encode_message,
    encode_set,
    largest_message_bytes,
    split_items,
)
from secagg.rebuild import rebuild
from secagg.roster import (
    RoundRoster,
    check_advertisement,
    check_distinct_keys,
    commitment,
    masked_input_parts,
)
from secagg.shamir import decode_share
from secagg.tags import Usage, encode_index
from secagg.transitions import SERVER_MOVES, Local, ServerPhase
from secagg.unmask import plan_removal, remove_masks

T = TypeVar("T")

Outbound = tuple[int, AnyMessage]
"""A message and the index of the client it goes to."""


@dataclass(frozen=True, slots=True)
class FieldSum:
    """The result of a round.

    Attributes:
        vector: the exact sum in GF(p) over the inputs of the survivors.
        survivors: U3, ascending.
        culprits: clients that answered with a wrong share, ascending; the sum is right all the
            same.
    """

    vector: FieldVector
    survivors: tuple[int, ...]
    culprits: tuple[int, ...] = ()


class ServerSession:
    """The server in one round. Feed it clients' messages and deadlines; send what it returns.

    The caller owns time: `close_round()` says that a stage's deadline has passed, and returns the
    messages of the next one. After the last stage `unmask()` gives the sum.
    """

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._phase = ServerPhase.ADVERTISING
        self._limit = largest_message_bytes(context)
        self._tag = context_tag(context)
        # Refuses low-order keys early: agreeing with them fails for every honest client.
        self._probe = AgreementKey(os_random(32))
        self._advertisements: dict[int, Advertisement] = {}
        self._roster: RoundRoster | None = None
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._participants: tuple[int, ...] = ()
        self._total = context.field.zeros(context.length)
        self._uploaded: set[int] = set()
        self._survivors: tuple[int, ...] = ()
        self._confirmations: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, NDArray[np.uint32]]] = {}

    @property
    def phase(self) -> ServerPhase:
        """What the session is collecting."""
        return self._phase

    @property
    def participants(self) -> tuple[int, ...]:
        """U2: clients whose shares were delivered; empty before that."""
        return self._participants

    @property
    def survivors(self) -> tuple[int, ...]:
        """U3: clients whose inputs are in the sum; empty before that is decided."""
        return self._survivors

    @property
    def answered(self) -> tuple[int, ...]:
        """The clients that have answered in the present stage, ascending."""
        stages: dict[ServerPhase, Collection[int]] = {
            ServerPhase.ADVERTISING: self._advertisements,
            ServerPhase.SHARING: self._commitments,
            ServerPhase.MASKING: self._uploaded,
            ServerPhase.CONFIRMING: self._confirmations,
            ServerPhase.UNMASKING: self._shares,
        }
        return tuple(sorted(stages.get(self._phase, ())))

    def receive(self, message: AnyMessage) -> None:
        """Process a client's message.

        Raises:
            RemoteProtocolError: the message is refused; the session is as it was.
            SessionAbortedError: the session is over.
        """
        self._check_open()
        sender = getattr(message, "sender", -1)
        handler = _RECEIVERS.get((self._phase, type(message)))
        if not 0 <= sender < self._context.size:
            raise RemoteProtocolError(sender, Reason.UNKNOWN_SENDER, "not in the cohort")
        if message.context != self._tag:
            raise RemoteProtocolError(sender, Reason.WRONG_CONTEXT)
        if handler is None:
            raise RemoteProtocolError(
                sender,
                Reason.UNEXPECTED_MESSAGE,
                f"{type(message).__name__} while collecting {self._phase.value}",
            )
        handler(self, message)

    def receive_bytes(self, sender: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to client `sender`."""
        self._check_open()
        if not 0 <= sender < self._context.size:
            raise RemoteProtocolError(sender, Reason.UNKNOWN_SENDER, "not in the cohort")
        self.receive(decode_from_client(data, sender, self._limit))

    def close_round(self) -> list[Outbound]:
        """The deadline of the present stage has passed: returns the next stage's messages.

        Raises:
            TooFewSurvivorsError: the session aborts and releases nothing.
            LocalProtocolError: the present stage ends with `unmask()`.
        """
        self._check_open()
        closer = _CLOSERS.get(self._phase)
        if closer is None:
            raise LocalProtocolError("the last stage ends with unmask()")
        return self._guarded(lambda: closer(self))

    def close_round_bytes(self) -> list[tuple[int, bytes]]:
        """`close_round` with encoded messages."""
        return [(to, encode_message(message)) for to, message in self.close_round()]

    def unmask(self, executor: Executor | None = None) -> FieldSum:
        """Rebuild the missing secrets, check them, and release the sum.

        Args:
            executor: optional; splits the work by coordinate range.

        Raises:
            TooFewSurvivorsError: fewer than t holders answered for some secret.
            RemoteProtocolError: no choice of shares rebuilds what an owner committed to.
        """
        self._check_open()
        if self._phase is not ServerPhase.UNMASKING:
            raise LocalProtocolError(f"cannot unmask while collecting {self._phase.value}")
        return self._guarded(lambda: self._unmask(executor))

    # -- messages -----------------------------------------------------------------------------

    def _on_advertisement(self, message: Advertisement) -> None:
        sender = self._first(message.sender, self._advertisements, range(self._context.size))
        check_advertisement(self._context, message)
        check_distinct_keys({**self._advertisements, sender: message}, sender)
        for key in (message.sealing_key, message.masking_key):
            try:
                self._probe.agree(key)
            except ValueError:
                raise RemoteProtocolError(sender, Reason.BAD_KEY) from None
        self._advertisements[sender] = message

    def _on_bundle(self, message: ShareBundle) -> None:
        roster = self._checked_roster()
        sender = self._first(message.sender, self._commitments, roster.members)
        recipients = [h for h in roster.graph.holders(sender) if h != sender]
        try:
            items = split_items(message.sealed, SEALED_SHARE_BYTES, len(recipients))
        except ValueError as error:
            raise RemoteProtocolError(sender, Reason.BAD_LENGTH, str(error)) from None
        signed = (roster.hash, encode_index(sender), message.commitment, message.sealed)
        self._check_signature(sender, message.signature, Usage.SHARE, signed)
        self._commitments[sender] = message.commitment
        self._sealed[sender] = dict(zip(recipients, items, strict=True))

    def _on_masked_input(self, message: MaskedInput) -> None:
        sender = self._first(message.sender, self._uploaded, self._participants)
        expected = self._context.field.packed_bytes(self._context.length)
        if len(message.vector) != expected:
            raise RemoteProtocolError(
                sender, Reason.BAD_LENGTH, f"{len(message.vector)} bytes, {expected} expected"
            )
        signed = masked_input_parts(self._checked_roster().hash, sender, message.vector)
        self._check_signature(sender, message.signature, Usage.INPUT, signed)
        try:
            vector = unpack(message.vector, self._context.length, self._context.field)
        except ValueError as error:
            raise RemoteProtocolError(sender, Reason.NOT_IN_FIELD, str(error)) from None
        add_into(self._total, vector)
        self._uploaded.add(sender)

    def _on_confirmation(self, message: Confirmation) -> None:
        roster = self._checked_roster()
        sender = self._first(message.sender, self._confirmations, self._survivors)
        signed = (roster.hash, encode_set(self._survivors, self._context.size))
        self._check_signature(sender, message.signature, Usage.CONFIRM, signed)
        self._confirmations[sender] = message.signature

    def _on_unmask_shares(self, message: UnmaskShares) -> None:
        sender = self._first(message.sender, self._shares, self._survivors)
        roster = self._checked_roster()
        bitmap = encode_set(self._survivors, self._context.size)
        signed = (roster.hash, encode_index(sender), bitmap, message.shares)
        self._check_signature(sender, message.signature, Usage.UNMASK, signed)
        owners = held_by(sender, self._participants, roster.graph)
        try:
            shares = decode_share(message.shares, len(owners))
        except ValueError as error:
            raise RemoteProtocolError(sender, Reason.BAD_SHARE, str(error)) from None
        self._shares[sender] = dict(zip(owners, shares, strict=True))

    # -- deadlines ----------------------------------------------------------------------------

    def _close_advertising(self) -> list[Outbound]:
        self._require("advertise", len(self._advertisements))
        self._roster = RoundRoster.build(self._context, self._advertisements)
        message = self._roster.to_message(self._context)
        self._move(Local.DEADLINE, ServerPhase.SHARING)
        return [(member, message) for member in self._roster.members]

    def _close_sharing(self) -> list[Outbound]:
        self._require("share", len(self._commitments))
        self._participants = tuple(sorted(self._commitments))
        bitmap = encode_set(self._participants, self._context.size)
        outbound: list[Outbound] = []
        graph = self._checked_roster().graph
        for recipient in self._participants:
            owners = held_by(recipient, self._participants, graph, include_self=False)
            sealed = b"".join(self._sealed[owner][recipient] for owner in owners)
            delivered = DeliveredShares(context=self._tag, participants=bitmap, sealed=sealed)
            outbound.append((recipient, delivered))
        self._sealed.clear()
        self._move(Local.DEADLINE, ServerPhase.MASKING)
        return outbound

    def _close_masking(self) -> list[Outbound]:
        self._require("masked input", len(self._uploaded))
        self._survivors = tuple(sorted(self._uploaded))
        bitmap = encode_set(self._survivors, self._context.size)
        active = self._context.mode is Mode.ACTIVE
        self._move(Local.DEADLINE, ServerPhase.CONFIRMING if active else ServerPhase.UNMASKING)
        message = SurvivorSet(context=self._tag, survivors=bitmap)
        return [(survivor, message) for survivor in self._survivors]

    def _close_confirming(self) -> list[Outbound]:
        needed = self._checked_roster().threshold
        if len(self._confirmations) < needed:
            raise TooFewSurvivorsError("confirm", len(self._confirmations), needed)
        # Any t signatures convince a client; more would only cost bytes.
        confirmers = tuple(sorted(self._confirmations))[:needed]
        message = ConfirmationSet(
            context=self._tag,
            confirmers=encode_set(confirmers, self._context.size),
            signatures=b"".join(self._confirmations[confirmer] for confirmer in confirmers),
        )
        self._move(Local.DEADLINE, ServerPhase.UNMASKING)
        return [(confirmer, message) for confirmer in sorted(self._confirmations)]

    def _unmask(self, executor: Executor | None) -> FieldSum:
        roster = self._checked_roster()
        if len(self._shares) < roster.threshold:
            raise TooFewSurvivorsError("unmask", len(self._shares), roster.threshold)
        holders_of = {owner: roster.graph.holders(owner) for owner in self._participants}
        rebuilt = rebuild(holders_of, self._shares, roster.threshold, self._is_committed)
        removal = plan_removal(roster, self._survivors, rebuilt.secrets)
        total = remove_masks(self._total, self._context.field, removal, executor)
        self._move(Local.UNMASK, ServerPhase.FINISHED)
        culprits = {liar for liars in rebuilt.culprits.values() for liar in liars}
        return FieldSum(total, self._survivors, tuple(sorted(culprits)))

    def _is_committed(self, owner: int, secret: bytes) -> bool:
        """Whether a rebuilt secret is the self-mask seed or masking key that its owner shared."""
        roster = self._checked_roster()
        if owner in self._uploaded:
            return commitment(roster.hash, owner, SecretSeed(secret)) == self._commitments[owner]
        return AgreementKey(secret).public == roster.advertisements[owner].masking_key

    # -- helpers ------------------------------------------------------------------------------

    def _first(self, sender: int, seen: Collection[int], allowed: Collection[int]) -> int:
        if sender not in allowed:
            raise RemoteProtocolError(sender, Reason.UNKNOWN_SENDER, "not in the previous stage")
        if sender in seen:
            raise RemoteProtocolError(sender, Reason.DUPLICATE_MESSAGE)
        return sender

    def _check_signature(
        self, sender: int, signature: bytes, usage: Usage, parts: tuple[bytes, ...]
    ) -> None:
        if not signature_is_valid(self._context.cohort[sender], signature, usage, *parts):
            raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, usage.value.decode())

    def _require(self, stage: str, count: int) -> None:
        if count < self._context.minimum_survivors:
            raise TooFewSurvivorsError(stage, count, self._context.minimum_survivors)

    def _checked_roster(self) -> RoundRoster:
        if self._roster is None:
            raise LocalProtocolError("there is no roster yet")
        return self._roster

    def _check_open(self) -> None:
        if self._phase in (ServerPhase.ABORTED, ServerPhase.FINISHED):
            raise SessionAbortedError(f"this session is over: {self._phase.value}")

    def _move(self, event: Local | type, phase: ServerPhase) -> None:
        if phase not in SERVER_MOVES[(self._phase, event)]:
            raise LocalProtocolError(f"illegal move from {self._phase} to {phase}")
        self._phase = phase

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except BaseException:  # an interrupt, too, may leave half of the masks on the sum
            self._phase = ServerPhase.ABORTED
            raise


_RECEIVERS: dict[tuple[ServerPhase, type], Callable[[ServerSession, Any], None]] = {
    (ServerPhase.ADVERTISING, Advertisement): ServerSession._on_advertisement,
    (ServerPhase.SHARING, ShareBundle): ServerSession._on_bundle,
    (ServerPhase.MASKING, MaskedInput): ServerSession._on_masked_input,
    (ServerPhase.CONFIRMING, Confirmation): ServerSession._on_confirmation,
    (ServerPhase.UNMASKING, UnmaskShares): ServerSession._on_unmask_shares,
}

_CLOSERS: dict[ServerPhase, Callable[[ServerSession], list[Outbound]]] = {
    ServerPhase.ADVERTISING: ServerSession._close_advertising,
    ServerPhase.SHARING: ServerSession._close_sharing,
    ServerPhase.MASKING: ServerSession._close_masking,
    ServerPhase.CONFIRMING: ServerSession._close_confirming,
}
