"""How the states of a kind of session become bytes: a table of fields for each protocol.

A state is a frozen dataclass; its name is that of its phase. The bytes are MessagePack, and hold
secrets: `secagg.storage` seals them. Nothing is read by a name that the bytes choose, except from
the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

FieldCodec = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]
"""What makes a plain value of a field, and what takes that and the round's context back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCodec:
    """The states of one kind of session."""

    role: bytes = b""
    states: tuple[type[Any], ...]
    fields: Mapping[str, FieldCodec]
    party: tuple[str, ...] = ()

    def encode(self, party: Any, state: Any) -> bytes:
        """The bytes of a state, and of what the party keeps with it."""
        content = [state.phase.name, self.to_plain(state)]
        if self.party:
            content.append(self._plain(party, self.party))
        return msgspec.msgpack.encode(content)

    def decode(self, content: bytes, party: Any) -> tuple[Any, Any]:
        """Inverse of `encode`: the party, with what was kept of it, and the state."""
        name, plain, *kept = msgspec.msgpack.decode(content, strict=True)
        (kind,) = (each for each in self.states if each.phase.name == name)
        state = self.from_plain(kind, plain, party.context)
        if kept:
            found = self._values(kept[0], self.party, party.context)
            party = dataclasses.replace(party, **found)
        return party, state

    def to_plain(self, value: Any) -> dict[str, Any]:
        """All fields of a dataclass, each by its codec."""
        return self._plain(value, tuple(value.__dataclass_fields__))

    def from_plain(self, kind: type[Any], plain: dict[str, Any], context: Any) -> Any:
        """Inverse of `to_plain`."""
        return kind(**self._values(plain, tuple(kind.__dataclass_fields__), context))

    def _plain(self, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self.fields[name][0](getattr(value, name)) for name in names}

    def _values(
        self, plain: dict[str, Any], names: tuple[str, ...], context: Any
    ) -> dict[str, Any]:
        return {name: self.fields[name][1](plain[name], context) for name in names}
