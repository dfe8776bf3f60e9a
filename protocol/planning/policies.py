"""From a plan to what its clients insist on."""

from __future__ import annotations

from collections.abc import Collection

from protocol.planning.training_plan import TrainingPlan
from protocol.round.draw_policy import DrawPolicy
from protocol.round.policy import ClientPolicy
from protocol.schemes.scheme import Trusted


def client_policy(
    plan: TrainingPlan,
    dimension: int | None,
    named: Collection[bytes] = (),
    draw: DrawPolicy | None = None,
) -> ClientPolicy:
    """The policy of clients who want what a plan promises and accept nothing less.

    A client that gets the plan from the server gains nothing by it: plan and policy have to come
    from somebody that the client trusts.

    Args:
        dimension: d, length of what a client sums; None where sums of a round differ in it.
        named: identity keys of a named committee's members, in one-shot rounds.
        draw: of a drawn one; see `draw_policy`.
    """
    return ClientPolicy(
        minimum_noise_multiplier=plan.goal.noise_multiplier,
        goal=plan.goal,
        minimum_survivors=plan.minimum_survivors,
        largest_cohort=plan.cohort,
        registry_colluders=plan.tolerated_colluders,
        largest_clip_l2=plan.clip_l2,
        dimension=dimension,
        mechanisms=(plan.noise.mechanism,),
        largest_lifetime_seconds=plan.lifetime_seconds or None,
        schemes=(plan.scheme.clauses(plan, Trusted(named=named, draw=draw)),),
        returned=plan.noise.clauses(plan),
    )
