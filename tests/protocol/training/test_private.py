"""Many rounds: budget, ledger, controller, and what an interrupted round leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from one_shot_rounds import secret
from training_doubles import COHORT, KEYS, MODEL, N, keys, plan_of

from dp import (
    BudgetExceededError,
    DominationAccountant,
    Ledger,
    LedgerError,
    Sensitivities,
    replay,
)
from dp.events import Event
from dp.mechanisms import MECHANISMS, MechanismName, mechanism_of
from protocol import RoundOutcome, RoundResult, TrainingPlan
from protocol.errors import PolicyError
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator, UpdateSource
from protocol.exchange.stages import ReleaseHook
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.round.pipeline import MeanRelease, Pipeline
from protocol.round.setup import RoundSetup, coin_schedule, removal_table
from protocol.training.private import PrivateTraining
from secagg import (
    ClientSession,
    FieldSum,
    Identity,
    LocalProtocolError,
    Mode,
    ParameterError,
    TooFewSurvivorsError,
)
from secagg.pairwise.transitions import ClientPhase
from sketch import spec_for_size
from sketch.controllers import Decision, FixedRate, Prior, Rationale, ReleasedStats
from sketch.controllers.base import ControllerState
from tests.doubles.refused import refused

D = 300


def plan(rounds: int = 3, **overrides: Any) -> TrainingPlan:
    return plan_of(rounds, **overrides)


def training(
    ledger: Ledger,
    aggregator: Aggregator | None = None,
    controller: FixedRate | Halving | None = None,
    **overrides: Any,
) -> PrivateTraining:
    return PrivateTraining(
        plan(**overrides), D, controller or FixedRate(3.0), aggregator or IdealAggregator(), ledger
    )


class Halving:
    """A controller whose decisions do not depend on noise."""

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        del prior
        return self._decide(ControllerState(dimension, dimension))

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        return self._decide(replace(state, size=state.size // 2))

    def _decide(self, state: ControllerState) -> Decision:
        spec = spec_for_size(state.dimension, state.size, 5)
        return Decision(state, spec, Rationale("half of the last", {}))


def constant(_: int) -> np.ndarray:
    return np.full(D, 0.02)


def aggregator_of(kind: str) -> Aggregator:
    return (
        IdealAggregator() if kind == "ideal" else RealAggregator(COHORT, client_policy(plan(), D))
    )


class Watched:
    """An aggregator that keeps the setups it was given, and may do something of its own."""

    def __init__(
        self, inner: Aggregator | None = None, instead: Callable[..., Any] | None = None
    ) -> None:
        self.inner, self.instead, self.setups = inner or IdealAggregator(), instead, []

    def run(
        self,
        setup: RoundSetup,
        updates: UpdateSource,
        dropouts: dict[int, Stage],
        before_release: ReleaseHook,
    ) -> RoundOutcome:
        self.setups.append(setup)
        if self.instead:
            return self.instead(setup, before_release)
        return self.inner.run(setup, updates, dropouts, before_release=before_release)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_epsilon_adds_up_and_meets_the_goal(ledger: Ledger, mechanism: MechanismName) -> None:
    run = training(ledger, mechanism=mechanism)
    results = [run.run_round(KEYS, MODEL, constant, {}) for _ in range(3)]
    spent = [result.epsilons.server for result in results]
    assert spent == sorted(spent)
    assert 0 < spent[0] and spent[-1] <= 8.0
    # Colluders' coins count against an outsider, who does not know them.
    assert all(result.epsilons.outsider < result.epsilons.server for result in results)
    replayed = replay(ledger.events(), DominationAccountant(plan().goal.reserve))
    assert replayed.epsilon(1e-5) == spent[-1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_with_the_most_dropouts_the_goal_is_still_met(
    ledger: Ledger, mechanism: MechanismName
) -> None:
    run = training(ledger, mechanism=mechanism)
    lost = dict.fromkeys(range(3), Stage.INPUT)
    result = [run.run_round(KEYS, MODEL, constant, lost) for _ in range(3)][-1]
    assert result.epsilons.server <= 8.0
    # ... and without slack to spare: the noise was not made for fewer.
    assert result.epsilons.server > 7.9


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_budget_stops_a_round_before_any_client_is_asked(
    ledger: Ledger, mechanism: MechanismName
) -> None:
    run = training(ledger, mechanism=mechanism)
    for _ in range(3):
        run.run_round(KEYS, MODEL, constant, dict.fromkeys(range(3), Stage.INPUT))
    asked = []

    def watched(index: int) -> np.ndarray:
        asked.append(index)
        return constant(index)

    before = ledger.head
    with pytest.raises(BudgetExceededError):
        run.run_round(KEYS, MODEL, watched, {})
    assert asked == []
    assert ledger.head == before


@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_an_aborted_round_leaves_ledger_and_earlier_rounds_intact(
    ledger: Ledger, kind: str
) -> None:
    run = training(ledger, aggregator_of(kind))
    first = run.run_round(KEYS, MODEL, constant, {})
    head, entries = ledger.head, ledger.entries()
    with pytest.raises(TooFewSurvivorsError):
        run.run_round(KEYS, MODEL, lambda _: np.full(D, np.inf), {})
    assert (ledger.head, ledger.entries()) == (head, entries)
    second = run.run_round(KEYS, MODEL, constant, {})
    assert (first.number, second.number) == (0, 1)
    assert second.epsilons.server > first.epsilons.server


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.RECOVER])
@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_a_round_that_fails_is_paid_for_once_if_its_survivors_were_decided(
    ledger: Ledger, kind: str, stage: Stage
) -> None:
    """Some clients may have given up their shares, and whoever deviates may know the sum."""
    run = training(ledger, aggregator_of(kind))
    with pytest.raises(TooFewSurvivorsError):
        run.run_round(KEYS, MODEL, constant, dict.fromkeys(range(8), stage))
    decided = stage > Stage.INPUT
    assert [entry.metadata["survivors"] for entry in ledger.entries()] == [12] * decided
    paid = replay(ledger.events(), DominationAccountant(plan().goal.reserve))
    result = run.run_round(KEYS, MODEL, constant, {})
    assert result.number == 0
    assert len(ledger.entries()) == 1 + decided
    spent = result.epsilons.server
    assert spent > 1.3 * paid.epsilon(1e-5) if decided else spent < 5


def test_a_round_that_fails_in_the_last_stage_is_paid_for(ledger: Ledger) -> None:
    def fail(setup: RoundSetup, before_release: ReleaseHook) -> NoReturn:
        before_release(range(11))
        raise TooFewSurvivorsError(str(Stage.RECOVER), 2, 7)

    run = training(ledger, Watched(instead=fail))
    with pytest.raises(TooFewSurvivorsError, match="recover"):
        run.run_round(KEYS, MODEL, constant, {})
    (entry,) = ledger.entries()
    assert entry.metadata["survivors"] == 11


@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_nothing_is_released_if_the_ledger_cannot_be_written(
    ledger: Ledger, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real clients are never asked for a share: the last thing they did was to upload."""
    phases = []
    run = training(ledger, aggregator_of(kind))
    receive = ClientSession.receive_bytes
    monkeypatch.setattr(
        ClientSession,
        "receive_bytes",
        lambda session, data: (phases.append(session.phase), receive(session, data))[1],
    )
    monkeypatch.setattr(Pipeline, "decode", lambda *_: pytest.fail("decoded"))
    ledger.close()
    with pytest.raises(LedgerError):
        run.run_round(KEYS, MODEL, constant, {})
    assert set(phases) <= {ClientPhase.ADVERTISED, ClientPhase.SHARED}
    assert (phases == []) == (kind == "ideal")


