"""Local training of simulated clients."""

from __future__ import annotations

from simulations.learning.training.batches import Batches, LocalTraining, draw_batches
from simulations.learning.training.devices import require_device
from simulations.learning.training.strategies import Strategy, chosen_strategy
from simulations.learning.training.updates import default_chunk, local_updates, training_pool

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
