"""A private Flower app in a few lines: `protect`, once for the client, once for the server.

    app = ClientApp(mods=[protect()])

    result = strategy.start(
        grid=protect(grid, context, strategy, epsilon=8.0, clip_l2=1.0), ...
    )

Needs the extra flower. More is in `protocol.adapters.flower`.
"""

from __future__ import annotations

from veilsum.extras import install_command

try:
    from protocol.adapters.flower import (
        RoundLostError,
        SettingsError,
        StrategyError,
        TooFewNodesError,
        protect,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flwr":
        raise
    remedy = f"which comes with the extra flower: {install_command('flower')}"
    raise ModuleNotFoundError(f"veilsum.flower needs Flower, {remedy}", name=error.name) from error

__all__ = [
    "RoundLostError",
    "SettingsError",
    "StrategyError",
    "TooFewNodesError",
    "protect",
]
