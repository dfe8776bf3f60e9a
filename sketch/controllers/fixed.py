"""The same compression rate every round: the baseline, and the choice when a rate is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sketch.controllers.base import ControllerState, Decision, Prior, ReleasedStats, check_step
from sketch.controllers.options import check_options
from sketch.controllers.sizing import decision, size_at_rate
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True)
class FixedRate:
    """Size d / rate in every round, whatever was released.

    Args:
        rate: compression rate d / L, at least 1; 1 is no compression.
    """

    rate: float
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The shape of every round."""
        del prior
        spec = spec_for_size(dimension, size_at_rate(dimension, self.rate), self.rows)
        return self._decide(ControllerState(dimension, spec.main_size))

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The same shape again; takes the release only to check that it is one."""
        check_step(state, released)
        return self._decide(replace(state, last_round=released.round_number))

    def _decide(self, state: ControllerState) -> Decision:
        spec = spec_for_size(state.dimension, state.size, self.rows)
        return decision(state, spec, "The rate is fixed.", {"rate": float(self.rate)})
