"""Whole one-shot rounds for tests of `protocol`: a plan, its clients and its committee."""

from __future__ import annotations

from typing import Any

import numpy as np
from one_shot_rounds import Stream, identity, secret

from dp import NoiseSeed
from protocol import ClientHistory, PrivacyGoal, TrainingPlan
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.one_shot import OneShotAggregator
from protocol.planning.policies import client_policy
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.schemes.committee import Drawn, Named
from protocol.schemes.one_shot import draw_policy, local_committee, one_shot_of, one_shot_setup
from secagg.keys import AgreementKey
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.sortition import Registry
from sketch import PublicSeed, SketchSpec
from tests.doubles.plans import plan_of_words

SESSION = bytes(range(16))
DIGEST = secret("model")
DIMENSION = 40
GOAL = PrivacyGoal(8.0, 1e-5, 3)


def plan_of(kind: CommitteeKind, **changes: Any) -> TrainingPlan:
    """A small plan: ten clients, two may be lost; eight members, if they are named or drawn."""
    numbers = {"size": 8, "corrupt": 1, "away": 1}
    committees = {
        CommitteeKind.NAMED: Named(**numbers),
        CommitteeKind.DRAWN: Drawn(odds=0.97, **numbers),
    }
    terms: dict[str, Any] = {
        "goal": GOAL,
        "cohort": 10,
        "tolerated_dropouts": 2,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
        "committee": committees.get(kind),
    }
    if "scheme" in changes:
        del terms["committee"]
    return plan_of_words({**terms, **changes})


class World:
    """Clients, a committee, and the real aggregator of one plan."""

    def __init__(self, plan: TrainingPlan, **options: Any) -> None:
        self.plan = plan
        self.identities = [identity("client", i) for i in range(plan.cohort)]
        self.keys = [each.public for each in self.identities]
        named = [identity("member", i) for i in range(one_shot_of(plan).numbers(plan).size)]
        # Known keys, or worlds on several ranks would be of different rounds.
        self.committee = local_committee(plan, self.identities, named, known_key)
        self.member_policy = self.committee.policy
        draw = None
        if one_shot_of(plan).committee.KIND is CommitteeKind.DRAWN:
            registry = Registry(self.keys)
            draw = draw_policy(plan, registry.root, len(registry))
        self.client_policy = client_policy(plan, DIMENSION, self.committee.named, draw)
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
        members = self.committee.members(session, self.keys, number)
        return one_shot_setup(self.plan, parameters, self.keys, members, session, number)

    def client(self, index: int = 0, **options: Any) -> OneShotRoundClient:
        """One client with the plan's policy, unless another is among the options."""
        policy = options.pop("policy", self.client_policy)
        history = options.pop("history", None) or ClientHistory(policy.goal)
        who, registry = self.identities[index], frozenset(self.keys)
        return OneShotRoundClient(
            who, registry, policy, history, Stream("client", index), **options
        )


def known_key(session: bytes, key: bytes) -> AgreementKey:
    """A member's sealing key in a session."""
    return AgreementKey(secret("sealing", session, key))


def rounding(index: int) -> NoiseSeed:
    """Known seeds of rounding."""
    return NoiseSeed(secret("rounding", index))


def update(index: int) -> np.ndarray[Any, Any]:
    """A client's update."""
    return np.sin(np.arange(DIMENSION) + index) / 10.0


def derived(setup: OneShotSetup, index: int, rounded: bytes, number: int) -> list[NoiseSeed]:
    """The very seeds of noise that client `number` derives at its place in the cohort."""
    who, proof = identity("client", number), setup.known_cohort().proof(index)
    client = OneShotClient(setup.context, index, who, proof, Stream("client", index))
    return [NoiseSeed(seed.expose()) for seed in client.seeds(rounded)]


def ideal(setup: OneShotSetup) -> IdealAggregator:
    """The ideal functionality with the seeds of the real clients."""
    return IdealAggregator(noise=rounding, bound=lambda i, rounded: derived(setup, i, rounded, i))
