"""Local training of simulated clients.

What trains is imported when it is used, so that a configuration can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from simulations.learning.training.batches import (
    Batches,
    ClientStreams,
    LocalTraining,
    draw_batches,
)

if TYPE_CHECKING:
    from simulations.learning.training.devices import require_device
    from simulations.learning.training.strategies import Strategy, chosen_strategy
    from simulations.learning.training.updates import (
        chunks_of,
        default_chunk,
        local_updates,
        training_pool,
    )

__all__ = [
    "Batches",
    "ClientStreams",
    "LocalTraining",
    "Strategy",
    "chosen_strategy",
    "chunks_of",
    "default_chunk",
    "draw_batches",
    "local_updates",
    "require_device",
    "training_pool",
]

_HOMES: Final = {
    "Strategy": "strategies",
    "chosen_strategy": "strategies",
    "chunks_of": "updates",
    "default_chunk": "updates",
    "local_updates": "updates",
    "require_device": "devices",
    "training_pool": "updates",
}

if not TYPE_CHECKING:  # else any name would pass for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
