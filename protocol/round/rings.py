"""Whether a ring is safe enough for a goal, and a round under way: what clocks and delta decide.

A goal sets aside a share of delta, for each of its rounds, for the case that the ring of a sparse
graph was a bad one. A round whose ring may fail more often than that does not belong to the goal.

Source: docs/security.md, "Grinding the ring"; docs/accounting.md, "Failures of secure aggregation".
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from secagg import Mode, ParameterError, SessionContext
from secagg.grinding import CLOCK_SKEW_SECONDS, ring_failure
from secagg.pairwise.graph_parameters import LARGEST_SECURITY_BITS, SECURITY_BITS
from secagg.terms import RoundTerms

UnixClock = Callable[[], float]
"""Tells the time: seconds since 1970, as `time.time` does."""

STEP_BITS = 8
"""Between two choices of security bits."""

SPARE_ROUNDS = 8
"""Rounds that a client can join for each round of a goal, where a plan chooses the bits. One that
came to nothing had its ring all the same."""

REMEDIES = (
    f"larger, up to {LARGEST_SECURITY_BITS}; or a lifetime for the round, the complete graph or a "
    "larger delta"
)


def is_safe(context: SessionContext, goal: PrivacyGoal, *, keeps_time: bool = True) -> bool:
    """Whether the ring of a round fails with no more than the goal sets aside for one round."""
    return context.ring_failure(keeps_time=keeps_time) <= goal.reserve.aggregation


def require_safe_ring(context: SessionContext, goal: PrivacyGoal) -> None:
    """See that a round's ring is safe enough for the goal."""
    if not is_safe(context, goal):
        raise unsafe(context.security_bits, context.ring_failure(), goal)


def unsafe(security_bits: int, failure: float, goal: PrivacyGoal) -> ParameterError:
    """The refusal of a ring that fails with this probability."""
    return ParameterError(
        "security_bits",
        security_bits,
        f"{REMEDIES}: the ring of one round may fail with probability {failure:.3g}, and delta "
        f"{goal.delta:g} sets {goal.reserve.aggregation:.3g} aside for it in each of "
        f"{goal.rounds} rounds",
    )


def fitting_security_bits(
    goal: PrivacyGoal, clients: int, mode: Mode, lifetime_seconds: int = 0
) -> int:
    """The fewest security bits, from 80 in steps of 8, that are safe for rings of a goal.

    With room for rounds that come to nothing, unless it takes more bits than there are.
    """
    failure = 1.0
    for bits in range(SECURITY_BITS, LARGEST_SECURITY_BITS + 1, STEP_BITS):
        failure = ring_failure(clients, bits, lifetime_seconds, active=mode is Mode.ACTIVE)
        if SPARE_ROUNDS * failure <= goal.reserve.aggregation:
            return bits
    if failure <= goal.reserve.aggregation:
        return LARGEST_SECURITY_BITS
    raise unsafe(LARGEST_SECURITY_BITS, failure, goal)


def require_under_way(terms: RoundTerms, now: float) -> None:
    """See that a round with a lifetime is under way at this time."""
    age = now - terms.opened_at
    # Written so that NaN fails the test.
    if not -CLOCK_SKEW_SECONDS <= age <= terms.lifetime_seconds:
        raise PolicyError(
            "opened_at",
            f"{terms.opened_at}, {age:.0f} s ago by our clock",
            f"rounds until {terms.lifetime_seconds} s after they were opened, by a clock "
            f"at most {CLOCK_SKEW_SECONDS} s ahead of ours",
        )
