"""A member's sealing keys on disk: one for a range of a session's rounds, erased when that is over.

Everything that was sealed to a member in some rounds is readable to whoever gets the key of those
rounds. So each is kept in a file of its own, and what is overwritten and removed leaves nothing but
the disk to remember it. A host is in one session at a time, and in one round at a time. Its next
key is made, and handed over, before the range of the present one ends; then both are there, until a
round of the next range is answered.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from pathlib import Path

from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.member import SealingKeys
from secagg import Identity, ParameterError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.storage import StoredStateError, sync_folder, write_durably
from secagg.terms import SESSION_ID_BYTES

_LAST_NUMBER = 1 << 62
"""Of rounds: every range that begins below it ends below 2^63."""


class SealingFolder:
    """The folder of one identity's sealing keys; private, and in no backup.

    Args:
        folder: made if it does not exist.
        rounds: that one key serves; the ranges are 0 .. rounds - 1, rounds .. 2 rounds - 1, ...

    Raises:
        ParameterError: `rounds` is out of range.
    """

    def __init__(self, folder: Path, rounds: int = KEY_ROUNDS) -> None:
        if type(rounds) is not int or not 1 <= rounds <= KEY_ROUNDS:
            raise ParameterError("rounds", rounds, f"an int in 1 .. {KEY_ROUNDS}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._rounds = rounds

    def begin(self, identity: Identity, session_id: bytes, round_number: int = 0) -> SealingKeys:
        """The key for a round of a session, and all of its range; made if there is none.

        Whoever asks for the next range may still be in the one before: its key stays, if there is
        one. All others are erased, those of other sessions among them.

        Raises:
            StoredStateError: no session id, no number of a round, or a damaged file.
        """
        first = self._first(round_number)
        path = self._path(session_id, first)
        self._erase_all_but({path, self._path(session_id, max(first - self._rounds, 0))})
        if not path.exists():
            fresh = self._folder / f"{secrets.token_hex(8)}.new"
            descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            write_durably(descriptor, secrets.token_bytes(KEY_BYTES))
            fresh.rename(path)
        sync_folder(self._folder)
        return self._read(path, identity, session_id, first)

    def key(self, identity: Identity, session_id: bytes, round_number: int) -> SealingKeys:
        """The key for a round that is to be answered; those of ranges before it are erased.

        Raises:
            StoredStateError: it was never made, or is erased: another session has begun since, or
                a later range.
        """
        first = self._first(round_number)
        path = self._path(session_id, first)
        keys = self._read(path, identity, session_id, first)
        if self._erase_all_but({path, self._path(session_id, first + self._rounds)}):
            sync_folder(self._folder)
        return keys

    def _read(self, path: Path, identity: Identity, session_id: bytes, first: int) -> SealingKeys:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            raise StoredStateError(
                "there is no sealing key for this round: it was never made, or erased when "
                "another session or a later range of rounds began"
            ) from None
        if len(raw) != KEY_BYTES:
            raise StoredStateError("the sealing key of this session is damaged")
        return SealingKeys(identity, session_id, first, self._rounds, AgreementKey(raw))

    def _first(self, round_number: int) -> int:
        """The first round of the range that a round is in."""
        if not 0 <= round_number < _LAST_NUMBER:
            raise StoredStateError(f"no sealing key serves round {round_number}")
        return round_number - round_number % self._rounds

    def _path(self, session_id: bytes, first: int) -> Path:
        if len(session_id) != SESSION_ID_BYTES:
            raise StoredStateError(f"a session id has {SESSION_ID_BYTES} bytes")
        return self._folder / f"{session_id.hex()}-{first}-{first + self._rounds - 1}"

    def _erase_all_but(self, kept: Collection[Path]) -> int:
        """Erase keys; how many."""
        others = [path for path in sorted(self._folder.iterdir()) if path not in kept]
        for path in others:
            _erase(path)
        return len(others)


def _erase(path: Path) -> None:
    """Overwrite a key before its name goes: what is only unlinked may still be read."""
    try:
        write_durably(os.open(path, os.O_WRONLY), bytes(KEY_BYTES))
        path.unlink()
    except FileNotFoundError:
        return
