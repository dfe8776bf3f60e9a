"""Local training of simulated clients."""

from __future__ import annotations

from simulations.training.batches import Batches, LocalTraining, draw_batches
from simulations.training.devices import require_device
from simulations.training.strategies import Strategy, chosen_strategy
from simulations.training.updates import default_chunk, local_updates, training_pool

__all__ = [
    "Batches",
    "LocalTraining",
    "Strategy",
    "chosen_strategy",
    "default_chunk",
    "draw_batches",
    "local_updates",
    "require_device",
    "training_pool",
]
