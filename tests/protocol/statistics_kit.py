"""Clients with tables, whose sums have no noise or Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protocol.statistics.answers import Answer
from protocol.statistics.survey import Survey


def total(survey: Survey, tables: Sequence[Mapping[str, Any]], seed: int = 0) -> np.ndarray:
    """The sum of all clients, without noise: float64[length]. Tokens and rounding have a seed."""
    rand = np.random.default_rng(seed).bytes
    return np.sum([survey.encode(table, rand) for table in tables], axis=0, dtype=np.float64)


def exact(survey: Survey, tables: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """What a sum without noise says."""
    return survey.answers(total(survey, tables), 1e-9, len(tables))


def people(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Clients of some ages and towns, with labels and scores."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    return [
        {
            "age": float(np.clip(rng.normal(45, 15), 0, 99.9)),
            "town": str(rng.choice(["a", "b", "c"], p=[0.5, 0.3, 0.2])),
            "label": int(label),
            "score": float(np.clip(0.3 + 0.3 * label + rng.normal(0, 0.2), 0, 1)),
        }
        for label in labels
    ]
