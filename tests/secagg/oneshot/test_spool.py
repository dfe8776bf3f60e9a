"""Spools: what is put is what is read, in memory and on disk, and what a disk may do to it."""

from __future__ import annotations

import os
from pathlib import Path

import one_shot_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.oneshot import collection
from secagg.oneshot.spool import Spool


@settings(max_examples=50)
@given(
    items=st.lists(st.binary(max_size=40), max_size=12),
    in_memory=st.integers(0, 200),
    start=st.integers(0, 45),
    length=st.integers(0, 45),
)
def test_items_come_back(items: list[bytes], in_memory: int, start: int, length: int) -> None:
    spool = Spool(in_memory=in_memory)
    for number, item in enumerate(items):
        spool.put(number, item)
    for number, item in enumerate(items):
        assert spool.get(number) == item
        assert spool.get(number, start, length) == item[start : start + length]
    with pytest.raises(KeyError):
        spool.get(len(items))
    spool.clear()
    for number in range(len(items)):
        with pytest.raises(KeyError):
            spool.get(number)


@settings(max_examples=40)
@given(
    items=st.integers(1, 6),
    width=st.integers(1, 9),
    count=st.integers(1, 7),
    together=st.integers(0, 120),
    in_memory=st.sampled_from([0, 50, 1000]),
)
def test_columns_are_the_pieces_of_all_items(
    items: int, width: int, count: int, together: int, in_memory: int
) -> None:
    """However many are read at once."""
    spool = Spool(in_memory=in_memory)
    held = [bytes((17 * i + k) % 256 for k in range(width * count)) for i in range(items)]
    for number, item in enumerate(held):
        spool.put(number, item)
    order = list(reversed(range(items)))
    wanted = [
        b"".join(held[i][column * width : (column + 1) * width] for i in order)
        for column in range(count)
    ]
    assert list(spool.columns(order, width, count, together)) == wanted


def test_columns_are_read_when_they_are_wanted() -> None:
    reads: list[int] = []

    class Counting(Spool):
        def get(self, number: int, start: int = 0, length: int | None = None) -> bytes:
            reads.append(start)
            return super().get(number, start, length)

    spool = Counting()
    for number in (1, 8):
        spool.put(number, bytes(35))
    columns = spool.columns([1, 8], 5, 7, together=2 * 5 * 3)
    for seen, starts in ((1, [0]), (2, [0]), (3, [0]), (4, [0, 3 * 5])):
        next(columns)
        assert sorted(set(reads)) == starts, seen


def test_nothing_is_written_while_everything_fits(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "no folder", in_memory=10)
    spool.put(0, b"01234")
    spool.put(1, b"56789")
    with pytest.raises(FileNotFoundError):
        spool.put(2, b"x")


def test_the_file_has_no_name_and_is_closed_afterwards(tmp_path: Path) -> None:
    spool = Spool(tmp_path, in_memory=4)
    spool.put(0, b"beyond four bytes")
    spool.put(1, b"1234")
    assert list(tmp_path.iterdir()) == []
    file = spool._file
    assert file is not None
    assert str(tmp_path) in os.readlink(f"/proc/self/fd/{file.fileno()}")
    spool.clear()
    assert file.closed


@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_disk_that_takes_and_gives_a_few_bytes_at_a_time(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    write, read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data[:step]), at))
    monkeypatch.setattr(os, "pread", lambda fd, count, at: read(fd, min(count, step), at))
    spool = Spool(in_memory=0)
    items = [bytes(range(i, i + 20)) for i in range(5)]
    for number, item in enumerate(items):
        spool.put(number, item)
    assert [spool.get(number) for number in range(5)] == items
    assert spool.get(3, 2, 9) == items[3][2:11]


def test_a_file_that_was_cut_is_noticed() -> None:
    spool = Spool(in_memory=0)
    spool.put(0, b"0123456789")
    assert spool._file is not None
    os.ftruncate(spool._file.fileno(), 5)
    with pytest.raises(OSError, match="cut"):
        spool.get(0)


def test_a_round_from_disk_is_the_round_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a ciphertext must be taken out of the sum again."""
    monkeypatch.setattr(collection, "Spool", lambda folder: Spool(tmp_path, in_memory=0))
    round_ = kit.Round(kit.context(length=30))
    round_.collect()
    round_.check({1: {2}, 3: {2}})
    round_.pass_on()
    round_.pass_on()
    opened = round_.server.open()
    assert opened.survivors == (0, 1, 3, 4)
    assert opened.vector.elements.tolist() == round_.expected(opened.survivors)


@pytest.mark.parametrize("which", ["_ciphertexts", "_seals"])
def test_an_upload_that_could_not_be_kept_is_not_in_the_sum(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The disk is full for a moment; the client sends its upload again."""
    round_ = kit.Round(kit.context())
    uploads = {client: round_.upload(client) for client in round_.clients}
    round_.server.receive_upload(0, uploads[0])

    def full(number: int, item: bytes) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(getattr(round_.server._uploads, which), "put", full)
        with pytest.raises(OSError, match="no space"):
            round_.server.receive_upload(1, uploads[1])
    assert round_.server.answered == (0,)
    for client in (1, 2, 3):
        round_.server.receive_upload(client, uploads[client])
    for _ in range(3):
        round_.pass_on()
    opened = round_.server.open()
    assert opened.survivors == (0, 1, 2, 3)
    assert opened.vector.elements.tolist() == round_.expected(opened.survivors)
