"""What a member of a standing committee remembers of the noise that it added.

A member adds noise to every round and takes that of the round before off again. What this promises
would be undone by noise that goes in twice, or is taken back twice in sums that are opened, or by
rounds that run beside one another. So a member remembers the last round that it began, which
records it has signed for, and at most two seeds: that of the last record, which it takes back, and
that of the round which it has begun.

Source: docs/correlated-rounds.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import NoReturn, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from dp.sampling import DiscreteGaussianLaw, sample_law
from protocol.errors import PolicyError
from protocol.round.one_process import OneProcess
from secagg import FieldVector, LocalProtocolError, PrimeField, lift
from secagg.framing import Redacted
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.records import RoundRecord
from secagg.storage import StoredStateError, sync_folder, write_durably

VERSION = 2
_HEAD_BYTES = 1 + hashlib.sha256().digest_size
"""A byte for the version, and a hash that notices a damaged disk, though no one who means harm."""


class AddedNoise(Redacted, frozen=True):
    """Noise that may be taken back: where it went in, and how it is drawn again.

    Args:
        seed: 32 secret bytes.
    """

    round_number: int
    variance: float
    seed: bytes


class _Memory(Redacted, frozen=True):
    """All that a member remembers of one run.

    Args:
        begun: number of the last round that it began; -1 for none.
        head: their hash; empty for none.
    """

    begun: int = -1
    records: int = 0
    head: bytes = b""
    added: tuple[AddedNoise, ...] = ()


LARGEST_GAP = 1 << 10
"""Most round numbers that a member lets a server skip: whoever announces one far ahead would use up
all those before it. Counted from what the member began itself, for records may be made up."""


class MemberNoise:
    """The noise of one member over all its runs, one for each session.

    Pass the same object to every round. Threads may share it; it is neither copied nor pickled.
    """

    def __init__(self) -> None:
        self._memories: dict[bytes, _Memory] = {}
        self._lock = OneProcess("a member's noise", forked=LocalProtocolError)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: two memories would take the same noise back twice."""
        raise TypeError("a member's noise cannot be copied or pickled: it comes back only once")

    def begin(self, context: CommitteeContext) -> None:
        """Begin a round; the member signs for none before it any more.

        Noise that can no longer be that of the last record is forgotten.
        """
        with self._lock:
            memory, records = self._read(context.session_id), context.records
            last = records[-1].round_number if records else -1
            highest = memory.begun + LARGEST_GAP
            if not memory.begun < context.round_number <= highest:
                valid = f"{memory.begun + 1} .. {highest}: rounds of a run follow one another"
                raise PolicyError("round_number", context.round_number, valid)
            heads = context.heads
            # From the first round on: noise must not go in under other terms than it comes back.
            begins = msgspec.structs.replace(memory, head=memory.head or heads[0])
            if begins.head not in heads[begins.records : begins.records + 1]:
                raise PolicyError(
                    "records",
                    f"{len(records)} rounds, of another run or without what this member signed",
                    f"lists whose first {begins.records} records are those that it knows",
                )
            kept = tuple(each for each in memory.added if each.round_number == last)
            begun = msgspec.structs.replace(begins, begun=context.round_number, added=kept)
            self._write(context.session_id, begun)

    def has_begun(self, session_id: bytes) -> bool:
        """Whether a round of this session was begun."""
        with self._lock:
            return self._read(session_id).begun >= 0

    def require_last(self, context: CommitteeContext) -> None:
        """See that no later round was begun."""
        with self._lock:
            _require_last(self._read(context.session_id), context)

    def may_take_back(
        self, context: CommitteeContext, member: int, variance: float
    ) -> AddedNoise | None:
        """What this member takes back in a round that it has begun; None for nothing.

        That is what it added in the round of the last record, if that lists it. It stays in memory
        until that record is no longer the last: a round that ends before anybody signed for it is
        followed by another, in which it is taken back after all.
        """
        uploads, records = context.member_uploads, context.records
        if uploads is None or not uploads.returning or not records:
            return None
        with self._lock:
            added = self._read(context.session_id).added
        last = records[-1]
        known = {each.round_number: each for each in added if each.variance == variance}
        return known.get(last.round_number) if member in last.entered else None

    def add(self, context: CommitteeContext, variance: float, seed: NoiseSeed) -> AddedNoise:
        """Remember what is added in a round, before it leaves."""
        with self._lock:
            memory = self._read(context.session_id)
            number = context.round_number
            if memory.begun != number or any(each.round_number == number for each in memory.added):
                raise LocalProtocolError("noise goes into a round once, when the round has begun")
            added = AddedNoise(number, variance, seed.material)
            changed = msgspec.structs.replace(memory, added=(*memory.added, added))
            self._write(context.session_id, changed)
            return added

    def sign(self, context: CommitteeContext, record: RoundRecord) -> None:
        """Remember what is signed for, before the signature leaves."""
        with self._lock:
            memory = self._read(context.session_id)
            _require_last(memory, context)
            changed = msgspec.structs.replace(
                memory, records=len(context.heads), head=context.head_after(record)
            )
            self._write(context.session_id, changed)

    def _read(self, session_id: bytes) -> _Memory:
        """What is remembered of a run. Called with the lock held."""
        return self._memories.get(session_id, _Memory())

    def _write(self, session_id: bytes, memory: _Memory) -> None:
        """Remember it instead of what was. Called with the lock held."""
        self._memories[session_id] = memory


