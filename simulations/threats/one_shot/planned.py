"""A round of a plan with a committee, one-shot or validated, and who is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dp import NoiseSeed
from protocol import ClientHistory, PrivacyGoal, TrainingPlan, client_policy
from protocol.exchange.local_committee import LocalCommittee
from protocol.noise.noise import Independent
from protocol.round.member import RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.policy import ClientPolicy
from protocol.schemes import OneShot
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.schemes.one_shot import local_committee, one_shot_setup
from secagg import Identity
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from simulations.threats.game.contexts import identity_of
from simulations.threats.one_shot.parties import member_identity
from sketch import PublicSeed, SketchSpec

CLIENTS, MEMBERS, DIMENSION = 10, 8, 8
MODEL = bytes(32)


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round, and its parties."""

    plan: TrainingPlan
    setup: OneShotSetup
    clients: Sequence[Identity]
    committee: LocalCommittee

    @property
    def policy(self) -> ClientPolicy:
        """What its clients insist on."""
        return client_policy(self.plan, None, self.committee.named)

    def client(self, index: int, seed: int) -> OneShotRoundClient:
        """A client that has joined nothing; its secrets follow from numbers."""
        policy, keys = self.policy, frozenset(each.public for each in self.clients)
        rand = np.random.default_rng([seed, index]).bytes
        return OneShotRoundClient(
            self.clients[index], keys, policy, ClientHistory(policy.goal), rand
        )

    def upload(self, index: int, update: float, seed: int = 1) -> bytes:
        """What a client sends whose update has this value in every coordinate."""
        client = self.client(index, seed)
        client.join(self.setup.announce(index), MODEL)
        return client.submit(np.full(DIMENSION, update), NoiseSeed(bytes(32)))

    def member(self, index: int) -> RoundMember:
        """A member that has joined the round, and knows of no earlier time."""
        context = self.setup.context
        key = context.committee.members[index].identity
        member = self.committee.member(context.session_id, key)
        member._history = ClientHistory()
        member.join(self.setup.announce_to_member())
        return member


def planned_round(kind: CommitteeKind, scheme: type[OneShot]) -> PlannedRound:
    """The same round every time."""
    numbers = {"size": MEMBERS, "corrupt": 1, "away": 1}
    committees = {
        CommitteeKind.NAMED: Named(**numbers),
        # All but certain that enough are drawn.
        CommitteeKind.DRAWN: Drawn(odds=1.0 - 2.0**-30, **numbers),
    }
    plan = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 3),
        cohort=CLIENTS,
        tolerated_dropouts=2,
        tolerated_colluders=1,
        clip_l2=1.0,
        noise=Independent(exact=None if scheme.REMOVES else False),
        scheme=scheme(committee=committees.get(kind, Everyone())),
    )
    parameters = plan.calibrate(SketchSpec.identity(DIMENSION), MODEL, PublicSeed(bytes(32)))
    clients = [identity_of(u) for u in range(CLIENTS)]
    keys, session = [each.public for each in clients], bytes(16)
    named = [member_identity(j) for j in range(MEMBERS)]
    committee = local_committee(
        plan, clients, named, lambda *parts: AgreementKey(hashlib.sha256(b"".join(parts)).digest())
    )
    members = committee.members(session, keys, 0)
    setup = one_shot_setup(plan, parameters, keys, members, session, 0)
    return PlannedRound(plan, setup, clients, committee)
