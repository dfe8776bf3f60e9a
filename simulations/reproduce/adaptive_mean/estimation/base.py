"""What a mean estimation is: the task, what a form of privacy offers, and what comes out.

An algorithm decides on sketch sizes; a `NoisyMeans` turns a decided size into a release. There are
two: `CentralMeans`, in which a trusted server sees exact sums and adds the noise, and
`DistributedMeans`, in which every sum carries the clients' own noise before anybody sees it. An
algorithm is written once and runs on both.

Source: arXiv 2307.10999, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dp import Event
from sketch import Probe, SketchSpec

Floats = NDArray[np.float64]

# beta, the probability that sizes or errors are not what the theorems promise
FAILURE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanTask:
    """Whose mean is wanted."""

    dimension: int  # d, coordinates of a vector, at least 2
    clients: int  # n, at least 2; all of them take part in every round
    clip_l2: float  # G; longer vectors are clipped to it, by the clients themselves
    # Gives the vector of a client by its index, float32|float64[d], in every round the same
    updates: Callable[[int], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Released:
    """One noisy mean."""

    update: Floats  # float64[d], decoded
    spec: SketchSpec  # of everything that clients sent for it
    # Per coordinate of the mean sketch that was decoded, in squared units of a vector
    noise_variance: float
    event: Event  # what it has to be accounted as


@dataclass(frozen=True, slots=True, kw_only=True)
class NormReading:
    """What is known of the length of the mean."""

    value: float  # the estimate n_hat, at least 0
    # n_hat + slack is at least the length of the sketched mean, but for the stated probability of
    # failure
    slack: float
    # spec, event: as for `Released`
    spec: SketchSpec
    event: Event


@dataclass(frozen=True, slots=True)
class Bar:
    """What errors are held against."""

    height: float  # error below which a mean is good enough, before slack
    failure: float  # of one round's comparison
    questions: int  # comparisons at most, over all rounds


class NoisyMeans(Protocol):
    """Turns decided sizes into releases. Shares are of one budget that all rounds divide up."""

    @property
    def task(self) -> MeanTask:
        """The vectors whose mean is wanted."""

    @property
    def spent(self) -> float:
        """Epsilon of what was released so far, as if it had been fixed beforehand: an estimate."""

    def share_left(self, spent: float) -> float:
        """Return the share for means, of which a norm took `spent` if it has the same budget."""

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """Return what `Released.noise_variance` will be, of a trial if there is a probe."""

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """Run one round."""

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """Run one round with a second sketch only, of `size` coordinates and one row."""

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> tuple[Released, bool]:
        """Run one round with both sketches; return a mean, and whether its error is small.

        The first sketch is `spec` without a probe, the second `probe`; both together have the
        share. Of the decoded mean only the `top` largest entries are kept, or all.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The mean, and what it cost."""

    update: Floats  # float64[d]
    steps: Sequence[Released | NormReading]  # what was released, round by round
    # Epsilon of these releases, as if they had been fixed beforehand: an estimate. What holds is
    # the goal of the whole estimation: the number and the size of the rounds depended on what they
    # released.
    spent: float

    @property
    def specs(self) -> tuple[SketchSpec, ...]:
        """What clients sent, round by round."""
        return tuple(step.spec for step in self.steps)

    @property
    def sent(self) -> int:
        """Coordinates that each client sent, over all rounds."""
        return sum(spec.size for spec in self.specs)


class Algorithm(Protocol):
    """Chooses sizes from released values."""

    def releases(self, task: MeanTask) -> int:
        """Return the number of rounds at most."""

    @property
    def gauged(self) -> bool:
        """Whether it asks for norms or errors, for which the central form sets epsilon aside."""

    def run(self, means: NoisyMeans) -> Estimate:
        """Estimate the mean."""
