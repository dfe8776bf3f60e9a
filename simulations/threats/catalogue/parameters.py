"""Clients that are told different things about one round.

Models (A11), parameters (A12), and one model in two orders (A27).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from protocol import PolicyError, RoundSetup
from secagg import Identity, centre
from simulations.audits.base import identities_of
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal
from simulations.threats.rounds.announced import (
    COHORT,
    COINS,
    OTHER_SHAPE,
    TARGET,
    announced_round,
    deceived,
    high_digits,
    lies,
    strict_policy,
    worse_rounds,
)
from simulations.threats.rounds.parties import TRUSTING, edited
from simulations.threats.rounds.split import SplitOutcome, Story, open_sum, open_unbound, run_split
from simulations.threats.rounds.suppression import (
    ListModel,
    Model,
    ReluLayer,
    Suppression,
    permuted_round,
    suppressed_round,
)

NO_MODEL: Final = hashlib.sha256(b"whatever the model is").digest()
"""What victims hash that leave the model out."""

# -- A11 --------------------------------------------------------------------------------------


def inconsistent_models(effort: Effort, seed: int) -> Findings:
    """A11: two clients of one round are told different models."""
    rounds = effort.choose(4, 40)
    drawn = [suppressed_round(seed, number) for number in range(rounds)]
    return _two_models(drawn, ReluLayer.digest, lambda _: NO_MODEL)


def inconsistent_order(effort: Effort, seed: int) -> Findings:
    """A27: two clients are told one model in two orders; see `rounds.suppression`."""
    drawn = [permuted_round(seed, number) for number in range(effort.choose(4, 40))]
    return _two_models(drawn, ListModel.digest, ListModel.digest_by_name)


def _two_models(
    rounds: Sequence[Suppression[Model]],
    digest: Callable[[Model], bytes],
    weak: Callable[[Model], bytes],
) -> Findings:
    """Every story in every round, to clients of the product and to victims with another hash."""
    outcomes = [
        run_split(drawn.people(digest), dict(enumerate(drawn.identities)), story)
        for drawn in rounds
        for story in Story
    ]
    real = sum(outcome.involves(TARGET) for outcome in outcomes)
    exact = sum(_suppressed_sum(drawn, weak) for drawn in rounds)
    return Findings(
        {
            **rate(real, len(outcomes)),
            "refused_with": _reasons(outcomes),
            "sums_without_target": sum(len(outcome.sums) for outcome in outcomes),
        },
        {**rate(exact, len(rounds)), "recovered": "every integer of the target's update"},
    )


def _suppressed_sum(drawn: Suppression[Model], digest: Callable[[Model], bytes]) -> bool:
    """Whether the sum over victims is what the target put in, integer by integer."""
    people = drawn.people(digest)
    outcome, target = SplitOutcome(), people[TARGET]
    open_sum(people, target.setup.context, outcome)
    own = target.sent()
    # A target with nothing to hide would prove nothing.
    return bool(own.any()) and any(np.array_equal(centre(t.vector), own) for t in outcome.sums)


# -- A12 --------------------------------------------------------------------------------------


def inconsistent_parameters(effort: Effort, seed: int) -> Findings:
    """A12: two clients of one round are told different parameters."""
    identities = identities_of(seed, COHORT)
    setup = announced_round(identities, NO_MODEL, COINS, seed)
    reasons: dict[str, list[str]] = {}
    got = tried = 0
    for name, lie in lies(seed).items():
        outcomes = [
            run_split(deceived(identities, setup, lie, seed), dict(enumerate(identities)), story)
            for story in Story
        ]
        reasons.setdefault(_reasons(outcomes), []).append(name)
        got += sum(outcome.involves(TARGET) for outcome in outcomes)
        tried += len(outcomes)
    opened = _unbound_sums(identities, setup, seed)
    accepted, refused = _policies(setup, seed)
    rounds = effort.choose(5, 50)
    exact = sum(_digits_stand_out(identities, seed, number) for number in range(rounds))
    return Findings(
        {
            **rate(got + accepted, tried + accepted + len(refused)),
            "refused_with": "; ".join(f"{why} ({', '.join(of)})" for why, of in reasons.items()),
            "told_to_all": "; ".join(refused),
            "policies_passed": accepted,
        },
        {
            **rate(exact, rounds),
            "recovered": "every integer of the target's update at the scale of all others",
            "sums_opened": len(opened),
            "of_lies": len(lies(seed)) - len(OTHER_SHAPE),
            "lies_not_noticed": ", ".join(opened),
        },
    )


def _unbound_sums(identities: Sequence[Identity], setup: RoundSetup, seed: int) -> list[str]:
    """Lies under which the sum of victims opens with the target in it."""
    opened = []
    for name, lie in lies(seed).items():
        if name in OTHER_SHAPE:
            continue
        outcome = SplitOutcome()
        open_unbound(deceived(identities, setup, lie, seed), setup.context, outcome)
        if outcome.involves(TARGET):
            opened.append(name)
    return opened


def _digits_stand_out(identities: Sequence[Identity], seed: int, number: int) -> bool:
    """Whether rounding the sum of victims to the target's scale gives the target's integers."""
    setup = announced_round(identities, NO_MODEL, 0, seed, number)
    people = deceived(identities, setup, lies(seed)["scale"], seed)
    outcome = SplitOutcome()
    open_unbound(people, setup.context, outcome)
    own = high_digits(people[TARGET].sent())
    sums = (high_digits(centre(total.vector)) for total in outcome.sums)
    return bool(own.any()) and any(np.array_equal(found, own) for found in sums)


# -- what a policy refuses, told to all -------------------------------------------------------


def _policies(setup: RoundSetup, seed: int) -> tuple[int, list[str]]:
    """How many worse rounds a strict policy accepts, and how it refuses the others.

    A policy that refuses everything would pass as well: the round itself and, without the policy,
    every worse one must be accepted.
    """
    policy, accepted, refused = strict_policy(setup), 0, []
    policy.check(setup)
    for name, changes in worse_rounds(seed).items():
        worse = RoundSetup.from_announcement(edited(setup.announce(), **changes), NO_MODEL)
        TRUSTING.check(worse)
        try:
            policy.check(worse)
            accepted += 1
        except PolicyError as error:
            refused.append(f"{name}: {refusal(error)} ({error.parameter})")
    return accepted, refused


def _reasons(outcomes: Sequence[SplitOutcome]) -> str:
    """How the target left, in the order of the stories; once each."""
    errors = (outcome.refusals.get(TARGET) for outcome in outcomes)
    return ", ".join(dict.fromkeys(refusal(error) for error in errors if error is not None))


ATTACKS: Final = (
    Attack(
        id="A11",
        promise="P3",
        name="different models",
        title="A server that sends different models gets no client's update",
        says="gives the target a model that makes the others' updates vanish",
        stopped_by="the model's hash in the context of every mask and signature",
        run=inconsistent_models,
    ),
    Attack(
        id="A12",
        promise="P3",
        name="different parameters",
        title="A server that announces different parameters gets no client's update",
        says="gives the target another clip, scale, sketch, threshold or noise",
        stopped_by="the parameters' hash in the context; the client's policy, if everybody gets "
        "them",
        run=inconsistent_parameters,
    ),
    Attack(
        id="A27",
        promise="P3",
        name="arrays in another order",
        title="A server that sends arrays in another order gets no client's update",
        says="swaps two arrays of the same shape for the target, so that its training uses "
        "another model",
        stopped_by="the model's hash covers arrays in the order of training",
        run=inconsistent_order,
    ),
)
