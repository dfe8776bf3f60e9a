"""Files that hold a secret: read only if nobody else can read them; and keys in files."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.errors import ConfigurationError
from secagg import Identity
from secagg.keys import KEY_BYTES

_OTHERS = 0o077
"""What the mode of a file may give to its group or to everybody: nothing."""


def read_private(path: Path, holds: str) -> bytes:
    """The bytes of a file that belongs to this process's user and that nobody else may read."""
    try:
        with path.open("rb") as file:
            # Of the file that is open, and not of one that took its place meanwhile.
            status, raw = os.fstat(file.fileno()), file.read()
    except OSError as error:
        problem = error.strerror or os.strerror(error.errno or 0)
        raise ConfigurationError(str(path), problem, holds) from None
    mode, user = status.st_mode & 0o777, os.geteuid()
    if mode & _OTHERS:
        problem = f"mode {mode:o}: others than its owner may read or change it"
        raise ConfigurationError(str(path), problem, f"mode 600 (chmod 600 {path})")
    if status.st_uid != user:
        problem = f"owned by user {status.st_uid}, and this process runs as {user}"
        raise ConfigurationError(
            str(path), problem, f"a file owned by this user (chown {user} {path})"
        )
    return raw


def read_identity(path: Path, holds: str = "the client's identity key") -> Identity:
    """A signing key from its file."""
    text = read_private(path, holds).decode("ascii", "replace").strip()
    return Identity.from_private_bytes(read_key(path, text))


def write_identity(path: Path, identity: Identity) -> None:
    """Write a private key, once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(identity.private_bytes().hex() + "\n")


def read_key(path: Path, text: str) -> bytes:
    """The 32 bytes of a key that stands in a file as 64 hex digits."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES:
        # The text may be a private key: it is not shown.
        raise ConfigurationError(str(path), "not a key", f"{2 * KEY_BYTES} hex digits")
    return raw
