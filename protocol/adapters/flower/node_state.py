"""What a node keeps between two messages, in the state that Flower keeps for its app."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, Context

from protocol.adapters.flower.record import KEY

_STORED = "stored"


@dataclass(frozen=True, slots=True)
class NodeShelf:
    """As `Shelf` says; the state of a run that is over is dropped by Flower."""

    context: Context

    def read(self) -> bytes:
        """As `Shelf.read` says."""
        record = self.context.state.get(KEY)
        stored = record.get(_STORED) if isinstance(record, ConfigRecord) else None
        return stored if isinstance(stored, bytes) else b""

    def drop(self) -> None:
        """As `Shelf.drop` says."""
        self.context.state.pop(KEY, None)

    def keep(self, state: bytes) -> None:
        """As `Shelf.keep` says."""
        self.context.state[KEY] = ConfigRecord({_STORED: state})
