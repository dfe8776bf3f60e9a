"""Pure functions from released values to the size of the next sketch."""

from __future__ import annotations

from sketch.controllers.adapt_norm import AdaptNorm
from sketch.controllers.base import (
    Controller,
    ControllerState,
    Decision,
    Rationale,
    ReleasedStats,
)
from sketch.controllers.fixed import FixedRate

__all__ = [
    "AdaptNorm",
    "Controller",
    "ControllerState",
    "Decision",
    "FixedRate",
    "Rationale",
    "ReleasedStats",
]
