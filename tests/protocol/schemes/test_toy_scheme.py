"""A third scheme, plain sums, is this file and nothing else: plan, ledger, policy and history."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dp import Ledger
from protocol import (
    ClientHistory,
    ClientPolicy,
    IdealAggregator,
    PolicyError,
    PrivateTraining,
    Stage,
    TrainingPlan,
    client_policy,
    plan_deployment,
)
from protocol.exchange.aggregators import Aggregator
from protocol.goal import PrivacyGoal
from protocol.promise import Promise
from protocol.round.field_size import bits_for
from protocol.round.losses import NOBODY, Dropouts, left_after, require_left
from protocol.round.parameters import RoundParameters
from protocol.round.setup import RoundEncoding, removal_table
from protocol.schemes import Scheme
from protocol.schemes.scheme import Announced, Local, Trusted
from protocol.training.local import local_aggregator
from secagg import TooFewSurvivorsError
from secagg.terms import RoundTerms
from secagg.traffic import Traffic
from sketch import SketchSpec
from sketch.controllers import FixedRate

N, DIMENSION = 10, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTerms(RoundTerms):
    cohort: tuple[bytes, ...]

    @property
    def invited(self) -> int:
        return len(self.cohort)


@dataclass(frozen=True, slots=True)
class PlainSetup(RoundEncoding):
    KIND: ClassVar[str] = "plain"

    context: PlainTerms

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (Stage.INPUT,)

    @property
    def context_hash(self) -> bytes:
        return hashlib.sha256(
            b"plain" + self.context.session_id + self.parameters.digest()
        ).digest()

    @property
    def identities(self) -> tuple[bytes, ...]:
        return self.context.cohort

    @property
    def vector_bytes(self) -> int:
        return self.context.field.packed_bytes(self.context.length)

    def traffic(self, survivors: int) -> Traffic:
        return Traffic({"vector": self.vector_bytes}, {})

    def require_left(self, stage: Stage, dropouts: Dropouts, refused: Dropouts = NOBODY) -> None:
        left = left_after(self.context.invited, {**dropouts, **refused}, stage)
        require_left(stage, len(left), self.context.minimum_survivors)


class PlainClauses:
    KIND: ClassVar[str] = "plain"

    def check(self, setup: RoundEncoding) -> None:
        assert setup.KIND == self.KIND

    def require_goal(self, goal: PrivacyGoal) -> None:
        """Any will do."""


@dataclass(frozen=True)
class Price:
    bytes_each: dict[str, int]


@dataclass(frozen=True, slots=True)
class Plain(Scheme):
    KIND: ClassVar[str] = "plain"
    SHORT_STAGES: ClassVar[int] = 0

    def check(self, plan: Promise) -> None:
        """Any will do."""

    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> Price:
        return Price({"vector": bits * parameters.length // 8})

    def setup(self, plan: Promise, parameters: RoundParameters, announced: Announced) -> PlainSetup:
        removal = removal_table(plan.schedule(parameters.mechanism))
        terms = PlainTerms(
            session_id=announced.session_id,
            round_number=announced.round_number,
            cohort=tuple(announced.cohort),
            minimum_survivors=plan.minimum_survivors,
            tolerated_colluders=plan.tolerated_colluders,
            removal=removal,
            bits=bits_for(parameters, plan.cohort, max(removal, default=0).bit_length()),
            length=parameters.length,
            application_digest=parameters.digest(),
        )
        return PlainSetup(terms, parameters)

    def clauses(self, plan: Promise, trusted: Trusted) -> PlainClauses:
        return PlainClauses()

    def local(self, plan: Promise, play: Local) -> Aggregator:
        return IdealAggregator(noise=play.noise)

    def remote(self, carrier: Any, executor: Any = None) -> Aggregator:
        raise NotImplementedError

    def table(self) -> dict[str, Any]:
        return {"kind": self.KIND}

    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        return {}

    @classmethod
    def stage_bytes(cls, setup: RoundEncoding) -> int:
        return 0


PLAN = TrainingPlan(
    goal=PrivacyGoal(8.0, 1e-5, 3),
    cohort=N,
    tolerated_dropouts=2,
    tolerated_colluders=1,
    clip_l2=1.0,
    scheme=Plain(),
)


def keys() -> Sequence[bytes]:
    return [bytes([i]) * 32 for i in range(N)]


def test_a_round_is_paid_for_and_its_mean_decoded(tmp_path: Path) -> None:
    aggregator = local_aggregator(PLAN, [], DIMENSION)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        training = PrivateTraining(PLAN, DIMENSION, FixedRate(1.0), aggregator, ledger)

        def run(dropouts: Dropouts) -> Any:
            update = np.full(DIMENSION, 0.1)
            return training.run_round(keys(), bytes(32), lambda _: update, dropouts)

        with pytest.raises(TooFewSurvivorsError):
            run(dict.fromkeys(range(3), Stage.INPUT))
        assert not ledger.entries()
        result = run({3: Stage.INPUT})
        assert result.release.survivors == N - 1 and len(ledger.entries()) == 1
        assert 0.0 < result.epsilons.server < PLAN.goal.epsilon == result.epsilons.guaranteed


def test_a_client_counts_it_and_one_of_another_scheme_refuses_it(tmp_path: Path) -> None:
    aggregator = local_aggregator(PLAN, [], DIMENSION)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        training = PrivateTraining(PLAN, DIMENSION, FixedRate(1.0), aggregator, ledger)
        setup = training.next_setup(keys(), bytes(32))
    policy, history = client_policy(PLAN, DIMENSION), ClientHistory(PLAN.goal)
    policy.check(setup)
    history.answer(setup)
    history.charge(setup)
    assert 0.0 < history.epsilon < PLAN.goal.epsilon
    with pytest.raises(PolicyError, match=r"scheme.*plain.*pairwise only"):
        ClientPolicy(minimum_noise_multiplier=0.0).check(setup)


def test_a_deployment_has_its_price() -> None:
    deployment = plan_deployment(PLAN, SketchSpec.identity(DIMENSION))
    assert deployment.bytes_per_client == deployment.bits * DIMENSION // 8
