"""The uploads of a round that arrive at one machine: looked at, spooled, and added up.

A server has one. Where several machines share a round, each has the uploads of its own clients, and
three things cross between them: headers, which every member is shown; of the seals, those of a
member go to the machine that serves it; and the sums, which are added to one.
"""

from __future__ import annotations

from collections.abc import Collection as Container
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from secagg.errors import Reason, RemoteProtocolError, blaming
from secagg.framing import split_items
from secagg.merkle import HASH_BYTES
from secagg.oneshot.context import Cohort, CommitteeContext, OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.messages import HEADER_BYTES, Upload, seal_bytes
from secagg.oneshot.spool import Spool
from secagg.tags import Usage


class UploadCollection:
    """All uploads of a round, on one machine.

    Args:
        folder: where uploads are spooled that do not fit into memory; None for the system's place.
    """

    HEADER: ClassVar[type[Header]] = Header
    HEADER_BYTES: ClassVar[int] = HEADER_BYTES

    def __init__(self, context: OneShotContext, cohort: Cohort, folder: Path | None = None) -> None:
        self._context = context
        self._cohort = cohort
        self._seal_bytes = seal_bytes(context)
        self._sum: Any = Accumulator(context.packing, context.length)
        self._ciphertexts, self._seals = Spool(folder), Spool(folder)
        self._headers: dict[int, Header] = {}
        self._commitments: dict[int, list[bytes]] = {}

    @property
    def headers(self) -> Mapping[int, Header]:
        """By client: of the uploads here, and after `close` of those of the whole round."""
        return self._headers

    @property
    def commitments(self) -> Mapping[int, list[bytes]]:
        """By client, likewise: those to its removable seeds, 32 bytes each."""
        return self._commitments

    def take(self, message: Upload) -> None:
        """Check an upload and add it: the only one of a client of the cohort, in this context."""
        context, sender = self._context, message.sender
        expected = self.bytes_for_members
        if len(message.seals) != expected:
            raise RemoteProtocolError(
                sender, Reason.BAD_LENGTH, f"seals of {len(message.seals)} bytes, not {expected}"
            )
        with blaming(sender, Reason.BAD_LENGTH):
            commitments = split_items(message.commitments, HASH_BYTES, context.seeds)
        header = Header.of(message)
        check_returns(context, header)
        if not header.is_signed(context, self._cohort.keys[sender]):
            raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, Usage.UPLOAD.value.decode())
        if not header.has_good_key():
            raise RemoteProtocolError(sender, Reason.BAD_KEY, "ephemeral key")
        with blaming(sender, Reason.NOT_IN_FIELD):
            self._sum.add(message.ciphertext)
        try:
            self._ciphertexts.put(sender, message.ciphertext)
            self._seals.put(sender, message.seals)
        except BaseException:
            # On a full disk, for instance: an upload that is not kept must not be in the sum.
            self._sum.subtract(message.ciphertext)
            raise
        self._headers[sender] = header
        self._commitments[sender] = commitments

    @property
    def bytes_for_members(self) -> int:
        """Of one upload, for all members together, as they are spooled."""
        return self._context.committee.size * self._seal_bytes

    def close(self) -> None:
        """No more uploads come."""

    def serves(self, member: int) -> bool:
        """Whether this machine talks to a member, by its index in the committee."""
        del member
        return True

    def columns(self) -> Iterator[tuple[int, bytes]]:
        """Each member that is served here, ascending, and its seals of all uploads, by sender."""
        return enumerate(self._columns(sorted(self._headers)))

    def leave_out(self, clients: Container[int]) -> None:
        """Take the uploads of some clients off the sum; the others' are not needed any more."""
        for client in sorted(self._headers.keys() & set(clients)):
            self._sum.subtract(self._ciphertexts.get(client))
        self.clear()

    def total(self) -> Any:
        """The sum of the ciphertexts of the whole round: an `Accumulator`, or another scheme's."""
        return self._sum

    def clear(self) -> None:
        """Forget what is spooled, and free the disk."""
        self._ciphertexts.clear()
        self._seals.clear()

    def _columns(self, senders: list[int]) -> Iterator[bytes]:
        """The seals here for each member, from the first to the last."""
        return self._seals.columns(senders, self._seal_bytes, self._context.committee.size)


def check_returns(context: CommitteeContext, header: Header) -> None:
    """See that whoever takes something back has added it."""
    if not header.may_return(context):
        detail = "takes back what it has not added"
        raise RemoteProtocolError(header.sender, Reason.UNEXPECTED_MESSAGE, detail)
