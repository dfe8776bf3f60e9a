"""What cannot be done is refused by name; shares add up; real clients take part."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from estimation_doubles import DELTA, ExactMeans, central, keys, plan_for, table, task_of

from dp import BudgetExceededError, DominationAccountant, Ledger
from protocol.exchange.aggregators import IdealAggregator, RealAggregator
from protocol.goal import PrivacyGoal
from secagg import Identity, ParameterError, TooFewSurvivorsError
from simulations.reproduce.adaptive_mean.estimation import (
    AdaptNormMean,
    AdaptTailMean,
    CentralMeans,
    DistributedMeans,
    Doubling,
    Estimate,
    FixedRateMean,
    MeanTask,
    NoisyMeans,
)
from simulations.reproduce.adaptive_mean.estimation.shares import largest_mu, round_goal
from sketch import PublicSeed, SketchSpec, spec_for_size

TASK = task_of(table(6, 64, np.zeros(64)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dimension", 1),
        ("dimension", 2.0),
        ("clients", 1),
        ("clients", 0),
        ("clients", True),
        ("clip_l2", 0.0),
        ("clip_l2", math.nan),
        ("clip_l2", math.inf),
    ],
)
def test_tasks_that_cannot_be(field: str, value: float) -> None:
    good = {"dimension": 4, "clients": 2, "clip_l2": 1.0, "updates": lambda _: np.zeros(4)}
    with pytest.raises(ParameterError, match=field):
        MeanTask(**{**good, field: value})


@pytest.mark.parametrize(
    ("algorithm", "argument", "value"),
    [
        (FixedRateMean, "rate", 0.5),
        (FixedRateMean, "rate", math.nan),
        (FixedRateMean, "rate", math.inf),
        (Doubling, "gamma", 0.0),
        (Doubling, "first_size", 0),
        (AdaptNormMean, "failure", 0.0),
        (AdaptNormMean, "failure", 1.0),
        (AdaptNormMean, "norm_share", 1.0),
        (AdaptNormMean, "norm_size", 0),
        (AdaptNormMean, "sampling_constant", -1.0),
        (AdaptTailMean, "failure", math.nan),
        (AdaptTailMean, "probe_share", 0.0),
        (AdaptTailMean, "constant", -1.0),
        (AdaptTailMean, "copies", 2),
        (AdaptTailMean, "rows", 0),
        (AdaptTailMean, "first_columns", 0),
        (AdaptTailMean, "probe_size", 0),
        (AdaptTailMean, "sampling_constant", math.inf),
        (AdaptTailMean, "tail", -0.1),
    ],
)
def test_algorithms_that_cannot_be(algorithm: type, argument: str, value: float) -> None:
    good = {"rate": 1.0} if algorithm is FixedRateMean else {}
    with pytest.raises(ParameterError, match=argument):
        algorithm(**{**good, argument: value})


def test_a_biased_variant_has_no_unbiased_last_round() -> None:
    with pytest.raises(ParameterError, match="fresh"):
        AdaptTailMean(tail=0.1, fresh=True)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_no_epsilon(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        CentralMeans(TASK, epsilon, DELTA, gauged=True)
    with pytest.raises(ParameterError, match="epsilon"):
        PrivacyGoal(epsilon, DELTA, 2)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_no_delta(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        CentralMeans(TASK, 1.0, delta, gauged=True)


def test_the_classical_formula_ends_at_one() -> None:
    with pytest.raises(ParameterError, match="classical"):
        AdaptNormMean().run(CentralMeans(TASK, 2.0, DELTA, gauged=True))


def test_so_little_epsilon_that_no_lattice_holds_the_noise() -> None:
    with pytest.raises(ParameterError, match="lattice"):
        FixedRateMean(rate=2.0).run(CentralMeans(TASK, 1e-4, DELTA, gauged=False))


def test_gauges_need_their_half_of_epsilon() -> None:
    with pytest.raises(ParameterError, match="gauged"):
        AdaptNormMean().run(CentralMeans(TASK, 1.0, DELTA, gauged=False))


def test_a_trusted_server_keeps_to_its_budget_too() -> None:
    means = central(TASK, FixedRateMean(rate=2.0), 1.0)
    FixedRateMean(rate=2.0).run(means)
    with pytest.raises(BudgetExceededError):
        FixedRateMean(rate=2.0).run(means)


def test_task_plan_and_cohort_must_match(tmp_path: Path) -> None:
    algorithm = FixedRateMean(rate=2.0)
    with Ledger.open(tmp_path / "ledger") as ledger:
        plan = plan_for(TASK, algorithm, 4.0)
        with pytest.raises(ParameterError, match="cohort"):
            DistributedMeans(TASK, plan, keys(5), IdealAggregator(), ledger)
        other = plan_for(TASK, algorithm, 4.0, clip_l2=2.0)
        with pytest.raises(ParameterError, match="clip_l2"):
            DistributedMeans(TASK, other, keys(6), IdealAggregator(), ledger)
        means = DistributedMeans(TASK, plan, keys(6), IdealAggregator(), ledger)
        with pytest.raises(ParameterError, match=r"goal\.rounds"):
            AdaptNormMean().run(means)
        assert not ledger.entries()
        for share in (0.0, -0.5, 1.5, math.nan):
            with pytest.raises(ParameterError, match="share"):
                means.mean(spec_for_size(64, 30), share)
            with pytest.raises(ParameterError, match="share"):
                central(TASK, algorithm, 4.0).mean(spec_for_size(64, 30), share)


def test_both_forms_are_noisy_means(tmp_path: Path) -> None:
    def accepts(means: NoisyMeans) -> str:
        return means.form

    with Ledger.open(tmp_path / "ledger") as ledger:
        plan = plan_for(TASK, FixedRateMean(rate=2.0), 4.0)
        assert accepts(DistributedMeans(TASK, plan, keys(6), IdealAggregator(), ledger)) == (
            "untrusted"
        )
    assert accepts(central(TASK, FixedRateMean(rate=2.0), 4.0)) == "central"
    assert accepts(ExactMeans(np.ones(4), np.random.default_rng(0))) == "exact"


@pytest.mark.parametrize("shares", [(1.0,), (0.1, 0.9), (0.25,) * 4, (0.7, 0.2, 0.1)])
def test_shares_of_one_stay_within_the_goal(shares: tuple[float, ...], tmp_path: Path) -> None:
    goal, spec = PrivacyGoal(3.0, DELTA, len(shares)), spec_for_size(64, 30)
    plan = plan_for(TASK, FixedRateMean(rate=2.0), 1.0, goal=goal)
    with Ledger.open(tmp_path / "ledger") as ledger:
        means = DistributedMeans(TASK, plan, keys(6), IdealAggregator(), ledger)
        for share in shares:
            means.mean(spec, share)
        assert 0.98 * goal.epsilon < means.spent <= goal.epsilon
    # Rounds whose shares are promised a tenth more than they should be.
    account = DominationAccountant(goal.reserve)
    for share in shares:
        right = round_goal(goal, share)
        wrong = PrivacyGoal(right.epsilon * math.sqrt(1.1), right.delta, 1)
        parameters = plan.calibrate(spec, bytes(32), PublicSeed(bytes(32)), goal=wrong)
        account.compose(plan.setup(parameters, keys(6), bytes(16), 0).events(6).server)
    assert account.epsilon(DELTA) > goal.epsilon


def test_a_sum_that_was_paid_for_before_counts_as_released(tmp_path: Path) -> None:
    """The same public seeds after an interruption: one entry, and not epsilon zero."""
    plan, spec = plan_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    found = []
    for _ in range(2):
        rand = np.random.default_rng(5).bytes
        with Ledger.open(tmp_path / "ledger") as ledger:
            means = DistributedMeans(TASK, plan, keys(6), IdealAggregator(), ledger, rand=rand)
            means.mean(spec, 0.3)
            found.append((len(ledger.entries()), means.spent))
    assert found[0] == found[1]
    assert found[0][1] > 0


def test_an_estimation_counts_its_own_sums_only(tmp_path: Path) -> None:
    plan, spec = plan_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    with Ledger.open(tmp_path / "ledger") as ledger:
        one, two = (
            DistributedMeans(TASK, plan, cohort, IdealAggregator(), ledger)
            for cohort in (keys(12)[:6], keys(12)[6:])
        )
        one.mean(spec, 0.3)
        alone = one.spent
        two.mean(spec, 0.6)
        assert one.spent == alone < two.spent


def test_estimations_on_one_ledger_share_its_budget(tmp_path: Path) -> None:
    plan, spec = plan_for(TASK, FixedRateMean(rate=2.0), 4.0), spec_for_size(64, 30)
    with Ledger.open(tmp_path / "ledger") as ledger:
        one, two = (
            DistributedMeans(TASK, plan, keys(6), IdealAggregator(), ledger) for _ in range(2)
        )
        one.mean(spec, 0.6)
        with pytest.raises(BudgetExceededError):
            two.mean(spec, 0.6)
        assert len(ledger.entries()) == 1


def _real(tmp_path: Path, policy_share: float, equal_rounds: bool = False) -> Estimate:
    algorithm = AdaptNormMean(norm_size=10)
    clients = [Identity.from_private_bytes(hashlib.sha256(b"m%d" % i).digest()) for i in range(6)]
    plan = plan_for(TASK, algorithm, 8.0)
    cohort = [client.public for client in clients]
    with Ledger.open(tmp_path / "ledger") as ledger:
        asked = DistributedMeans(TASK, plan, cohort, IdealAggregator(), ledger)
        policy = replace(asked.client_policy(policy_share), equal_rounds=equal_rounds)
        aggregator = RealAggregator(clients, policy)
        return algorithm.run(DistributedMeans(TASK, plan, cohort, aggregator, ledger))


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

    plan = plan_for(TASK, Doubling(), 2.0)
    with Ledger.open(tmp_path / "ledger") as ledger:
        means = DistributedMeans(TASK, plan, keys(TASK.clients), FailsOnce(), ledger)
        with pytest.raises(TooFewSurvivorsError):
            means.mean(spec_for_size(64, 30), 0.5)
        after_one = means.spent
        assert after_one > 0.5
        means.mean(spec_for_size(64, 30), 0.5)
        assert after_one < means.spent <= 2.0


def test_a_size_that_cannot_be_had_is_found_before_anything_is_paid(tmp_path: Path) -> None:
    """Uncompressed, 20,000 coordinates would need more coins than a client may have."""
    vector = np.full(20_000, 1e-4)
    task = MeanTask(dimension=20_000, clients=12, clip_l2=1.0, updates=lambda _: vector)
    algorithm = AdaptNormMean(sampling_constant=0.0)
    plan = plan_for(task, algorithm, 0.55, tolerated_dropouts=1, tolerated_colluders=1)
    with Ledger.open(tmp_path / "ledger") as ledger:
        means = DistributedMeans(task, plan, keys(12), IdealAggregator(), ledger)
        with pytest.raises(ParameterError, match="coins"):
            means.noise_variance(SketchSpec.identity(20_000), 0.9)
        done = algorithm.run(means)
        assert len(ledger.entries()) == 2
        assert done.specs[-1].size < 20_000


def test_doubling_never_asks_for_one_sketch_twice() -> None:
    specs = Doubling(first_size=1)._specs(task_of(np.zeros((5, 500))))
    assert len(set(specs)) == len(specs)
    assert [spec.size for spec in specs[:3]] == [15, 30, 60]


def test_shares_are_of_a_goal_counted_by_domination() -> None:
    with pytest.raises(ParameterError, match="moment_order"):
        round_goal(PrivacyGoal(2.0, DELTA, 5, 4.0), 0.5)
