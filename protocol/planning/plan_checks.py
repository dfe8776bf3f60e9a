"""What the figures of a training plan have to be, before anybody is asked for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from dp import BinomialMechanism, DiscreteGaussianMechanism
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from dp.mechanisms import MECHANISMS
from protocol.checks import require_int, require_number
from protocol.goal import PrivacyGoal
from protocol.planning.committee import (
    require_one_shot,
)
from protocol.round.parameters import require_room
from protocol.round.rings import unsafe
from secagg import Mode, ParameterError
from secagg.grinding import LARGEST_LIFETIME_SECONDS, ring_failure
from secagg.oneshot.committee import CommitteeKind
from secagg.pairwise.context import fewest_survivors
from secagg.pairwise.graph_parameters import require_security_bits

if TYPE_CHECKING:
    from protocol.planning.training_plan import TrainingPlan

ProtocolName = Literal["pairwise", "one-shot"]
"""How vectors are masked and summed."""


def check_plan(plan: TrainingPlan) -> None:
    """See that the figures of a plan are of the right kind, and leave somebody to hide among.

    Raises:
        ParameterError: names the figure, its value and what would be valid.
    """
    if not isinstance(plan.goal, PrivacyGoal):
        raise ParameterError("goal", plan.goal, "a PrivacyGoal")
    if not isinstance(plan.mode, Mode):
        raise ParameterError("mode", plan.mode, " or ".join(f"Mode.{each.name}" for each in Mode))
    require_int("cohort", plan.cohort, 2)
    require_int("tolerated_dropouts", plan.tolerated_dropouts, 0)
    require_int("tolerated_colluders", plan.tolerated_colluders, 0)
    for name in ("degree", "threshold"):
        if getattr(plan, name) is not None:
            require_int(name, getattr(plan, name), 0)
    if not isinstance(plan.mechanism, str) or plan.mechanism not in MECHANISMS:
        raise ParameterError("mechanism", plan.mechanism, f"one of {', '.join(MECHANISMS)}")
    if not isinstance(plan.exact_noise, bool | None):
        raise ParameterError("exact_noise", plan.exact_noise, "a bool, or left out")
    if plan.exact_noise and plan.mechanism != BinomialMechanism.name:
        valid = f"left out or False: {plan.mechanism} noise comes as a whole, it stays in sums"
        raise ParameterError("exact_noise", plan.exact_noise, valid)
    for name in ("clip_l2", "error_share", "wrap_probability"):
        require_number(name, getattr(plan, name))
    require_room(plan.mechanism, plan.wrap_probability)
    # Written so that NaN fails the test.
    if not MIN_L2_BOUND <= plan.clip_l2 <= MAX_L2_BOUND:
        valid = f"in {MIN_L2_BOUND:g} .. {MAX_L2_BOUND:g}"
        raise ParameterError("clip_l2", plan.clip_l2, valid)
    lifetime = plan.lifetime_seconds
    if type(lifetime) is not int or not 0 <= lifetime <= LARGEST_LIFETIME_SECONDS:
        valid = f"an int in 0 .. {LARGEST_LIFETIME_SECONDS}"
        raise ParameterError("lifetime_seconds", lifetime, valid)
    if plan.security_bits is not None:
        require_security_bits(plan.security_bits)
    if plan.protocol not in get_args(ProtocolName):
        valid = " or ".join(get_args(ProtocolName))
        raise ParameterError("protocol", plan.protocol, valid)
    if plan.protocol == "one-shot":
        _check_one_shot(plan)
        return
    if plan.committee is not None:
        raise ParameterError("committee", plan.committee, "left out in pairwise rounds")
    if plan.returned is not None:
        valid = "left out in pairwise rounds: there is no committee to take noise back"
        raise ParameterError("returned", plan.returned, valid)
    degree, threshold = plan.graph
    _check_ring(plan, degree)
    fewest = fewest_survivors(threshold, plan.tolerated_colluders, degree)
    if plan.minimum_survivors < fewest:
        raise ParameterError(
            "tolerated_dropouts",
            plan.tolerated_dropouts,
            f"at most {plan.cohort - fewest}: with {plan.cohort} clients and "
            f"{plan.tolerated_colluders} colluders, {fewest} must survive",
        )


def _check_one_shot(plan: TrainingPlan) -> None:
    for name, default in (("degree", None), ("threshold", None), ("security_bits", None)):
        if getattr(plan, name) is not default:
            valid = "left out in one-shot rounds, which have no graph"
            raise ParameterError(name, getattr(plan, name), valid)
    if plan.mode is not Mode.ACTIVE:
        raise ParameterError("mode", plan.mode.value, "active in one-shot rounds")
    require_one_shot(plan.cohort, plan.tolerated_colluders, plan.tolerated_dropouts)
    _ = plan.committee_numbers
    if plan.returned is not None:
        _check_returned(plan)


def _check_returned(plan: TrainingPlan) -> None:
    if plan.committee_kind is not CommitteeKind.NAMED:
        valid = "a named one: noise comes back only to members who stay the same"
        raise ParameterError("committee", plan.committee_kind.value, valid)
    if plan.mechanism != DiscreteGaussianMechanism.name:
        valid = f"{DiscreteGaussianMechanism.name} where a part of the noise comes back"
        raise ParameterError("mechanism", plan.mechanism, valid)
    _ = plan.returned_run


def _check_ring(plan: TrainingPlan, degree: int) -> None:
    """Failures of the ring are a part of delta, and there is a share of delta for them."""
    bits, active = plan.ring_bits, plan.mode is Mode.ACTIVE
    failure = ring_failure(plan.cohort, bits, plan.lifetime_seconds, active=active)
    if degree and not failure <= plan.goal.reserve.aggregation:
        raise unsafe(bits, failure, plan.goal)
