"""What a client is promised, and how a ledger writes it down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dp import FailureReserve, noise_multiplier_for_epsilon
from dp.accounting import gaussian_epsilon, gaussian_mu
from dp.accounting.gaussian import LARGEST_EPSILON
from protocol.checks import require
from secagg import ParameterError


@dataclass(frozen=True, slots=True)
class PrivacyGoal:
    """The (epsilon, delta) of any one client against the server, over all of its `rounds` rounds.

    Args:
        moment_order: None to count by Gaussian domination, the better bound in all but weak noise;
            or the order of the truncated moments to count by. One bound counts a whole run, by
            everybody: it is part of the goal, and of every entry of a ledger. `sharpest` chooses.

    Raises:
        ParameterError: a figure is out of range.
    """

    epsilon: float
    delta: float
    rounds: int
    moment_order: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "moment_order"):
            value = getattr(self, name)
            if name == "moment_order" and value is None:
                continue
            require(self, name)
            # A ledger has them as they are here, and its readers expect floats.
            object.__setattr__(self, name, float(value))
        require(self, "rounds")

    @property
    def reserve(self) -> FailureReserve:
        """The part of delta set aside beforehand, for noise and for secure aggregation.

        The controller sizes later rounds from earlier releases, so the split of delta must not be
        chosen afterwards (docs/accounting.md).
        """
        return FailureReserve.from_delta(self.delta, self.rounds, moment_order=self.moment_order)

    def delta_for_noise(self, rounds: int) -> float:
        """What of delta is left for the noise of a run, parts of which come back in later rounds.

        Args:
            rounds: T, of the whole run.
        """
        return delta_for_noise(self.delta, rounds)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of the Gaussian mechanism that meets the goal.

        Raises:
            ParameterError: epsilon is so large that there is none: such a goal only counts.
        """
        if not self.epsilon < LARGEST_EPSILON:
            valid = f"below {LARGEST_EPSILON:g} to choose noise by: accounting ends there"
            raise ParameterError("epsilon", self.epsilon, valid)
        return noise_multiplier_for_epsilon(self.epsilon, self.delta, self.rounds)


_ROUNDING: Final = 1e-9  # relative room for bisections, so that shares of 1 in all stay in the goal


def largest_mu(goal: PrivacyGoal) -> float:
    """The shift of all releases together: what is left of delta behind the reserve."""
    return gaussian_mu(goal.epsilon, goal.delta - goal.reserve.total) * (1.0 - _ROUNDING)


def round_goal(goal: PrivacyGoal, share: float) -> PrivacyGoal:
    """The goal of one round with this share, in (0, 1], of a goal counted by domination.

    Its failure probability delta0 is that of every round of the whole goal, whose `rounds` is the
    most releases there will be; so both count the same event alike, see `FailureReserve`.
    """
    delta = goal.delta / goal.rounds
    one = PrivacyGoal(goal.epsilon, delta, 1)
    mu = largest_mu(goal) * math.sqrt(share)
    return PrivacyGoal(gaussian_epsilon(mu, delta - one.reserve.total), delta, 1)


def delta_for_noise(delta: float, rounds: int) -> float:
    """What is left of delta once the part for aggregation failures in all rounds is set aside.

    The theorem for noise that comes back has no failure probability of its own. What is set aside
    covers also rounds in which a client takes no part: an aggregation that fails shows the members'
    noise of that round, which is in the sums of its neighbours.
    """
    set_aside = rounds * FailureReserve.from_delta(delta, rounds).aggregation
    return math.nextafter(delta - math.nextafter(set_aside, math.inf), 0.0)


def goal_entry(goal: PrivacyGoal) -> dict[str, float | int]:
    """A goal as it is written down.

    With the part of delta that it sets aside, and, where moments count it in place of domination,
    their order.
    """
    entry = {
        "epsilon": goal.epsilon,
        "delta": goal.delta,
        "rounds": goal.rounds,
        "delta0": goal.reserve.delta0,
        "aggregation": goal.reserve.aggregation,
    }
    order = goal.moment_order
    return entry if order is None else {**entry, "moment_order": order}


def check_goal(metadata: Mapping[str, Any], goal: PrivacyGoal | None) -> None:
    """See that an entry was written under this goal."""
    recorded, wanted = metadata.get("goal"), goal_entry(goal) if goal else None
    if recorded != wanted:
        raise ParameterError("goal", wanted, f"that of the ledger, {recorded}, or a new ledger")
