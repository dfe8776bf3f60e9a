"""What rules for the next size have in common: checks, the first shape, and the form of a decision.

A controller declares its options as fields and says in `Rule._following` what follows from one more
release. Options that several of them have are explained once, in `sketch.controllers.options`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sketch.controllers.base import ControllerState, Decision, Prior, ReleasedStats, check_step
from sketch.controllers.options import check_options
from sketch.controllers.sizing import first_decision, next_decision
from sketch.probed import Probe
from sketch.spec import spec_for_size


@dataclass(frozen=True, slots=True)
class Following:
    """What a rule says of the next round.

    Args:
        numbers: the figures behind it, without the sizes.
        probe: the second sketch, if there is one.
    """

    size: int
    words: str
    numbers: Mapping[str, float]
    memory: tuple[float, ...] = ()
    probe: Probe | None = None


class Rule(ABC):
    """A controller whose next size follows from its state and one release.

    Its fields: `gamma` where it has one, otherwise it overrides `_first_gamma`.
    """

    __slots__ = ()
    _first_memory: ClassVar[tuple[float, ...]] = ()

    rows: int
    first_rate: float | None
    gamma: float

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The first shape, at the first rate or as the plan predicts."""
        return first_decision(
            dimension,
            self.first_rate,
            self.rows,
            prior,
            self._first_gamma(),
            probe=self._first_probe(dimension),
            memory=self._first_memory,
        )

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release."""
        check_step(state, released)
        following = self._following(state, released)
        spec = spec_for_size(state.dimension, following.size, self.rows, following.probe)
        return next_decision(released, spec, following.words, following.numbers, following.memory)

    @abstractmethod
    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        """What follows from a release that belongs to the state."""

    def _first_gamma(self) -> float:
        """Which gamma the first round may have."""
        return self.gamma

    def _first_probe(self, dimension: int) -> Probe | None:
        """The second sketch of the first round."""
        return None
