"""The server of a one-shot round: it adds ciphertexts as they come, and asks the committee once.

The session aborts when too few uploads or members are left, or when what was opened does not check.
What a lost client costs is nothing; what it keeps of every upload besides one accumulator is
spooled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from secagg.errors import (
    LocalProtocolError,
    ParameterError,
    Reason,
    RemoteProtocolError,
    blaming,
)
from secagg.framing import decode_set, encode_message, encode_set, split_items
from secagg.merkle import HASH_BYTES
from secagg.oneshot.complaints import left_out
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.layout import CHALLENGES, decode_rows
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.member import answer_parts
from secagg.oneshot.messages import (
    MEMBER,
    Answer,
    AnyMessage,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    Upload,
    context_tag,
    decode_from_member,
    decode_upload,
    largest_answer_bytes,
    largest_upload_bytes,
    seal_bytes,
)
from secagg.oneshot.opening import MemberAnswer, open_sum
from secagg.oneshot.spool import Spool
from secagg.oneshot.transitions import SERVER_MOVES, Local, ServerPhase
from secagg.oneshot.wire import Ciphertext, decode
from secagg.server import FieldSum, Parties, StagedServer, require
from secagg.tags import Usage, encode_index

Outbound = tuple[int, AnyMessage]
"""A message and the index of the member it goes to."""


class OneShotServer(StagedServer[ServerPhase, AnyMessage]):
    """The server in one round. Feed it uploads, members' messages and deadlines.

    The caller owns time: `close_round()` says that a stage's deadline has passed, and returns the
    messages to members for the next one. After the last stage `open()` gives the sum.

    Args:
        context: the public parameters.
        cohort: the invited clients, whose root is in the context.
        folder: where uploads are spooled that do not fit into memory; None for the system's place.

    Raises:
        ParameterError: the cohort is another one.
    """

    def __init__(self, context: OneShotContext, cohort: Cohort, folder: Path | None = None) -> None:
        if len(cohort) != context.size or cohort.root != context.cohort_root:
            raise ParameterError("cohort", f"{len(cohort)} clients", "those of the context's root")
        super().__init__(ServerPhase.COLLECTING, context_tag(context))
        self._context = context
        self._cohort = cohort
        self._clients = Parties("client", cohort.keys)
        identities = [member.identity for member in context.committee.members]
        self._committee = Parties(MEMBER, identities)
        self._largest_upload = largest_upload_bytes(context)
        self._largest_answer = largest_answer_bytes(context)
        self._seal_bytes = seal_bytes(context)
        self._total = Accumulator(context.packing, context.length)
        self._ciphertexts, self._seals = Spool(folder), Spool(folder)
        self._headers: dict[int, Header] = {}
        self._commitments: dict[int, list[bytes]] = {}
        self._complaints: dict[int, frozenset[int]] = {}
        self._members: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._signed = b""
        self._confirmations: dict[int, bytes] = {}
        self._answers: dict[int, MemberAnswer] = {}
        self._excluded: tuple[int, ...] = ()

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose uploads are in the sum; empty before that is decided."""
        return self._survivors

    @property
    def excluded(self) -> tuple[int, ...]:
        """Clients that were left out because seals of theirs did not open; a lead, not a proof."""
        return self._excluded

    def receive_upload(self, client: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to a client."""
        self._check_open()
        self.receive(decode_upload(data, client, self._largest_upload))

    def receive_from_member(self, member: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to a member."""
        self._check_open()
        self.receive(decode_from_member(data, member, self._largest_answer))

    def close_round(self) -> Iterator[Outbound]:
        """The deadline of the present stage has passed: gives what members are sent next.

        One message at a time: together they are as many seals as clients times members. They are
        to be taken before the next stage is closed, which forgets the seals.

        After the complaints are in, `survivors` are final: whoever keeps a ledger charges it before
        the messages that this returns leave.

        Raises:
            TooFewSurvivorsError: the session aborts and releases nothing.
            LocalProtocolError: the present stage ends with `open()`.
        """
        messages: Iterator[Outbound] = self._close()
        return messages

    def close_round_bytes(self) -> Iterator[tuple[int, bytes]]:
        """Close the round as `close_round` does, and encode its messages."""
        return ((to, encode_message(message)) for to, message in self.close_round())

    def open(self) -> FieldSum:
        """Open the sum of the keys, take the masks off, and release the sum.

        Raises:
            TooFewSurvivorsError: fewer members answered than open a sum.
            OpeningFailedError: answers, or dealers' shares, are too wrong; names leads.
        """
        self._check_open()
        if self._phase is not ServerPhase.OPENING:
            raise LocalProtocolError(f"cannot open while collecting {self._phase.value}")
        return self._guarded(self._open)

    # -- messages -----------------------------------------------------------------------------

    def _on_upload(self, message: Upload) -> None:
        context = self._context
        sender = message.sender
        self._clients.first(sender, self._headers)
        expected = context.committee.size * self._seal_bytes
        if len(message.seals) != expected:
            raise RemoteProtocolError(
                sender, Reason.BAD_LENGTH, f"seals of {len(message.seals)} bytes, not {expected}"
            )
        with blaming(sender, Reason.BAD_LENGTH):
            commitments = split_items(message.commitments, HASH_BYTES, context.seeds)
        header = Header.of(message)
        if not header.is_signed(context, self._cohort.keys[sender]):
            raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, Usage.UPLOAD.value.decode())
        if not header.has_good_key():
            raise RemoteProtocolError(sender, Reason.BAD_KEY, "ephemeral key")
        ciphertext = self._decoded(sender, message.ciphertext)
        # First what may fail, on a full disk: an upload that is not kept must not be in the sum.
        self._ciphertexts.put(sender, message.ciphertext)
        self._seals.put(sender, message.seals)
        self._total.add(ciphertext)
        self._headers[sender] = header
        self._commitments[sender] = commitments

    def _on_complaints(self, message: Complaints) -> None:
        context = self._context
        member = self._committee.first(message.sender, self._complaints)
        with blaming(member, Reason.BAD_LENGTH, MEMBER):
            bad = frozenset(decode_set(message.bad, context.size))
        signed = (context.hash, encode_index(member), message.bad)
        self._committee.check_signature(member, message.signature, Usage.COMPLAIN, signed)
        if not bad <= self._headers.keys():
            detail = "complains about uploads that did not arrive"
            raise RemoteProtocolError(member, Reason.SET_NOT_NESTED, detail, MEMBER)
        self._complaints[member] = bad

    def _on_confirmation(self, message: Confirmation) -> None:
        member = self._committee.first(message.sender, self._confirmations, self._members)
        self._committee.check_signature(member, message.signature, Usage.SURVIVORS, (self._signed,))
        self._confirmations[member] = message.signature

    def _on_answer(self, message: Answer) -> None:
        context, layout = self._context, self._context.layout
        member = self._committee.first(message.sender, self._answers, self._confirmations)
        parts = (message.sums, message.seeds, message.checks)
        signed = answer_parts(context, member, self._signed, *parts)
        self._committee.check_signature(member, message.signature, Usage.ANSWER, signed)
        count = len(self._survivors)
        surplus = len(context.removed_seeds(count)) * layout.seed_polynomials
        with blaming(member, Reason.BAD_SHARE, MEMBER):
            self._answers[member] = MemberAnswer(
                sums=decode_rows(message.sums, 1, layout.key_polynomials)[0],
                seeds=decode_rows(message.seeds, count, surplus),
                checks=decode_rows(message.checks, count, CHALLENGES),
            )

    # -- deadlines ----------------------------------------------------------------------------

    def _close_collecting(self) -> Iterator[Outbound]:
        context = self._context
        require("upload", len(self._headers), context.minimum_survivors)
        senders = sorted(self._headers)
        uploaded = encode_set(senders, context.size)
        headers = b"".join(self._headers[sender].encode() for sender in senders)
        cohort = b"".join(self._cohort.keys)
        self._move(Local.DEADLINE, ServerPhase.CHECKING)
        return (
            (
                member,
                Delivery(
                    context=self._tag,
                    cohort=cohort,
                    uploaded=uploaded,
                    headers=headers,
                    seals=seals,
                ),
            )
            for member, seals in enumerate(
                self._seals.columns(senders, self._seal_bytes, context.committee.size)
            )
        )

    def _close_checking(self) -> Iterator[Outbound]:
        context, committee = self._context, self._context.committee
        clients, members = left_out(
            self._complaints, context.tolerated_colluders, committee.corrupt
        )
        for client in sorted(clients):
            self._total.subtract(self._decoded(client, self._ciphertexts.get(client)))
        self._ciphertexts.clear()
        self._seals.clear()
        self._excluded = tuple(sorted(clients))
        self._members = tuple(sorted(self._complaints.keys() - members))
        self._survivors = tuple(sorted(self._headers.keys() - clients))
        require("check", len(self._survivors), context.minimum_survivors)
        require("check", len(self._members), max(committee.quorum, committee.threshold))
        headers = [self._headers[client] for client in self._survivors]
        self._signed = survivors_digest(context, headers)
        bitmap = encode_set(self._survivors, context.size)
        self._move(Local.DEADLINE, ServerPhase.CONFIRMING)
        proposal = Proposal(context=self._tag, survivors=bitmap)
        return ((member, proposal) for member in self._members)

    def _close_confirming(self) -> Iterator[Outbound]:
        committee = self._context.committee
        confirmed = sorted(self._confirmations)
        require("confirm", len(confirmed), max(committee.quorum, committee.threshold))
        chosen = confirmed[: committee.quorum]
        quorum = Quorum(
            context=self._tag,
            signers=encode_set(chosen, committee.size),
            signatures=b"".join(self._confirmations[member] for member in chosen),
        )
        self._move(Local.DEADLINE, ServerPhase.OPENING)
        return ((member, quorum) for member in confirmed)

    def _open(self) -> FieldSum:
        require("open", len(self._answers), self._context.committee.threshold)
        commitments = {client: self._commitments[client] for client in self._survivors}
        result = open_sum(self._context, self._total, commitments, self._answers)
        self._move(Local.OPEN, ServerPhase.FINISHED)
        return result

    # -- helpers ------------------------------------------------------------------------------

    def _decoded(self, sender: int, ciphertext: bytes) -> Ciphertext:
        context = self._context
        with blaming(sender, Reason.NOT_IN_FIELD):
            return decode(context.packing, context.length, ciphertext)

    def _forget(self) -> None:
        self._ciphertexts.clear()
        self._seals.clear()

    def _parties(self, message: AnyMessage) -> Parties:
        return self._clients if isinstance(message, Upload) else self._committee

    def _answers_by_phase(self) -> Mapping[ServerPhase, Collection[int]]:
        return {
            ServerPhase.COLLECTING: self._headers,
            ServerPhase.CHECKING: self._complaints,
            ServerPhase.CONFIRMING: self._confirmations,
            ServerPhase.OPENING: self._answers,
        }

    FINISHED, ABORTED = ServerPhase.FINISHED, ServerPhase.ABORTED
    MOVES = SERVER_MOVES
    RELEASE = "open"
    RECEIVERS: ClassVar = {
        (ServerPhase.COLLECTING, Upload): _on_upload,
        (ServerPhase.CHECKING, Complaints): _on_complaints,
        (ServerPhase.CONFIRMING, Confirmation): _on_confirmation,
        (ServerPhase.OPENING, Answer): _on_answer,
    }
    CLOSERS: ClassVar = {
        ServerPhase.COLLECTING: _close_collecting,
        ServerPhase.CHECKING: _close_checking,
        ServerPhase.CONFIRMING: _close_confirming,
    }
