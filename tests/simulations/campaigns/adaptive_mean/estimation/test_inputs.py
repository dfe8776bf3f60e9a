"""Budgets are kept; shares add up; real clients take part."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from estimation_doubles import DELTA, central, goal_for, keys, table, task_of

from dp import BudgetExceededError, DominationAccountant, Ledger
from protocol.exchange.aggregators import IdealAggregator, RealAggregator
from protocol.goal import PrivacyGoal, largest_mu, round_goal
from protocol.planning.policies import client_policy
from protocol.schemes.pairwise import pairwise_setup
from secagg import Identity, TooFewSurvivorsError
from simulations.reproduce.adaptive_mean.estimation.adapt_norm import AdaptNormMean
from simulations.reproduce.adaptive_mean.estimation.base import Estimate
from simulations.reproduce.adaptive_mean.estimation.distributed import (
    DistributedMeans,
)
from simulations.reproduce.adaptive_mean.estimation.fixed import Doubling, FixedRateMean
from sketch import PublicSeed, spec_for_size

TASK = task_of(table(6, 64, np.zeros(64)))


def test_a_trusted_server_keeps_to_its_budget_too() -> None:
    means = central(TASK, FixedRateMean(rate=2.0), 1.0)
    FixedRateMean(rate=2.0).run(means)
    with pytest.raises(BudgetExceededError):
        FixedRateMean(rate=2.0).run(means)


@pytest.mark.parametrize("shares", [(1.0,), (0.1, 0.9), (0.25,) * 4, (0.7, 0.2, 0.1)])
def test_shares_of_one_stay_within_the_goal(shares: tuple[float, ...], tmp_path: Path) -> None:
    goal, spec = PrivacyGoal(3.0, DELTA, len(shares)), spec_for_size(64, 30)
    with Ledger.open(tmp_path / "ledger") as ledger:
        means = DistributedMeans(TASK, goal, keys(6), IdealAggregator(), ledger)
        plan = means.plan
        for share in shares:
            means.mean(spec, share)
        assert 0.98 * goal.epsilon < means.spent <= goal.epsilon
    # Rounds whose shares are promised a tenth more than they should be.
    account = DominationAccountant(goal.reserve)
    for share in shares:
        right = round_goal(goal, share)
        wrong = PrivacyGoal(right.epsilon * math.sqrt(1.1), right.delta, 1)
        parameters = plan.calibrate(spec, bytes(32), PublicSeed(bytes(32)), goal=wrong)
        account.compose(pairwise_setup(plan, parameters, keys(6), bytes(16), 0).events(6).server)
    assert account.epsilon(DELTA) > goal.epsilon


def test_a_sum_that_was_paid_for_before_counts_as_released(tmp_path: Path) -> None:
    """The same public seeds after an interruption: one entry, and not epsilon zero."""
    goal, spec = goal_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    found = []
    for _ in range(2):
        rand = np.random.default_rng(5).bytes
        with Ledger.open(tmp_path / "ledger") as ledger:
            means = DistributedMeans(TASK, goal, keys(6), IdealAggregator(), ledger, rand=rand)
            means.mean(spec, 0.3)
            found.append((len(ledger.entries()), means.spent))
    assert found[0] == found[1]
    assert found[0][1] > 0


def test_an_estimation_counts_its_own_sums_only(tmp_path: Path) -> None:
    goal, spec = goal_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    with Ledger.open(tmp_path / "ledger") as ledger:
        one, two = (
            DistributedMeans(TASK, goal, cohort, IdealAggregator(), ledger)
            for cohort in (keys(12)[:6], keys(12)[6:])
        )
        one.mean(spec, 0.3)
        alone = one.spent
        two.mean(spec, 0.6)
        assert one.spent == alone < two.spent


def test_estimations_on_one_ledger_share_its_budget(tmp_path: Path) -> None:
    goal, spec = goal_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    with Ledger.open(tmp_path / "ledger") as ledger:
        one, two = (
            DistributedMeans(TASK, goal, keys(6), IdealAggregator(), ledger) for _ in range(2)
        )
        one.mean(spec, 0.6)
        with pytest.raises(BudgetExceededError):
            two.mean(spec, 0.6)
        assert len(ledger.entries()) == 1


def _real(tmp_path: Path, policy_share: float, equal_rounds: bool = False) -> Estimate:
    algorithm = AdaptNormMean()
    clients = [Identity.from_private_bytes(hashlib.sha256(b"m%d" % i).digest()) for i in range(6)]
    goal = goal_for(TASK, algorithm, 8.0)
    cohort = [client.public for client in clients]
    with Ledger.open(tmp_path / "ledger") as ledger:
        asked = DistributedMeans(TASK, goal, cohort, IdealAggregator(), ledger)
        # Rounds have unequal shares: the multiplier bounds the largest, and the client's own
        # history adds them up.
        multiplier = (1.0 - 1e-6) / (largest_mu(goal) * math.sqrt(policy_share))
        policy = replace(
            client_policy(asked.plan, TASK.dimension),
            minimum_noise_multiplier=multiplier,
            equal_rounds=equal_rounds,
        )
        aggregator = RealAggregator(clients, policy)
        return algorithm.run(DistributedMeans(TASK, goal, cohort, aggregator, ledger))


def test_real_clients_estimate_a_mean(tmp_path: Path) -> None:
    found = _real(tmp_path, policy_share=0.9)
    assert len(found.steps) == 2
    assert 0 < found.spent <= 8.0
    truth = np.mean([TASK.updates(i) for i in range(6)], axis=0)
    assert float(np.linalg.norm(found.update - truth)) < 10.0


def test_real_clients_refuse_a_larger_share_than_they_agreed_to(tmp_path: Path) -> None:
    with pytest.raises(TooFewSurvivorsError):
        _real(tmp_path, policy_share=0.5)


def test_clients_who_expect_equal_rounds_refuse_unequal_ones(tmp_path: Path) -> None:
    with pytest.raises(TooFewSurvivorsError):
        _real(tmp_path, policy_share=0.9, equal_rounds=True)


def test_the_largest_shift_leaves_room_for_failures() -> None:
    goal = PrivacyGoal(2.0, DELTA, 5)
    assert 0 < largest_mu(goal) < largest_mu(PrivacyGoal(2.0, DELTA * 1.01, 5))


def test_a_round_that_was_paid_for_and_failed_is_counted(tmp_path: Path) -> None:
    class FailsOnce(IdealAggregator):
        failed = False

        def run(self, *arguments: object, **options: object) -> object:
            outcome = super().run(*arguments, **options)
            if not self.failed:
                self.failed = True
                raise TooFewSurvivorsError("unmask", 1, 2)
            return outcome

    goal = goal_for(TASK, Doubling(), 2.0)
    with Ledger.open(tmp_path / "ledger") as ledger:
        means = DistributedMeans(TASK, goal, keys(TASK.clients), FailsOnce(), ledger)
        with pytest.raises(TooFewSurvivorsError):
            means.mean(spec_for_size(64, 30), 0.5)
        after_one = means.spent
        assert after_one > 0.5
        means.mean(spec_for_size(64, 30), 0.5)
        assert after_one < means.spent <= 2.0


def test_doubling_never_asks_for_one_sketch_twice() -> None:
    specs = Doubling().specs(task_of(np.zeros((5, 500))))
    assert len(set(specs)) == len(specs)
    assert [spec.size for spec in specs[:3]] == [30, 60, 120]
