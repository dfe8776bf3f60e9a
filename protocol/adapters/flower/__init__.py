"""veilsum on Flower's Message API: a mod for clients, a grid for the server.

    app = ClientApp(mods=[secure_mod])

    with SecureGrid.from_context(grid, context, strategy) as secure:
        strategy.start(grid=secure, initial_arrays=arrays, num_rounds=5)

Needs flwr >= 1.32, the extra `flower`. How to use it: docs/integrations/flower.md.
"""

from protocol.adapters.flower.carrier import Patience
from protocol.adapters.flower.client import secure_mod
from protocol.adapters.flower.errors import (
    AmbiguousMessageError,
    RoundLostError,
    SettingsError,
    StrategyError,
    TooFewNodesError,
)
from protocol.adapters.flower.grid import SecureGrid
from protocol.adapters.flower.protection import protect
from protocol.adapters.flower.rounds import RoundReport
from protocol.errors import TrainingFailedError

__all__ = [
    "AmbiguousMessageError",
    "Patience",
    "RoundLostError",
    "RoundReport",
    "SecureGrid",
    "SettingsError",
    "StrategyError",
    "TooFewNodesError",
    "TrainingFailedError",
    "protect",
    "secure_mod",
]
