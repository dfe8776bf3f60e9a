"""The server's side of a round: a state machine that streams.

The session aborts when too few clients are left, or when rebuilt secrets do not check. Memory is
one vector and O(n k) small items: each masked vector is added to one accumulator as it arrives.

Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from typing import ClassVar

from secagg.errors import (
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    TooFewSurvivorsError,
    blaming,
)
from secagg.field import add_into, unpack
from secagg.framing import encode_message, encode_set, split_items
from secagg.keys import KEY_BYTES, AgreementKey, SecretSeed
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
from secagg.server import FieldSum, Parties, StagedServer, require
from secagg.shamir import decode_share
from secagg.tags import Usage, encode_index

Outbound = tuple[int, AnyMessage]
"""A message and the index of the client it goes to."""


class ServerSession(StagedServer[ServerPhase, AnyMessage]):
    """The server in one round. Feed it clients' messages and deadlines; send what it returns.

    The caller owns time: `close_round()` says that a stage's deadline has passed, and returns the
    messages of the next one. After the last stage `unmask()` gives the sum.
    """

    def __init__(self, context: SessionContext) -> None:
        super().__init__(ServerPhase.ADVERTISING, context_tag(context))
        self._context = context
        self._clients = Parties("client", context.cohort)
        self._limit = largest_message_bytes(context)
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
    def participants(self) -> tuple[int, ...]:
        """U2: clients whose shares were delivered; empty before that."""
        return self._participants

    @property
    def survivors(self) -> tuple[int, ...]:
        """U3: clients whose inputs are in the sum; empty before that is decided."""
        return self._survivors

    def receive_bytes(self, sender: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to client `sender`."""
        self._check_open()
        self._clients.check(sender)
        self.receive(decode_from_client(data, sender, self._limit))

    def close_round(self) -> list[Outbound]:
        """The deadline of the present stage has passed: returns the next stage's messages.

        The last stage, after the unmask shares, has messages only if survivors went away before
        they gave up their removable seeds.

        Raises:
            TooFewSurvivorsError: the session aborts and releases nothing.
            LocalProtocolError: the present stage ends with `unmask()`.
        """
        messages: list[Outbound] = self._close()
        return messages

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
        sender = self._clients.first(message.sender, self._advertisements)
        check_advertisement(self._context, message)
        keys = {message.sealing_key, message.masking_key}
        if len(keys) < 2 or keys & self._public_keys:
            raise RemoteProtocolError(sender, Reason.DUPLICATE_KEY)
        self._public_keys |= keys
        self._advertisements[sender] = message

    def _on_bundle(self, message: ShareBundle) -> None:
        roster = self._checked_roster()
        sender = self._clients.first(message.sender, self._commitments, roster.advertisements)
        holders = roster.graph.holders(sender)
        expected = sealed_share_bytes(self._context) * (len(holders) - (sender in holders))
        with blaming(sender, Reason.BAD_LENGTH):
            split_items(message.sealed, expected, 1)
            items = split_items(message.commitments, COMMITMENT_BYTES, 1 + self._context.seeds)
        signed = (roster.hash, encode_index(sender), message.commitments, message.sealed)
        self._clients.check_signature(sender, message.signature, Usage.SHARE, signed)
        self._commitments[sender] = items
        self._sealed[sender] = message.sealed

    def _on_masked_input(self, message: MaskedInput) -> None:
        sender = self._clients.first(message.sender, self._uploaded, self._commitments)
        expected = self._context.field.packed_bytes(self._context.length)
        if len(message.vector) != expected:
            raise RemoteProtocolError(
                sender, Reason.BAD_LENGTH, f"{len(message.vector)} bytes, {expected} expected"
            )
        signed = masked_input_parts(self._checked_roster().hash, sender, message.vector)
        self._clients.check_signature(sender, message.signature, Usage.INPUT, signed)
        with blaming(sender, Reason.NOT_IN_FIELD):
            vector = unpack(message.vector, self._context.length, self._context.field)
        add_into(self._total, vector)
        self._uploaded.add(sender)

    def _on_confirmation(self, message: Confirmation) -> None:
        roster = self._checked_roster()
        sender = self._clients.first(message.sender, self._confirmations, self._uploaded)
        signed = (roster.hash, self._survivor_bitmap)
        self._clients.check_signature(sender, message.signature, Usage.CONFIRM, signed)
        self._confirmations[sender] = message.signature

    def _on_unmask_shares(self, message: UnmaskShares) -> None:
        sender = self._clients.first(message.sender, self._shares, self._uploaded)
        roster = self._checked_roster()
        signed = (
            roster.hash,
            encode_index(sender),
            self._survivor_bitmap,
            message.shares,
            message.seeds,
        )
        self._clients.check_signature(sender, message.signature, Usage.UNMASK, signed)
        owners = held_by(sender, self._commitments, roster.graph)
        surplus = self._checked_surplus()
        with blaming(sender, Reason.BAD_SHARE):
            shares = decode_share(message.shares, len(owners))
            seeds = split_items(message.seeds, KEY_BYTES, len(surplus.which))
        surplus.give(sender, seeds)
        self._shares[sender] = dict(zip(owners, shares, strict=True))

    def _on_seed_shares(self, message: SeedShares) -> None:
        surplus = self._checked_surplus()
        sender = self._clients.first(message.sender, surplus.shares, self._shares)
        roster, missing = self._checked_roster(), surplus.missing
        bitmap = encode_set(missing, self._context.size)
        signed = (roster.hash, encode_index(sender), bitmap, message.shares)
        self._clients.check_signature(sender, message.signature, Usage.RECOVER, signed)
        owners = held_by(sender, set(missing), roster.graph)
        with blaming(sender, Reason.BAD_SHARE):
            shares = decode_share(message.shares, len(owners) * len(surplus.which))
        surplus.add_shares(sender, owners, shares)

    # -- deadlines ----------------------------------------------------------------------------

    def _close_advertising(self) -> list[Outbound]:
        advertised = len(self._advertisements)
        require("advertise", advertised, self._context.minimum_survivors)
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
        require("share", len(self._commitments), self._context.minimum_survivors)
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
        require("masked input", len(self._uploaded), self._context.minimum_survivors)
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
        require("confirm", len(confirmed), committee.quorum)
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
        require("unmask", len(self._shares), self._context.threshold)
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

    def _parties(self, message: AnyMessage) -> Parties:
        return self._clients

    def _answers_by_phase(self) -> Mapping[ServerPhase, Collection[int]]:
        return {
            ServerPhase.ADVERTISING: self._advertisements,
            ServerPhase.SHARING: self._commitments,
            ServerPhase.MASKING: self._uploaded,
            ServerPhase.CONFIRMING: self._confirmations,
            ServerPhase.UNMASKING: self._shares,
            ServerPhase.RECOVERING: self._surplus.shares if self._surplus else (),
        }

    def _checked_roster(self) -> RoundRoster:
        if self._roster is None:
            raise LocalProtocolError("there is no roster yet")
        return self._roster

    def _checked_surplus(self) -> SurplusSeeds:
        if self._surplus is None:
            raise LocalProtocolError("the survivors are not decided yet")
        return self._surplus

    FINISHED, ABORTED = ServerPhase.FINISHED, ServerPhase.ABORTED
    MOVES = SERVER_MOVES
    RELEASE = "unmask"
    RECEIVERS: ClassVar = {
        (ServerPhase.ADVERTISING, Advertisement): _on_advertisement,
        (ServerPhase.SHARING, ShareBundle): _on_bundle,
        (ServerPhase.MASKING, MaskedInput): _on_masked_input,
        (ServerPhase.CONFIRMING, Confirmation): _on_confirmation,
        (ServerPhase.UNMASKING, UnmaskShares): _on_unmask_shares,
        (ServerPhase.RECOVERING, SeedShares): _on_seed_shares,
    }
    CLOSERS: ClassVar = {
        ServerPhase.ADVERTISING: _close_advertising,
        ServerPhase.SHARING: _close_sharing,
        ServerPhase.MASKING: _close_masking,
        ServerPhase.CONFIRMING: _close_confirming,
        ServerPhase.UNMASKING: _close_unmasking,
    }
