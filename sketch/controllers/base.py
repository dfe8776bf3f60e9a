"""What a controller is: a pure function from released values to the size of the next sketch.

A controller spends no privacy, because it sees nothing that was not released: `ReleasedStats`
holds scalars of a noisy sum only, refuses to exist without noise, and is the only way in. There is
no clock, no randomness and no memory but the state that each step returns, so a run can be replayed
from its ledger.

Source: post-processing, Dwork and Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from sketch import _checks
from sketch.spec import SketchSpec

LARGEST_SQUARE: Final = 1e140
"""Of a norm; one over it is the least variance of noise. Beliefs hold the squares of both, which
must be numbers too: a controller must not fail in a round that has been paid for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What a plan knows before the first release.

    Args:
        norm_squared: C^2, the clip of an update squared: no mean of clipped updates is longer.
        noise_variance: planned variance per coordinate of the released mean; `LARGEST_SQUARE` is
            the limit of both, and of one over the variance.
    """

    norm_squared: float
    noise_variance: float

    def __post_init__(self) -> None:
        _checks.real("norm_squared", self.norm_squared, 0.0, LARGEST_SQUARE)
        _checks.real("noise_variance", self.noise_variance, 1.0 / LARGEST_SQUARE, LARGEST_SQUARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedProbe:
    """What the world knows of the second sketch of a round that had one.

    Args:
        size: number L2 of its coordinates.
        norm_squared: |nu2|_2^2 of the RELEASED mean of second sketches, noise included.
        noise_variance: total variance per coordinate of nu2 that is not signal; above 0.
        error_squared: |S2 U(nu) - nu2|_2^2: how far the decoded update is from the truth, as the
            second sketch sees it. Its mean is |U(nu) - mu|^2 + L2 noise_variance.
    """

    size: int
    norm_squared: float
    noise_variance: float
    error_squared: float

    def __post_init__(self) -> None:
        _checks.integer("size", self.size, 1)
        _checks.real("norm_squared", self.norm_squared, 0.0)
        _checks.real("noise_variance", self.noise_variance, 0.0, open_low=True)
        _checks.real("error_squared", self.error_squared, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedStats:
    """What the world knows after a round; nothing in it is finer than the released noisy mean.

    Args:
        round_number: the round that was released, from 0.
        dimension: number d of coordinates of an update.
        size: number L of coordinates of the released mean sketch, without the second one.
        sketch_norm_squared: |nu|_2^2 of the RELEASED mean sketch nu, noise included.
        noise_variance: total variance per coordinate of nu that is not signal, rounding included,
            in the units of nu squared. Above 0: a value without noise is not a released value.
        survivors: number of clients in the sum.
        update_norm_squared: |U(nu)|_2^2 of the decoded update.
        previous_inner: inner product of the decoded update with that of the release before; None
            in the first round. Noise and hashes of the two are independent.
        probe: of the second sketch; None in rounds without.
    """

    round_number: int
    dimension: int
    size: int
    sketch_norm_squared: float
    noise_variance: float
    survivors: int
    update_norm_squared: float
    previous_inner: float | None = None
    probe: ReleasedProbe | None = None

    def __post_init__(self) -> None:
        _checks.integer("round_number", self.round_number, 0)
        _checks.integer("dimension", self.dimension, 1)
        _checks.integer("size", self.size, 1, self.dimension)
        _checks.real("sketch_norm_squared", self.sketch_norm_squared, 0.0)
        _checks.real("noise_variance", self.noise_variance, 0.0, open_low=True)
        _checks.integer("survivors", self.survivors, 1)
        _checks.real("update_norm_squared", self.update_norm_squared, 0.0)
        if self.previous_inner is not None:
            _checks.real("previous_inner", self.previous_inner, -math.inf)
        if self.probe is not None and not isinstance(self.probe, ReleasedProbe):
            raise TypeError(f"probe must be ReleasedProbe, not {type(self.probe).__name__}")


@dataclass(frozen=True, slots=True)
class ControllerState:
    """All that a controller remembers between rounds; public, and small enough for a checkpoint.

    Args:
        dimension: number d of coordinates of an update.
        size: size L of the sketch that was last decided on.
        last_round: the last round that was taken in, -1 before the first.
        memory: past released figures, oldest first; what they are is the controller's own matter.
    """

    dimension: int
    size: int
    last_round: int = -1
    memory: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rationale:
    """Why a size was chosen, for the record of a run.

    Args:
        words: one sentence.
        numbers: the figures behind it by name; treat as read-only.
    """

    words: str
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """The shape of the next round's compression.

    Args:
        state: what to hand to the next step.
        spec: the shape, to be announced before the seed is drawn.
        rationale: why.
    """

    state: ControllerState
    spec: SketchSpec
    rationale: Rationale


@runtime_checkable
class Controller(Protocol):
    """Chooses the size of each round's sketch from released values. Both methods are pure."""

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The shape of the first round, before anything was released.

        Args:
            dimension: number d of coordinates of an update.
            prior: what the plan of the run knows; None if there is no plan.
        """
        ...

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The shape of the next round, given the state of the last decision and its release."""
        ...


def check_step(state: ControllerState, released: ReleasedStats) -> None:
    """Refuse anything but the release of the round that `state` decided on.

    Rounds may be missing (they failed and released nothing) but never come twice.
    """
    if not isinstance(state, ControllerState):
        raise TypeError(f"state must be a ControllerState, not {type(state).__name__}")
    if not isinstance(released, ReleasedStats):
        raise TypeError(f"released must be ReleasedStats, not {type(released).__name__}")
    decided = (state.dimension, state.size)
    if (released.dimension, released.size) != decided:
        got = (released.dimension, released.size)
        raise ValueError(f"released must have dimension and size {decided}, not {got}")
    if released.round_number <= state.last_round:
        raise ValueError(
            f"released round must be after {state.last_round}, not {released.round_number}"
        )
