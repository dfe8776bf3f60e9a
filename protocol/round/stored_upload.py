"""What a client keeps of its last upload: what names it, and the bytes, to be sent again.

Nothing of it is secret: the upload is what the server was sent, and the key in it is forgotten.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from protocol.round.announcements import read_announcement
from protocol.round.rings import UnixClock
from protocol.round.round_time import RoundTime
from secagg.storage import StoredStateError, replace_durably

VERSION = 2


class UploadReceipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which upload of a round is ours."""

    session_id: bytes
    round_number: int
    index: int
    header_digest: bytes
    announced: bytes

    def encode(self) -> bytes:
        """The bytes to be stored."""
        return bytes([VERSION]) + msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, stored: bytes) -> UploadReceipt:
        """Inverse of `encode`."""
        if not stored or stored[0] != VERSION:
            raise StoredStateError("the stored receipt has an unknown version")
        try:
            return msgspec.msgpack.decode(memoryview(stored)[1:], type=cls)
        except msgspec.MsgspecError as error:
            raise StoredStateError(f"a stored receipt is damaged: {error}") from None

    def is_of(self, session_id: bytes, round_number: int) -> bool:
        """Whether it is of this round, whatever the round's context."""
        return (self.session_id, self.round_number) == (session_id, round_number)


def announced_as(announcement: bytes) -> bytes:
    """What tells one announcement from all others: its SHA-256, 32 bytes."""
    return hashlib.sha256(announcement).digest()


class UploadFolder:
    """The last upload of one identity on disk, for a host that restarts its clients.

    A reply may get lost on its way. Whoever delivers the very announcement again is answered with
    the very bytes, by whatever process; nothing is trained, drawn or charged a second time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._receipt, self._upload = folder / "receipt", folder / "upload"

    def begin(self) -> None:
        """Forget the last upload: another round begins. The folder is made by the first."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The receipt first: it says what the other file is.
        self._receipt.unlink(missing_ok=True)
        self._upload.unlink(missing_ok=True)

    def keep(self, receipt: UploadReceipt, upload: bytes) -> None:
        """Keep an upload before it leaves. A crash may lose it, which costs the client the round.

        Args:
            upload: its bytes.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._receipt.unlink(missing_ok=True)
        encoded = receipt.encode()
        # On disk before they leave: what the upload rests on is.
        replace_durably(self._upload, _check(encoded, upload) + upload)
        replace_durably(self._receipt, encoded)

    def receipt(self) -> UploadReceipt | None:
        """What names the last upload; None if there is none, or a damaged one."""
        try:
            return UploadReceipt.decode(self._receipt.read_bytes())
        except (FileNotFoundError, NotADirectoryError, StoredStateError):
            return None

    def again(self, announcement: bytes, clock: UnixClock | None = None) -> bytes | None:
        """The upload that answered this very announcement; None if there is none, or damaged.

        Args:
            clock: tells unix seconds; with it, nothing is sent after the end of the round.
        """
        receipt = self.receipt()
        if receipt is None or receipt.announced != announced_as(announcement):
            return None
        RoundTime(clock).check(read_announcement(announcement).member_context())
        try:
            stored = self._upload.read_bytes()
        except FileNotFoundError:
            return None
        check, upload = stored[:_CHECK_BYTES], stored[_CHECK_BYTES:]
        return upload if check == _check(receipt.encode(), upload) else None


_CHECK_BYTES = hashlib.sha256().digest_size


def _check(receipt: bytes, upload: bytes) -> bytes:
    """What notices a damaged disk, or files of two uploads."""
    return hashlib.sha256(receipt + upload).digest()