def test_the_ledger_is_written_before_the_sum_is_decoded(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = Pipeline.decode
    written = []

    def watched(pipeline: Pipeline, total: FieldSum, *parts: Any) -> MeanRelease:
        written.append(len(ledger.entries()))
        return decode(pipeline, total, *parts)

    monkeypatch.setattr(Pipeline, "decode", watched)
    run = training(ledger)
    for _ in range(2):
        run.run_round(KEYS, MODEL, constant, {})
    assert written == [1, 2]


def test_an_aggregator_that_does_not_announce_its_release_is_not_believed(ledger: Ledger) -> None:
    def silent(setup: RoundSetup, before_release: ReleaseHook) -> RoundOutcome:
        return IdealAggregator().run(setup, constant, {})

    def another(setup: RoundSetup, before_release: ReleaseHook) -> RoundOutcome:
        before_release(range(11))
        return IdealAggregator().run(setup, constant, {})

    for instead in (silent, another):
        with pytest.raises(LocalProtocolError, match="nothing is decoded"):
            training(ledger, Watched(instead=instead)).run_round(KEYS, MODEL, constant, {})


def test_no_round_is_announced_twice(ledger: Ledger) -> None:
    watched = Watched(RealAggregator(COHORT, client_policy(plan(), D)))
    run = training(ledger, watched)
    with pytest.raises(TooFewSurvivorsError):
        run.run_round(KEYS, MODEL, constant, dict.fromkeys(range(8), Stage.SHARE))
    results = [run.run_round(KEYS, MODEL, constant, {}) for _ in range(2)]
    contexts = [setup.context for setup in watched.setups]
    assert [context.round_number for context in contexts] == [0, 1, 2]
    assert len({context.session_id for context in contexts}) == 1
    assert len({context.hash for context in contexts}) == 3
    assert len({setup.parameters.public_seed for setup in watched.setups}) == 3
    assert [result.number for result in results] == [0, 1]
    assert [entry.metadata["attempt"] for entry in ledger.entries()] == [1, 2]
    assert [entry.metadata["round"] for entry in ledger.entries()] == [0, 1]


def test_bad_notes_stop_a_round_before_any_client_is_asked(ledger: Ledger) -> None:
    watched = Watched()
    with pytest.raises(ParameterError, match="notes"):
        training(ledger, watched).run_round(KEYS, MODEL, constant, {}, notes={"x": [1]})
    assert watched.setups == []
    assert ledger.entries() == ()


def test_clients_that_were_invited_and_dropped_out_pay_too(ledger: Ledger) -> None:
    run = training(ledger, rounds=2, exact_noise=False)
    others = people("others")
    run.run_round(KEYS, MODEL, constant, {0: Stage.ADVERTISE})
    assert COHORT[0].public[:8].hex() in ledger.entries()[-1].metadata["cohort"]
    once = run.run_round(keys([*others[1:], COHORT[1]]), MODEL, constant, {}).epsilons.server
    twice = run.run_round(keys([*others[1:], COHORT[0]]), MODEL, constant, {}).epsilons.server
    # Others have two rounds behind them as well; the lost client's first one counts as much.
    assert once == twice
    with pytest.raises(BudgetExceededError):
        run.run_round(keys([others[0], COHORT[0], *people("strangers")[2:]]), MODEL, constant, {})


def people(name: str) -> list[Identity]:
    """A cohort of others."""
    return [Identity.from_private_bytes(secret(name, i)) for i in range(N)]


def test_a_run_goes_on_with_its_own_goal_only_and_counts_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as first:
        one = training(first).run_round(KEYS, MODEL, constant, {})
    with Ledger.open(path) as second, pytest.raises(ParameterError, match="goal"):
        training(second, goal=PrivacyGoal(20.0, 1e-5, 3))
    with Ledger.open(path) as third:
        two = training(third).run_round(KEYS, MODEL, constant, {})
    assert two.epsilons.server > one.epsilons.server


class TestClientPolicy:
    """The policy that goes with a plan accepts the plan's own rounds and nothing weaker."""

    def setup_of(self, ledger: Ledger, **overrides: Any) -> RoundSetup:
        watched = Watched()
        training(ledger, watched, **overrides).run_round(KEYS, MODEL, constant, {})
        return watched.setups[0]

    def weaker(self, setup: RoundSetup, **changes: float) -> RoundSetup:
        parameters = replace(setup.parameters, **changes)
        context = setup.context
        schedule = coin_schedule(parameters.mechanism, N, context.minimum_survivors, 1)
        removal = removal_table(schedule) if context.removal else ()
        digest = parameters.digest()
        return RoundSetup(replace(context, application_digest=digest, removal=removal), parameters)

    @pytest.mark.parametrize("rate", [1.0, 3.0, 20.0])
    @pytest.mark.parametrize("mode", list(Mode))
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_it_accepts_the_plans_rounds(
        self, tmp_path: Path, rate: float, mode: Mode, mechanism: MechanismName
    ) -> None:
        chosen = {"mode": mode, "mechanism": mechanism}
        with Ledger.open(tmp_path / "l.jsonl") as ledger:
            setup = self.setup_of(ledger, controller=FixedRate(rate), **chosen)
        client_policy(plan(**chosen), D).check(setup)
        for other in set(MECHANISMS) - {mechanism}:
            with pytest.raises(PolicyError, match="mechanism"):
                client_policy(plan(mode=mode, mechanism=other), D).check(setup)

    @pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.97])
    @pytest.mark.parametrize("name", MECHANISMS)
    def test_it_refuses_less_noise(self, ledger: Ledger, share: float, name: str) -> None:
        setup = self.setup_of(ledger, mechanism=name)
        amount = max(setup.parameters.mechanism.amount * share, 0.001)
        less = mechanism_of(name, int(amount) if name == "binomial" else amount)
        with pytest.raises(PolicyError, match=r"noise_multiplier|epsilon"):
            client_policy(plan(mechanism=name), D).check(self.weaker(setup, mechanism=less))

    def test_it_refuses_what_else_the_plan_does_not_say(self, ledger: Ledger) -> None:
        setup = self.setup_of(ledger)
        with refused(PolicyError, "clip_l2"):
            client_policy(plan(), D).check(self.weaker(setup, clip_l2=1.5))
        with refused(PolicyError, "dimension"):
            client_policy(plan(), D + 1).check(setup)
        # A plan that loses fewer waits for more survivors.
        for changes, name in (
            ({"tolerated_dropouts": 2}, "minimum_survivors"),
            ({"tolerated_colluders": 2}, "tolerated_colluders"),
        ):
            with refused(PolicyError, name):
                client_policy(plan(**changes), D).check(setup)
        promising = self.setup_of(ledger, mode=Mode.SEMI_HONEST)
        with refused(PolicyError, "mode"):
            client_policy(plan(), D).check(promising)

    def test_clients_count_for_themselves(self, tmp_path: Path) -> None:
        """Two servers, each within the goal; the client is the one who sees both."""
        real = RealAggregator(COHORT, client_policy(plan(), D))
        with Ledger.open(tmp_path / "one.jsonl") as ledger:
            run = training(ledger, real)
            for _ in range(3):
                run.run_round(KEYS, MODEL, constant, {})
        with Ledger.open(tmp_path / "other.jsonl") as ledger:
            with pytest.raises(TooFewSurvivorsError) as caught:
                training(ledger, real).run_round(KEYS, MODEL, constant, {})
        assert "epsilon" in caught.value.__notes__[0]


