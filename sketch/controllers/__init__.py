"""Pure functions from released values to the size of the next sketch."""

from __future__ import annotations

from sketch.controllers.adapt_budget import AdaptBudget
from sketch.controllers.adapt_norm import AdaptNorm
from sketch.controllers.adapt_progress import AdaptProgress
from sketch.controllers.adapt_tail import AdaptTail
from sketch.controllers.base import (
    Controller,
    ControllerState,
    Decision,
    Prior,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.controllers.fixed import FixedRate
from sketch.controllers.published import Published
from sketch.controllers.two_sketches import AdaptNormTwoSketches
from sketch.controllers.two_stage import TwoStage

__all__ = [
    "AdaptBudget",
    "AdaptNorm",
    "AdaptNormTwoSketches",
    "AdaptProgress",
    "AdaptTail",
    "Controller",
    "ControllerState",
    "Decision",
    "FixedRate",
    "Prior",
    "Published",
    "Rationale",
    "ReleasedProbe",
    "ReleasedStats",
    "TwoStage",
]
