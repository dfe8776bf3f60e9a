"""What the controllers share: norm estimates, bounds on a size, words for a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sketch import _checks
from sketch.controllers.base import (
    ControllerState,
    Decision,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.hashing import MAX_ROWS
from sketch.probed import Probe
from sketch.spec import SketchSpec, spec_for_size

SMALLEST_PROBE = 64
"""Below, the hashes alone make a squared norm uncertain by more than sqrt(2 / 64) = 18 %."""

LARGEST_PROBE = 2048
"""About the largest second sketch of the paper's tables; 0.2 % of a million coordinates."""


def check_common(*, rows: int, first_rate: float, step_factor: float) -> None:
    """Check the parameters that every tuning controller has.

    Args:
        rows: number R of rows of the sketch.
        first_rate: compression rate d / L of the first round, at least 1; 1 sends it uncompressed.
        step_factor: largest factor by which the size may change in one round, above 1.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.
    """
    _checks.integer("rows", rows, 1, MAX_ROWS)
    _checks.real("first_rate", first_rate, 1.0)
    _checks.real("step_factor", step_factor, 1.0, open_low=True)


def check_probe(size: int, share: float) -> None:
    """Check the parameters of a second sketch.

    Args:
        size: number L2 of its buckets, 64 .. 2048.
        share: its share of the budget, strictly between 0 and 1.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.
    """
    _checks.integer("probe_size", size, SMALLEST_PROBE, LARGEST_PROBE)
    if _checks.real("probe_share", share, 0.0, 1.0, open_low=True) == 1.0:
        raise ValueError(
            "probe_share must be below 1: otherwise nothing is left for the first sketch"
        )


def probe_of(released: ReleasedStats) -> ReleasedProbe:
    """What the second sketch showed.

    Raises:
        ValueError: the round had none.
    """
    if released.probe is None:
        raise ValueError("released must have a probe: the controller asked for a second sketch")
    return released.probe


def size_at_rate(dimension: int, rate: float) -> int:
    """The size d / rate, rounded down, at least 1."""
    return max(1, int(dimension / rate))


def first_decision(
    dimension: int,
    first_rate: float,
    rows: int,
    *,
    probe: Probe | None = None,
    memory: tuple[float, ...] = (),
) -> Decision:
    """The first shape of a controller that is given the rate of the first round.

    Args:
        dimension: number d of coordinates of an update.
        first_rate: compression rate of the first sketch.
        rows: number R of its rows.
        probe: the second sketch, if the controller has one.
        memory: what the controller begins with.
    """
    spec = spec_for_size(dimension, size_at_rate(dimension, first_rate), rows, probe)
    state = ControllerState(dimension, spec.main_size, memory=memory)
    return decision(state, spec, "The first rate is given.", {})


def next_decision(
    released: ReleasedStats,
    spec: SketchSpec,
    words: str,
    numbers: Mapping[str, float],
    memory: tuple[float, ...] = (),
) -> Decision:
    """The shape that follows a release.

    Args:
        released: what was just taken in.
        spec: the shape.
        words: why, as one sentence.
        numbers: the figures behind it, without the sizes.
        memory: what the controller keeps.
    """
    state = ControllerState(spec.dimension, spec.main_size, released.round_number, memory)
    return decision(state, spec, words, numbers)


def decision(
    state: ControllerState, spec: SketchSpec, words: str, numbers: Mapping[str, float]
) -> Decision:
    """A decision whose figures end with the sizes that were decided on."""
    sizes = {"size": float(spec.main_size)}
    if spec.probe is not None:
        sizes["probe_size"] = float(spec.probe.size)
    return Decision(state, spec, Rationale(words, {**numbers, **sizes}))


def norm_estimate(released: ReleasedStats) -> float:
    """|nu|^2 - L sigma^2: an estimate of |mu|^2 without bias, which may be negative."""
    return released.sketch_norm_squared - released.size * released.noise_variance


def average(estimates: tuple[float, ...]) -> float:
    """The mean of estimates, clamped at zero afterwards.

    Clamping each before would push the mean, and with it the size, upward whenever noise dominates.
    """
    return max(math.fsum(estimates) / len(estimates), 0.0)


def clamp_size(wanted: float, state: ControllerState, rows: int, step_factor: float) -> int:
    """The wanted size within one step of the last, and within the rows and the dimension."""
    stepped = min(max(wanted, state.size / step_factor), state.size * step_factor)
    return math.ceil(min(max(stepped, float(rows)), float(state.dimension)))


def clamp_words(cause: str, wanted: float, size: int) -> str:
    """One sentence: what asked for this size, and whether it got it.

    Args:
        cause: the subject of the sentence.
        wanted: the size before the clamps.
        size: the size after.
    """
    if wanted > size:
        return f"{cause} asks for a larger sketch than the clamps allow."
    if wanted < size - 1:
        return f"{cause} asks for a smaller sketch than the clamps allow."
    return f"{cause} asks for this size."