class StoredMemberNoise(MemberNoise):
    """A `MemberNoise` in a folder, locked for this process until it is closed.

    A file for each run, replaced whole and on disk before anything that rests on it leaves; what it
    held before is overwritten. What this cannot stop is a host that puts the whole folder back to
    an earlier copy: then noise would be taken back again.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._held: int | None = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StoredStateError(f"another process has the noise in {folder} open") from None

    def close(self) -> None:
        """Let another process have the folder. Closing twice is allowed."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _read(self, session_id: bytes) -> _Memory:
        self._check_open()
        try:
            data = self._path(session_id).read_bytes()
        except FileNotFoundError:
            return _Memory()
        if data[:1] != bytes([VERSION]):
            raise StoredStateError("what a member remembers of its noise has another version")
        check, encoded = data[1:_HEAD_BYTES], data[_HEAD_BYTES:]
        if hashlib.sha256(encoded).digest() != check:
            raise StoredStateError("what a member remembers of its noise is damaged")
        try:
            return msgspec.msgpack.decode(encoded, type=_Memory)
        except msgspec.MsgspecError as error:
            message = f"what a member remembers of its noise is damaged: {error}"
            raise StoredStateError(message) from None

    def _write(self, session_id: bytes, memory: _Memory) -> None:
        self._check_open()
        path = self._path(session_id)
        fresh = path.with_suffix(".new")
        if fresh.exists():
            # Of a host that died before it took the place of the old one: it may hold a seed.
            write_durably(os.open(fresh, os.O_WRONLY), bytes(fresh.stat().st_size))
            fresh.unlink()
        descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        encoded = msgspec.msgpack.encode(memory)
        check = hashlib.sha256(encoded).digest()
        write_durably(descriptor, bytes([VERSION]) + check + encoded)
        # Held open over the change of names: what is only replaced may still be read.
        old = os.open(path, os.O_WRONLY) if path.exists() else None
        size = path.stat().st_size if old is not None else 0
        fresh.replace(path)
        sync_folder(self._folder)
        if old is not None:
            write_durably(old, bytes(size))

    def _path(self, session_id: bytes) -> Path:
        return self._folder / session_id.hex()

    def _check_open(self) -> None:
        if self._held is None:
            raise StoredStateError(f"the noise in {self._folder} is closed")


def noise_vector(
    field: PrimeField, length: int, added: AddedNoise, taken: AddedNoise | None
) -> FieldVector:
    """What a member uploads: what it adds, less what it takes back.

    A draw that goes too far wraps around, as the sum would: a refusal would depend on the noise.

    Args:
        added, taken: drawn from their seeds; None for nothing.
    """
    values = _drawn(added, length)
    if taken is not None:
        values -= _drawn(taken, length)
    half = field.largest_centred
    return lift((values + half) % field.modulus - half, field)


def _drawn(noise: AddedNoise, length: int) -> NDArray[np.int64]:
    """The draw that a seed stands for, int64[length]."""
    return sample_law(DiscreteGaussianLaw(noise.variance), NoiseSeed(noise.seed), length)


def _require_last(memory: _Memory, context: CommitteeContext) -> None:
    if memory.begun != context.round_number:
        valid = f"{memory.begun}, the last that was begun: rounds of a run follow one another"
        raise PolicyError("round_number", context.round_number, valid)
