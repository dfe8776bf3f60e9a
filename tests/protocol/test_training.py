"""Many rounds: budget, ledger, controller, and what an interrupted round leaves behind."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from dp import (
    BinomialRelease,
    Budget,
    BudgetExceededError,
    DominationAccountant,
    FailureReserve,
    Ledger,
    LedgerError,
    NonFiniteUpdateError,
    replay,
)
from protocol.accounts import ClientAccounts
from protocol.adapters.memory import Stage
from protocol.aggregators import IdealAggregator, RealAggregator
from protocol.calibration import PrivacyGoal, calibrate, sketch_clip
from protocol.client import ClientPolicy
from protocol.training import PrivateTraining, TrainingPlan
from secagg import Identity, ParameterError, TooFewSurvivorsError
from sketch import PublicSeed, SketchSpec, spec_for_size
from sketch.controllers import Decision, FixedRate, Rationale
from sketch.controllers.base import ControllerState

N, D = 12, 300
MODEL = bytes(32)


@pytest.fixture(scope="module")
def cohort():
    return [Identity.from_private_bytes(hashlib.sha256(b"t%d" % i).digest()) for i in range(N)]


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        yield opened


def plan(rounds=3, **overrides):
    values = {
        "goal": PrivacyGoal(8.0, 1e-5, rounds),
        "cohort": N,
        "tolerated_dropouts": 3,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
    }
    return TrainingPlan(**{**values, **overrides})


def training(ledger, aggregator=None, controller=None, **overrides):
    return PrivateTraining(
        plan(**overrides), D, controller or FixedRate(3.0), aggregator or IdealAggregator(), ledger
    )


class Halving:
    """A controller whose decisions do not depend on noise."""

    def initial(self, dimension):
        return self._decide(ControllerState(dimension, dimension))

    def step(self, state, released):
        return self._decide(replace(state, size=state.size // 2))

    def _decide(self, state):
        spec = spec_for_size(state.dimension, state.size, 5)
        return Decision(state, spec, Rationale("half of the last", {}))


def constant(_):
    return np.full(D, 0.02)


def test_epsilon_adds_up_and_meets_the_goal(cohort, ledger):
    run = training(ledger)
    results = [run.run_round(cohort, constant, MODEL, {}) for _ in range(3)]
    spent = [result.epsilon_server for result in results]
    assert spent == sorted(spent)
    assert 0 < spent[0] and spent[-1] <= 8.0
    # Colluders' coins count against an outsider, who does not know them.
    assert all(result.epsilon_outsider < result.epsilon_server for result in results)
    replayed = replay(ledger.events(), DominationAccountant(plan().goal.reserve))
    assert replayed.epsilon(1e-5) == spent[-1]


def test_with_the_most_dropouts_the_goal_is_still_met(cohort, ledger):
    run = training(ledger)
    lost = dict.fromkeys(range(3), Stage.INPUT)
    result = [run.run_round(cohort, constant, MODEL, lost) for _ in range(3)][-1]
    assert result.epsilon_server <= 8.0
    # ... and without slack to spare: the noise was not made for fewer.
    assert result.epsilon_server > 7.9


def test_the_budget_stops_a_round_before_any_client_is_asked(cohort, ledger):
    run = training(ledger)
    for _ in range(3):
        run.run_round(cohort, constant, MODEL, dict.fromkeys(range(3), Stage.INPUT))
    asked = []

    def watched(index):
        asked.append(index)
        return constant(index)

    before = ledger.head
    with pytest.raises(BudgetExceededError):
        run.run_round(cohort, watched, MODEL, {})
    assert asked == []
    assert ledger.head == before


@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_an_aborted_round_leaves_ledger_and_earlier_rounds_intact(cohort, ledger, kind):
    aggregator = IdealAggregator() if kind == "ideal" else RealAggregator(cohort, ClientPolicy())
    run = training(ledger, aggregator)
    first = run.run_round(cohort, constant, MODEL, {})
    head, entries = ledger.head, ledger.entries()
    with pytest.raises(TooFewSurvivorsError):
        run.run_round(cohort, constant, MODEL, dict.fromkeys(range(4), Stage.INPUT))
    with pytest.raises(NonFiniteUpdateError):
        run.run_round(cohort, lambda _: np.full(D, np.inf), MODEL, {})
    assert (ledger.head, ledger.entries()) == (head, entries)
    second = run.run_round(cohort, constant, MODEL, {})
    assert (first.number, second.number) == (0, 1)
    assert second.epsilon_server > first.epsilon_server


def test_nothing_is_released_if_the_ledger_cannot_be_written(cohort, ledger):
    run = training(ledger)
    ledger.close()
    with pytest.raises(LedgerError):
        run.run_round(cohort, constant, MODEL, {})


def test_spending_before_a_restart_is_counted(cohort, tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as first:
        one = training(first).run_round(cohort, constant, MODEL, {})
    with Ledger.open(path) as second:
        two = training(second).run_round(cohort, constant, MODEL, {})
    assert two.epsilon_server > one.epsilon_server


def test_the_event_on_record_has_the_coins_that_remained(cohort, ledger):
    run = training(ledger)
    result = run.run_round(cohort, constant, MODEL, {0: Stage.SHARE, 5: Stage.UNMASK})
    event = ledger.entries()[-1].event
    # Eleven survivors (a client lost at unmasking is in the sum), one of them a colluder.
    assert event.coins == 10 * result.setup.parameters.coins


def test_the_mean_is_unbiased_and_as_noisy_as_promised(cohort, ledger):
    run = training(ledger, controller=FixedRate(1.0))
    result = run.run_round(cohort, constant, MODEL, {})
    error = result.release.update - constant(0)
    expected = result.release.noise_variance * D
    # A chi-square variable with 300 degrees of freedom is within 50 % of its mean (p < 1e-6).
    assert 0.5 * expected < float(error @ error) < 1.5 * expected


def test_the_controller_changes_the_size_between_rounds(cohort, ledger):
    aggregator = RealAggregator(cohort, ClientPolicy())
    run = training(ledger, aggregator, Halving(), rounds=4)
    results = [run.run_round(cohort, constant, MODEL, {}) for _ in range(4)]
    assert [result.setup.parameters.length for result in results] == [300, 150, 75, 35]
    assert len({result.setup.context.hash for result in results}) == 4


def test_every_round_has_its_own_seed_and_context(cohort, ledger):
    run = training(ledger)
    setups = [run.run_round(cohort, constant, MODEL, {}).setup for _ in range(2)]
    assert setups[0].parameters.public_seed != setups[1].parameters.public_seed
    assert setups[0].context.hash != setups[1].context.hash


@pytest.mark.parametrize(
    "overrides",
    [
        {"tolerated_dropouts": 6},
        {"tolerated_dropouts": -1},
        {"tolerated_colluders": 12},
        {"tolerated_colluders": -1},
        {"threshold": 10},
    ],
)
def test_plans_that_leave_too_few_are_refused(overrides):
    with pytest.raises(ParameterError, match="tolerated"):
        plan(**overrides)


@pytest.mark.parametrize("threshold", [6, 13])
def test_an_unsafe_threshold_is_refused_before_any_message(cohort, ledger, threshold):
    """2 t > n + n_C is broken by 6; 13 is above the cohort of 12."""
    with pytest.raises(ParameterError, match=r"threshold|tolerated"):
        training(ledger, threshold=threshold).run_round(cohort, constant, MODEL, {})


def test_a_cohort_of_another_size_is_refused(cohort, ledger):
    with pytest.raises(ParameterError, match="cohort"):
        training(ledger).run_round(cohort[:-1], constant, MODEL, {})


@pytest.mark.parametrize(
    "arguments",
    [(0.0, 1e-5, 1), (float("inf"), 1e-5, 1), (1.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 1e-5, 0)],
)
def test_impossible_goals_are_refused(arguments):
    with pytest.raises(ParameterError):
        PrivacyGoal(*arguments)


class TestCalibration:
    def parameters(self, sketch, fewest_honest=8, epsilon=4.0):
        return calibrate(
            PrivacyGoal(epsilon, 1e-5, 5),
            fewest_honest=fewest_honest,
            sketch=sketch,
            clip_l2=0.7,
            tolerated_dropouts=1,
            model_digest=MODEL,
            public_seed=PublicSeed(bytes(32)),
        )

    @pytest.mark.parametrize("size", [15, 150, 1500, 20_000])
    def test_rounding_costs_at_most_its_share(self, size):
        parameters = self.parameters(spec_for_size(20_000, size))
        clean = parameters.sketch_clip_l2 * parameters.scale
        assert clean < parameters.l2_bound <= 1.0101 * clean

    @pytest.mark.parametrize("epsilon", [0.5, 4.0, 50.0])
    def test_noise_is_wide_enough_to_be_gaussian(self, epsilon):
        parameters = self.parameters(SketchSpec.identity(100), epsilon=epsilon)
        assert (8 * parameters.coins / 4) ** 0.5 >= 15.9

    def test_fewer_honest_clients_carry_more_coins_each(self):
        spec = SketchSpec.identity(100)
        few, many = self.parameters(spec, 4), self.parameters(spec, 40)
        assert 9.9 < few.coins / many.coins < 10.1

    def test_nobody_honest_is_infeasible(self):
        with pytest.raises(ParameterError, match="fewest_honest"):
            self.parameters(SketchSpec.identity(100), 0)

    def test_an_identity_needs_no_second_clip(self):
        assert sketch_clip(0.7, SketchSpec.identity(100)) == 0.7
        assert sketch_clip(0.7, spec_for_size(1000, 500, 5)) == pytest.approx(
            0.7 * 1.0632, rel=1e-3
        )


class TestAccounts:
    """A client pays for its own rounds; reported is who paid most."""

    event = BinomialRelease(4096, 16.0, 8, 100)
    wider = BinomialRelease(8192, 16.0, 8, 100)

    def accounts(self):
        return ClientAccounts(FailureReserve.from_delta(1e-5, 4))

    def epsilon_of(self, *events):
        accountant = DominationAccountant(FailureReserve.from_delta(1e-5, 4))
        for event in events:
            accountant.compose(event)
        return accountant.epsilon(1e-5)

    def test_disjoint_cohorts_do_not_add_up(self):
        accounts = self.accounts()
        accounts.record(["a", "b"], self.event, self.wider)
        accounts.record(["c", "d"], self.event, self.wider)
        assert accounts.epsilon(1e-5) == (self.epsilon_of(self.event), self.epsilon_of(self.wider))

    def test_the_busiest_client_is_reported(self):
        accounts = self.accounts()
        accounts.record(["a", "b"], self.event, self.event)
        accounts.record(["b", "c"], self.event, self.event)
        assert accounts.epsilon(1e-5)[0] == self.epsilon_of(self.event, self.event)

    def test_the_budget_is_checked_for_everybody_invited(self):
        accounts = self.accounts()
        accounts.record(["a"], self.event, self.event)
        budget = Budget(self.epsilon_of(self.event) * 1.1, 1e-5)
        accounts.check(["b", "c"], self.event, budget)
        with pytest.raises(BudgetExceededError):
            accounts.check(["b", "a"], self.event, budget)

    def test_an_entry_without_a_cohort_is_charged_to_everybody(self):
        accounts = self.accounts()
        accounts.replay([(self.event, {"cohort": ["a"]}), (self.event, {})])
        assert accounts.epsilon(1e-5)[0] == self.epsilon_of(self.event, self.event)
        accounts.record(["new"], self.event, self.event)
        assert accounts.epsilon(1e-5)[0] == self.epsilon_of(self.event, self.event)


def test_clients_that_sat_out_have_budget_left(cohort, ledger):
    """Two halves of a population take turns: each pays for its own rounds."""
    others = [Identity.from_private_bytes(hashlib.sha256(b"o%d" % i).digest()) for i in range(N)]
    run = training(ledger, rounds=2)
    lost = dict.fromkeys(range(3), Stage.INPUT)
    spent = [
        run.run_round(half, constant, MODEL, lost).epsilon_server
        for half in (cohort, others, cohort, others)
    ]
    assert spent[0] == spent[1] < spent[2] == spent[3] <= 8.0
    with pytest.raises(BudgetExceededError):
        run.run_round(others, constant, MODEL, lost)
