"""Pure functions from released values to the size of the next sketch."""

from __future__ import annotations

from sketch.controllers.adapt_norm import AdaptNorm
from sketch.controllers.base import (
    Controller,
    ControllerState,
    Decision,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.controllers.fixed import FixedRate
from sketch.controllers.release import released_stats

__all__ = [
    "AdaptNorm",
    "Controller",
    "ControllerState",
    "Decision",
    "FixedRate",
    "Rationale",
    "ReleasedProbe",
    "ReleasedStats",
    "released_stats",
]
