"""Rounds that expire: a client with a clock leaves them, at whatever stage, for good."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from round_kit import (
    HOUR,
    IDENTITIES,
    MODEL,
    OPEN_POLICY,
    OPENED,
    Watch,
    expiring,
    make_client,
    make_setup,
    messages_of,
    updates,
    waiting,
)

from dp import Ledger
from protocol.errors import PolicyError
from protocol.exchange.aggregators import RealAggregator
from protocol.exchange.remote import RemoteClient, refuse
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.training.power import PowerTraining
from protocol.training.private import PrivateTraining
from secagg import ParameterError, SessionAbortedError
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.pairwise.transitions import ClientPhase
from sketch.controllers import FixedRate
from sketch.factors import FactorShapes
from sketch.layers import LayerShapes
from tests.doubles.plans import plan_of_words
from tests.doubles.refused import refused

ENDLESS = make_setup()
SETUP = expiring(ENDLESS)


@pytest.mark.parametrize("seconds", [-CLOCK_SKEW_SECONDS, 0.0, 17.5, HOUR])
def test_a_round_under_way_is_joined(seconds: float) -> None:
    assert make_client(clock=Watch(seconds)).join(SETUP.announce(), MODEL)


@pytest.mark.parametrize(
    "seconds", [-CLOCK_SKEW_SECONDS - 1, HOUR + 0.1, 10 * HOUR, -1e9, math.nan, math.inf]
)
def test_a_round_that_is_over_or_to_come_is_not(seconds: float) -> None:
    history = ClientHistory()
    with refused(PolicyError, "opened_at"):
        make_client(clock=Watch(seconds), history=history).join(SETUP.announce(), MODEL)
    # It was not answered: by a better clock it still may be.
    assert make_client(clock=Watch(), history=history).join(SETUP.announce(), MODEL)


def test_without_a_clock_or_a_lifetime_no_round_is_ever_over() -> None:
    assert make_client().join(SETUP.announce(), MODEL)
    assert make_client(clock=Watch(1e12)).join(ENDLESS.announce(), MODEL)


STAGES = [stage for stage in Stage if Stage.ADVERTISE < stage < Stage.RECOVER]


@pytest.mark.parametrize("last", STAGES, ids=str)
def test_a_client_leaves_an_expired_round_at_every_stage(last: Stage) -> None:
    watch = Watch()
    clients = [make_client(i, clock=watch if i == 0 else None) for i in range(6)]
    for stage, message, _ in messages_of(SETUP, clients):
        if stage is last:
            watch.seconds = HOUR + 1
            with pytest.raises(PolicyError, match="by our clock"):
                clients[0].receive(message)
            assert clients[0].phase is ClientPhase.ABORTED
            # For good: the clock going back does not bring it back.
            watch.seconds = 0
            with pytest.raises(SessionAbortedError):
                clients[0].receive(message)
            return
    raise AssertionError("the round never came so far")


def test_an_update_is_not_handed_over_after_the_end() -> None:
    watch, history = Watch(), ClientHistory(PrivacyGoal(1e6, 1e-5, 5))
    clients = [make_client(i, None if i else history, clock=watch) for i in range(6)]
    assert clients[0].receive(waiting(SETUP, clients)[0]) is None
    watch.seconds = HOUR + 1  # training took too long
    with pytest.raises(PolicyError, match="opened_at"):
        clients[0].submit(updates(0))
    assert history.epsilon == 0.0
    watch.seconds = 0
    with pytest.raises(SessionAbortedError):
        clients[0].submit(updates(0))


def test_a_server_hears_that_a_policy_refused() -> None:
    remote = RemoteClient(make_client(clock=Watch(2 * HOUR)), MODEL, lambda _: np.zeros(200))
    with pytest.raises(PolicyError) as raised:
        remote.answer(SETUP.announce())
    assert refuse(raised.value) == b"\1PolicyError"
    assert remote.is_over


class TestPolicy:
    @pytest.mark.parametrize("longest", [HOUR, HOUR + 1])
    def test_it_takes_part_in_short_rounds(self, longest: int) -> None:
        policy = dataclasses.replace(OPEN_POLICY, largest_lifetime_seconds=longest)
        make_client(clock=Watch(), policy=policy).join(SETUP.announce(), MODEL)
        with refused(PolicyError, "lifetime_seconds"):
            make_client(clock=Watch(), policy=policy).join(ENDLESS.announce(), MODEL)
        shorter = dataclasses.replace(policy, largest_lifetime_seconds=HOUR - 1)
        with refused(PolicyError, "lifetime_seconds"):
            make_client(clock=Watch(), policy=shorter).join(SETUP.announce(), MODEL)

    def test_it_needs_a_clock(self) -> None:
        policy = dataclasses.replace(OPEN_POLICY, largest_lifetime_seconds=HOUR)
        with pytest.raises(ParameterError, match="expire") as raised:
            make_client(policy=policy)
        assert raised.value.argument == "clock"


def plan(**changes: Any) -> TrainingPlan:
    return plan_of_words(
        {
            "goal": PrivacyGoal(20.0, 1e-5, 2),
            "cohort": 6,
            "tolerated_dropouts": 1,
            "tolerated_colluders": 0,
            "clip_l2": 1.0,
            "lifetime_seconds": HOUR,
            **changes,
        }
    )


class TestPlan:
    def test_rounds_of_a_plan_are_opened_by_the_servers_clock(self, ledger: Ledger) -> None:
        watch = Watch(0.9)
        real = RealAggregator(IDENTITIES, client_policy(plan(), 200), unix_clock=watch)
        training = PrivateTraining(plan(), 200, FixedRate(1.0), real, ledger, clock=watch)
        cohort = [identity.public for identity in IDENTITIES]
        result = training.run_round(cohort, MODEL, updates)
        assert result.setup.context.opened_at == OPENED
        assert result.setup.context.lifetime_seconds == HOUR
        watch.seconds = 500.0
        assert training.next_setup(cohort, MODEL).context.opened_at == OPENED + 500

    def test_they_need_a_clock(self, ledger: Ledger) -> None:
        real = RealAggregator(IDENTITIES, OPEN_POLICY)
        with pytest.raises(ParameterError, match="expire"):
            PrivateTraining(plan(), 200, FixedRate(1.0), real, ledger)
        shapes = FactorShapes(LayerShapes((("a", (10, 20)),)), 2)
        with pytest.raises(ParameterError, match="expire"):
            PowerTraining(plan(), shapes, real, ledger)

    def test_without_a_lifetime_a_clock_changes_nothing(self, ledger: Ledger) -> None:
        forever = plan(lifetime_seconds=0)
        real = RealAggregator(IDENTITIES, client_policy(forever, 200))
        training = PrivateTraining(forever, 200, FixedRate(1.0), real, ledger, clock=Watch())
        context = training.next_setup([i.public for i in IDENTITIES], MODEL).context
        assert (context.opened_at, context.lifetime_seconds) == (0, 0)

    @pytest.mark.parametrize("lifetime", [-1, 60.0, True, 10**6])
    def test_lifetimes_that_no_round_has(self, lifetime: float) -> None:
        with refused(ParameterError, "lifetime_seconds"):
            plan(lifetime_seconds=lifetime)

    def test_its_clients_want_the_expiry(self) -> None:
        assert client_policy(plan(), 200).largest_lifetime_seconds == HOUR
        assert client_policy(plan(lifetime_seconds=0), 200).largest_lifetime_seconds is None
