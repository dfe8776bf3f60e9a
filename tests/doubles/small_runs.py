"""The smallest configuration that the tests of runs share; each adds what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SMALL: Final[Mapping[str, Any]] = {
    "seed": 3,
    "rounds": 4,
    "task": {"population": 30, "hidden": 6, "minimum_examples": 3},
    "local": {"learning_rate": 0.3, "steps": 2, "batch_size": 8},
    "server": {"learning_rate": 2.0},
    "privacy": {"epsilon": 30.0, "delta": 1e-5, "clip_l2": 0.25},
    "cohort": {"size": 10, "tolerated_dropouts": 2, "tolerated_colluders": 1},
    "sketch": {"gamma": 0.1},
    "faults": {"dropout": 0.1},
}
