"""Pure functions from released values to the size of the next sketch.

A controller explains the options that mean something special to it; `sketch.controllers.options`
says of every option what it means and where it may lie.
"""

from __future__ import annotations

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
from sketch.controllers.by_norm import (
    AdaptBudget,
    AdaptNorm,
    AdaptNormTwoSketches,
    Published,
    TwoStage,
)
from sketch.controllers.fixed import FixedRate

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
