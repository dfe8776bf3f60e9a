"""A member's sealing keys on disk: a key for a range of rounds, and what is over is erased."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_shot_rounds import identity
from round_kit import Watch

from protocol.round.committee_policy import KEY_ROUNDS, KEY_SECONDS
from protocol.round.stored_sealing import SealingFolder
from secagg import LocalProtocolError, ParameterError
from secagg.storage import StoredStateError

SESSION = bytes(range(16))
WHO = identity("member", 0)


DAY = 86_400


@pytest.fixture
def clock() -> Watch:
    return Watch()


def kept(folder: Path) -> Path:
    """A second name of the only key in a folder: shows what was written over it."""
    (file,) = folder.iterdir()
    copy = folder.with_name("copy")
    copy.hardlink_to(file)
    return copy


def names(folder: Path) -> list[str]:
    """Ranges of the keys in a folder."""
    return sorted(path.name.partition("-")[2] for path in folder.iterdir())


def test_a_session_has_one_key_until_the_next_begins(tmp_path: Path, clock: Watch) -> None:
    place = tmp_path / "sealing"
    folder = SealingFolder(place, clock)
    first = folder.begin(WHO, SESSION)
    assert folder.begin(WHO, SESSION, KEY_ROUNDS - 1).entry == first.entry
    assert SealingFolder(place, clock).key(WHO, SESSION, 7).entry == first.entry
    (file,) = place.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    other = folder.begin(WHO, bytes(16))
    assert other.entry.sealing_key != first.entry.sealing_key
    assert other.entry.is_signed(bytes(16)) and not other.entry.is_signed(SESSION)
    with pytest.raises(StoredStateError, match="or when another session"):
        folder.key(WHO, SESSION, 0)
    assert len(list(place.iterdir())) == 1


def test_the_next_key_is_made_before_the_present_one_ends(tmp_path: Path, clock: Watch) -> None:
    folder = SealingFolder(tmp_path, clock, rounds=4)
    present, following = folder.begin(WHO, SESSION, 2), folder.begin(WHO, SESSION, 4)
    assert (present.entry.first_round, present.entry.last_round) == (0, 3)
    assert (following.entry.first_round, following.entry.last_round) == (4, 7)
    assert present.entry.sealing_key != following.entry.sealing_key
    # Rounds of the present one are still answered, and leave the next one alone.
    assert folder.key(WHO, SESSION, 3).entry == present.entry
    assert names(tmp_path) == ["0-3", "4-7"]
    # The first round of the next one erases it: nobody answers an earlier round again.
    assert folder.key(WHO, SESSION, 4).entry == following.entry
    assert names(tmp_path) == ["4-7"]
    with pytest.raises(StoredStateError, match="a later range"):
        folder.key(WHO, SESSION, 3)


def test_there_are_never_more_than_two(tmp_path: Path, clock: Watch) -> None:
    """Whatever a server asks for."""
    folder = SealingFolder(tmp_path, clock, rounds=4)
    for number in (0, 4, 8, 9, 400, 0):
        folder.begin(WHO, SESSION, number)
        assert len(names(tmp_path)) <= 2
    assert names(tmp_path) == ["0-3"]


def test_what_is_no_round_is_refused(tmp_path: Path, clock: Watch) -> None:
    folder = SealingFolder(tmp_path, clock)
    folder.begin(WHO, SESSION)
    for bad in (b"", b"x", b"../../../etc/passwd", bytes(17)):
        with pytest.raises(StoredStateError, match="16 bytes"):
            folder.begin(WHO, bad)
    for number in (-1, 1 << 62):
        with pytest.raises(StoredStateError, match="no sealing key serves round"):
            folder.begin(WHO, SESSION, number)
    for rounds in (0, KEY_ROUNDS + 1, 1.0):
        with pytest.raises(ParameterError, match="rounds"):
            SealingFolder(tmp_path, clock, rounds)  # type: ignore[arg-type]


def test_what_is_erased_was_overwritten(tmp_path: Path, clock: Watch) -> None:
    folder = SealingFolder(tmp_path / "sealing", clock, rounds=1)
    folder.begin(WHO, SESSION)
    copy = kept(tmp_path / "sealing")
    folder.begin(WHO, SESSION, 1)
    folder.key(WHO, SESSION, 1)
    assert copy.stat().st_nlink == 1 and copy.read_bytes() == bytes(40)


@pytest.mark.parametrize("seconds", [KEY_SECONDS + 1, 1e12, float("nan"), -DAY])
def test_a_key_is_erased_when_its_time_is_over(
    tmp_path: Path, clock: Watch, seconds: float
) -> None:
    """Whether a server asks for anything or not; a clock that was put back ends its time too."""
    folder = SealingFolder(tmp_path / "sealing", clock)
    keys = folder.begin(WHO, SESSION)
    copy = kept(tmp_path / "sealing")
    for clock.seconds in (-1, KEY_SECONDS - 1):
        assert not folder.expire() and not keys.expire(clock)
    assert folder.key(WHO, SESSION, 0).entry == keys.entry
    clock.seconds = seconds
    assert keys.expire(clock) is (seconds != -DAY)
    with pytest.raises(StoredStateError, match="its time was over"):
        SealingFolder(tmp_path / "sealing", clock).key(WHO, SESSION, 0)
    assert copy.stat().st_nlink == 1 and copy.read_bytes() == bytes(40)


def test_what_is_no_key_with_a_time_is_erased(tmp_path: Path, clock: Watch) -> None:
    """A key of an earlier version, and what a crash left behind."""
    folder = SealingFolder(tmp_path, clock)
    folder.begin(WHO, SESSION)
    (file,) = tmp_path.iterdir()
    file.write_bytes(bytes(32))
    (tmp_path / "left.new").write_bytes(b"half a key")
    assert folder.expire() == 2
    assert not list(tmp_path.iterdir())


def test_an_erased_key_agrees_with_nobody(tmp_path: Path, clock: Watch) -> None:
    keys = SealingFolder(tmp_path, clock).begin(WHO, SESSION)
    assert not keys.expire(None)
    clock.seconds = KEY_SECONDS + 1
    assert keys.expire(clock)
    for seconds in (KEY_SECONDS + 1, 0.0):
        clock.seconds = seconds
        with pytest.raises(LocalProtocolError, match="erased"):
            keys.key.agree(keys.entry.sealing_key)
        assert keys.key.expose() == b""


def test_a_key_is_made_anew_in_time(tmp_path: Path, clock: Watch) -> None:
    folder = SealingFolder(tmp_path, clock)
    first = folder.begin(WHO, SESSION)
    clock.seconds = KEY_SECONDS // 2 - 1
    assert folder.begin(WHO, SESSION).entry == first.entry
    clock.seconds += 2
    second = folder.begin(WHO, SESSION)
    assert second.entry.sealing_key != first.entry.sealing_key
    clock.seconds += KEY_SECONDS // 2
    assert folder.key(WHO, SESSION, 0).entry == second.entry


@pytest.mark.parametrize("way", ["expire", "renew", "other session", "later range"])
def test_what_is_stored_of_a_round_goes_before_the_key_that_would_open_it(
    way: str, tmp_path: Path, clock: Watch
) -> None:
    there: list[list[str]] = []
    folder = SealingFolder(tmp_path, clock, 4, lambda: there.append(names(tmp_path)))
    folder.begin(WHO, SESSION)
    folder.begin(WHO, SESSION, 4)
    (tmp_path / "a folder").mkdir()  # by mistake; it holds no key
    assert there == []
    if way == "renew":
        clock.seconds = KEY_SECONDS // 2 + 1
        folder.begin(WHO, SESSION)
    elif way == "expire":
        clock.seconds = KEY_SECONDS + 1
        assert folder.expire() == 2
    elif way == "other session":
        folder.begin(WHO, bytes(16))
    else:
        folder.key(WHO, SESSION, 4)
    assert [found[:2] for found in there] == [["", "0-3"]] and "4-7" in there[0]
