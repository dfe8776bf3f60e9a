"""A member's sealing keys on disk: one for a range of a session's rounds, erased when that is over.

Everything that was sealed to a member in some rounds is readable to whoever gets the key of those
rounds. So each is kept in a file of its own, and what is overwritten and removed leaves nothing but
the disk to remember it. A host is in one session at a time, and in one round at a time. Its next
key is made, and handed over, before the range of the present one ends; then both are there, until a
round of the next range is answered. A server may stop before that, so every key has a last second.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Collection
from pathlib import Path

from protocol.round.committee_policy import KEY_ROUNDS, KEY_SECONDS, KEYS
from protocol.round.member import SealingKeys
from protocol.round.rings import UnixClock
from secagg import Identity
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.storage import StoredStateError, sync_folder, write_durably
from secagg.terms import SESSION_ID_BYTES

_LAST_NUMBER = 1 << 62
"""Of rounds: every range that begins below it ends below 2^63."""

_FILE = struct.Struct(f"<{KEY_BYTES}sQ")
"""A key, and the last unix second at which it may be used."""


class SealingFolder:
    """The folder of one identity's sealing keys; private, and in no backup.

    No key in it gets older than `KEY_SECONDS`. Every call erases those whose time is over.

    Args:
        clock: tells unix seconds; the server must not be able to set it.
    """

    def __init__(
        self,
        folder: Path,
        clock: UnixClock,
        rounds: int = KEY_ROUNDS,
        before_erasing: Callable[[], None] = lambda: None,
    ) -> None:
        KEYS.require("rounds", rounds)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._clock = clock
        self._rounds = rounds
        self._before_erasing = before_erasing

    def begin(self, identity: Identity, session_id: bytes, round_number: int = 0) -> SealingKeys:
        """The key for a round of a session, and all of its range; made if there is none.

        It is made anew when half of its time is over. Whoever asks for the next range may still be
        in the one before: its key stays, if there is one. All others are erased, those of other
        sessions among them.
        """
        self.expire()
        first = self._first(round_number)
        path, before = self._path(session_id, first), self._path(session_id, first - self._rounds)
        held = self._held(path, KEY_SECONDS // 2)
        self._erase_all_but({before, *([path] if held else ())})
        if held is None:
            fresh = self._folder / f"{secrets.token_hex(8)}.new"
            descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            key, last = secrets.token_bytes(KEY_BYTES), int(self._clock()) + KEY_SECONDS
            write_durably(descriptor, _FILE.pack(key, last))
            fresh.rename(path)
        sync_folder(self._folder)
        return self._read(path, identity, session_id, first)

    def key(self, identity: Identity, session_id: bytes, round_number: int) -> SealingKeys:
        """The key for a round that is to be answered; those of ranges before it are erased."""
        self.expire()
        first = self._first(round_number)
        path = self._path(session_id, first)
        keys = self._read(path, identity, session_id, first)
        if self._erase_all_but({path, self._path(session_id, first + self._rounds)}):
            sync_folder(self._folder)
        return keys

    def expire(self) -> int:
        """Erase every key whose time is over; how many.

        For a host to schedule: a server that never asks again must not keep a key alive. What holds
        no key, or one without a time, is erased as well.
        """
        live = {path for path in self._files() if self._held(path)}
        if erased := self._erase_all_but(live):
            sync_folder(self._folder)
        return erased

    def _held(self, path: Path, left: int = 0) -> tuple[bytes, int] | None:
        """A key with so many seconds left, and its last one; None if the file holds none."""
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(raw) != _FILE.size:
            return None
        key, last = _FILE.unpack(raw)
        now = self._clock()
        # Written so that NaN is past every time. The second half is for a clock that was put back.
        live = now + left <= last <= now + KEY_SECONDS + CLOCK_SKEW_SECONDS
        return (key, last) if live else None

    def _read(self, path: Path, identity: Identity, session_id: bytes, first: int) -> SealingKeys:
        held = self._held(path)
        if held is None:
            raise StoredStateError(
                "there is no sealing key for this round: it was never made, or erased when its "
                "time was over, or when another session or a later range of rounds began"
            )
        key, last = held
        return SealingKeys(identity, session_id, first, self._rounds, AgreementKey(key), last)

    def _first(self, round_number: int) -> int:
        """The first round of the range that a round is in."""
        if not 0 <= round_number < _LAST_NUMBER:
            raise StoredStateError(f"no sealing key serves round {round_number}")
        return round_number - round_number % self._rounds

    def _path(self, session_id: bytes, first: int) -> Path:
        if len(session_id) != SESSION_ID_BYTES:
            raise StoredStateError(f"a session id has {SESSION_ID_BYTES} bytes")
        return self._folder / f"{session_id.hex()}-{first}-{first + self._rounds - 1}"

    def _files(self) -> list[Path]:
        return [path for path in sorted(self._folder.iterdir()) if path.is_file()]

    def _erase_all_but(self, kept: Collection[Path]) -> int:
        """Erase keys; how many."""
        others = [path for path in self._files() if path not in kept]
        if others:
            self._before_erasing()
        for path in others:
            _erase(path)
        return len(others)


def _erase(path: Path) -> None:
    """Overwrite a key before its name goes: what is only unlinked may still be read."""
    try:
        write_durably(os.open(path, os.O_WRONLY), bytes(_FILE.size))
        path.unlink()
    except FileNotFoundError:
        return
