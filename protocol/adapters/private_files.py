"""Files that hold a secret: read only if nobody else can read them."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.errors import ConfigurationError

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
