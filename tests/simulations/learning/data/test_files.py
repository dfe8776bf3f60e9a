"""Finding, checking and unpacking files; what the errors say."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
from pathlib import Path

import pytest

from protocol.errors import ConfigurationError
from simulations.learning.data import (
    CATALOG,
    DATA_DIR_VARIABLE,
    DataError,
    DataFile,
    DataFolder,
    DataProblem,
    find_data_dir,
)

CONTENT = b"some examples " * 20
PACKED = gzip.compress(CONTENT, mtime=0)
FILE = DataFile(
    path="toy/data.gz",
    size_bytes=len(PACKED),
    sha256=hashlib.sha256(PACKED).hexdigest(),
    unpacked_sha256=hashlib.sha256(CONTENT).hexdigest(),
    origin="example.org/toy",
)


def put(root: Path, blob: bytes, path: str = FILE.path) -> DataFolder:
    """Write one file and return its folder."""
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_bytes(blob)
    return DataFolder(root)


def problem_of(folder: DataFolder, pattern: str) -> DataProblem:
    """Return why the file is refused."""
    with pytest.raises(DataError, match=pattern) as caught:
        folder.read(FILE)
    return caught.value.reason


def test_the_explicit_folder_goes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    assert find_data_dir() == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    assert find_data_dir(other) == other


@pytest.mark.parametrize("value", [None, ""])
def test_no_folder_is_an_error_that_names_the_variable(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(DATA_DIR_VARIABLE, value)
    with pytest.raises(DataError, match=f"{DATA_DIR_VARIABLE}: not set") as caught:
        find_data_dir()
    assert caught.value.reason is DataProblem.NO_FOLDER


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        find_data_dir(tmp_path / "nowhere")


def test_a_missing_file_says_what_and_where_it_is(tmp_path: Path) -> None:
    assert problem_of(DataFolder(tmp_path), "no such file") is DataProblem.MISSING
    with pytest.raises(DataError) as caught:
        DataFolder(tmp_path).read(FILE)
    for part in (str(tmp_path / FILE.path), FILE.sha256, "example.org/toy", str(len(PACKED))):
        assert part in str(caught.value)


def test_the_catalogued_file_is_read(tmp_path: Path) -> None:
    assert put(tmp_path, PACKED).read(FILE) == CONTENT


def test_the_same_contents_packed_otherwise_or_not_at_all_are_read(tmp_path: Path) -> None:
    assert put(tmp_path, gzip.compress(CONTENT, 1, mtime=7)).read(FILE) == CONTENT
    (tmp_path / FILE.path).unlink()
    assert put(tmp_path, CONTENT, "toy/data").read(FILE) == CONTENT


def test_other_contents_are_refused_unless_the_check_is_off(tmp_path: Path) -> None:
    folder = put(tmp_path, gzip.compress(b"other"))
    assert problem_of(folder, "with sha256 .* switch off the check") is DataProblem.CHECKSUM
    assert DataFolder(tmp_path, check=False).read(FILE) == b"other"


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    folder = put(tmp_path, PACKED)
    folder.read(FILE)
    damaged = bytearray(PACKED)
    damaged[9] ^= 1  # The operating system in the header: the same size and the same contents.
    put(tmp_path, bytes(damaged))
    os.utime(tmp_path / FILE.path, ns=(1, 1))
    assert folder.read(FILE) == CONTENT
    put(tmp_path, b"x" * len(PACKED))
    os.utime(tmp_path / FILE.path, ns=(2, 2))
    assert problem_of(folder, "sha256") is DataProblem.CHECKSUM


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kept", [3, 12, len(PACKED) - 9, len(PACKED) - 1])
def test_a_cut_gzip_file_ends_early(tmp_path: Path, check: bool, kept: int) -> None:
    put(tmp_path, PACKED[:kept])
    assert problem_of(DataFolder(tmp_path, check), "ends early") is DataProblem.TRUNCATED


@pytest.mark.parametrize("place", [2, 15, len(PACKED) - 6])
def test_damaged_gzip_is_no_gzip(tmp_path: Path, place: int) -> None:
    damaged = bytearray(PACKED)
    damaged[place] ^= 0xFF
    put(tmp_path, bytes(damaged))
    assert problem_of(DataFolder(tmp_path, check=False), "damaged") is DataProblem.FORMAT


def test_errors_are_configuration_errors_and_survive_pickling() -> None:
    error = DataError("file", DataProblem.COUNT, "two for three", "as many")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert isinstance(again, ConfigurationError) and again.reason is DataProblem.COUNT
    assert str(again) == str(error) == "file: two for three; valid: as many"


def test_the_catalogue_is_well_formed() -> None:
    files = [file for files in CATALOG.values() for file in files]
    assert len({file.path for file in files}) == len(files) == 42
    for name, members in CATALOG.items():
        assert all(file.path.split("/")[0] in (name, "shakespeare") for file in members)
    for file in files:
        assert len(bytes.fromhex(file.sha256)) == 32
        # An archive is read as it is.
        alone = file.path.endswith(".gz") and not file.path.endswith(".tar.gz")
        assert (file.unpacked_sha256 is not None) == alone
        assert file.sha256 in file.advice and file.origin in file.advice