def test_the_event_on_record_has_the_coins_that_remained(ledger: Ledger) -> None:
    run = training(ledger)
    result = run.run_round(KEYS, MODEL, constant, {0: Stage.SHARE, 5: Stage.UNMASK})
    event = ledger.entries()[-1].event
    # Eleven survivors (a client lost at unmasking is in the sum), one of them a colluder, and
    # each keeps what is needed when one is lost: less than with three lost.
    kept = result.setup.schedule.kept_coins(1)
    assert event.coins == 10 * kept
    assert kept < result.setup.parameters.mechanism.coins


def rounds_with_losses(
    folder: Path, kind: str, chosen: TrainingPlan
) -> Iterator[tuple[int, RoundResult, Event]]:
    """A round for each number of lost clients, and what is on record of it.

    Uncompressed, so that the error is noise alone.
    """
    for lost in range(4):
        real = RealAggregator(COHORT, client_policy(chosen, D))
        aggregator = IdealAggregator() if kind == "ideal" else real
        gone = {i: Stage.INPUT if i else Stage.SHARE for i in range(lost)}
        with Ledger.open(folder / f"{lost}.jsonl") as ledger:
            run = PrivateTraining(chosen, D, FixedRate(1.0), aggregator, ledger)
            yield lost, run.run_round(KEYS, MODEL, constant, gone), ledger.entries()[-1].event


