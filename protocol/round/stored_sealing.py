"""A member's sealing key on disk: one for each session, erased when the next session begins.

Everything that was sealed to a member in a session is readable to whoever gets that session's key.
So it is kept in a file of its own, and what is overwritten and removed leaves nothing but the disk
to remember it. A host is in one session at a time.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from protocol.round.member import SealingKeys
from secagg import Identity
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.storage import StoredStateError, sync_folder, write_durably
from secagg.terms import SESSION_ID_BYTES


class SealingFolder:
    """The folder of one identity's sealing keys; private, and in no backup.

    Args:
        folder: made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def begin(self, identity: Identity, session_id: bytes) -> SealingKeys:
        """The key of a session, made if there is none; those of all other sessions are erased.

        Raises:
            StoredStateError: no session id, or a damaged file.
        """
        path = self._path(session_id)
        for other in sorted(self._folder.iterdir()):
            if other != path:
                _erase(other)
        if not path.exists():
            fresh = self._folder / f"{secrets.token_hex(8)}.new"
            descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            write_durably(descriptor, secrets.token_bytes(KEY_BYTES))
            fresh.rename(path)
        sync_folder(self._folder)
        return self.key(identity, session_id)

    def key(self, identity: Identity, session_id: bytes) -> SealingKeys:
        """The key of a session that has begun.

        Raises:
            StoredStateError: it has not, or another one has begun since.
        """
        try:
            raw = self._path(session_id).read_bytes()
        except FileNotFoundError:
            raise StoredStateError(
                "there is no sealing key for this session: it was never made, or erased when "
                "another session began"
            ) from None
        if len(raw) != KEY_BYTES:
            raise StoredStateError("the sealing key of this session is damaged")
        return SealingKeys(identity, session_id, key=AgreementKey(raw))

    def _path(self, session_id: bytes) -> Path:
        if len(session_id) != SESSION_ID_BYTES:
            raise StoredStateError(f"a session id has {SESSION_ID_BYTES} bytes")
        return self._folder / session_id.hex()


def _erase(path: Path) -> None:
    """Overwrite a key before its name goes: what is only unlinked may still be read."""
    try:
        write_durably(os.open(path, os.O_WRONLY), bytes(KEY_BYTES))
        path.unlink()
    except FileNotFoundError:
        return
