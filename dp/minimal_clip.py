"""The clip at which a noised gradient is least wrong, and how to follow it by released values.

A clip C shortens what is longer, and the noise grows with it: a mean of n vectors, noised with
standard deviation z C / n in each of d coordinates, is wrong by a bias that falls with C and a
variance d (z C / n)^2 that rises. With a the norm of a typical vector and b that of the mean of
all, before clipping, and s = z / n,

    error(C) = b^2 max(0, 1 - C / a)^2 + d s^2 C^2,        C* = a / (1 + d s^2 (a / b)^2).

For a single vector, a = b, this is the thesis's C* = |g| / (1 + d s^2).

A server may use released values only. The released mean tells b as far as the clip let it pass. It
tells a only from below, as no mean is longer than the longest of its members, and then clips by
that bound shrink for ever. So a has to come from elsewhere: a threshold that follows a quantile of
the norms by noisy counts (`next_threshold`). docs/clipping.md has the derivations and the biases.

Pure functions of released values: no randomness, no memory, and no privacy spent.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep Learning",
a thesis, Equations 3.5 to 3.7 and Appendix F; Andrew, Thakkar, McMahan and Ramaswamy 2021 (arXiv
1905.03871) for the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dp.checks import require_integer

LARGEST_RATE: Final = 10.0
"""Beyond, one count could move a threshold by more than four orders of magnitude."""


def least_error_clip(
    norm: float, dimension: int, noise_ratio: float, *, mean_norm: float | None = None
) -> float:
    """Return C*, the clip with the least expected squared l2 error, by the model above.

    Post: 0 <= result <= norm.

    Args:
        noise_ratio: s, standard deviation of the noise of the mean in a coordinate, over C.
        mean_norm: b, of the mean of the unclipped vectors, at most a; None for a, a single vector.
    """
    _check(norm, dimension, noise_ratio)
    mean = norm if mean_norm is None else _real("mean_norm", mean_norm, at_least=0.0, at_most=norm)
    if noise_ratio == 0.0:
        return norm
    return norm * shrinkage(mean / norm, dimension, noise_ratio) if norm > 0.0 else 0.0


def shrinkage(coherence: float, dimension: int, noise_ratio: float) -> float:
    """Return C* / a = r^2 / (r^2 + d s^2) with r = b / a: how much to shorten a typical vector.

    The shrinkage of an estimate with signal r^2 and noise d s^2, as of James and Stein.
    """
    _check(1.0, dimension, noise_ratio)
    signal = _real("coherence", coherence, at_least=0.0, at_most=1.0) ** 2
    noise = dimension * noise_ratio**2
    return signal / (signal + noise) if signal + noise > 0.0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedMean:
    """What a round released about the length of its mean.

    Args:
        noise_ratio: standard deviation of everything in a coordinate of x that is not signal, over
            C; above 0: a value without noise is no released value.
        dimension: coordinates of x: d, or the size of a sketch that keeps norms on average.
    """

    clip: float
    norm_squared: float
    noise_ratio: float
    dimension: int

    def __post_init__(self) -> None:
        _real("clip", self.clip, above=0.0)
        _real("norm_squared", self.norm_squared, at_least=0.0)
        _real("noise_ratio", self.noise_ratio, above=0.0)
        _check(1.0, self.dimension, self.noise_ratio)

    @property
    def coherence_squared(self) -> float:
        """Return an estimate without bias of |clipped mean|^2 / C^2, which may be negative."""
        return self.norm_squared / self.clip**2 - self.dimension * self.noise_ratio**2

    @property
    def coherence_variance(self) -> float:
        """Return the variance of that estimate for Gaussian noise, at the estimate itself."""
        noise = self.noise_ratio**2
        return 4.0 * noise * max(self.coherence_squared, 0.0) + 2.0 * self.dimension * noise**2


@dataclass(frozen=True, slots=True)
class ClipState:
    """What a controller remembers, all of it released or public.

    Args:
        memory: past estimates of the squared coherence, oldest first.
    """

    clip: float
    memory: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ClipDecision:
    """The clip of the next round.

    Args:
        numbers: the figures behind it, by name; treat as read-only.
    """

    state: ClipState
    wanted: float
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipController:
    """Next clip = C* of the typical norm and of the coherence that the last rounds released."""

    smallest: float
    largest: float
    step_factor: float = 1.5
    window: int = 5

    def __post_init__(self) -> None:
        _real("smallest", self.smallest, above=0.0)
        _real("largest", self.largest, at_least=self.smallest)
        _real("step_factor", self.step_factor, above=1.0)
        require_integer("window", self.window, 1)

    def initial(self, clip: float) -> ClipState:
        """Begin with a public clip within the limits."""
        return ClipState(_real("clip", clip, at_least=self.smallest, at_most=self.largest))

    def step(
        self, state: ClipState, released: ReleasedMean, typical_norm: float, dimension: int
    ) -> ClipDecision:
        """Choose the next clip.

        Args:
            typical_norm: a, a released estimate of the norm of a typical vector before clipping;
                above 0. `next_threshold` follows one.
        """
        if not isinstance(released, ReleasedMean):
            raise TypeError(f"released must be ReleasedMean, got {type(released).__name__}")
        if released.clip != state.clip:
            raise ValueError(f"released.clip must be {state.clip}, got {released.clip}")
        norm = _real("typical_norm", typical_norm, above=0.0)
        # What is longer than the clip was cut to it; what is shorter came whole.
        seen = released.coherence_squared * (state.clip / min(norm, state.clip)) ** 2
        memory = (*state.memory, seen)[-self.window :]
        # Clamped after averaging: clamping each would push the mean up where noise dominates.
        coherence = math.sqrt(min(max(math.fsum(memory) / len(memory), 0.0), 1.0))
        kept = shrinkage(coherence, dimension, released.noise_ratio)
        wanted = norm * kept
        stepped = min(max(wanted, state.clip / self.step_factor), state.clip * self.step_factor)
        clip = min(max(stepped, self.smallest), self.largest)
        numbers = {
            "typical_norm": norm,
            "coherence": coherence,
            "coherence_squared": seen,
            "coherence_std": math.sqrt(released.coherence_variance),
            "shrinkage": kept,
            "wanted": wanted,
            "clip": clip,
        }
        return ClipDecision(ClipState(clip, memory), wanted, numbers)


def next_threshold(
    threshold: float, share_below: float, *, quantile: float = 0.5, rate: float = 0.2
) -> float:
    """Return T exp(-rate (share - quantile)): a threshold that follows a quantile of the norms.

    Every client says whether the norm of its update, before the clip, is at most T, a public
    number that need not be the clip; what is released is the noised share of those who say yes.

    Args:
        quantile: that is followed, in (0, 1); 0.5 is the median.
    """
    _real("threshold", threshold, above=0.0)
    share = min(max(_real("share_below", share_below), 0.0), 1.0)
    aim = _real("quantile", quantile, above=0.0)
    if aim >= 1.0:
        raise ValueError(f"quantile must be below 1, got {quantile}")
    speed = _real("rate", rate, above=0.0, at_most=LARGEST_RATE)
    return threshold * math.exp(-speed * (share - aim))


def _check(norm: float, dimension: int, noise_ratio: float) -> None:
    """Refuse what is no norm, no dimension or no noise."""
    _real("norm", norm, at_least=0.0)
    require_integer("dimension", dimension, 1)
    _real("noise_ratio", noise_ratio, at_least=0.0)


def _real(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> float:
    """Return a finite number within its limits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    if not (math.isfinite(value) and value > above and at_least <= value <= at_most):
        limit = f"above {above}" if at_least == -math.inf else f"at least {at_least}"
        limit += "" if at_most == math.inf else f" and at most {at_most}"
        raise ValueError(f"{name} must be finite, {limit}, got {value}")
    return float(value)
