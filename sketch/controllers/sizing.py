"""What the controllers share: norm estimates, bounds on a size, words for a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sketch.controllers.base import (
    ControllerState,
    Decision,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.probed import Probe
from sketch.spec import SketchSpec, spec_for_size


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
