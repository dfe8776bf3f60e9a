"""Backups of a site's folder: what it needs to go on, sealed with a passphrase, and nothing twice.

A backup has the identity, policy, rules, registries, histories and coins, and no key of a stored
round, no sealing key, no upload and no secret of the SuperNode. All of it is sealed, so that
whoever keeps it can take no charge out. What a restored folder must not do is said in `frozen`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from protocol.adapters.flower.frozen import RESTORED, Restored
from protocol.adapters.flower.home import IDENTITY, POLICY, STATE, ClientHome, ClientRules
from protocol.adapters.flower.site.status import (
    BACKED_UP,
    FILES,
    joined_rounds,
    seen,
    whole_history,
    write_files,
)
from protocol.adapters.flower.waiting import Clock
from protocol.adapters.private_files import write_identity
from protocol.errors import ConfigurationError
from protocol.goal import goal_entry
from protocol.planning.configuration import parse
from protocol.round.stored_history import StoredHistory
from secagg import Identity
from secagg.framing import Redacted
from secagg.keys import os_random
from secagg.storage import replace_durably

LEAST_PASSPHRASE: Final = 12
"""Bytes of a passphrase."""
_FIRST_LINE: Final = b"veilsum backup 1\n"
_SALT_BYTES: Final = 16
_COST: Final = 1 << 17
"""Of scrypt, with blocks of 8: 128 MiB, and some tenths of a second."""


class _Backup(Redacted, frozen=True):
    made: int
    identity: bytes
    files: dict[str, bytes]


def back_up(home: Path, file: Path, passphrase: bytes) -> int:
    """Write a site's backup; how many bytes. The site may go on meanwhile.

    Raises:
        ConfigurationError: the passphrase is too short, the folder is not whole, or it waits for
            the number of rounds that were lost: the backup would be newer than those.
        LedgerError: its history was altered, or has less than the last backup.
    """
    made, identity = int(Clock().unix()), ClientHome(home).identity.private_bytes()
    found, joined = seen(home, _whole)
    plain = msgspec.msgpack.encode(_Backup(made, identity, found))
    header = _FIRST_LINE + os_random(_SALT_BYTES)
    # A key of its own for every backup: one nonce will do.
    sealed = header + _cipher(passphrase, header).encrypt(bytes(12), plain, header)
    replace_durably(file, sealed)
    replace_durably(home / BACKED_UP, f"{made} {joined}\n".encode())
    return len(sealed)


def _whole(copy: ClientHome, files: dict[str, bytes]) -> tuple[dict[str, bytes], int]:
    """The files, if this client would go on with them; and how many rounds it has joined."""
    with whole_history(copy):
        StoredHistory(copy.folder / STATE / "member").close()
        return files, joined_rounds(copy)


def restore(file: Path, home: Path, passphrase: bytes) -> Restored:
    """Make a site's folder of a backup: frozen, until somebody says how many rounds were lost.

    Raises:
        ConfigurationError: the passphrase is wrong, the file was altered or is no backup, or the
            folder is not empty.
    """
    backup = _opened(file, passphrase)
    if home.exists() and any(home.iterdir()):
        raise ConfigurationError("home", f"{home} is not empty", "a new or an empty folder")
    goal = parse(tomllib.loads(backup.files[POLICY].decode()), ClientRules).goal
    before = backup.files.pop(RESTORED, None)
    lost = msgspec.json.decode(before, type=Restored).lost if before else 0
    marks = (name for name in backup.files if name.startswith(f"{STATE}/answered/"))
    # The last round joined may have been charged after the backup.
    lost += any(not name.endswith(".charged") for name in marks)
    identity = Identity.from_private_bytes(backup.identity)
    record = Restored(identity.public.hex(), backup.made, goal_entry(goal), lost)
    (home / STATE).mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    # First what freezes it, and last what it could answer with: it may end anywhere between.
    record.write(home)
    write_files(home, backup.files)
    os.sync()
    write_identity(home / IDENTITY, identity)
    os.sync()
    return record


def _opened(file: Path, passphrase: bytes) -> _Backup:
    data = file.read_bytes()
    end = len(_FIRST_LINE) + _SALT_BYTES
    try:
        if not data.startswith(_FIRST_LINE) or len(data) < end:
            raise InvalidTag
        plain = _cipher(passphrase, data[:end]).decrypt(bytes(12), data[end:], data[:end])
        backup = msgspec.msgpack.decode(plain, type=_Backup)
    except (InvalidTag, msgspec.MsgspecError):
        problem = "another passphrase, no backup of this version, or altered"
        raise ConfigurationError(str(file), problem, "as `veilsum site backup` wrote it") from None
    if strange := [name for name in backup.files if not FILES.fullmatch(name)]:
        raise ConfigurationError(str(file), f"has {strange[0]}", "a backup of this version")
    return backup


def _cipher(passphrase: bytes, header: bytes) -> ChaCha20Poly1305:
    """For a backup with this header, whose end is its salt."""
    if len(passphrase) < LEAST_PASSPHRASE:
        valid = f"at least {LEAST_PASSPHRASE}"
        raise ConfigurationError("passphrase", f"{len(passphrase)} bytes", valid)
    kdf = Scrypt(header[-_SALT_BYTES:], 32, n=_COST, r=8, p=1)
    return ChaCha20Poly1305(kdf.derive(passphrase))
