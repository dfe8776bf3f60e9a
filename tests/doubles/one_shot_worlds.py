"""Whole one-shot rounds for tests of `protocol`: a plan, its clients and its committee."""

from __future__ import annotations

from typing import Any

import numpy as np
from one_shot_rounds import Stream, identity, secret

from dp import NoiseSeed
from protocol import PrivacyGoal, TrainingPlan
from protocol.exchange.local_committee import LocalCommittee
from protocol.exchange.one_shot import OneShotAggregator
from protocol.planning.committee import CommitteePlan
from protocol.round.member import MemberPolicy
from protocol.round.one_shot_setup import OneShotSetup
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from sketch import PublicSeed, SketchSpec

SESSION = bytes(range(16))
DIGEST = secret("model")
DIMENSION = 40
GOAL = PrivacyGoal(8.0, 1e-5, 3)


def plan_of(kind: CommitteeKind, **changes: Any) -> TrainingPlan:
    """A small plan: ten clients, two may be lost; eight members, if they are named."""
    named = CommitteePlan(kind=CommitteeKind.NAMED, size=8, corrupt=1, away=1)
    terms: dict[str, Any] = {
        "goal": GOAL,
        "cohort": 10,
        "tolerated_dropouts": 2,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
        "protocol": "one-shot",
        "committee": named if kind is CommitteeKind.NAMED else None,
    }
    return TrainingPlan(**{**terms, **changes})


class World:
    """Clients, a committee, and the real aggregator of one plan.

    Args:
        plan: of one-shot rounds.
        options: of the aggregator.
    """

    def __init__(self, plan: TrainingPlan, **options: Any) -> None:
        self.plan = plan
        self.identities = [identity("client", i) for i in range(plan.cohort)]
        self.keys = [each.public for each in self.identities]
        numbers = plan.committee_numbers
        members = self.identities
        if plan.committee_kind is CommitteeKind.NAMED:
            members = [identity("member", i) for i in range(numbers.size)]
        self.member_policy = MemberPolicy(
            minimum_survivors=plan.minimum_survivors,
            tolerated_colluders=plan.tolerated_colluders,
            corrupt=numbers.corrupt,
            registry=frozenset(self.keys),
        )
        # Known keys, or worlds on several ranks would be of different rounds.
        self.committee = LocalCommittee(plan.committee_kind, members, self.member_policy, known_key)
        self.client_policy = plan.client_policy(DIMENSION, self.committee.named)
        self.real = OneShotAggregator(
            self.identities,
            self.client_policy,
            self.committee,
            noise=rounding,
            rand_of=lambda i: Stream("client", i),
            **options,
        )

    def setup(self, number: int = 0, session: bytes = SESSION) -> OneShotSetup:
        """The round of a number."""
        parameters = self.plan.calibrate(
            SketchSpec.identity(DIMENSION), DIGEST, PublicSeed(secret("seed"))
        )
        members = self.committee.members(session, self.keys)
        return self.plan.one_shot_setup(parameters, self.keys, members, session, number)


def known_key(session: bytes, key: bytes) -> AgreementKey:
    """A member's sealing key in a session."""
    return AgreementKey(secret("sealing", session, key))


def rounding(index: int) -> NoiseSeed:
    """Known seeds of rounding."""
    return NoiseSeed(secret("rounding", index))


def update(index: int) -> np.ndarray[Any, Any]:
    """A client's update."""
    return np.sin(np.arange(DIMENSION) + index) / 10.0
