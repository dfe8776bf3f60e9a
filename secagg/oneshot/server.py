"""The server of a one-shot round: it adds ciphertexts as they come, and asks the committee once.

The session aborts when too few uploads or members are left, or when what was opened does not check.
What a lost client costs is nothing. The uploads are in a collection of their own, of which several
machines can have a part each: then each has a server, and all servers come to the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from secagg.errors import (
    LocalProtocolError,
    ParameterError,
    Reason,
    RemoteProtocolError,
    blaming,
)
from secagg.framing import Message, decode_set, encode_message, encode_set
from secagg.oneshot.collection import UploadCollection
from secagg.oneshot.complaints import left_out
from secagg.oneshot.context import Cohort, CommitteeContext
from secagg.oneshot.header import counts_of, record_of, survivors_digest
from secagg.oneshot.layout import CHALLENGES, decode_rows
from secagg.oneshot.member import answer_parts
from secagg.oneshot.messages import (
    MEMBER,
    Answer,
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
)
from secagg.oneshot.opening import MemberAnswer, open_sum
from secagg.oneshot.records import RoundRecord
from secagg.oneshot.transitions import SERVER_MOVES, Local, ServerPhase
from secagg.server import FieldSum, Parties, StagedServer, require
from secagg.tags import Usage, encode_index

Outbound = tuple[int, Message]
"""A message and the index of the member it goes to."""


class OneShotServer(StagedServer[ServerPhase, Message]):
    """The server in one round. Feed it uploads, members' messages and deadlines.

    The caller owns time: `close_round()` says that a stage's deadline has passed, and returns the
    messages to members for the next one. After the last stage `open()` gives the sum.
    """

    def __init__(
        self,
        context: CommitteeContext,
        cohort: Cohort,
        uploads: UploadCollection | None = None,
    ) -> None:
        if len(cohort) != context.size or cohort.root != context.cohort_root:
            raise ParameterError("cohort", f"{len(cohort)} clients", "those of the context's root")
        self._context = cast(Any, context)
        super().__init__(ServerPhase.COLLECTING, context_tag(self._context))
        self._cohort = cohort
        self._uploads: Any = uploads or UploadCollection(self._context, cohort)
        self._clients = Parties("client", cohort.keys)
        identities = [member.identity for member in context.committee.members]
        self._committee = Parties(MEMBER, identities)
        self._complaints: dict[int, frozenset[int]] = {}
        self._members: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._signed = b""
        self._confirmations: dict[int, bytes] = {}
        self._answers: dict[int, Any] = {}
        self._excluded: tuple[int, ...] = ()

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients whose uploads are in the sum; empty before that is decided."""
        return tuple(each for each in self._survivors if each < self._context.invited)

    @property
    def record(self) -> RoundRecord | None:
        """What the round adds to the run's records; None without members' uploads.

        It is decided together with `survivors`.
        """
        if self._context.member_uploads is None or not self._survivors:
            return None
        received = self._uploads.headers
        return record_of(self._context, [received[each] for each in self._survivors])

    @property
    def excluded(self) -> tuple[int, ...]:
        """Clients that were left out because seals of theirs did not open; a lead, not a proof."""
        return self._excluded

    def receive_upload(self, client: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to a client."""
        self._check_open()
        self.receive(self._decode_upload(data, client))

    def receive_from_member(self, member: int, data: bytes) -> None:
        """`receive` for bytes that the transport attributes to a member."""
        self._check_open()
        self.receive(self._decode_from_member(data, member))

    def close_round(self) -> Iterator[Outbound]:
        """The deadline of the present stage has passed: gives what members are sent next.

        One message at a time: together they are as many seals as clients times members. They are
        to be taken before the next stage is closed, which forgets the seals.

        After the complaints are in, `survivors` are final: whoever keeps a ledger charges it before
        the messages that this returns leave.
        """
        messages: Iterator[Outbound] = self._close()
        return messages

    def close_round_bytes(self) -> Iterator[tuple[int, bytes]]:
        """Close the round as `close_round` does, and encode its messages."""
        return ((to, encode_message(message)) for to, message in self.close_round())

    def deliveries(self) -> Iterator[Outbound]:
        """What members are sent of the uploads so far."""
        received = self._uploads.headers
        senders = sorted(received)
        told = {
            "context": self._tag,
            "cohort": b"".join(self._cohort.keys),
            "uploaded": encode_set(senders, self._context.size),
            "headers": b"".join(received[sender].encode() for sender in senders),
        }
        columns = self._uploads.columns()
        return ((member, self._delivery(column, **told)) for member, column in columns)

    def open(self) -> FieldSum:
        """Open the sum of the keys, take the masks off, and release the sum."""
        self._check_open()
        if self._phase is not ServerPhase.OPENING:
            raise LocalProtocolError(f"cannot open while collecting {self._phase.value}")
        return self._guarded(self._open)

    # -- messages -----------------------------------------------------------------------------

    def _on_upload(self, message: Upload) -> None:
        self._clients.first(message.sender, self._uploads.headers)
        self._uploads.take(message)

    def _on_complaints(self, message: Complaints) -> None:
        member, bad = self._complained(message.sender, message.bad, message.signature)
        self._complaints[member] = bad

    def _complained(
        self, sender: int, encoded: bytes, signature: bytes, *more: bytes
    ) -> tuple[int, frozenset[int]]:
        """A member, and whose uploads are bad: signed, with what else it says."""
        context = self._context
        member = self._committee.first(sender, self._complaints)
        with blaming(member, Reason.BAD_LENGTH, MEMBER):
            bad = frozenset(decode_set(encoded, context.size))
        signed = (context.hash, encode_index(member), encoded, *more)
        self._committee.check_signature(member, signature, Usage.COMPLAIN, signed)
        if not bad <= self._uploads.headers.keys():
            detail = "complains about uploads that did not arrive"
            raise RemoteProtocolError(member, Reason.SET_NOT_NESTED, detail, MEMBER)
        return member, bad

    def _on_confirmation(self, message: Confirmation) -> None:
        member = self._committee.first(message.sender, self._confirmations, self._members)
        self._committee.check_signature(member, message.signature, Usage.SURVIVORS, (self._signed,))
        self._confirmations[member] = message.signature

    def _on_answer(self, message: Answer) -> None:
        context, layout = self._context, self._context.layout
        member = self._answering(message)
        count = len(self._survivors)
        surplus = len(context.removed_seeds(count)) * layout.seed_polynomials
        with blaming(member, Reason.BAD_SHARE, MEMBER):
            self._answers[member] = MemberAnswer(
                sums=decode_rows(message.sums, 1, layout.key_polynomials)[0],
                seeds=decode_rows(message.seeds, count, surplus),
                checks=decode_rows(message.checks, count, CHALLENGES),
            )

    def _answering(self, message: Answer) -> int:
        """The member that signed an answer, its first."""
        member = self._committee.first(message.sender, self._answers, self._confirmations)
        parts = (message.sums, message.seeds, message.checks)
        signed = answer_parts(self._context, member, self._signed, *parts)
        self._committee.check_signature(member, message.signature, Usage.ANSWER, signed)
        return member

    # -- deadlines ----------------------------------------------------------------------------

    def _close_collecting(self) -> Iterator[Outbound]:
        self._uploads.close()
        self._require_enough("upload", sorted(self._uploads.headers))
        self._move(Local.DEADLINE, ServerPhase.CHECKING)
        return self.deliveries()

    def _delivery(self, column: bytes, **told: bytes) -> Message:
        """What a member is sent, with its own part of all uploads."""
        return Delivery(seals=column, **told)

    def _close_checking(self) -> Iterator[Outbound]:
        context, committee = self._context, self._context.committee
        complaints, rejected = self._judged()
        clients, members = left_out(
            complaints,
            context.most_corrupt,
            committee.corrupt,
            sparing_clients=self.SPARES_CLIENTS,
        )
        clients |= rejected
        self._uploads.leave_out(clients)
        self._excluded = tuple(sorted(clients))
        self._members = tuple(sorted(self._complaints.keys() - members))
        received = self._uploads.headers
        self._survivors = tuple(sorted(received.keys() - clients))
        self._require_enough("check", self._survivors)
        require("check", len(self._members), max(committee.quorum, committee.threshold))
        headers = [received[client] for client in self._survivors]
        self._signed = survivors_digest(context, headers)
        bitmap = encode_set(self._survivors, context.size)
        self._move(Local.DEADLINE, ServerPhase.CONFIRMING)
        proposal = Proposal(context=self._tag, survivors=bitmap)
        return ((member, proposal) for member in self._members if self._uploads.serves(member))

    def _judged(self) -> tuple[Mapping[int, frozenset[int]], frozenset[int]]:
        """Members' complaints about uploads, and the uploads that are rejected whoever stays."""
        return self._complaints, frozenset()

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
        return ((member, quorum) for member in confirmed if self._uploads.serves(member))

    def _open(self) -> FieldSum:
        require("open", len(self._answers), self._context.committee.threshold)
        commitments = {client: self._uploads.commitments[client] for client in self._survivors}
        result = self._opened(commitments)
        self._move(Local.OPEN, ServerPhase.FINISHED)
        return result

    def _opened(self, commitments: Mapping[int, Sequence[bytes]]) -> FieldSum:
        return open_sum(self._context, self._uploads.total(), commitments, self._answers)

    # -- helpers ------------------------------------------------------------------------------

    def _decode_upload(self, data: bytes, client: int) -> Message:
        return decode_upload(data, client, largest_upload_bytes(self._context))

    def _decode_from_member(self, data: bytes, member: int) -> Message:
        return decode_from_member(data, member, largest_answer_bytes(self._context))

    def _require_enough(self, stage: str, senders: Sequence[int]) -> None:
        """See that members would sign for these uploads."""
        received = self._uploads.headers
        for _, count, needed in counts_of(self._context, [received[each] for each in senders]):
            require(stage, count, needed)

    def _forget(self) -> None:
        self._uploads.clear()

    def _parties(self, message: Message) -> Parties:
        return self._clients if isinstance(message, Upload) else self._committee

    def _answers_by_phase(self) -> Mapping[ServerPhase, Collection[int]]:
        return {
            ServerPhase.COLLECTING: self._uploads.headers,
            ServerPhase.CHECKING: self._complaints,
            ServerPhase.CONFIRMING: self._confirmations,
            ServerPhase.OPENING: self._answers,
        }

    WHY_EXCLUDED: ClassVar[str] = "its shares do not open"
    SPARES_CLIENTS: ClassVar[bool] = False
    """Whether a member is rather left out than as many clients as it weighs."""
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
