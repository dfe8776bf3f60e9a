"""What a node keeps between two messages, in the state that Flower keeps for its app."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context

from protocol.adapters.flower.record import KEY

_STORED = "stored"


def take_stored(context: Context) -> bytes:
    """The round that is under way, sealed; empty if there is none.

    It is taken out: whatever happens next, a stored round is answered once.
    """
    record = context.state.pop(KEY, None)
    stored = record.get(_STORED) if isinstance(record, ConfigRecord) else None
    return stored if isinstance(stored, bytes) else b""


def keep_stored(context: Context, data: bytes) -> None:
    """Keep a round that is under way, in place of all else."""
    context.state[KEY] = ConfigRecord({_STORED: data})
