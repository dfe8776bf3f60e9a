"""A file with a secret is read only if nobody else can read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

from protocol.adapters.private_files import read_private
from protocol.errors import ConfigurationError


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "identity.key"
    path.write_bytes(b"not to be seen")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_its_owner_s_alone_is_read(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    assert read_private(secret, "a key") == b"not to be seen"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o601, 0o610, 0o444, 0o666])
def test_open_to_others_is_refused_with_the_cure(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        read_private(secret, "a key")
    assert caught.value.key == str(secret) and f"mode {mode:o}" in caught.value.problem
    assert f"chmod 600 {secret}" in caught.value.valid
    assert "seen" not in str(caught.value)


def test_somebody_else_s_is_refused_with_the_cure(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ConfigurationError, match=f"owned by user {user}.*chown {user + 1} "):
        read_private(secret, "a key")


def test_a_link_is_judged_by_what_it_leads_to(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret)
    assert read_private(link, "a key") == b"not to be seen"
    secret.chmod(0o644)
    with pytest.raises(ConfigurationError, match="mode 644"):
        read_private(link, "a key")


def test_missing_and_no_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"No such file.*valid: a key"):
        read_private(tmp_path / "none", "a key")
    with pytest.raises(ConfigurationError, match="Is a directory"):
        read_private(tmp_path, "a key")


def test_the_file_that_is_open_is_judged_and_not_one_in_its_place(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchanged after it was opened, for one that passes: what is read is what others could see."""
    real = type(secret).open
    fresh = secret.with_suffix(".new")
    fresh.write_bytes(b"private")
    fresh.chmod(0o600)

    def exchanged(path: Path, *arguments: str) -> IO[bytes]:
        file = real(path, *arguments)
        fresh.replace(path)
        return file

    secret.chmod(0o644)
    monkeypatch.setattr(type(secret), "open", exchanged)
    with pytest.raises(ConfigurationError, match="mode 644"):
        read_private(secret, "a key")
