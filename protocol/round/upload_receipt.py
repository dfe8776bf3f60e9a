"""What a client keeps of its upload, for the member of the committee that it may be as well."""

from __future__ import annotations

import msgspec

from secagg.storage import StoredStateError

VERSION = 1


class UploadReceipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which upload of a round is ours; nothing in it is secret.

    Args:
        session_id, round_number: of the round.
        index: ours in the cohort.
        header_digest: what names the upload.
    """

    session_id: bytes
    round_number: int
    index: int
    header_digest: bytes

    def encode(self) -> bytes:
        """The bytes to be stored."""
        return bytes([VERSION]) + msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, stored: bytes) -> UploadReceipt:
        """Inverse of `encode`.

        Raises:
            StoredStateError: it is none.
        """
        if not stored or stored[0] != VERSION:
            raise StoredStateError("the stored receipt has an unknown version")
        try:
            return msgspec.msgpack.decode(memoryview(stored)[1:], type=cls)
        except msgspec.MsgspecError as error:
            raise StoredStateError(f"a stored receipt is damaged: {error}") from None

    def is_of(self, session_id: bytes, round_number: int) -> bool:
        """Whether it is of this round, whatever the round's context."""
        return (self.session_id, self.round_number) == (session_id, round_number)
