"""A client's last upload on disk: the same announcement gets the same bytes, until the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from one_shot_rounds import secret
from one_shot_worlds import DIGEST, SESSION, World, plan_of, update
from round_kit import HOUR, OPENED, expiring

from protocol.errors import PolicyError
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.stored_upload import UploadFolder, UploadReceipt, announced_as
from secagg.oneshot.committee import CommitteeKind
from secagg.storage import StoredStateError

WORLD = World(plan_of(CommitteeKind.NAMED))


SETUP = expiring(WORLD.setup())
ANNOUNCEMENT = SETUP.announce(0)


def test_there_is_no_receipt_where_a_file_takes_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(b"")
    assert UploadFolder(tmp_path / "upload").receipt() is None


@pytest.fixture
def folder(tmp_path: Path) -> UploadFolder:
    return UploadFolder(tmp_path / "upload")


def client_of() -> OneShotRoundClient:
    """Client 0, which has joined the round."""
    client = WORLD.client()
    client.join(ANNOUNCEMENT, DIGEST)
    return client


def test_receipts_read_back() -> None:
    receipt = UploadReceipt(SESSION, 7, 3, secret("digest"), announced_as(b"announcement"))
    assert UploadReceipt.decode(receipt.encode()) == receipt
    for damaged in (b"", receipt.encode()[:-1], b"\0" + receipt.encode()[1:]):
        with pytest.raises(StoredStateError):
            UploadReceipt.decode(damaged)


def test_an_upload_is_sent_again_for_its_announcement_only(
    folder: UploadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(1), sync(descriptor)))
    assert folder.again(ANNOUNCEMENT) is None and folder.receipt() is None
    client = client_of()
    upload = client.submit(update(0))
    folder.keep(client.receipt, upload)
    assert len(synced) == 4  # two files, and their names
    # Another process, on another day of the week.
    later = UploadFolder(tmp_path / "upload")
    assert later.again(ANNOUNCEMENT) == upload == client.resend()
    assert later.receipt() == client.receipt
    assert (client.receipt.index, client.receipt.header_digest) == client.own_upload
    for other in (SETUP.announce(1), ANNOUNCEMENT[:-1], b""):
        assert later.again(other) is None
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "upload").iterdir())
    later.begin()
    assert folder.again(ANNOUNCEMENT) is None and list((tmp_path / "upload").iterdir()) == []


def test_nothing_is_sent_after_the_end_of_the_round(folder: UploadFolder) -> None:
    client = client_of()
    upload = client.submit(update(0))
    folder.keep(client.receipt, upload)
    assert folder.again(ANNOUNCEMENT, lambda: OPENED + HOUR) is not None
    with pytest.raises(PolicyError, match="opened_at"):
        folder.again(ANNOUNCEMENT, lambda: OPENED + HOUR + 1)


def test_a_receipt_without_its_upload_sends_nothing(folder: UploadFolder, tmp_path: Path) -> None:
    """As a crash may leave it; and an older receipt never stands beside a newer upload."""
    client = client_of()
    upload = client.submit(update(0))
    folder.keep(client.receipt, upload)
    damaged = bytearray((tmp_path / "upload" / "upload").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "upload" / "upload").write_bytes(damaged)
    assert folder.again(ANNOUNCEMENT) is None
    (tmp_path / "upload" / "upload").unlink()
    assert folder.again(ANNOUNCEMENT) is None
    (tmp_path / "upload" / "upload").mkdir()
    with pytest.raises(OSError, match="upload"):
        folder.keep(client.receipt, b"new")
    assert folder.receipt() is None
