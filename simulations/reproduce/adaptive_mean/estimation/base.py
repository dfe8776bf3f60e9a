"""What a mean estimation is: the task, what a form of privacy offers, and what comes out.

An algorithm decides on sketch sizes; a `NoisyMeans` turns a decided size into a release. There are
two: `CentralMeans`, the published form, in which a trusted server sees exact sums and adds the
noise, and `DistributedMeans`, in which every sum carries the clients' own noise before anybody sees
it. An algorithm is written once and runs on both.

Source: arXiv 2307.10999, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp import Event
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from secagg import ParameterError
from sketch import Probe, SketchSpec
from sketch.controllers import Rationale

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanTask:
    """Whose mean is wanted.

    Args:
        dimension: d, coordinates of a vector, at least 2.
        clients: n, at least 2; all of them take part in every round.
        clip_l2: G; longer vectors are clipped to it, by the clients themselves.
        updates: gives the vector of a client by its index, float32|float64[d], in every round the
            same.

    Raises:
        ParameterError: names the argument, its value and what would be valid.
    """

    dimension: int
    clients: int
    clip_l2: float
    updates: Callable[[int], NDArray[Any]]

    def __post_init__(self) -> None:
        for name in ("dimension", "clients"):
            value = getattr(self, name)
            if type(value) is not int or value < 2:
                raise ParameterError(name, value, "an int of at least 2")
        if not MIN_L2_BOUND <= self.clip_l2 <= MAX_L2_BOUND:
            valid = f"in {MIN_L2_BOUND:g} .. {MAX_L2_BOUND:g}"
            raise ParameterError("clip_l2", self.clip_l2, valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """One noisy mean.

    Attributes:
        update: float64[d], decoded.
        spec: of everything that clients sent for it.
        sent: coordinates that each client sent.
        noise_variance: per coordinate of the mean sketch that was decoded, in squared units of a
            vector.
        event: what it has to be accounted as.
    """

    update: Floats
    spec: SketchSpec
    sent: int
    noise_variance: float
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NormReading:
    """What is known of the length of the mean.

    Attributes:
        value: the estimate n_hat, at least 0.
        slack: n_hat + slack is at least the length of the sketched mean, but for the stated
            probability of failure.
        spec, sent, event: as for `Released`.
    """

    value: float
    slack: float
    spec: SketchSpec
    sent: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """A noisy mean, and whether its error was found small.

    Attributes:
        released: the mean; its update is cut down to the largest entries if that was asked for.
        error: how far it seems to be from the truth; None where only the answer is released.
        slack: what was added to the threshold for the noise of the comparison.
        small: whether the error was found below the threshold.
    """

    released: Released
    error: float | None
    slack: float
    small: bool


class NoisyMeans(Protocol):
    """Turns decided sizes into releases. Shares are of one budget that all rounds divide up."""

    @property
    def form(self) -> str:
        """`central` or `untrusted`; it stands in every result."""

    @property
    def task(self) -> MeanTask:
        """The task whose mean is wanted."""

    @property
    def epsilon(self) -> float:
        """That the whole estimation keeps to at the target's delta, wherever it stops."""

    @property
    def spent(self) -> float:
        """Epsilon of what was released so far, by our accountant; zero-out adjacency.

        A reading, as results decide how much it is.
        """

    def share_left(self, spent: float) -> float:
        """The share for means, less what a gauge (a norm) took of the same budget."""

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """What `Released.noise_variance` will be, of a trial if there is a probe; known before."""

    def require_releases(self, most: int, gauged: bool) -> None:
        """See that so many rounds may follow.

        Args:
            most: rounds at most.
            gauged: whether norms or errors will be asked for.

        Raises:
            ParameterError: the budget was divided for fewer, or without a part for gauges.
        """

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """Release one noisy mean in one round."""

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """One round with a second sketch only, of `size` coordinates and one row."""

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> Trial:
        """One round with both sketches: a mean, and whether its error is below the bar.

        Args:
            spec: of the first sketch, without a probe.
            probe: the second sketch.
            share: of the whole round.
            bar: what the error is held against.
            top: keep that many of the largest entries of the decoded mean; None keeps all.
        """


@dataclass(frozen=True, slots=True)
class Bar:
    """What errors are held against.

    Args:
        height: error below which a mean is good enough, before slack.
        failure: of one round's comparison.
        questions: comparisons at most, over all rounds.
    """

    height: float
    failure: float
    questions: int


@dataclass(frozen=True, slots=True)
class Step:
    """One round of an estimation.

    Attributes:
        spec: what clients sent.
        sent: coordinates that each client sent.
        event: what was released.
        rationale: why it was this size, and what came of it.
    """

    spec: SketchSpec
    sent: int
    event: Event
    rationale: Rationale


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """The mean, and what it cost.

    Attributes:
        update: float64[d].
        steps: the rounds, in order.
        form: `central` or `untrusted`.
        epsilon: that holds at the target's delta. It is the goal of the whole estimation: how many
            rounds there were, and of what size, depended on what they released.
        spent: epsilon of these events, as if they had been fixed beforehand: a reading.
    """

    update: Floats
    steps: tuple[Step, ...]
    form: str
    epsilon: float
    spent: float

    @property
    def specs(self) -> tuple[SketchSpec, ...]:
        """What clients sent, round by round."""
        return tuple(step.spec for step in self.steps)

    @property
    def sent(self) -> int:
        """Coordinates that each client sent, over all rounds."""
        return sum(step.sent for step in self.steps)

    @property
    def events(self) -> tuple[Event, ...]:
        """What was released, round by round."""
        return tuple(step.event for step in self.steps)


class Algorithm(Protocol):
    """Chooses sizes from released values."""

    def releases(self, task: MeanTask) -> int:
        """Rounds at most."""

    @property
    def gauged(self) -> bool:
        """Whether it asks for norms or errors, for which the central form sets epsilon aside."""

    def run(self, means: NoisyMeans) -> Estimate:
        """Estimate the mean."""


def step(released: Released | NormReading, words: str, numbers: dict[str, float]) -> Step:
    """A round with its reason."""
    return Step(released.spec, released.sent, released.event, Rationale(words, numbers))


def finished(means: NoisyMeans, update: Floats, steps: list[Step]) -> Estimate:
    """The estimate that ends with this update."""
    return Estimate(
        update=update,
        steps=tuple(steps),
        form=means.form,
        epsilon=means.epsilon,
        spent=means.spent,
    )


def require_positive(name: str, value: float) -> None:
    """Raise ParameterError unless a number is positive and finite."""
    if not 0.0 < value < math.inf:
        raise ParameterError(name, value, "positive and finite")


def require_probability(name: str, value: float) -> None:
    """Raise ParameterError unless a number lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ParameterError(name, value, "strictly between 0 and 1")
