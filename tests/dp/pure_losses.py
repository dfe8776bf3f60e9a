"""The laws of pure releases from closed forms, and their privacy losses by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dp.events import AboveThresholdRelease, LaplaceRelease

# What is beyond weighs exp(-30): far below the tolerance of the ratios.
REACH = 30


def masses(scale: float, reach: int) -> np.ndarray:
    """P[z] for z = -reach .. reach, from the closed form."""
    q = math.exp(-1.0 / scale)
    return (1.0 - q) / (1.0 + q) * q ** np.abs(np.arange(-reach, reach + 1))


def survival(scale: float, x: np.ndarray) -> np.ndarray:
    """The exact probability P[Z > x]."""
    q = math.exp(-1.0 / scale)
    above = q ** (np.maximum(x, 0) + 1.0) / (1 + q)
    return np.where(x >= 0, above, 1.0 - q ** np.maximum(-x, 0).astype(float) / (1 + q))


def laplace_loss(event: LaplaceRelease) -> float:
    """The largest privacy loss over all outcomes and all changes within the sensitivity."""
    reach = 2 * event.sensitivity + 50
    worst = 0.0
    for shift in range(1, event.sensitivity + 1):
        p = masses(event.scale, reach)
        worst = max(worst, float(np.max(np.abs(np.log(p[shift:] / p[:-shift])))))
    return worst


def halting(event: AboveThresholdRelease, gaps: tuple[int, ...]) -> np.ndarray:
    """P[first "yes" at j] for each question and P[never], gaps being numbers less threshold."""
    reach = math.ceil(event.threshold_scale * REACH)
    z = np.arange(-reach, reach + 1)
    going = masses(event.threshold_scale, reach)
    found = []
    for gap in gaps:
        no = survival(event.query_scale, z - gap)
        found.append(float(np.sum(going * (1.0 - no))))
        going = going * no
    return np.array([*found, float(np.sum(going))])


def stream_loss(event: AboveThresholdRelease, questions: int = 4) -> float:
    """The largest privacy loss over a small domain of streams and all their neighbours."""
    s = event.sensitivity
    worst = 0.0
    for gaps in itertools.product((-4 * s, 0, 4 * s, 12 * s), repeat=questions):
        here = halting(event, gaps)
        for moves in itertools.product((-s, s), repeat=questions):
            there = halting(event, tuple(g + m for g, m in zip(gaps, moves, strict=True)))
            # Outcomes rarer than this lose digits to what was cut off the threshold's tail.
            seen = (here > 1e-9) & (there > 1e-9)
            worst = max(worst, float(np.max(np.abs(np.log(here[seen] / there[seen])))))
    return worst
