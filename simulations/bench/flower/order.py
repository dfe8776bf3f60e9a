"""What is measured: a cohort, a vector, and how many clients vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.noise.noise import Independent
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes import OneShot, Pairwise
from secagg import Mode, ParameterError

FEWEST_ROUNDS = 10
"""Rounds that the promise is made for, however few are measured."""

SHIFT = 0.01
"""About what a client adds to every coordinate, in place of training."""
ROOM = 2.0
"""Clip bound over the norm of such an update, so that nothing is clipped."""
DELTA = 1e-5
ERROR_SHARE = 0.1
"""Extra variance of the noise; a tenth keeps a field of a million coordinates at 16 bits."""
MOST_CLIENTS = 1000
"""Flower's SecAgg+ adds up integers of 22 bits modulo 2^32."""
MOST_ROUNDS = 1000
SMALLEST_DIM, LARGEST_DIM = 100, 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerOrder:
    """What one benchmark of Flower is to run."""

    clients: int  # n, the cohort; all of them are asked in every round
    dim: int  # d, length of an update, float32
    lost: int = 0  # clients that share their keys and fail before they upload
    rounds: int = 5  # timed rounds; one more before them warms up, one more after them counts bytes
    mode: Mode = Mode.ACTIVE  # of our rounds
    epsilon: float = 8.0  # of a client over all our rounds, at least `FEWEST_ROUNDS`, with `DELTA`
    exact_noise: bool = True  # whether our rounds take surplus noise off again
    rate: float = 8.0  # compression of our updates, for the row that says so
    # of our rounds, each in a row of its own: `pairwise`, `one-shot`, or both
    protocols: tuple[str, ...] = (Pairwise.KIND, OneShot.KIND)

    def __post_init__(self) -> None:
        ranges = {
            "clients": (4, MOST_CLIENTS),
            # A quarter leaves enough for a threshold in both modes.
            "lost": (0, self.clients // 4),
            "rounds": (1, MOST_ROUNDS),
            "dim": (SMALLEST_DIM, LARGEST_DIM),
            "rate": (1, self.dim // SMALLEST_DIM),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            # Written so that NaN fails the test.
            if not low <= value <= high:
                raise ConfigurationError(name, f"value {value}", f"in {low} .. {high}")
        try:
            for protocol in self.protocols:
                self.plan(protocol)
        except ParameterError as error:
            problem = f"{self.clients} clients, {self.lost} lost: {error}"
            raise ConfigurationError("lost", problem, "fewer, or --scheme pairwise") from None

    @property
    def all_rounds(self) -> int:
        """Timed ones, and those before and after them."""
        return self.rounds + 2

    @property
    def survivors(self) -> int:
        """Clients in the mean."""
        return self.clients - self.lost

    def plan(self, protocol: str = "pairwise") -> TrainingPlan:
        """Our rounds: a tenth of the clients may vanish and as many work for the server."""
        tenth = self.clients // 10
        return TrainingPlan(
            goal=PrivacyGoal(self.epsilon, DELTA, max(self.all_rounds, FEWEST_ROUNDS)),
            cohort=self.clients,
            tolerated_dropouts=max(self.lost, tenth),
            tolerated_colluders=tenth,
            clip_l2=ROOM * SHIFT * math.sqrt(self.dim),
            noise=Independent(exact=self.exact_noise),
            # A one-shot round has no other mode.
            scheme=OneShot() if protocol == OneShot.KIND else Pairwise(mode=self.mode),
            error_share=ERROR_SHARE,
        )

    def shift(self, partition: int) -> float:
        """What a client adds to every coordinate: between a half and one and a half `SHIFT`."""
        return SHIFT * (0.5 + (partition + 0.5) / self.clients)

    def vanishes(self, partition: int) -> bool:
        """Whether a client fails in its training, in every round."""
        return partition >= self.survivors

    @property
    def mean_shift(self) -> float:
        """Of the clients that do not vanish: what the model moves by in a round."""
        return sum(map(self.shift, range(self.survivors))) / self.survivors