def is_as_noisy(result: RoundResult, variance: float) -> bool:
    """The squares of noise are chi-square with D = 300 degrees of freedom.

    Their mean leaves 0.5 .. 1.5 with probability below 1e-7.
    """
    error = result.release.update - constant(0)
    return 0.5 * variance * D < float(error @ error) < 1.5 * variance * D


@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_noise_is_exact_however_many_are_lost(tmp_path: Path, kind: str) -> None:
    """The coins that stay are the target, give or take one for each honest survivor."""
    for lost, result, event in rounds_with_losses(tmp_path, kind, plan()):
        assert 0 <= event.coins - result.setup.schedule.target_coins < N - lost - 1
        assert is_as_noisy(result, result.release.noise_variance)
        assert len(result.outcome.total.removed) == (N - lost if lost < 3 else 0)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["ideal", "real"])
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_noise_that_comes_as_a_whole_stays_as_a_whole(
    tmp_path: Path, kind: str, mechanism: MechanismName
) -> None:
    """However many are lost: what is charged is that of all honest survivors, and it is there."""
    for lost, result, event in rounds_with_losses(tmp_path, kind, plan(mechanism=mechanism)):
        parameters = result.setup.parameters
        bounds = Sensitivities(parameters.l2_bound, parameters.linf_bound)
        assert event == parameters.mechanism.event(bounds, N - lost - 1, D)
        variance = (parameters.mechanism.variance + 1 / 6) / ((N - lost) * parameters.scale**2)
        assert is_as_noisy(result, variance)
        assert result.outcome.total.removed == {}


