"""One client against its own caller, its own policy, and a server that lies."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_kit import (
    ANNOUNCED,
    IDENTITIES,
    MODEL,
    OPEN_POLICY,
    REGISTRY,
    announced,
    make_client,
    make_setup,
    updates,
    waiting,
)

from dp import (
    BinomialRelease,
    DiscreteGaussianMechanism,
    DominationAccountant,
    MomentsAccountant,
    NonFiniteUpdateError,
    SkellamMechanism,
)
from dp.mechanisms import MECHANISMS, DistributedMechanism, mechanism_of
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.clauses import PairwiseClauses
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.policy import ClientPolicy, own_noise_multiplier
from protocol.round.setup import ANNOUNCEMENT_VERSION, RoundSetup
from protocol.round.turns import StoredTurns
from secagg import (
    Identity,
    LocalProtocolError,
    Mode,
    ParameterError,
    RemoteProtocolError,
    ServerSession,
    SessionAbortedError,
)
from sketch import SketchKind, SketchSpec
from sketch.spec import _LAYOUT, SPEC_VERSION
from tests.doubles.refused import refused


def ready(
    setup: RoundSetup | None = None, history: ClientHistory | None = None
) -> tuple[RoundClient, ServerSession]:
    """A client that has received its shares and waits for its update, and its server."""
    clients = [make_client(i, None if i else history) for i in range(len(IDENTITIES))]
    shares, server = waiting(setup or make_setup(), clients)
    assert clients[0].receive(shares) is None
    return clients[0], server


def colluding(setup: RoundSetup, colluders: int = 1) -> RoundSetup:
    """The same round with some colluders tolerated."""
    context = dataclasses.replace(
        setup.context, tolerated_colluders=colluders, threshold=4, minimum_survivors=4
    )
    return RoundSetup(context, setup.parameters)


def policy_of(**clauses: Any) -> ClientPolicy:
    """A policy that asks for nothing but these clauses."""
    return ClientPolicy(**{"minimum_noise_multiplier": 0.0, **clauses})


SETUP = make_setup()
ABOVE = math.sqrt(101.0) / SETUP.parameters.l2_bound + 1e-10
"""Just more than the noise multiplier of that round; of a single client it is the half."""


class TestClient:
    """One client against its own caller, its own policy, and a server that lies."""

    def client(self, registry: frozenset[bytes] = REGISTRY, **policy: Any) -> RoundClient:
        chosen = policy_of(**policy)
        return RoundClient(IDENTITIES[0], registry, chosen, ClientHistory(chosen.goal))

    @pytest.mark.parametrize(
        ("clause", "accepts", "refuses", "parameter"),
        [
            ("minimum_survivors", 4, 5, "minimum_survivors"),
            ("registry_colluders", 0, 1, "tolerated_colluders"),
            ("smallest_cohort", 6, 7, "cohort_size"),
            ("largest_cohort", 6, 5, "cohort_size"),
            ("minimum_own_noise_multiplier", ABOVE / 2 - 1e-9, ABOVE / 2, "own_noise_multiplier"),
            ("minimum_noise_multiplier", ABOVE - 1e-9, ABOVE, "noise_multiplier"),
            ("largest_clip_l2", 2.0, 1.9, "clip_l2"),
            ("largest_bits", SETUP.context.bits, SETUP.context.bits - 1, "bits"),
            ("largest_length", 200, 199, "length"),
            ("largest_coins", 101, 100, "coins"),
            ("largest_variance", 25.25, 25.0, "variance"),
            ("largest_linf_bound", 100, 99, "linf_bound"),
            ("dimension", 200, 201, "dimension"),
            ("goal", PrivacyGoal(1e6, 1e-5, 1), PrivacyGoal(10.0, 1e-5, 1), "epsilon"),
        ],
    )
    def test_each_clause_accepts_up_to_its_bound(
        self, clause: str, accepts: Any, refuses: Any, parameter: str
    ) -> None:
        assert self.client(**{clause: accepts}).join(SETUP.announce(), MODEL)
        with refused(PolicyError, parameter):
            self.client(**{clause: refuses}).join(SETUP.announce(), MODEL)

    @pytest.mark.parametrize("noise", [SkellamMechanism(1e4), DiscreteGaussianMechanism(1e4)])
    def test_policy_refuses_other_noise_than_it_names(
        self, noise: SkellamMechanism | DiscreteGaussianMechanism
    ) -> None:
        """However much there is of it: whoever accepts a law has to say so."""
        announcement = make_setup(mechanism=noise).announce()
        others = tuple(name for name in MECHANISMS if name != noise.name)
        for policy in ({}, {"mechanisms": others}):
            with pytest.raises(PolicyError, match=f"mechanism = {noise.name}") as caught:
                self.client(**policy).join(announcement, MODEL)
            assert caught.value.parameter == "mechanism"
        client = self.client(mechanisms=(noise.name,))
        assert client.join(announcement, MODEL)

    @pytest.mark.parametrize(
        ("clause", "values"),
        [
            ("mechanisms", [(), "skellam", ("laplace",), ("binomial", "none")]),
            ("schemes", [(), (PairwiseClauses(), PairwiseClauses())]),
            ("minimum_noise_multiplier", [-0.1, np.nan]),
            ("minimum_own_noise_multiplier", [-1.0, np.nan]),
            ("smallest_cohort", [1, -5, 3.0, True, (1 << 20) + 1]),
            ("largest_cohort", [1, 3, 20.5, None, (1 << 20) + 1]),
            ("registry_colluders", [-1, 0.5, False, (1 << 20) + 1]),
        ],
    )
    def test_a_clause_that_cannot_be_is_named(self, clause: str, values: list[Any]) -> None:
        for value in values:
            with refused(ParameterError, clause):
                policy_of(**{"smallest_cohort": 4, clause: value})

    def test_policy_refuses_rounds_without_the_consistency_check(self) -> None:
        announcement = make_setup(mode=Mode.SEMI_HONEST).announce()
        with pytest.raises(PolicyError, match="mode"):
            self.client().join(announcement, MODEL)

    def test_strangers_in_the_cohort_are_refused(self) -> None:
        with pytest.raises(PolicyError, match="unregistered"):
            self.client(REGISTRY - {IDENTITIES[3].public}).join(make_setup().announce(), MODEL)

    def test_a_cohort_without_us_is_refused(self) -> None:
        outsider = Identity.from_private_bytes(hashlib.sha256(b"outsider").digest())
        with pytest.raises(PolicyError, match="cohort"):
            RoundClient(outsider, REGISTRY, OPEN_POLICY).join(make_setup().announce(), MODEL)

    def test_it_comes_to_the_one_round_that_its_coin_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history, setup = ClientHistory(), make_setup()
        announcement, turn = setup.announce(), setup.context.round_number % 2
        for coin in (1 - turn, turn):
            monkeypatch.setattr("protocol.round.turns.drawn_turn", lambda *_, coin=coin: coin)
            client = make_client(history=history, turns=StoredTurns(tmp_path, 2))
            with nullcontext() if coin == turn else pytest.raises(PolicyError, match="turn"):
                # The one that declined was not entered as answered: the other joins.
                client.join(announcement, MODEL)

    def test_it_joins_once(self) -> None:
        client = self.client()
        client.join(make_setup().announce(), MODEL)
        with pytest.raises(LocalProtocolError):
            client.join(make_setup().announce(), MODEL)

    def test_it_must_join_first(self) -> None:
        with pytest.raises(LocalProtocolError, match="join"):
            self.client().receive(b"")

    @pytest.mark.parametrize(
        ("update", "error"),
        [(np.full(200, np.nan), NonFiniteUpdateError), (np.zeros(199), ParameterError)],
    )
    def test_a_bad_update_aborts_the_session(
        self, update: np.ndarray, error: type[Exception]
    ) -> None:
        client, server = ready()
        with pytest.raises(error):
            client.submit(update)
        with pytest.raises(SessionAbortedError):
            client.submit(updates(0))
        assert 0 not in server.answered

    def test_garbage_from_the_server_aborts_the_session(self) -> None:
        client, _ = ready()
        with pytest.raises(RemoteProtocolError):
            client.receive(b"\x01garbage")
        with pytest.raises(SessionAbortedError):
            client.submit(updates(0))


def test_one_client_with_another_model_cannot_contribute() -> None:
    """Model inconsistency: the digest differs, so its very first signature is refused."""
    setup = make_setup()
    server = ServerSession(setup.context)
    client = make_client()
    advertisement = client.join(setup.announce(), b"\x01" * 32)
    with pytest.raises(RemoteProtocolError):
        server.receive_bytes(0, advertisement)


class TestPolicy:
    """What a client insists on, by formulas of its own."""

    def test_noise_has_to_be_asked_for_or_waived(self) -> None:
        with pytest.raises(TypeError, match="minimum_noise_multiplier"):
            ClientPolicy()

    def test_the_multiplier_credits_the_fewest_honest_only(self) -> None:
        setup = colluding(make_setup())
        # Six invited, four must survive, one of them may collude.
        expected = math.sqrt(3 * 101) / 2 / setup.parameters.l2_bound
        assert setup.released.noise_multiplier == pytest.approx(expected, rel=1e-12)

    def test_length_is_that_of_the_update_as_well_as_of_its_sketch(self) -> None:
        policy = policy_of(largest_length=100)
        with pytest.raises(PolicyError, match="length = 200"):
            policy.check(make_setup(size=60))

    def test_the_worst_case_is_three_of_six_clients_coins(self) -> None:
        setup, goal = colluding(make_setup(coins=20_000)), PrivacyGoal(9.0, 1e-5, 2)
        accountant = DominationAccountant(goal.reserve)
        bounds = setup.parameters.l2_bound, setup.parameters.linf_bound
        accountant.compose(BinomialRelease(3 * 20_000, *bounds, 200), 2)
        assert setup.released.epsilon_of_rounds(goal) == accountant.epsilon(1e-5)

    def test_a_goal_may_be_counted_by_moments(self) -> None:
        setup, goal = colluding(make_setup(coins=20_000)), PrivacyGoal(13.0, 1e-5, 2, 6.0)
        accountant = MomentsAccountant(goal.reserve)
        accountant.compose(setup.events(setup.context.minimum_survivors).server, 2)
        assert setup.released.epsilon_of_rounds(goal) == accountant.epsilon(1e-5) < 13.0
        history = ClientHistory(goal)
        history.answer(setup)
        history.charge(setup)
        assert 0.0 < history.epsilon < accountant.epsilon(1e-5)

    def test_noise_of_every_kind_is_measured_with_the_fewest_honest(
        self, mechanism: DistributedMechanism
    ) -> None:
        setup = colluding(make_setup(mechanism=mechanism))
        l2 = setup.parameters.l2_bound
        assert setup.released.noise_multiplier == pytest.approx(
            math.sqrt(3 * mechanism.variance) / l2
        )
        assert own_noise_multiplier(setup) == pytest.approx(math.sqrt(mechanism.variance) / l2)

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_every_kind_is_held_against_the_goal_and_counted(self, name: str) -> None:
        """By the very event that a round with the fewest survivors is charged as."""

        def rounds(amount: float) -> RoundSetup:
            mechanism = mechanism_of(name, int(amount) if name == "binomial" else amount)
            return colluding(make_setup(mechanism=mechanism))

        setup = rounds(20_000.0)
        one, four = (
            setup.released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, number)) for number in (1, 4)
        )
        assert 1.8 * one < four < 4 * one
        goal = PrivacyGoal(four, 1e-5, 4)
        policy = policy_of(goal=goal, mechanisms=(name,))
        policy.check(setup)
        with pytest.raises(PolicyError, match="epsilon"):
            policy.check(rounds(19_900.0))
        accountant = DominationAccountant(goal.reserve)
        accountant.compose(setup.events(4).server)
        history = ClientHistory(goal)
        history.answer(setup)
        history.charge(setup)
        assert history.epsilon == accountant.epsilon(1e-5)

    @pytest.mark.parametrize(
        ("round_", "epsilon"),
        [
            # A sum of very narrow discrete Gaussians has the variance of a wide one, not its law.
            ({"mechanism": DiscreteGaussianMechanism(0.1), "scale": 0.5, "linf_bound": 4}, 60.0),
            ({"mechanism": SkellamMechanism(0.1), "scale": 0.5, "linf_bound": 4}, 60.0),
            # Noise of a few units, and coordinates that can stand out of it.
            ({"coins": 6, "scale": 0.8, "linf_bound": 5}, 8.0),
        ],
        ids=["narrow", "skellam", "coarse"],
    )
    def test_noise_that_passes_the_multiplier_may_fail_the_goal(
        self, round_: dict[str, Any], epsilon: float
    ) -> None:
        setup = make_setup(**round_)
        multiplier = 0.5 * setup.released.noise_multiplier
        policy = policy_of(minimum_noise_multiplier=multiplier, mechanisms=MECHANISMS)
        policy.check(setup)
        with pytest.raises(PolicyError, match="epsilon"):
            dataclasses.replace(policy, goal=PrivacyGoal(epsilon, 1e-5, 1)).check(setup)

    def test_rounds_beyond_every_theorem_have_no_finite_epsilon(self) -> None:
        goal = PrivacyGoal(8.0, 1e-5, 1)
        assert make_setup(coins=0).released.epsilon_of_rounds(goal) == math.inf

    def test_noise_beyond_every_table_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        setup, goal = make_setup(mechanism=SkellamMechanism(25.25)), PrivacyGoal(1e3, 1e-5, 1)
        monkeypatch.setattr("dp.accounting.base.MAX_VARIANCE", (4 * 101 - 1) / 4)
        assert setup.released.epsilon_of_rounds(goal) == math.inf
        with pytest.raises(PolicyError, match="account for"):
            ClientHistory(goal).answer(setup)


class TestHistory:
    """The memory that a policy lacks."""

    def test_a_round_is_answered_once(self) -> None:
        history = ClientHistory()
        announcement = make_setup().announce()
        join = lambda data: make_client(0, history).join(data, MODEL)  # noqa: E731
        assert join(announcement)
        with refused(PolicyError, "round_number"):
            join(announcement)
        # Other parameters under the same number are the same round.
        with pytest.raises(PolicyError):
            join(make_setup(coins=7).announce())
        assert join(make_setup(round_number=4).announce())

    def test_another_session_is_another_round(self) -> None:
        setup, history = make_setup(), ClientHistory()
        history.answer(setup)
        context = dataclasses.replace(setup.context, session_id=bytes([1]) * 16)
        history.answer(RoundSetup(context, setup.parameters))

    def test_a_refused_round_is_not_an_answered_one(self) -> None:
        history = ClientHistory()
        strict = ClientPolicy(minimum_noise_multiplier=1.0)
        with pytest.raises(PolicyError):
            make_client(0, history, strict).join(make_setup().announce(), bytes(32))
        assert make_client(history=history).join(make_setup().announce(), bytes(32))

    def test_rounds_beyond_the_goal_are_refused(self) -> None:
        setups = [make_setup(coins=20_000, round_number=number) for number in range(4)]
        three = setups[0].released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, 3))
        history = ClientHistory(PrivacyGoal(three, 1e-5, 3))
        for setup in setups[:3]:
            history.answer(setup)
            history.charge(setup)
        assert history.epsilon == pytest.approx(three)
        with pytest.raises(PolicyError, match="epsilon"):
            history.answer(setups[3])

    def test_it_refuses_what_no_theorem_covers(self) -> None:
        history = ClientHistory(PrivacyGoal(8.0, 1e-5, 1))
        with pytest.raises(PolicyError):
            history.answer(make_setup(coins=0))

    def test_rounds_joined_side_by_side_cannot_overspend(self) -> None:
        setup = make_setup(coins=20_000)
        one = setup.released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, 1))
        history = ClientHistory(PrivacyGoal(one, 1e-5, 1))
        first, second = (
            ready(make_setup(coins=20_000, round_number=number), history)[0] for number in range(2)
        )
        assert history.epsilon == 0.0
        assert first.submit(updates(0))
        assert history.epsilon == pytest.approx(one)
        with pytest.raises(PolicyError):
            second.submit(updates(0))
        with pytest.raises(SessionAbortedError):
            second.submit(updates(0))

    def test_an_update_that_was_never_sent_costs_nothing(self) -> None:
        history = ClientHistory(PrivacyGoal(1e6, 1e-5, 9))
        client, _ = ready(make_setup(coins=9000), history)
        with pytest.raises(NonFiniteUpdateError):
            client.submit(np.full(200, np.nan))
        with pytest.raises(SessionAbortedError):
            client.submit(updates(0))
        assert history.epsilon == 0.0


class TestHostileAnnouncements:
    """Any numbers whatever: accepted, refused, or malformed. Nothing else, and nothing large."""

    INTEGERS = st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.sampled_from([0, 1, 2, 4, 6, 7, 2**20, 2**24, 2**28, 2**30, 2**53, 2**63 - 1]),
        st.integers(0, 300),
    )
    FLOATS = st.one_of(
        st.floats(),
        st.floats(1e-3, 1e3),
        st.sampled_from([1e-320, 1e-100, 1e-99, 1e99, 1e100, 1e154, 1e308, 2.0**53]),
    )
    SPECS = st.tuples(
        st.sampled_from([kind.value for kind in SketchKind] + [7]),
        *[st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 3, 5, 200, 2**32, 2**63 - 1])] * 5,
        st.floats() | st.sampled_from([0.0, 0.1, 1.0]),
    ).map(lambda numbers: _LAYOUT.pack(SPEC_VERSION, *numbers))

    @settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_only_typed_errors(self, data: st.DataObject) -> None:
        kinds = {int: self.INTEGERS, float: self.FLOATS}
        names = [name for name, value in ANNOUNCED.items() if type(value) in kinds] + ["sketch"]
        changes = {
            name: data.draw(kinds.get(type(ANNOUNCED[name]), self.SPECS), label=name)
            for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
        }
        policy = policy_of(
            goal=data.draw(st.sampled_from([None, PrivacyGoal(1e9, 1e-5, 3)])),
            largest_length=1000,
        )
        try:
            history = ClientHistory(policy.goal)
            make_client(0, history, policy).join(announced(**changes), MODEL)
        except (RemoteProtocolError, PolicyError):
            pass

    @pytest.mark.parametrize(
        "spec",
        [
            SketchSpec.identity(2**40),
            SketchSpec(SketchKind.COUNT_MEAN, 2**62, 15, 2**16),
            SketchSpec(SketchKind.COUNT_MEAN, 200, 15, 2**16),
        ],
    )
    def test_huge_sketches_are_refused_before_anything_is_built(
        self, spec: SketchSpec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def build(*_: Any) -> NoReturn:
            raise AssertionError("the sketch was built")

        monkeypatch.setattr(SketchSpec, "build", build)
        with pytest.raises((RemoteProtocolError, PolicyError)):
            make_client().join(announced(sketch=spec.encode_bytes()), MODEL)

    def test_nested_beyond_any_depth(self) -> None:
        raw = bytes([ANNOUNCEMENT_VERSION]) + b"\x91" * 100_000
        with pytest.raises(RemoteProtocolError):
            make_client().join(raw, MODEL)

    def test_a_cohort_that_is_no_list_of_keys(self) -> None:
        with pytest.raises(RemoteProtocolError, match="32-byte"):
            make_client().join(announced(cohort=ANNOUNCED["cohort"] + b"x"), MODEL)

    def test_noise_made_for_no_dropouts_but_released_with_many(self) -> None:
        """The noise would be right for six honest clients, and four are enough for a sum."""
        with pytest.raises(RemoteProtocolError, match="minimum_survivors"):
            make_client().join(announced(tolerated_dropouts=0, minimum_survivors=4), MODEL)


class TestPolicyClauses:
    """What a client asks of cohorts, of colluders, and of its own noise."""

    def test_by_default_any_cohort_and_any_noise_of_ones_own_will_do(self) -> None:
        policy_of().check(make_setup(coins=0))

    @pytest.mark.parametrize("bound", [2, 60])
    def test_all_colluders_of_the_registry_may_be_in_one_cohort(self, bound: int) -> None:
        """The server picks the cohort: the bound is not scaled down to its size."""
        setup = colluding(make_setup())
        policy_of(registry_colluders=1).check(setup)
        with pytest.raises(PolicyError, match=f"at least {bound}.* plan for"):
            policy_of(registry_colluders=bound).check(setup)

    def test_a_plan_asks_for_its_own_colluders_and_no_larger_cohort(self) -> None:
        plan = TrainingPlan(
            goal=PrivacyGoal(8.0, 1e-6, 1),
            cohort=20,
            tolerated_dropouts=3,
            tolerated_colluders=2,
            clip_l2=1.0,
        )
        policy = client_policy(plan, 10)
        assert (policy.registry_colluders, policy.largest_cohort) == (2, 20)

    def test_only_coins_that_nobody_else_can_take_off_count_as_ones_own(self) -> None:
        """With removable noise that is batch 0: peers hold the shares of all other seeds."""
        setup = make_setup(coins=20_000, removable=True)
        own = setup.schedule.batches[0]
        multiplier = np.sqrt(own / 4.0) / setup.parameters.l2_bound
        policy_of(minimum_own_noise_multiplier=multiplier * (1 - 1e-9)).check(setup)
        assert own < 20_000
        with pytest.raises(PolicyError, match="more noise of each client"):
            policy_of(minimum_own_noise_multiplier=multiplier * (1 + 1e-9)).check(setup)
