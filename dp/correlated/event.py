"""One round of a run whose noise comes back, as ledgers hold it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dp.checks import require_float, require_integer
from dp.event_kinds import Event

LARGEST_ROUNDS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedRelease(Event):
    """The server saw ``x_t + b_t + a_t - a'_(t-1)`` in every coordinate: round t of a run.

    Mathematics: a_t and b_t are sums of independent discrete Gaussians; a'_(t-1) is that part of
    the noise of the round before which came back. Rounds of one run are one after the other and
    are accounted for together: what was learned of a client grows when noise comes back later.

    Assumptions: rules 1 to 3 of docs/correlated-noise.md. Variances count honest parties' noise
    only. The last six fields are fixed before the first round and equal in all of them.

    Attributes:
        index: t, counted from 1.
        fresh_variance: F_t, of what entered in this round, integer squares, > 0.
        returned_variance: A_(t-1), of what came back in it; 0 in the first round.
        l2_sensitivity: B_t, largest Euclidean norm of a client's contribution; 0 for a client that
            took no part.
        dimension: d, coordinates.
        rounds: T, the last round there may be.
        least_fresh: F, least ``fresh_variance`` of a round.
        largest_return: A, most of one round's noise that may come back. It may exceed F - w: a
            round that adds more than F may return more, but never what w says stays.
        smallest_part: v, least parameter of a single part.
        most_parts: m, most parts that enter in one round.
        least_kept: w, least variance of those parts of a round that do not come back.
    """

    tag: ClassVar[str] = "correlated-gaussian"

    index: int
    fresh_variance: float
    returned_variance: float
    l2_sensitivity: float
    dimension: int
    rounds: int
    least_fresh: float
    largest_return: float
    smallest_part: float
    most_parts: int
    least_kept: float

    def __post_init__(self) -> None:
        require_integer("rounds", self.rounds, 1, LARGEST_ROUNDS)
        require_integer("index", self.index, 1, self.rounds)
        require_integer("dimension", self.dimension, 1)
        require_integer("most_parts", self.most_parts, 1)
        for name in ("l2_sensitivity", "returned_variance", "largest_return"):
            self._require(name, 0.0)
        for name in ("smallest_part", "least_kept", "least_fresh", "fresh_variance"):
            self._require(name, 0.0)
            if not getattr(self, name):
                raise ValueError(f"{name} must be positive, got 0.0")
        self._require("least_kept", self.smallest_part)
        self._require("least_fresh", self.least_kept)
        self._require("fresh_variance", self.least_fresh)
        most = self.largest_return if self.index > 1 else 0.0
        if self.returned_variance > most:
            raise ValueError(
                f"returned_variance must be at most {most!r}, got {self.returned_variance!r}"
            )

    @property
    def promises(self) -> tuple[float, ...]:
        """What all rounds of one run have in common."""
        return (
            self.dimension,
            self.rounds,
            self.least_fresh,
            self.largest_return,
            self.smallest_part,
            self.most_parts,
            self.least_kept,
        )

    @property
    def returnable(self) -> float:
        """Most of this round's noise that may come back: min(A, F_t - w)."""
        return self._all_but_kept(self.fresh_variance)

    @property
    def returnable_later(self) -> float:
        """Most that may come back of a later round, where that is worst: min(A, F - w)."""
        return self._all_but_kept(self.least_fresh)

    def replace_one(self) -> CorrelatedRelease:
        """Double the sensitivity."""
        return replace(self, l2_sensitivity=2.0 * self.l2_sensitivity)

    def _all_but_kept(self, fresh: float) -> float:
        return min(self.largest_return, max(fresh - self.least_kept, 0.0))

    def _require(self, name: str, lowest: float) -> None:
        value = getattr(self, name)
        require_float(name, value)
        # Sums of three floats may be off by a rounding.
        if not lowest * (1.0 - 1e-12) <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least {lowest!r}, got {value!r}")