def test_without_exact_noise_the_surplus_stays(ledger: Ledger) -> None:
    run = training(ledger, exact_noise=False)
    result = run.run_round(KEYS, MODEL, constant, {})
    assert result.setup.schedule is None
    assert result.outcome.total.removed == {}
    assert ledger.entries()[-1].event.coins == 11 * result.setup.parameters.mechanism.coins


def test_the_controller_changes_the_size_between_rounds(ledger: Ledger) -> None:
    few_coins = {"rounds": 4, "epsilon": 100.0}
    aggregator = RealAggregator(COHORT, client_policy(plan(**few_coins), D))
    run = training(ledger, aggregator, Halving(), **few_coins)
    results = [run.run_round(KEYS, MODEL, constant, {}) for _ in range(4)]
    assert [result.setup.parameters.length for result in results] == [300, 150, 75, 35]
    assert len({result.setup.context.hash for result in results}) == 4


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"tolerated_dropouts": 6}, "tolerated_dropouts"),
        ({"tolerated_colluders": 12}, "cohort = 12: must be at"),
        ({"tolerated_colluders": -1}, "tolerated_colluders"),
        ({"threshold": 10}, "tolerated"),
        ({"mechanism": "laplace"}, "binomial, skellam, discrete-gaussian"),
        # What coins alone can do.
        ({"mechanism": "skellam", "exact_noise": True}, "exact.*comes as a whole"),
        ({"mechanism": "skellam", "wrap_probability": 0.0}, "wrap_probability.*no largest value"),
        ({"mechanism": "discrete-gaussian", "exact_noise": True}, "exact.*comes as a whole"),
        ({"mechanism": "discrete-gaussian", "wrap_probability": 0.0}, "wrap_probability"),
    ],
    ids=str,
)
def test_plans_that_cannot_be_are_refused(overrides: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        plan(**overrides)


def test_a_plan_may_say_what_its_mechanism_does_anyway() -> None:
    for said in ({"exact_noise": True}, {"wrap_probability": 0.0}):
        plan(mechanism="binomial", **said)
    for name in ("skellam", "discrete-gaussian"):
        plan(mechanism=name, exact_noise=False)


@pytest.mark.parametrize("threshold", [6, 13])
def test_an_unsafe_threshold_is_refused_before_any_message(ledger: Ledger, threshold: int) -> None:
    """2 t > n + n_C is broken by 6; 13 is above the cohort of 12."""
    with pytest.raises(ParameterError, match=r"threshold|tolerated"):
        training(ledger, threshold=threshold).run_round(KEYS, MODEL, constant, {})


def test_a_cohort_of_another_size_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ParameterError, match="cohort"):
        training(ledger).run_round(keys(COHORT[:-1]), MODEL, constant, {})


def test_clients_that_sat_out_have_budget_left(ledger: Ledger) -> None:
    """Two halves of a population take turns: each pays for its own rounds."""
    others, run = people("others"), training(ledger, rounds=2)
    lost = dict.fromkeys(range(3), Stage.INPUT)
    spent = [
        run.run_round(keys(half), MODEL, constant, lost).epsilons.server
        for half in (COHORT, others, COHORT, others)
    ]
    assert spent[0] == spent[1] < spent[2] == spent[3] <= 8.0
    with pytest.raises(BudgetExceededError):
        run.run_round(keys(others), MODEL, constant, lost)
