"""What a plan promises, whatever its noise and its scheme."""

from __future__ import annotations

from typing import Any, Protocol

from dp import CoinSchedule
from dp.mechanisms import DistributedMechanism
from protocol.goal import PrivacyGoal


class Promise(Protocol):
    """A `TrainingPlan`, as its noise and its scheme see it."""

    @property
    def goal(self) -> PrivacyGoal:
        """(epsilon, delta) of any one client."""

    @property
    def cohort(self) -> int:
        """n, clients invited to each round."""

    @property
    def tolerated_dropouts(self) -> int:
        """Clients that may vanish from a round."""

    @property
    def tolerated_colluders(self) -> int:
        """Clients of a cohort that may work for the server."""

    @property
    def clip_l2(self) -> float:
        """C, in the units of an update."""

    @property
    def error_share(self) -> float:
        """Extra variance of the noise, as a share of the Gaussian mechanism's."""

    @property
    def wrap_probability(self) -> float:
        """Accepted chance that a round's sum does not fit its field."""

    @property
    def lifetime_seconds(self) -> int:
        """Of a round; 0 for ever."""

    @property
    def minimum_survivors(self) -> int:
        """Of a sum that is released."""

    @property
    def fewest_honest(self) -> int:
        """Survivors whose noise counts."""

    @property
    def noise(self) -> Any:
        """Which noise clients and members add: a `Noise`, which lies above."""

    @property
    def scheme(self) -> Any:
        """Which way leads to the sum: a `Scheme`, which lies above noise."""

    def schedule(self, mechanism: DistributedMechanism) -> CoinSchedule | None:
        """The batches of a client's noise."""
