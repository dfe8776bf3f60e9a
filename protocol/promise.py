"""What a plan promises, whatever its noise and its scheme."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from dp import CoinSchedule
from dp.mechanisms import DistributedMechanism
from protocol.goal import PrivacyGoal


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise(ABC):
    """A `TrainingPlan`, as its noise and its scheme see it, which lie above; fields as there."""

    goal: PrivacyGoal
    cohort: int
    tolerated_dropouts: int
    tolerated_colluders: int
    clip_l2: float
    noise: Any
    scheme: Any
    error_share: float
    wrap_probability: float
    lifetime_seconds: int

    @property
    def minimum_survivors(self) -> int:
        """Fewer survivors would reduce the noise below its target, so no such sum is released."""
        return self.cohort - self.tolerated_dropouts

    @property
    def fewest_honest(self) -> int:
        """Survivors whose noise counts: colluders take off their own."""
        return self.minimum_survivors - self.tolerated_colluders

    @abstractmethod
    def schedule(self, mechanism: DistributedMechanism) -> CoinSchedule | None:
        """The batches of a client's noise; None if there is nothing to take off."""
