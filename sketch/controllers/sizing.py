"""What the controllers share: the first size, bounds on a size, words for a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sketch.controllers.base import (
    ControllerState,
    Decision,
    Prior,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.controllers.norm_belief import NormBelief
from sketch.error import size_for_error_ratio
from sketch.probed import Probe
from sketch.spec import SketchSpec, spec_for_size


def probe_of(released: ReleasedStats) -> ReleasedProbe:
    """What the second sketch showed."""
    if released.probe is None:
        raise ValueError("released must have a probe: the controller asked for a second sketch")
    return released.probe


FIRST_SHARE = 1.0
"""What the compression of the first round may add to the squared error of its noise, as a share of
it, whatever the updates are. It is one round of many, and its release measures the norm."""


def size_at_rate(dimension: int, rate: float) -> int:
    """The size d / rate, rounded down, at least 1."""
    return max(1, int(dimension / rate))


def whole_rows(wanted: float, rows: int, dimension: int) -> int:
    """The wanted size in rows of equal length, rounded up: down, its error would be too large."""
    # Less what floating point may have added to a whole number.
    columns = math.ceil(min(max(wanted / rows * (1.0 - 1e-9), 1.0), float(dimension)))
    return min(columns * rows, dimension)


def first_decision(
    dimension: int,
    first_rate: float | None,
    rows: int,
    prior: Prior | None,
    share: float = FIRST_SHARE,
    *,
    probe: Probe | None = None,
    memory: tuple[float, ...] = (),
) -> Decision:
    """The first shape: at the rate that is given, or of the size that the plan predicts."""
    numbers: dict[str, float] = {}
    if first_rate is not None:
        size, words = size_at_rate(dimension, first_rate), "The first rate is given."
    elif prior is None:
        size, words = dimension, "Nothing is known yet, and so nothing is compressed."
    else:
        noise, longest = float(prior.noise_variance), float(prior.norm_squared)
        wanted = size_for_error_ratio(longest, noise, max(share, FIRST_SHARE))
        size = whole_rows(wanted, rows, dimension)
        words = "The plan's clip and noise ask for this size at most."
        numbers = {"norm_squared": longest, "noise_variance": noise, "wanted_size": wanted}
    spec = spec_for_size(dimension, size, rows, probe)
    state = ControllerState(dimension, spec.main_size, memory=memory)
    return decision(state, spec, words, numbers)


def next_decision(
    released: ReleasedStats,
    spec: SketchSpec,
    words: str,
    numbers: Mapping[str, float],
    memory: tuple[float, ...] = (),
) -> Decision:
    """The shape that follows a release."""
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


@dataclass(frozen=True, slots=True)
class Arrival:
    """The next size by a belief: the least change that brings it between two sizes.

    A size between what the likeliest norm asks for and what the upper end of its interval asks for
    stays. A longer sketch is cut to the upper end, a shorter one grows to the likeliest size, both
    in one round and however far that is: the belief alone sets the pace.

    Args:
        numbers: the figures behind it.
    """

    wanted: float
    size: int
    words: str
    numbers: Mapping[str, float]


def arrive(
    belief: NormBelief,
    noise_variance: float,
    share: float,
    caution: float,
    state: ControllerState,
    rows: int,
) -> Arrival:
    """Find the next size.

    Args:
        noise_variance: sigma^2 per coordinate of the released mean.
        share: gamma: compression may add this share of the squared error of the noise.
        caution: standard deviations from the likeliest norm to the upper end of its interval.
    """
    noise = float(noise_variance)
    shortest = size_for_error_ratio(belief.likely, noise, share)
    longest = size_for_error_ratio(belief.upper(caution), noise, share)
    wanted, words = float(state.size), "The size lies within the interval of the norm: it stays."
    if wanted > longest:
        wanted, words = longest, "The norm is smaller: down to the upper end of its interval."
    elif wanted < shortest:
        wanted, words = shortest, "The norm is larger: up to its likeliest size at once."
    size = whole_rows(wanted, rows, state.dimension)
    numbers = {
        **belief.numbers(),
        "noise_variance": noise,
        "shortest": shortest,
        "longest": longest,
        "wanted_size": wanted,
    }
    return Arrival(wanted, size, words, numbers)


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
    """One sentence: what asked for this size, and whether it got it."""
    if wanted > size:
        return f"{cause} asks for a larger sketch than the clamps allow."
    if wanted < size - 1:
        return f"{cause} asks for a smaller sketch than the clamps allow."
    return f"{cause} asks for this size."
