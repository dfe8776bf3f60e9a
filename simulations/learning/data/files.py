"""A folder of data sets: finds files, checks that they are the expected ones, unpacks them.

Nothing is ever downloaded. A file is accepted if its SHA-256 is the catalogued one, packed or
unpacked: another compression of the same contents is as good, and so is the plain file.

May use the file system; must not know what is inside the files.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simulations.learning.data.errors import DataError, DataProblem

DATA_DIR_VARIABLE = "VEILSUM_DATA_DIR"
"""Environment variable that names the folder if the caller does not."""

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file that a data set consists of."""

    path: str  # below the folder of data sets, with "/"
    size_bytes: int  # of the file as it is usually handed out
    sha256: str  # of that file, in hexadecimal
    unpacked_sha256: str | None = None  # of what is inside, for a path that ends in ".gz"
    origin: str  # where to get it, in words

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the accepted paths: as catalogued, and unpacked."""
        if self.unpacked_sha256 is None:
            return (self.path,)
        return (self.path, self.path.removesuffix(".gz"))

    @property
    def advice(self) -> str:
        """Say what the file is and where to get it."""
        unpacked = self.unpacked_sha256
        return (
            f"{self.path} ({self.size_bytes:,} bytes, sha256 {self.sha256}"
            + (f", unpacked sha256 {unpacked}" if unpacked else "")
            + f") from {self.origin}"
        )


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where the data sets are."""

    root: Path  # each set has a folder of its own below
    # refuse files with another checksum; False reads other versions of the files, whose format is
    # checked all the same
    check: bool = True

    def locate(self, file: DataFile) -> Path:
        """Return where a file lies, without reading it.

        Raises:
            DataError: it is not there; the message says where to get it.
        """
        for path in file.paths:
            if (self.root / path).is_file():
                return self.root / path
        raise DataError(self.subject(file), DataProblem.MISSING, "no such file", file.advice)

    def has(self, file: DataFile) -> bool:
        """Return whether a file is there, packed or unpacked."""
        return any((self.root / path).is_file() for path in file.paths)

    def subject(self, file: DataFile) -> str:
        """Return what errors call a file: where it is looked for first."""
        return str(self.root / file.path)

    def read(self, file: DataFile) -> bytes:
        """Return the unpacked contents of a file.

        Raises:
            DataError: missing, another version (unless ``check`` is False), or broken gzip.
        """
        path = self.locate(file)
        if self.check:
            _verify(path, file)
        return unpack(path.read_bytes(), str(path))

    def read_text(self, file: DataFile) -> str:
        """Return the unpacked contents of a file of UTF-8 text.

        Raises:
            DataError: as `read`, or it is something else.
        """
        try:
            return self.read(file).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                self.subject(file), DataProblem.FORMAT, str(error), "UTF-8 text"
            ) from error


def find_data_dir(explicit: Path | None = None) -> Path:
    """Return the folder of data sets: as given, else as the environment says.

    Raises:
        DataError: nobody says, or the folder does not exist.
    """
    named = os.environ.get(DATA_DIR_VARIABLE)
    if explicit is None and not named:
        raise DataError(
            DATA_DIR_VARIABLE,
            DataProblem.NO_FOLDER,
            "not set, and no folder was given",
            "the folder that holds the data sets, each in a folder of its own",
        )
    folder = explicit if explicit is not None else Path(named or "")
    if not folder.is_dir():
        raise DataError(
            str(folder),
            DataProblem.NO_FOLDER,
            "no such folder",
            f"a folder of data sets, given or in {DATA_DIR_VARIABLE}",
        )
    return folder


def unpack(blob: bytes, subject: str) -> bytes:
    """Return gzip's contents, or the bytes themselves if they are not gzip."""
    if not blob.startswith(_GZIP_MAGIC):
        return blob
    try:
        return gzip.decompress(blob)
    except EOFError as error:
        raise DataError(
            subject, DataProblem.TRUNCATED, "the gzip stream ends early", "the whole file"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            subject, DataProblem.FORMAT, f"damaged gzip ({error})", "an undamaged file"
        ) from error


def _verify(path: Path, file: DataFile) -> None:
    """Compare the checksum with the catalogue."""
    status = path.stat()
    found = _sha256(path, status.st_size, status.st_mtime_ns)
    if found in (file.sha256, file.unpacked_sha256):
        return
    if path.suffix == ".gz" and _sha256_inside(path) == file.unpacked_sha256:
        return
    raise DataError(
        str(path),
        DataProblem.CHECKSUM,
        f"{status.st_size:,} bytes with sha256 {found}",
        f"{file.advice}; or switch off the check to read another version",
    )


@lru_cache(maxsize=256)
def _sha256(path: Path, size: int, modified_ns: int) -> str:
    """Hash a file once per size and modification time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_inside(path: Path) -> str:
    """Hash what a gzip file holds: another compression level is no other version."""
    return hashlib.sha256(unpack(path.read_bytes(), str(path))).hexdigest()
