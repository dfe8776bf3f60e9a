"""The refusal corpus: what a party makes of a changed message in an honest round, row by row.

A row puts a changed message in the place of an honest one. It says who gets it, what was changed,
and what must become of it: a refusal with its reason and who is blamed, or, on the other side of
every bound, that it is taken. Who was lost before is part of the round that the row goes on from.

Rows with a description are also files, which other implementations can play. All are played from
the tables by test_refusals.py in tests/secagg/pairwise and tests/secagg/oneshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import wire
from .schema import Error
from .script import SERVER, of_member, remote

Edit = Callable[[bytes], bytes]
OVER = "OVER"
"""In the place of a reason: the session has ended, and takes nothing."""


@dataclass(frozen=True)
class Edited:
    """The honest message with other fields.

    Args:
        edits: by field, what becomes of its bytes.
    """

    edits: Mapping[str, Edit]
    signed: bool = False


@dataclass(frozen=True)
class Row:
    """One changed message.

    Args:
        change: an `Edited`, or what makes the bytes from the honest round.
    """

    name: str
    at: str
    change: Edited | Callable[[Any], bytes]
    reason: str = ""
    by: int | None = None
    base: str = ""
    to: int = 0
    sender: int | None = None
    op: str = ""
    complains: tuple[int, ...] | None = None
    reply: str = "complaint"
    says: str = ""

    @property
    def side(self) -> str:
        """Who gets the message."""
        return self.name.partition("-")[0]

    def data(self, round_: Any) -> bytes:
        """The bytes that come in place of the honest message."""
        if not isinstance(self.change, Edited):
            return self.change(round_)
        number, fields = wire.fields_of(round_.named(self.at))
        for name, edit in self.change.edits.items():
            fields[name] = edit(fields[name])
        if not self.change.signed:
            return wire.message(number, *fields.values())
        made: bytes = round_.signed(number, **fields)
        return made

    def vector(self, round_: Any, base: str) -> dict[str, Any]:
        """The file, or what would be in it."""
        place, step = self._step(round_)
        messages = {"changed 0": self.data(round_)}
        if self.complains is not None:
            complaint = round_.complaints(self.to, wire.bitmap(self.complains, round_.n))
            messages = {self.reply: complaint, **messages}
            operations = [{**step, "data": "changed 0", "expect": self.reply}]
            if self.complains:
                messages["changed 1"] = round_.proposal()
                error = remote(SERVER, "SET_NOT_NESTED")
                operations.append({**step, "data": "changed 1", "error": error})
        else:
            operations = [{**step, "data": "changed 0"}]
            if self.reason:
                operations[0]["error"] = self._error(step)
                if self.sender is None and not self.op and self.at:
                    operations[0]["instead_of"] = self.at
        one_shot = "party" in step
        return {
            "description": self.says,
            "base": base,
            **({"role": self.side} if one_shot else {}),
            "party": SERVER if self.side == "server" else self.to,
            "steps": place,
            "messages": {name: each.hex() for name, each in messages.items()},
            "operations": operations,
            "success": False,
        }

    def _step(self, round_: Any) -> tuple[int, dict[str, Any]]:
        """The place in the honest round, and the step that is taken there."""
        key, events = round_.PARTY_KEY, list(round_.events())
        for place, event in enumerate(events):
            own = event.op.startswith(f"{self.side}_receive")
            if event.data == self.at and (self.op or own):
                if self.side == "server":
                    party = event.client if self.sender is None else self.sender
                    return place, {"op": self.op or event.op, key: party}
                if self.op or event.client == self.to:
                    return place, {"op": self.op or event.op, key: self.to}
        if self.at:
            raise AssertionError(f"{self.name}: nobody gets {self.at!r}")
        party = self.to if self.sender is None else self.sender
        return len(events), {"op": self.op or f"{self.side}_receive", key: party}

    def _error(self, step: Mapping[str, Any]) -> Error:
        if self.reason == OVER:
            return {"type": "SessionAbortedError"}
        party = step.get("party", step.get("client")) if self.side == "server" else SERVER
        of = of_member if step["op"] == "server_receive_from_member" else remote
        return of(party if self.by is None else self.by, self.reason)


def rows(table: Any) -> Iterator[Row]:
    """All rows of a module: those of the groups in its `TABLE`."""
    for group in table.TABLE:
        yield from group()


def files(table: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files of a module's rows that have a description, by name."""
    for row in rows(table):
        if row.says:
            base = row.base or table.DEFAULT
            yield row.name, row.vector(table.ROUNDS[base], base)


# -- changes ------------------------------------------------------------------------------------


def edited(**edits: Edit) -> Edited:
    """Fields changed on the way."""
    return Edited(edits)


def lied(**edits: Edit) -> Edited:
    """Fields changed by a sender that signs them."""
    return Edited(edits, signed=True)


def to(value: bytes) -> Edit:
    """Something else altogether."""
    return lambda _: value


def flip(at: int = 0) -> Edit:
    """The lowest bit of one byte flipped."""
    return lambda data: put(at, bytes([data[at] ^ 1]))(data)


def put(at: int, new: bytes) -> Edit:
    """Some bytes replaced; `at` counts from the end if it is negative."""

    def change(data: bytes) -> bytes:
        start = at % len(data) if data else 0
        return data[:start] + new + data[start + len(new) :]

    return change


def cut(count: int) -> Edit:
    """The last bytes are missing."""
    return lambda data: data[: max(len(data) - count, 0)]


def grow(count: int) -> Edit:
    """So many zeros too many."""
    return lambda data: data + bytes(count)


def exchange(size: int, first: int, second: int) -> Edit:
    """Two items of a list in one another's place."""

    def change(data: bytes) -> bytes:
        items = [data[i : i + size] for i in range(0, len(data), size)]
        items[first], items[second] = items[second], items[first]
        return b"".join(items)

    return change


def high_bit(data: bytes) -> bytes:
    """The highest bit of the last byte set."""
    return data[:-1] + bytes([data[-1] | 0x80])


def tag(value: bytes = b"\0" * 8) -> Edited:
    """The honest message under the tag of another context."""
    return Edited({"context": to(value)})
