"""What a node keeps between two messages, in the state that Flower keeps for its app."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context

from protocol.adapters.flower.record import KEY

STORED, RECEIPT = "stored", "receipt"
"""A round that is under way, sealed; and which upload of the last one-shot round is ours."""


def take_stored(context: Context, name: str = STORED) -> bytes:
    """What we have kept under a name, empty if that is nothing.

    All is taken out: whatever happens next, a stored round is answered once.
    """
    record = context.state.pop(KEY, None)
    stored = record.get(name) if isinstance(record, ConfigRecord) else None
    return stored if isinstance(stored, bytes) else b""


def keep_stored(context: Context, name: str, data: bytes) -> None:
    """Keep bytes under a name, in place of all else."""
    context.state[KEY] = ConfigRecord({name: data})
