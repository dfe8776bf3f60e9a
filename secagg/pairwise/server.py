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
from dataclasses import dataclass, field
from typing import Any, TypeVar

from secagg.errors import (
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
    blaming,
)
from secagg.field import FieldVector, add_into, unpack
from secagg.framing import encode_message, encode_set, split_items
from secagg.keys import KEY_BYTES, AgreementKey, SecretSeed, signature_is_valid
from secagg.pairwise.context import Mode, SessionContext
from secagg.pairwise.graph import held_by
from secagg.pairwise.messages import (
    COMMITMENT_BYTES,
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_client,
    largest_message_bytes,
    sealed_share_bytes,
)
from secagg.pairwise.rebuild import Rebuilt, Share, rebuild
from secagg.pairwise.roster import (
    RoundRoster,
    check_advertisement,
    commitment,
    masked_input_parts,
)
from secagg.pairwise.routing import route
from secagg.pairwise.surplus import SurplusSeeds
from secagg.pairwise.transitions import SERVER_MOVES, Local, ServerPhase
from secagg.pairwise.unmask import plan_removal, remove_masks
from secagg.shamir import decode_share
from secagg.tags import Usage, encode_index

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
            same. Not even all corrupt clients together can have framed them, but a lying dealer
            can have sealed wrong shares to them: a lead, not a proof.
        removed: removable seeds that survivors gave up, by survivor, in the order of
            `SessionContext.removed_seeds`; checked against their commitments.
        noisy: survivors that are not in `removed` although others are: their seeds are not what
            they committed to, and the noise stays. Only a one-shot round goes on without them.
    """

    vector: FieldVector
    survivors: tuple[int, ...]
    culprits: tuple[int, ...] = ()
    removed: dict[int, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    noisy: tuple[int, ...] = ()


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
        self._advertisements: dict[int, Advertisement] = {}
        self._roster: RoundRoster | None = None
        self._public_keys: set[bytes] = set()
        self._commitments: dict[int, list[bytes]] = {}
        self._sealed: dict[int, bytes] = {}
        self._participants: tuple[int, ...] = ()
        self._total = context.field.zeros(context.length)
        self._uploaded: set[int] = set()
        self._survivors: tuple[int, ...] = ()
        self._survivor_bitmap = b""
        self._confirmations: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, Share]] = {}
        self._surplus: SurplusSeeds | None = None

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
            ServerPhase.RECOVERING: self._surplus.shares if self._surplus else (),
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

        The last stage, after the unmask shares, has messages only if survivors went away before
        they gave up their removable seeds.

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
        """Close the round as `close_round` does, and encode its messages."""
        return [(to, encode_message(message)) for to, message in self.close_round()]

    def unmask(self, executor: Executor | None = None) -> FieldSum:
        """Rebuild the missing secrets, check them, and release the sum.

        Args:
            executor: optional; splits the work by coordinate range and by lost client. Its tasks
                hold rebuilt masking keys and keys of masks.

        Raises:
            TooFewSurvivorsError: fewer than t holders answered for some secret.
            WrongSharesError: shares are too wrong to rebuild what an owner committed to.
        """
        self._check_open()
        if self._phase is ServerPhase.UNMASKING and not self._checked_surplus().missing:
            self._guarded(self._close_unmasking)
        if self._phase is not ServerPhase.RECOVERING:
            raise LocalProtocolError(f"cannot unmask while collecting {self._phase.value}")
        return self._guarded(lambda: self._unmask(executor))

    # -- messages -----------------------------------------------------------------------------

    def _on_advertisement(self, message: Advertisement) -> None:
        sender = self._first(message.sender, self._advertisements, range(self._context.size))
        check_advertisement(self._context, message)
        keys = {message.sealing_key, message.masking_key}
        if len(keys) < 2 or keys & self._public_keys:
            raise RemoteProtocolError(sender, Reason.DUPLICATE_KEY)
        self._public_keys |= keys
        self._advertisements[sender] = message

    def _on_bundle(self, message: ShareBundle) -> None:
        roster = self._checked_roster()
        sender = self._first(message.sender, self._commitments, roster.advertisements)
        holders = roster.graph.holders(sender)
        expected = sealed_share_bytes(self._context) * (len(holders) - (sender in holders))
        with blaming(sender, Reason.BAD_LENGTH):
            split_items(message.sealed, expected, 1)
            items = split_items(message.commitments, COMMITMENT_BYTES, 1 + self._context.seeds)
        signed = (roster.hash, encode_index(sender), message.commitments, message.sealed)
        self._check_signature(sender, message.signature, Usage.SHARE, signed)
        self._commitments[sender] = items
        self._sealed[sender] = message.sealed

    def _on_masked_input(self, message: MaskedInput) -> None:
        sender = self._first(message.sender, self._uploaded, self._commitments)
        expected = self._context.field.packed_bytes(self._context.length)
        if len(message.vector) != expected:
            raise RemoteProtocolError(
                sender, Reason.BAD_LENGTH, f"{len(message.vector)} bytes, {expected} expected"
            )
        signed = masked_input_parts(self._checked_roster().hash, sender, message.vector)
        self._check_signature(sender, message.signature, Usage.INPUT, signed)
        with blaming(sender, Reason.NOT_IN_FIELD):
            vector = unpack(message.vector, self._context.length, self._context.field)
        add_into(self._total, vector)
        self._uploaded.add(sender)

    def _on_confirmation(self, message: Confirmation) -> None:
        roster = self._checked_roster()
        sender = self._first(message.sender, self._confirmations, self._uploaded)
        signed = (roster.hash, self._survivor_bitmap)
        self._check_signature(sender, message.signature, Usage.CONFIRM, signed)
        self._confirmations[sender] = message.signature

    def _on_unmask_shares(self, message: UnmaskShares) -> None:
        sender = self._first(message.sender, self._shares, self._uploaded)
        roster = self._checked_roster()
        signed = (
            roster.hash,
            encode_index(sender),
            self._survivor_bitmap,
            message.shares,
            message.seeds,
        )
        self._check_signature(sender, message.signature, Usage.UNMASK, signed)
        owners = held_by(sender, self._commitments, roster.graph)
        surplus = self._checked_surplus()
        with blaming(sender, Reason.BAD_SHARE):
            shares = decode_share(message.shares, len(owners))
            seeds = split_items(message.seeds, KEY_BYTES, len(surplus.which))
        surplus.give(sender, seeds)
        self._shares[sender] = dict(zip(owners, shares, strict=True))

    def _on_seed_shares(self, message: SeedShares) -> None:
        surplus = self._checked_surplus()
        sender = self._first(message.sender, surplus.shares, self._shares)
        roster, missing = self._checked_roster(), surplus.missing
        bitmap = encode_set(missing, self._context.size)
        signed = (roster.hash, encode_index(sender), bitmap, message.shares)
        self._check_signature(sender, message.signature, Usage.RECOVER, signed)
        owners = held_by(sender, set(missing), roster.graph)
        with blaming(sender, Reason.BAD_SHARE):
            shares = decode_share(message.shares, len(owners) * len(surplus.which))
        surplus.add_shares(sender, owners, shares)

    # -- deadlines ----------------------------------------------------------------------------

    def _close_advertising(self) -> list[Outbound]:
        advertised = len(self._advertisements)
        self._require("advertise", advertised)
        if not self._context.roster_is_safe(advertised):
            # Clients would refuse this roster: see SessionContext.roster_is_safe.
            needed = next(
                size
                for size in range(advertised, self._context.size + 1)
                if self._context.roster_is_safe(size)
            )
            raise TooFewSurvivorsError("advertise", advertised, needed)
        roster = self._roster = RoundRoster.build(self._context, self._advertisements)
        self._move(Local.DEADLINE, ServerPhase.SHARING)
        return [(member, roster.to_message(self._context, member)) for member in roster.members]

    def _close_sharing(self) -> list[Outbound]:
        self._require("share", len(self._commitments))
        self._participants = tuple(sorted(self._commitments))
        bitmap = encode_set(self._participants, self._context.size)
        routed = route(self._sealed, self._checked_roster().graph)
        self._sealed.clear()
        self._move(Local.DEADLINE, ServerPhase.MASKING)
        return [
            (
                recipient,
                DeliveredShares(context=self._tag, participants=bitmap, sealed=sealed),
            )
            for recipient, sealed in routed.items()
        ]

    def _close_masking(self) -> list[Outbound]:
        self._require("masked input", len(self._uploaded))
        self._survivors = tuple(sorted(self._uploaded))
        self._survivor_bitmap = encode_set(self._survivors, self._context.size)
        self._surplus = SurplusSeeds(
            self._context, self._checked_roster(), self._commitments, self._survivors
        )
        active = self._context.mode is Mode.ACTIVE
        self._move(Local.DEADLINE, ServerPhase.CONFIRMING if active else ServerPhase.UNMASKING)
        message = SurvivorSet(context=self._tag, survivors=self._survivor_bitmap)
        return [(survivor, message) for survivor in self._survivors]

    def _close_confirming(self) -> list[Outbound]:
        committee = self._checked_roster().committee
        confirmed = sorted(committee.members & self._confirmations.keys())
        if len(confirmed) < committee.quorum:
            raise TooFewSurvivorsError("confirm", len(confirmed), committee.quorum)
        # Any quorum convinces a client; more signatures would only cost bytes.
        chosen = confirmed[: committee.quorum]
        message = ConfirmationSet(
            context=self._tag,
            confirmers=encode_set(chosen, self._context.size),
            signatures=b"".join(self._confirmations[confirmer] for confirmer in chosen),
        )
        self._move(Local.DEADLINE, ServerPhase.UNMASKING)
        return [(confirmer, message) for confirmer in sorted(self._confirmations)]

    def _close_unmasking(self) -> list[Outbound]:
        if len(self._shares) < self._context.threshold:
            raise TooFewSurvivorsError("unmask", len(self._shares), self._context.threshold)
        missing = self._checked_surplus().missing
        self._move(Local.DEADLINE, ServerPhase.RECOVERING)
        if not missing:
            return []
        message = SeedRequest(context=self._tag, missing=encode_set(missing, self._context.size))
        return [(holder, message) for holder in sorted(self._shares)]

    def _unmask(self, executor: Executor | None) -> FieldSum:
        roster = self._checked_roster()
        surplus = self._checked_surplus()
        surplus.rebuild_missing()
        rebuilt = self._rebuild(roster, surplus)
        removal = plan_removal(roster, self._survivors, rebuilt.secrets, executor)
        total = remove_masks(self._total, self._context.field, removal, executor)
        self._move(Local.UNMASK, ServerPhase.FINISHED)
        culprits = surplus.culprits.union(*rebuilt.culprits.values())
        return FieldSum(total, self._survivors, tuple(sorted(culprits)), surplus.given)

    def _rebuild(self, roster: RoundRoster, surplus: SurplusSeeds) -> Rebuilt:
        """The secrets of all masks that may be on the sum."""
        return rebuild(
            {owner: roster.graph.holders(owner) for owner in self._participants},
            self._shares,
            roster.threshold,
            self._is_committed,
            corrupt=surplus.corrupt,
            suspects=surplus.suspects,
        )

    def _is_committed(self, owner: int, secret: bytes) -> bool:
        """Whether a rebuilt secret is the self-mask seed or masking key that its owner shared."""
        roster = self._checked_roster()
        if owner in self._uploaded:
            own = self._commitments[owner][0]
            return commitment(roster.hash, owner, 0, SecretSeed(secret)) == own
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

    def _checked_surplus(self) -> SurplusSeeds:
        if self._surplus is None:
            raise LocalProtocolError("the survivors are not decided yet")
        return self._surplus

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
    (ServerPhase.RECOVERING, SeedShares): ServerSession._on_seed_shares,
}

_CLOSERS: dict[ServerPhase, Callable[[ServerSession], list[Outbound]]] = {
    ServerPhase.ADVERTISING: ServerSession._close_advertising,
    ServerPhase.SHARING: ServerSession._close_sharing,
    ServerPhase.MASKING: ServerSession._close_masking,
    ServerPhase.CONFIRMING: ServerSession._close_confirming,
    ServerPhase.UNMASKING: ServerSession._close_unmasking,
}
