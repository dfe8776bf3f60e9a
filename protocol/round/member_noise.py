"""What a member of a standing committee remembers of the noise that it added.

A member adds noise to every round and takes that of the round before off again. Three things would
undo what this promises: noise that goes in twice, noise that is taken back twice, and rounds that
run beside one another. So a member remembers the last round that it began, what it signed last, and
one seed at most; and it forgets the seed before anything is made of it.

Source: docs/correlated-rounds.md.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from dp.sampling import DiscreteGaussianLaw, sample_law
from protocol.errors import PolicyError
from protocol.round.turns import Turns
from secagg import FieldVector, LocalProtocolError, PrimeField, lift
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.records import RoundRecord
from secagg.storage import StoredStateError, sync_folder, write_durably

VERSION = 1


class AddedNoise(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Noise that may be taken back: where it went in, and how it is drawn again.

    Args:
        round_number: of the round that it went into.
        variance: parameter of its law.
        seed: 32 secret bytes.
    """

    round_number: int
    variance: float
    seed: bytes

    def __repr__(self) -> str:
        return f"AddedNoise(round_number={self.round_number}, variance={self.variance})"


class _Memory(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that a member remembers of one run.

    Args:
        begun: number of the last round that it began; -1 for none.
        signed: how many records the run had after the last one that the member signed.
        head: their hash; empty for none.
        added: what it may take back; None for nothing.
    """

    begun: int = -1
    signed: int = 0
    head: bytes = b""
    added: AddedNoise | None = None


class MemberNoise:
    """The noise of one member over all its runs, one for each session.

    Pass the same object to every round. Threads may share it; it is neither copied nor pickled.
    """

    def __init__(self) -> None:
        self._memories: dict[bytes, _Memory] = {}
        self._lock = Turns("a member's noise")
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: two memories would take the same noise back twice."""
        raise TypeError("a member's noise cannot be copied or pickled: it comes back only once")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._process != os.getpid():
            raise LocalProtocolError(
                "a member's noise cannot be used in a process that was forked after it was made"
            )
        with self._lock:
            yield

    def begin(self, context: OneShotContext) -> None:
        """Begin a round; all earlier ones of the run are over for this member.

        Raises:
            PolicyError: it is no later round than the last, or its records lack what was signed.
        """
        with self._alone():
            memory = self._read(context.session_id)
            if context.round_number <= memory.begun:
                valid = f"above {memory.begun}: rounds of a run follow one another"
                raise PolicyError("round_number", context.round_number, valid)
            heads = context.heads
            if memory.head and memory.head not in heads[memory.signed : memory.signed + 1]:
                raise PolicyError(
                    "records",
                    f"{len(heads) - 1} rounds, without what this member signed for",
                    f"lists whose first {memory.signed} records are those that it knows",
                )
            changed = msgspec.structs.replace(memory, begun=context.round_number)
            self._write(context.session_id, changed)

    def require_current(self, context: OneShotContext) -> None:
        """See that no later round was begun.

        Raises:
            PolicyError: one was.
        """
        with self._alone():
            _require_last(self._read(context.session_id), context)

    def take_back(self, context: OneShotContext, member: int) -> AddedNoise | None:
        """What this member takes back in a round that it has begun; forgotten before it is given.

        That is what it added in the round of the last record, if that says so.

        Args:
            member: its index in the committee.
        """
        with self._alone():
            memory = self._read(context.session_id)
            added = memory.added
            if added is None:
                return None
            self._write(context.session_id, msgspec.structs.replace(memory, added=None))
        records = context.member_uploads.records if context.member_uploads else ()
        last = records[-1] if records else None
        known = last is not None and last.round_number == added.round_number
        return added if known and last is not None and member in last.entered else None

    def add(self, context: OneShotContext, variance: float, seed: NoiseSeed) -> AddedNoise:
        """Remember what is added in a round, before it leaves.

        Args:
            variance: parameter of its law.
            seed: that it is drawn from.

        Raises:
            LocalProtocolError: something is remembered for the run: noise goes in once a round.
        """
        with self._alone():
            memory = self._read(context.session_id)
            if memory.added is not None or memory.begun != context.round_number:
                raise LocalProtocolError("noise goes into a round once, when the round has begun")
            added = AddedNoise(context.round_number, variance, seed.material)
            self._write(context.session_id, msgspec.structs.replace(memory, added=added))
            return added

    def sign(self, context: OneShotContext, record: RoundRecord) -> None:
        """Remember what is signed for, before the signature leaves.

        Raises:
            PolicyError: a later round was begun.
        """
        with self._alone():
            memory = self._read(context.session_id)
            _require_last(memory, context)
            signed = len(context.heads)
            changed = msgspec.structs.replace(
                memory, signed=signed, head=context.head_after(record)
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

    Args:
        folder: made if it does not exist; one for each identity.

    Raises:
        StoredStateError: another process has it open.
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
        try:
            if data[:1] != bytes([VERSION]):
                raise StoredStateError("what a member remembers of its noise has another version")
            return msgspec.msgpack.decode(memoryview(data)[1:], type=_Memory)
        except msgspec.MsgspecError as error:
            message = f"what a member remembers of its noise is damaged: {error}"
            raise StoredStateError(message) from None

    def _write(self, session_id: bytes, memory: _Memory) -> None:
        self._check_open()
        path = self._path(session_id)
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        write_durably(descriptor, bytes([VERSION]) + msgspec.msgpack.encode(memory))
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
        field: of the round.
        length: L, of its vectors.
        added, taken: drawn from their seeds; None for nothing.
    """
    values = _drawn(added, length)
    if taken is not None:
        values -= _drawn(taken, length)
    half = field.largest_centred
    return lift((values + half) % field.modulus - half, field)


def _drawn(noise: AddedNoise, length: int) -> NDArray[np.int64]:
    """int64[length]."""
    return sample_law(DiscreteGaussianLaw(noise.variance), NoiseSeed(noise.seed), length)


def _require_last(memory: _Memory, context: OneShotContext) -> None:
    if memory.begun != context.round_number:
        valid = f"{memory.begun}, the last that was begun: rounds of a run follow one another"
        raise PolicyError("round_number", context.round_number, valid)
