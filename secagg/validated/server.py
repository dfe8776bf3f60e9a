"""The server of a validated round: uploads that a committee found too long do not enter the sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.decoding import wrong_shares
from secagg.errors import CapacityError, OpeningFailedError, Reason, RemoteProtocolError, blaming
from secagg.field import lift
from secagg.framing import Message, decode_message
from secagg.keys import check_public_key
from secagg.oneshot.collection import UploadCollection, check_returns
from secagg.oneshot.context import Cohort
from secagg.oneshot.messages import MEMBER, Answer, Confirmation, check_sender
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.spool import Spool
from secagg.oneshot.transitions import ServerPhase
from secagg.server import FieldSum, Parties, require
from secagg.tags import Usage
from secagg.validated.check import decide
from secagg.validated.context import ValidatedContext
from secagg.validated.messages import (
    HEADER_BYTES,
    Delivery,
    FromMember,
    Trees,
    Upload,
    ValidatedHeader,
    Verdicts,
    decode_from_member,
    decode_upload,
    encoded,
    largest_message_bytes,
    own_bytes,
    packed_bytes,
    part_bytes,
    part_words,
    unpack,
    upload_bytes,
    values,
)
from secagg.validated.proof import Challenges, Functional, Rows
from secagg.validated.ring import Residues
from secagg.validated.sharing import slots_at


class Sum:
    """The sum of ciphertexts modulo q, as `Accumulator`."""

    def __init__(self, context: ValidatedContext) -> None:
        p = context.parameters
        self._ring, self._shape = p.ring, (p.blocks, p.ring.degree)
        self.values = np.zeros(self._shape, np.uint64)

    def add(self, ciphertext: bytes) -> Residues:
        """Add a packed ciphertext; returns it."""
        found = self._unpacked(ciphertext)
        self.values = (self.values + found) % self._ring.q
        return found

    def subtract(self, ciphertext: bytes) -> None:
        """Take out a ciphertext that was added."""
        self.values = (self.values + self._ring.q - self._unpacked(ciphertext)) % self._ring.q

    def together(self, add: Callable[..., Sequence[NDArray[np.int64]]]) -> Sum:
        """The sum of those of several machines, fewer than 2^13; as `Accumulator.together`."""
        whole = copy(self)
        whole.values = add(self.values.astype(np.int64))[0].astype(np.uint64) % self._ring.q
        return whole

    def _unpacked(self, ciphertext: bytes) -> Residues:
        return unpack(self._ring, ciphertext, self.values.size).reshape(self._shape)


class ValidatedCollection(UploadCollection):
    """All uploads of a round: looked at, spooled, and added up."""

    HEADER, HEADER_BYTES = ValidatedHeader, HEADER_BYTES

    def __init__(
        self, context: ValidatedContext, cohort: Cohort, folder: Path | None = None
    ) -> None:
        self._terms, self._cohort = context, cohort
        self._sum = Sum(context)
        self._squares = context.squares(context.elements())
        self._ciphertexts, self._seals = Spool(folder), Spool(folder)
        self._trees: dict[int, Trees] = {}
        self._headers, self._commitments = {}, {}

    def take(self, message: Upload) -> None:  # type: ignore[override]
        """Check an upload and add it: the only one of a client of the cohort, in this context."""
        context, sender, p = self._terms, message.sender, self._terms.parameters
        with blaming(sender, Reason.BAD_LENGTH):
            for part, size in zip((message.first, message.second), part_bytes(p), strict=True):
                if len(part) != p.members * size:
                    raise ValueError(f"seals of {len(part)} bytes, not {p.members * size}")
        with blaming(sender, Reason.NOT_IN_FIELD):
            given = values(context, message.functional)
            trees = Trees.of(context, message, given)
            header = trees.header(message)
        check_returns(context, header)
        if not header.is_signed(context, self._cohort.keys[sender]):
            raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, Usage.UPLOAD.value.decode())
        with blaming(sender, Reason.BAD_KEY):
            check_public_key(header.ephemeral_key)
        with blaming(sender, Reason.NOT_IN_FIELD):
            ciphertext = self._sum.add(message.ciphertext)
        try:
            if encoded(context, self._functional(header, ciphertext)) != message.functional:
                detail = "the functional is that of another upload"
                raise RemoteProtocolError(sender, Reason.BAD_SHARE, detail)
            self._ciphertexts.put(sender, message.ciphertext)
            self._seals.put(sender, self._columns_of(message, given))
        except BaseException:
            # An upload that is not kept must not be in the sum.
            self._sum.subtract(message.ciphertext)
            raise
        self._headers[sender] = header
        self._commitments[sender] = []
        self._trees[sender] = trees

    @property
    def bytes_for_members(self) -> int:
        """As `UploadCollection.bytes_for_members` says: without the paths."""
        p = self._terms.parameters
        return p.members * own_bytes(p)

    def columns(self) -> Iterator[tuple[int, bytes]]:
        """Each member, ascending, and its parts of all uploads, by sender."""
        senders, p = sorted(self._headers), self._terms.parameters
        size = own_bytes(p)
        for member, column in enumerate(self._seals.columns(senders, size, p.members)):
            cut = (column[at : at + size] for at in range(0, len(column), size))
            paths = (self._trees[sender].paths(member) for sender in senders)
            yield member, b"".join(x for pair in zip(cut, paths, strict=True) for x in pair)

    def clear(self) -> None:
        """Forget what is spooled, and free the disk."""
        super().clear()
        self._trees.clear()

    def _functional(self, header: ValidatedHeader, ciphertext: Residues) -> Functional:
        """What the functional of an upload has to be."""
        context, p = self._terms, self._terms.parameters
        rows = Rows(p, header.root1(context))
        challenges = Challenges.of(p, header.root2(context))
        elements = context.elements()
        bound = context.bound_of(header.sender)
        return Functional.of(p, elements, self._squares, ciphertext, rows, challenges, bound)

    def _columns_of(self, message: Upload, given: Sequence[bytes]) -> bytes:
        """What each member is sent of an upload, member by member."""
        one, two = part_bytes(self._terms.parameters)
        return b"".join(
            message.first[j * one : (j + 1) * one] + message.second[j * two : (j + 1) * two] + each
            for j, each in enumerate(given)
        )


class ValidatedServer(OneShotServer):
    """The server in one round, as `OneShotServer`.

    Uploads that a committee found too long are in `excluded`, with those whose seals did not open.
    Opening needs T + l + c answers that agree, which are there if no more members are away than may
    be: of fewer, c liars would choose a part of the sum.
    """

    def __init__(
        self,
        context: ValidatedContext,
        cohort: Cohort,
        uploads: ValidatedCollection | None = None,
    ) -> None:
        super().__init__(context, cohort, uploads or ValidatedCollection(context, cohort))
        self._terms = context
        self._verdicts: dict[int, Mapping[int, Residues]] = {}

    def _decode_upload(self, data: bytes, client: int) -> Upload:
        limit = sum(upload_bytes(self._terms).values())
        message = decode_message(decode_upload, data, client, limit)
        check_sender(message, client)
        return message

    def _decode_from_member(self, data: bytes, member: int) -> FromMember:
        limit = largest_message_bytes(self._terms)[1]
        message = decode_message(decode_from_member, data, member, limit, MEMBER)
        check_sender(message, member, MEMBER)
        return message

    def _on_verdicts(self, message: Verdicts) -> None:
        p = self._terms.parameters
        member, bad = self._complained(
            message.sender, message.bad, message.signature, message.answers
        )
        senders = sorted(self._uploads.headers.keys() - bad)
        width = packed_bytes(p.ring, 3 * p.repetitions)
        with blaming(member, Reason.BAD_SHARE, MEMBER):
            if len(message.answers) != width * len(senders):
                raise ValueError(f"answers of {len(message.answers)} bytes")
            cuts = range(0, len(message.answers), width)
            found = [
                unpack(p.ring, message.answers[at : at + width], 3 * p.repetitions) for at in cuts
            ]
        self._complaints[member] = bad
        shaped = (each.reshape(3, p.repetitions) for each in found)
        self._verdicts[member] = dict(zip(senders, shaped, strict=True))

    def _on_sums(self, message: Answer) -> None:
        p = self._terms.parameters
        member = self._answering(message)
        with blaming(member, Reason.BAD_SHARE, MEMBER):
            if message.seeds or message.checks:
                raise ValueError("seeds or checks, of which there are none")
            self._answers[member] = unpack(p.ring, message.sums, part_words(p)[0])

    def _delivery(self, column: bytes, **told: bytes) -> Delivery:
        return Delivery(parts=column, **told)

    def _judged(self) -> tuple[Mapping[int, frozenset[int]], frozenset[int]]:
        """Whom members disagree with about which upload, and the uploads on which too few agree."""
        p = self._terms.parameters
        # With more away nobody can be judged.
        require("check", len(self._complaints), p.fewest_agreeing)
        rejected = set()
        apart: dict[int, set[int]] = {member: set() for member in self._complaints}
        for sender in self._uploads.headers:
            answers = {member: self._verdicts[member].get(sender) for member in self._complaints}
            agreed = decide(p, answers)
            if agreed is None:
                rejected.add(sender)
                continue
            for member in self._complaints.keys() - agreed:
                apart[member].add(sender)
        self._verdicts.clear()
        return {each: frozenset(found) for each, found in apart.items()}, frozenset(rejected)

    def _opened(self, commitments: Mapping[int, Sequence[bytes]]) -> FieldSum:
        context, p = self._terms, self._terms.parameters
        ring, members = p.ring, sorted(self._answers)
        stacked = np.stack([self._answers[member] for member in members])
        wrong = wrong_shares(stacked, members, p.share_degree + 1, ring.modulus)
        needed, agreeing = p.share_degree + 1, len(members) - len(wrong or ())
        if wrong is None or 2 * agreeing < len(members) + needed:
            why = "too many of them are wrong"
            raise OpeningFailedError(why, len(members), needed)
        if agreeing < needed + p.corrupt:
            # Or the corrupt ones among them could say what the sum of the keys is.
            why = f"fewer than {needed + p.corrupt} of them agree"
            raise OpeningFailedError(why, len(members), needed)
        right = [i for i, member in enumerate(members) if member not in set(wrong)][:needed]
        slots = slots_at(p, stacked[right], [members[i] for i in right], p.share_degree)
        half = ring.degree // 2
        one, other = slots.reshape(2, -1)[:, :half]
        elements = context.elements()
        squares = context.squares(elements)
        key = np.concatenate([one, ring.by(other, ring.inverses(squares[:half]))[::-1]])
        masks = ring.multiply(elements, key)
        total: Sum = self._uploads.total()
        vector = ring.centre((total.values + ring.q - masks) % ring.q).reshape(-1)
        # Doubles are off by far less than a billionth: what is longer by that alone does no harm.
        survivors = tuple(each for each in commitments if each < context.invited)
        members_in = len(commitments) - len(survivors)
        longest = (1.0 + 1e-9) * context.longest(len(survivors), members_in)
        if float(np.linalg.norm(vector.astype(np.float64))) > longest:
            why = "the sum is longer than its vectors may be together"
            raise OpeningFailedError(why, len(members), needed)
        rounded = (vector + context.unit // 2) // context.unit
        try:
            lifted = lift(rounded[: context.length], context.field)
        except CapacityError as error:
            raise OpeningFailedError(str(error), len(members), needed) from None
        return OpenedSum(vector=lifted, survivors=survivors, wrong_members=wrong)

    def _parties(self, message: Message) -> Parties:
        return self._clients if isinstance(message, Upload) else self._committee

    SPARES_CLIENTS = True
    WHY_EXCLUDED = "its vector is too long, or its shares do not open"
    MOVES = {  # noqa: RUF012 - as in the parent
        **OneShotServer.MOVES,
        (ServerPhase.COLLECTING, Upload): frozenset((ServerPhase.COLLECTING,)),
        (ServerPhase.CHECKING, Verdicts): frozenset((ServerPhase.CHECKING,)),
    }
    RECEIVERS: ClassVar = {
        (ServerPhase.COLLECTING, Upload): OneShotServer._on_upload,
        (ServerPhase.CHECKING, Verdicts): _on_verdicts,
        (ServerPhase.CONFIRMING, Confirmation): OneShotServer._on_confirmation,
        (ServerPhase.OPENING, Answer): _on_sums,
    }
