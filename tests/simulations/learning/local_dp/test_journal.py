"""The file of what clients remember: what is written, what a crash leaves, what damage does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import ConfigurationError
from simulations.common import files
from simulations.learning.local_dp import ClientMemory
from simulations.learning.local_dp import journal as journal_module
from simulations.learning.local_dp.journal import PATTERN, MemoryJournal

D = 6


def report(memory: ClientMemory, clients: Iterable[int], value: float) -> None:
    for client in clients:
        memory.vector("delayed", client)[:] = value
        memory.sent[client] += 1


def contents(memory: ClientMemory) -> dict[int, tuple[int, list[float]]]:
    return {
        client: (memory.sent[client], memory.vector("delayed", client).tolist())
        for client in memory.clients
    }


def read(folder: Path, place: np.ndarray | None) -> ClientMemory:
    memory = ClientMemory(D)
    MemoryJournal(folder, memory, place)
    return memory


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(PATTERN))


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    memory = ClientMemory(D)
    with MemoryJournal(tmp_path, memory) as journal:
        for number in range(9):
            clients = [(3 * number + each) % 7 for each in range(3)]
            report(memory, clients, number)
            journal.keep(clients)
            whole = (tmp_path / names(tmp_path)[-1]).stat().st_size
            assert int(journal.place[1]) == whole
            # The file before the present one stays until a checkpoint names this one.
            assert contents(read_copy(tmp_path, journal.place)) == contents(memory)
    assert names(tmp_path) == [f"memory-{journal.place[0]}.rows"] and journal.place[0] > 0


def read_copy(folder: Path, place: np.ndarray) -> ClientMemory:
    """Read without the tidying up that comes with it."""
    copy = folder / "copy"
    copy.mkdir(exist_ok=True)
    for name in names(folder):
        (copy / name).write_bytes((folder / name).read_bytes())
    return read(copy, place)


def test_what_no_checkpoint_counts_is_cut_off(tmp_path: Path) -> None:
    memory = ClientMemory(D)
    journal = MemoryJournal(tmp_path, memory)
    report(memory, [1, 2], 1.0)
    journal.keep([1, 2])
    place, before = journal.place, contents(memory)
    report(memory, [2, 3], 2.0)
    journal.keep([2, 3])
    path = tmp_path / "memory-0.rows"
    for torn in (path.read_bytes(), path.read_bytes()[:-5], path.read_bytes() + b"?"):
        path.write_bytes(torn)
        again = ClientMemory(D)
        resumed = MemoryJournal(tmp_path, again, place)
        assert contents(again) == before
        report(again, [3], 3.0)
        resumed.keep([3])
        assert path.stat().st_size == resumed.place[1]
        assert contents(read(tmp_path, resumed.place)) == contents(again)
        path.write_bytes(torn)
    assert read(tmp_path, None).clients == []


def test_the_bytes_of_a_round_are_those_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the rows at most, and a file no longer than twice what is remembered."""
    population, cohort, rounds, written = 300, 10, 200, [0]

    def counted(path: Path, start: int, pieces: Iterable[bytes]) -> int:
        size = files.write_behind(path, start, pieces)
        written[0] += size - start
        return size

    monkeypatch.setattr(journal_module, "write_behind", counted)
    memory, rng = ClientMemory(100), np.random.default_rng(1)
    journal = MemoryJournal(tmp_path, memory)
    for number in range(rounds):
        clients = rng.choice(population, cohort, replace=False).tolist()
        report(memory, clients, number)
        journal.keep(clients)
        rows = (number + 1) * cohort * memory.row_bytes
        # Beside the rows there are a name, four lengths, a length and a digest in each block.
        assert written[0] <= 2 * rows + (number + 1) * 100
        assert journal.place[1] <= 2 * len(memory) * memory.row_bytes + 100
    assert journal.place[0] >= 3
    assert written[0] > rows


def test_a_memory_without_vectors_is_counts(tmp_path: Path) -> None:
    memory = ClientMemory(10**6)
    journal = MemoryJournal(tmp_path, memory)
    memory.sent.update([5, 6])
    journal.keep([5, 6])
    assert journal.place[1] < 200
    again = ClientMemory(10**6)
    MemoryJournal(tmp_path, again, journal.place)
    assert again.sent == memory.sent


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """The file with what three clients remember, and its place."""
    memory = ClientMemory(D)
    journal = MemoryJournal(tmp_path, memory)
    report(memory, range(3), 1.0)
    journal.keep([0, 1, 2])
    return tmp_path / "memory-0.rows", journal.place


@pytest.mark.parametrize("at", [0, 7, 20, 41, 90, -1])
def test_damage_is_told(kept: tuple[Path, np.ndarray], at: int) -> None:
    path, place = kept
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ConfigurationError, match="damaged") as caught:
        read(path.parent, place)
    assert caught.value.key == str(path)


def test_a_file_that_is_short_missing_or_of_another_model_is_damaged(
    kept: tuple[Path, np.ndarray],
) -> None:
    path, place = kept
    with pytest.raises(ConfigurationError, match="damaged"):
        MemoryJournal(path.parent, ClientMemory(D + 1), place)
    for damage in (lambda: path.write_bytes(path.read_bytes()[:-1]), path.unlink):
        damage()
        with pytest.raises(ConfigurationError, match="damaged"):
            read(path.parent, place)


def test_a_run_that_failed_keeps_both_files(tmp_path: Path) -> None:
    """Nobody knows whether the last place was ever named by a checkpoint."""
    memory = ClientMemory(D)
    with pytest.raises(RuntimeError), MemoryJournal(tmp_path, memory) as journal:
        for number in range(3):
            report(memory, range(3), number)
            before = journal.place
            journal.keep([0, 1, 2])
        raise RuntimeError
    assert names(tmp_path) == [f"memory-{before[0]}.rows", f"memory-{journal.place[0]}.rows"]
    assert len(read(tmp_path, before)) == 3
    assert names(tmp_path) == [f"memory-{before[0]}.rows"]
