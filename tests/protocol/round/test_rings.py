"""What a ring may fail with is a part of delta: planned, refused, set aside."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dp import Ledger
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.planning.deployment import plan_deployment
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.account import IndependentAccount
from protocol.round.clauses import PairwiseClauses
from protocol.round.client import RoundClient
from protocol.round.draw_policy import DrawPolicy
from protocol.round.history import ClientHistory
from protocol.round.policy import ClientPolicy
from protocol.round.rings import SPARE_ROUNDS, fitting_security_bits, is_safe
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from protocol.schemes.pairwise import pairwise_of, pairwise_setup
from protocol.training.records import Records
from secagg import Identity, Mode, ParameterError
from secagg.grinding import ring_failure
from sketch import PublicSeed, SketchSpec
from tests.doubles.plans import plan_of_words

COHORT, DIMENSION, OPENED, HOUR = 400, 50, 1_750_000_000, 3600


def plan(goal: PrivacyGoal, **changes: Any) -> TrainingPlan:
    return plan_of_words(
        {
            "goal": goal,
            "cohort": COHORT,
            "tolerated_dropouts": 20,
            "tolerated_colluders": 40,
            "clip_l2": 1.0,
            "exact_noise": False,
            **changes,
        }
    )


GOAL = PrivacyGoal(8.0, 1e-5, 4)
STRICT = PrivacyGoal(8.0, 1e-16, 1000)


DRAW = DrawPolicy(
    registry_root=bytes(32), registry_size=99, odds=1 << 60, corrupt_identities=9, smallest=8
)


def reopened(history: ClientHistory, folder: Path, goal: PrivacyGoal = GOAL) -> StoredHistory:
    """The history of the folder, as after a restart."""
    if isinstance(history, StoredHistory):
        history.close()
    return StoredHistory(folder, goal)


PEOPLE = [
    Identity.from_private_bytes(hashlib.sha256(b"ring %d" % i).digest()) for i in range(COHORT)
]


def make_setup(made: TrainingPlan, **changes: Any) -> RoundSetup:
    """A round of a plan for `GOAL`; fields of its context may be overridden."""
    parameters = made.calibrate(SketchSpec.identity(DIMENSION), bytes(32), PublicSeed(bytes(32)))
    opened = OPENED if made.lifetime_seconds else 0
    setup = pairwise_setup(made, parameters, [p.public for p in PEOPLE], bytes(16), 0, opened)
    return RoundSetup(dataclasses.replace(setup.context, **changes), parameters)


def graph_of(made: TrainingPlan) -> tuple[int, int]:
    return pairwise_of(made).graph(made)


class TestPlan:
    def test_the_graph_alone_does_not_fail_more_often_than_delta(self) -> None:
        """A graph of forty bits fails with 4.5e-13 in one round, without a single try more."""
        made = plan(STRICT)
        failure = ring_failure(COHORT, pairwise_of(made).ring_bits(made), 0, active=True)
        assert failure <= STRICT.reserve.aggregation <= STRICT.delta / STRICT.rounds
        with pytest.raises(ParameterError) as refused:
            plan(STRICT, security_bits=40)
        assert refused.value.argument == "security_bits"
        for remedy in ("larger, up to 160", "a lifetime", "the complete graph", "a larger delta"):
            assert remedy in refused.value.valid

    def test_an_expiry_saves_neighbours(self) -> None:
        forever, hour = plan(GOAL), plan(GOAL, lifetime_seconds=HOUR)
        assert pairwise_of(hour).ring_bits(hour) < pairwise_of(forever).ring_bits(forever)
        assert graph_of(hour)[0] < graph_of(forever)[0]

    def test_the_fewest_bits_that_fit(self) -> None:
        for goal, lifetime in ((GOAL, 0), (GOAL, HOUR), (STRICT, 0), (STRICT, HOUR)):
            bits = fitting_security_bits(goal, COHORT, Mode.ACTIVE, lifetime)
            assert bits % 8 == 0
            failures = [
                ring_failure(COHORT, each, lifetime, active=True) for each in (bits, bits - 8)
            ]
            assert SPARE_ROUNDS * failures[0] <= goal.reserve.aggregation
            assert SPARE_ROUNDS * failures[1] > goal.reserve.aggregation

    def test_the_last_bits_need_no_room_to_spare(self) -> None:
        strictest = PrivacyGoal(8.0, 2e-23, 1000)
        failure = ring_failure(COHORT, 160, 0, active=True)
        assert failure <= strictest.reserve.aggregation < SPARE_ROUNDS * failure
        assert fitting_security_bits(strictest, COHORT, Mode.ACTIVE, 0) == 160

    def test_a_curious_server_needs_no_more_than_eighty(self) -> None:
        curious = plan(STRICT, mode=Mode.SEMI_HONEST)
        assert pairwise_of(curious).ring_bits(curious) == 80

    def test_what_no_ring_can_do_is_refused_with_its_cures(self) -> None:
        hopeless = PrivacyGoal(8.0, 1e-25, 1000)
        with pytest.raises(ParameterError, match="the complete graph"):
            plan(hopeless)
        assert graph_of(plan(hopeless, degree=0))[0] == 0

    def test_small_cohorts_have_no_ring(self) -> None:
        small = plan(STRICT, cohort=60, tolerated_dropouts=3, tolerated_colluders=3)
        assert (graph_of(small)[0], pairwise_of(small).ring_bits(small)) == (0, 80)

    def test_what_is_given_is_kept(self) -> None:
        made = plan(GOAL, security_bits=128)
        assert pairwise_of(made).ring_bits(made) == 128
        assert graph_of(made)[0] > graph_of(plan(GOAL))[0]
        degree, threshold = graph_of(made)
        assert graph_of(plan(GOAL, degree=degree, security_bits=128)) == (degree, threshold)

    @pytest.mark.parametrize("bits", [0, 161, 80.0])
    def test_bits_that_no_graph_has(self, bits: float) -> None:
        with pytest.raises(ParameterError, match=r"1 \.\. 160"):
            plan(GOAL, security_bits=bits)

    def test_the_deployment_says_what_it_is_for(self) -> None:
        deployment = plan_deployment(plan(GOAL), SketchSpec.identity(DIMENSION))
        assert deployment.priced.security_bits == 96
        assert pairwise_of(plan(GOAL)).ring_bits(plan(GOAL)) == 96

    def test_rounds_carry_it(self) -> None:
        setup = make_setup(plan(GOAL, lifetime_seconds=HOUR))
        context = RoundSetup.from_announcement(setup.announce(), bytes(32)).context
        assert context == setup.context
        assert (context.security_bits, context.lifetime_seconds) == (88, HOUR)
        assert is_safe(context, GOAL)
        assert not is_safe(context, GOAL, keeps_time=False)


class TestRecords:
    def test_a_ring_that_fails_too_often_is_not_run(self, ledger: Ledger) -> None:
        records = Records(ledger, GOAL)
        with pytest.raises(ParameterError, match="aside for it in each"):
            records.prepare(make_setup(plan(GOAL), security_bits=88), 0, None)
        assert ledger.entries() == ()
        assert records.prepare(make_setup(plan(GOAL)), 0, None)

    def test_an_expiry_counts(self, ledger: Ledger) -> None:
        times = {"opened_at": OPENED, "lifetime_seconds": HOUR, "security_bits": 88}
        assert Records(ledger, GOAL).prepare(make_setup(plan(GOAL), **times), 0, None)

    def test_a_ledger_without_a_part_for_rings_is_not_continued(self, tmp_path: Path) -> None:
        """The split of delta is fixed before the first release."""
        setup = make_setup(plan(GOAL))
        event = setup.events(COHORT).server
        goal = {"epsilon": GOAL.epsilon, "delta": GOAL.delta, "rounds": GOAL.rounds}
        goal["delta0"] = GOAL.reserve.delta0
        with Ledger.open(tmp_path / "old.jsonl") as old:
            old.append(event, {"goal": goal})
            with pytest.raises(ParameterError, match="a new ledger"):
                Records(old, GOAL)


class TestClient:
    def join(
        self,
        setup: RoundSetup,
        policy: ClientPolicy,
        clock: Callable[..., Any] | None = None,
        history: ClientHistory | None = None,
    ) -> bytes:
        registry = frozenset(setup.context.cohort)
        history = ClientHistory(policy.goal) if history is None else history
        client = RoundClient(PEOPLE[0], registry, policy, history, clock=clock)
        return client.join(setup.announce(), bytes(32))

    def policy(self, **changes: Any) -> ClientPolicy:
        return ClientPolicy(**{"minimum_noise_multiplier": 0.0, "goal": GOAL, **changes})

    def refused(self, *arguments: Any, **named: Any) -> PolicyError:
        with pytest.raises(PolicyError) as refused:
            self.join(*arguments, **named)
        assert refused.value.parameter == "security_bits"
        return refused.value

    def test_a_round_of_the_plan_is_joined(self) -> None:
        made = plan(GOAL)
        assert self.join(make_setup(made), client_policy(made, DIMENSION))

    def test_a_ring_that_fails_too_often_for_the_goal_is_refused(self) -> None:
        setup = make_setup(plan(GOAL), security_bits=80)
        error = self.refused(setup, self.policy())
        assert "a lifetime and a clock" in str(error)

    def test_an_expiry_is_worth_something_to_a_client_with_a_clock_only(self) -> None:
        setup = make_setup(plan(GOAL, lifetime_seconds=HOUR))
        assert self.join(setup, self.policy(), clock=lambda: OPENED + 1.0)
        self.refused(setup, self.policy())

    def test_the_goal_of_a_history_is_enough(self) -> None:
        setup = make_setup(plan(GOAL), security_bits=80)
        policy = self.policy(goal=None)
        assert self.join(setup, policy)
        self.refused(setup, policy, history=ClientHistory(GOAL))

    def test_fewer_than_eighty_bits_are_refused_without_a_goal_as_well(self) -> None:
        setup = make_setup(plan(GOAL), security_bits=79)
        policy = self.policy(goal=None)
        assert "at least 80" in str(self.refused(setup, policy))
        less = dataclasses.replace(policy, schemes=(PairwiseClauses(minimum_security_bits=79),))
        assert self.join(setup, less)

    @pytest.mark.parametrize("stored", [False, True])
    def test_rounds_that_came_to_nothing_had_a_ring(self, tmp_path: Path, stored: bool) -> None:
        """Else a server drops round after round until a ring suits it."""
        made = plan(GOAL)
        rounds = [
            dataclasses.replace(setup, context=dataclasses.replace(setup.context, round_number=i))
            for setup in [make_setup(made)]
            for i in range(1000)
        ]
        failure, share = rounds[0].context.ring_failure(), GOAL.reserve.aggregation
        fitting = math.floor(GOAL.rounds * Fraction(share) / Fraction(failure))
        assert SPARE_ROUNDS * GOAL.rounds <= fitting < len(rounds)
        policy, history = client_policy(made, DIMENSION), ClientHistory(GOAL)
        for number, setup in enumerate(rounds[:fitting]):
            if stored and number % 100 == 0:
                history = reopened(history, tmp_path)
            self.join(setup, policy, history=history)
        if stored:
            history = reopened(history, tmp_path)
        error = self.refused(rounds[fitting], policy, history=history)
        assert "all rounds joined" in str(error)

    @pytest.mark.parametrize("clock", [None, lambda: OPENED + 1.0])
    def test_the_end_of_a_round_counts_for_a_client_with_a_clock_only(
        self, clock: Callable[..., Any] | None
    ) -> None:
        """By how many rings a server could try before the client left."""
        setup = make_setup(plan(GOAL), opened_at=OPENED, lifetime_seconds=HOUR)
        history, failure = ClientHistory(GOAL), setup.context.ring_failure
        assert failure(keeps_time=True) < failure(keeps_time=False) / 100
        self.join(setup, self.policy(), clock=clock, history=history)
        assert history._rings == Fraction(failure(keeps_time=clock is not None))

    @pytest.mark.parametrize("charged", [False, True])
    def test_a_ring_is_still_counted_after_a_restart(self, tmp_path: Path, charged: bool) -> None:
        """Neither forgotten nor counted as a whole share when its round is charged."""
        setup = make_setup(plan(GOAL))
        failure = setup.context.ring_failure()
        assert 0.0 < failure < GOAL.reserve.aggregation
        with StoredHistory(tmp_path, GOAL) as history:
            history.answer(setup)
            if charged:
                history.charge(setup)
        with StoredHistory(tmp_path, GOAL) as history:
            assert history._rings == Fraction(failure)
            assert (history.epsilon > 0.0) == charged

    @pytest.mark.parametrize("stored", [False, True])
    @pytest.mark.parametrize(("beacons", "rings"), [("", 3), ("yy", 2), ("ny", 2), ("nnyn", 2)])
    def test_rings_and_draws_fit_together_what_is_set_aside_exactly(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        stored: bool,
        beacons: str,
        rings: int,
    ) -> None:
        """As many rings as the goal has rounds; draws once for each kind, with a beacon or not."""
        setup = make_setup(plan(GOAL))
        goal = dataclasses.replace(GOAL, delta=1e-7, rounds=3)
        monkeypatch.setattr(
            type(setup.context), "ring_failure", lambda *_, **__: goal.reserve.aggregation
        )
        monkeypatch.setattr(IndependentAccount, "check", lambda *_: 0.0)
        history: ClientHistory = ClientHistory(goal)

        def answer(number: int, draw: DrawPolicy | None = None) -> None:
            nonlocal history
            if stored:
                history = reopened(history, tmp_path, goal)
            context = dataclasses.replace(setup.context, round_number=number)
            history.answer(dataclasses.replace(setup, context=context), draw=draw)

        for number, beacon in enumerate(beacons):
            source = (lambda *_: bytes(32)) if beacon == "y" else None
            answer(number, dataclasses.replace(DRAW, beacon_of=source))
        first = len(beacons)
        for number in range(first, first + rings):
            answer(number)
        with pytest.raises(PolicyError, match="all rounds joined"):
            answer(first + rings)
        assert sum(each.probability for each in history._draws) == pytest.approx(
            2.0**-40 * ("y" in beacons) + 2.0**-68 * ("n" in beacons), rel=1e-12
        )
        # What was counted once costs nothing again.
        if beacons:
            answer(first + rings, dataclasses.replace(DRAW, beacon_of=source))

    def test_the_complete_graph_has_no_use_for_bits(self) -> None:
        setup = make_setup(plan(STRICT, degree=0), security_bits=1)
        assert self.join(setup, self.policy(goal=STRICT))
