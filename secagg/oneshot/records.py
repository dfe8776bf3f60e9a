"""Members that upload as well, and the records of what was signed in their run.

Where members of a standing committee add vectors of their own, of which they take a part off again
in the next round, everybody has to know what came of the rounds before. A record says of one round
whose uploads were to be opened, and which of them took something back. All records so far are part
of the next round's context, as a chain of hashes, and a member joins no round whose chain lacks
what it signed. So records that lie end with a round that nobody opens
(docs/correlated-rounds.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from secagg.checks import require_int, require_ints
from secagg.errors import ParameterError
from secagg.framing import decode_set, encode_set
from secagg.merkle import HASH_BYTES
from secagg.tags import Usage, digest

MAX_RECORDS = 1 << 16
"""Bound on the rounds of a run, so that a hostile context cannot make anybody hash for ever."""

_NUMBERS = 12
"""Bytes of a record beside its two sets."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What the set of uploads that members were asked to sign says of one round.

    Attributes:
        round_number: of the round.
        clients: how many clients' uploads are in the set.
        entered: members whose uploads are, ascending, by index in the committee.
        returned: those of them that say that they take back what they added in the round of the
            record before, which lists them as well.
    """

    round_number: int
    clients: int
    entered: tuple[int, ...]
    returned: tuple[int, ...]

    def encode(self, members: int) -> bytes:
        """As many bytes for every record of a committee of so many members."""
        numbers = self.round_number.to_bytes(8, "little") + self.clients.to_bytes(4, "little")
        return numbers + encode_set(self.entered, members) + encode_set(self.returned, members)

    @classmethod
    def decode(cls, encoded: bytes, members: int) -> RoundRecord:
        """Inverse of `encode`; ValueError if it is none."""
        size = (members + 7) // 8
        if len(encoded) != _NUMBERS + 2 * size:
            raise ValueError(f"a record of {len(encoded)} bytes for {members} members")
        return cls(
            int.from_bytes(encoded[:8], "little"),
            int.from_bytes(encoded[8:_NUMBERS], "little"),
            decode_set(encoded[_NUMBERS : _NUMBERS + size], members),
            decode_set(encoded[_NUMBERS + size :], members),
        )


def _is_written(record: object, members: int) -> bool:
    """Whether a record is one that `RoundRecord.decode` gives: its sets are in order, say."""
    if not isinstance(record, RoundRecord):
        return False
    numbers = type(record.round_number) is int and type(record.clients) is int
    return numbers and all(
        all(type(each) is int and 0 <= each < members for each in found)
        and tuple(sorted(set(found))) == found
        for found in (record.entered, record.returned)
    )


def encode_records(records: Iterable[RoundRecord], members: int) -> bytes:
    """All records, one after the other."""
    return b"".join(record.encode(members) for record in records)


def decode_records(encoded: bytes, members: int) -> tuple[RoundRecord, ...]:
    """Inverse of `encode_records`; ValueError if they are none."""
    size = _NUMBERS + 2 * ((members + 7) // 8)
    if len(encoded) % size or len(encoded) > MAX_RECORDS * size:
        raise ValueError(f"{len(encoded)} bytes are no list of records for {members} members")
    cuts = range(0, len(encoded), size)
    return tuple(RoundRecord.decode(encoded[cut : cut + size], members) for cut in cuts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUploads:
    """The terms of a round in which the members of a named committee upload as well.

    Their uploads follow the clients' in the cohort, in the committee's order.

    Args:
        block: 32-byte hash of everything that the application keeps the same over the run.
    """

    fewest: int
    returning: bool
    fewest_returning: int
    block: bytes
    records: tuple[RoundRecord, ...] = ()

    def check(self, size: int, corrupt: int, clients: range, round_number: int) -> None:
        """See that the terms fit a committee, and its records one another."""
        require_ints(self, "fewest", "fewest_returning")
        require_int("fewest", self.fewest, fewest_members(size, corrupt), size, " members")
        if type(self.block) is not bytes or len(self.block) != HASH_BYTES:
            raise ParameterError("block", "of another kind", f"{HASH_BYTES} bytes")
        if type(self.records) is not tuple or len(self.records) > MAX_RECORDS:
            raise ParameterError("records", "of another kind", f"a tuple of at most {MAX_RECORDS}")
        if type(self.returning) is not bool:
            raise ParameterError("returning", self.returning, "a bool")
        if not all(_is_written(record, size) for record in self.records):
            raise ParameterError("records", "of another kind", f"records of {size} members")
        most = len(self.records[-1].entered) if self.records and self.returning else 0
        of = ": so many added something in the round before"
        require_int("fewest_returning", self.fewest_returning, 0, most, of)
        last, entered = -1, frozenset[int]()
        for record in self.records:
            sound = (
                last < record.round_number < round_number
                and record.clients in clients
                and self.fewest <= len(record.entered)
                and entered.issuperset(record.returned)
                and set(record.returned) <= set(record.entered)
            )
            if not sound:
                valid = f"those of earlier rounds, ascending, with {self.fewest} members or more"
                raise ParameterError("records", f"round {record.round_number}'s", valid)
            last, entered = record.round_number, frozenset(record.entered)

    def heads(self, beginning: bytes, members: int) -> tuple[bytes, ...]:
        """Hashes of the records so far: of none, of the first, of the first two, ..."""

        def follow(head: bytes, record: RoundRecord) -> bytes:
            return next_head(head, record, members)

        return tuple(accumulate(self.records, follow, initial=beginning))


def next_head(head: bytes, record: RoundRecord, members: int) -> bytes:
    """The hash of a run's records with one more."""
    return digest(Usage.RECORDS, head, record.encode(members))


def fewest_members(size: int, corrupt: int) -> int:
    """Smallest `MemberUploads.fewest`: an honest majority of all, and more than 2c."""
    return max((size + corrupt) // 2, 2 * corrupt) + 1
