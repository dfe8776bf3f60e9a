"""A member's sealing keys on disk: a key for a range of rounds, and what is over is erased."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_shot_rounds import identity

from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.stored_sealing import SealingFolder
from secagg import Identity, ParameterError
from secagg.storage import StoredStateError

SESSION = bytes(range(16))


@pytest.fixture
def who() -> Identity:
    return identity("member", 0)


def names(folder: Path) -> list[str]:
    """Ranges of the keys in a folder."""
    return sorted(path.name.partition("-")[2] for path in folder.iterdir())


def test_a_session_has_one_key_until_the_next_begins(who: Identity, tmp_path: Path) -> None:
    place = tmp_path / "sealing"
    folder = SealingFolder(place)
    first = folder.begin(who, SESSION)
    assert folder.begin(who, SESSION, KEY_ROUNDS - 1).entry == first.entry
    assert SealingFolder(place).key(who, SESSION, 7).entry == first.entry
    (file,) = place.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    other = folder.begin(who, bytes(16))
    assert other.entry.sealing_key != first.entry.sealing_key
    assert other.entry.is_signed(bytes(16)) and not other.entry.is_signed(SESSION)
    with pytest.raises(StoredStateError, match="erased when another"):
        folder.key(who, SESSION, 0)
    assert len(list(place.iterdir())) == 1


def test_the_next_key_is_made_before_the_present_one_ends(who: Identity, tmp_path: Path) -> None:
    folder = SealingFolder(tmp_path, rounds=4)
    present, following = folder.begin(who, SESSION, 2), folder.begin(who, SESSION, 4)
    assert (present.entry.first_round, present.entry.last_round) == (0, 3)
    assert (following.entry.first_round, following.entry.last_round) == (4, 7)
    assert present.entry.sealing_key != following.entry.sealing_key
    # Rounds of the present one are still answered, and leave the next one alone.
    assert folder.key(who, SESSION, 3).entry == present.entry
    assert names(tmp_path) == ["0-3", "4-7"]
    # The first round of the next one erases it: nobody answers an earlier round again.
    assert folder.key(who, SESSION, 4).entry == following.entry
    assert names(tmp_path) == ["4-7"]
    with pytest.raises(StoredStateError, match="a later range"):
        folder.key(who, SESSION, 3)


def test_there_are_never_more_than_two(who: Identity, tmp_path: Path) -> None:
    """Whatever a server asks for."""
    folder = SealingFolder(tmp_path, rounds=4)
    for number in (0, 4, 8, 9, 400, 0):
        folder.begin(who, SESSION, number)
        assert len(names(tmp_path)) <= 2
    assert names(tmp_path) == ["0-3"]


def test_damaged_files_and_what_is_no_round_are_refused(who: Identity, tmp_path: Path) -> None:
    folder = SealingFolder(tmp_path)
    folder.begin(who, SESSION)
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"short")
    with pytest.raises(StoredStateError, match="damaged"):
        folder.begin(who, SESSION)
    for bad in (b"", b"x", b"../../../etc/passwd", bytes(17)):
        with pytest.raises(StoredStateError, match="16 bytes"):
            folder.begin(who, bad)
    for number in (-1, 1 << 62):
        with pytest.raises(StoredStateError, match="no sealing key serves round"):
            folder.begin(who, SESSION, number)
    for rounds in (0, KEY_ROUNDS + 1, 1.0):
        with pytest.raises(ParameterError, match="rounds"):
            SealingFolder(tmp_path, rounds)  # type: ignore[arg-type]


def test_what_is_erased_was_overwritten(who: Identity, tmp_path: Path) -> None:
    folder = SealingFolder(tmp_path / "sealing", rounds=1)
    folder.begin(who, SESSION)
    (file,) = (tmp_path / "sealing").iterdir()
    (tmp_path / "copy").hardlink_to(file)
    folder.begin(who, SESSION, 1)
    folder.key(who, SESSION, 1)
    assert not file.exists() and (tmp_path / "copy").read_bytes() == bytes(32)
