"""The real protocol against the ideal functionality, and bad input on the way."""

from __future__ import annotations

import hashlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp import NonFiniteUpdateError
from protocol.adapters.memory import MemoryRound, Stage
from protocol.aggregators import IdealAggregator, RealAggregator, check_survivors
from protocol.client import ClientPolicy, RoundClient, noise_multiplier
from protocol.errors import PolicyError
from secagg import (
    LocalProtocolError,
    Mode,
    ParameterError,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    SessionAbortedError,
    TooFewSurvivorsError,
)

OPEN_POLICY = ClientPolicy(allow_semi_honest=True)

stages = st.sampled_from(list(Stage))
schedules = st.dictionaries(st.integers(0, 5), stages, max_size=5)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("size", [None, 60])
@pytest.mark.parametrize(
    "dropouts",
    [
        {},
        {0: Stage.ADVERTISE},
        {1: Stage.SHARE, 4: Stage.UNMASK},
        {5: Stage.INPUT, 2: Stage.CONFIRM},
    ],
)
def test_real_and_ideal_agree_bit_for_bit(
    make_setup, identities, updates, noise, mode, size, dropouts
):
    setup = make_setup(mode=mode, size=size)
    ideal = IdealAggregator().run(setup, updates, dropouts, noise)
    real = RealAggregator(identities, OPEN_POLICY).run(setup, updates, dropouts, noise)
    assert real.total.survivors == ideal.total.survivors
    assert np.array_equal(real.total.vector.elements, ideal.total.vector.elements)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dropouts=schedules, active=st.booleans())
def test_any_dropouts_give_the_ideal_sum_or_the_ideal_abort(
    make_setup, identities, updates, noise, dropouts, active
):
    setup = make_setup(mode=Mode.ACTIVE if active else Mode.SEMI_HONEST)
    real = RealAggregator(identities, OPEN_POLICY)
    try:
        ideal = IdealAggregator().run(setup, updates, dropouts, noise)
    except TooFewSurvivorsError:
        with pytest.raises(TooFewSurvivorsError):
            real.run(setup, updates, dropouts, noise)
        return
    outcome = real.run(setup, updates, dropouts, noise)
    assert outcome.total.survivors == ideal.total.survivors
    assert np.array_equal(outcome.total.vector.elements, ideal.total.vector.elements)


def test_too_few_survivors_names_stage_and_numbers(make_setup):
    setup = make_setup()
    with pytest.raises(TooFewSurvivorsError, match=r"share.*3 clients answered, 4 are needed"):
        check_survivors(setup, dict.fromkeys(range(3), Stage.SHARE))


def test_bytes_are_counted_in_both_directions(make_setup, identities, updates):
    setup = make_setup()
    outcome = RealAggregator(identities, OPEN_POLICY).run(setup, updates, {0: Stage.ADVERTISE})
    packed = setup.context.field.packed_bytes(setup.context.length)
    assert outcome.bytes_up[0] == 0
    assert outcome.bytes_down[0] == len(setup.announce())
    assert all(outcome.bytes_up[i] > packed for i in range(1, 6))
    assert outcome.bytes_per_survivor() > packed


def test_an_executor_changes_nothing(make_setup, identities, updates, noise):
    setup = make_setup()
    plain = RealAggregator(identities, OPEN_POLICY).run(setup, updates, {}, noise)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        spread = RealAggregator(identities, OPEN_POLICY, executor=pool).run(
            setup, updates, {}, noise
        )
    assert np.array_equal(plain.total.vector.elements, spread.total.vector.elements)


@pytest.mark.parametrize("aggregator", ["ideal", "real"])
def test_an_update_with_nan_is_a_typed_error(make_setup, identities, updates, aggregator):
    def poisoned(index):
        return np.full(200, np.nan) if index == 2 else updates(index)

    run = IdealAggregator() if aggregator == "ideal" else RealAggregator(identities, OPEN_POLICY)
    with pytest.raises(NonFiniteUpdateError):
        run.run(make_setup(), poisoned, {})


class TestClient:
    """One client against its own caller, its own policy, and a server that lies."""

    @pytest.fixture
    def registry(self, identities):
        return frozenset(identity.public for identity in identities)

    def client(self, identities, registry, **policy):
        return RoundClient(identities[0], registry, ClientPolicy(**policy))

    def ready(self, make_setup, identities, registry, updates):
        """A client that has received its shares and waits for its update."""
        setup = make_setup()
        clients = [RoundClient(i, registry, ClientPolicy()) for i in identities]
        server = ServerSession(setup.context)
        for index, client in enumerate(clients):
            server.receive_bytes(index, client.join(setup.announce(), bytes(32)))
        for index, data in server.close_round_bytes():
            server.receive_bytes(index, clients[index].receive(data))
        for index, data in server.close_round_bytes():
            assert clients[index].receive(data) is None
        return clients[0], server

    @pytest.mark.parametrize(
        ("policy", "parameter"),
        [
            ({"minimum_survivors": 5}, "minimum_survivors"),
            ({"minimum_colluders": 1}, "tolerated_colluders"),
            ({"minimum_noise_multiplier": 1.0}, "noise_multiplier"),
            ({"largest_clip_l2": 1.9}, "clip_l2"),
            ({"largest_bits": 9}, "bits"),
            ({"largest_length": 199}, "length"),
        ],
    )
    def test_policy_refuses(self, make_setup, identities, registry, policy, parameter):
        with pytest.raises(PolicyError) as caught:
            self.client(identities, registry, **policy).join(make_setup().announce(), bytes(32))
        assert caught.value.parameter == parameter

    def test_policy_refuses_rounds_without_the_consistency_check(
        self, make_setup, identities, registry
    ):
        announcement = make_setup(mode=Mode.SEMI_HONEST).announce()
        with pytest.raises(PolicyError, match="mode"):
            self.client(identities, registry).join(announcement, bytes(32))

    def test_policy_accepts_what_it_should(self, make_setup, identities, registry):
        setup = make_setup()
        exact = noise_multiplier(setup)
        client = self.client(identities, registry, minimum_noise_multiplier=exact)
        assert client.join(setup.announce(), bytes(32))

    def test_strangers_in_the_cohort_are_refused(self, make_setup, identities, registry):
        with pytest.raises(PolicyError, match="unregistered"):
            self.client(identities, registry - {identities[3].public}).join(
                make_setup().announce(), bytes(32)
            )

    def test_a_cohort_without_us_is_refused(self, make_setup, registry):
        from secagg import Identity

        outsider = Identity.from_private_bytes(hashlib.sha256(b"outsider").digest())
        with pytest.raises(PolicyError, match="cohort"):
            RoundClient(outsider, registry, ClientPolicy()).join(make_setup().announce(), bytes(32))

    def test_it_joins_once(self, make_setup, identities, registry):
        client = self.client(identities, registry)
        client.join(make_setup().announce(), bytes(32))
        with pytest.raises(LocalProtocolError):
            client.join(make_setup().announce(), bytes(32))

    def test_it_must_join_first(self, identities, registry):
        with pytest.raises(LocalProtocolError, match="join"):
            self.client(identities, registry).receive(b"")

    @pytest.mark.parametrize(
        ("update", "error"),
        [(np.full(200, np.nan), NonFiniteUpdateError), (np.zeros(199), ParameterError)],
    )
    def test_a_bad_update_aborts_the_session(
        self, make_setup, identities, registry, updates, update, error
    ):
        client, server = self.ready(make_setup, identities, registry, updates)
        with pytest.raises(error):
            client.submit(update)
        with pytest.raises(SessionAbortedError):
            client.submit(updates(0))
        assert 0 not in server.answered

    def test_garbage_from_the_server_aborts_the_session(
        self, make_setup, identities, registry, updates
    ):
        client, _ = self.ready(make_setup, identities, registry, updates)
        with pytest.raises(RemoteProtocolError):
            client.receive(b"\x01garbage")
        with pytest.raises(SessionAbortedError):
            client.submit(updates(0))


def test_one_client_with_another_model_cannot_contribute(make_setup, identities, updates, noise):
    """Model inconsistency: the digest differs, so its very first signature is refused."""
    setup = make_setup()
    registry = frozenset(identity.public for identity in identities)
    server = ServerSession(setup.context)
    client = RoundClient(identities[0], registry, ClientPolicy())
    advertisement = client.join(setup.announce(), b"\x01" * 32)
    with pytest.raises(RemoteProtocolError):
        server.receive_bytes(0, advertisement)


class Tamperer:
    """A peer on whose wire something happens at one stage."""

    def __init__(self, peer, stage, change):
        self.peer, self.stage, self.change, self.sent = peer, stage, change, 0

    def _pass(self, data):
        self.sent += 1
        return self.change(data) if self.sent - 1 == self.stage else data

    def open(self):
        return self._pass(self.peer.open())

    def receive(self, data):
        answer = self.peer.receive(data)
        return None if answer is None else self._pass(answer)

    def submit(self):
        return self._pass(self.peer.submit())


@pytest.mark.parametrize("stage", range(5))
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d[:-1],
        lambda d: d + b"\0",
        lambda d: b"",
        lambda d: b"\x02" + d[1:],
        lambda d: d * 2,
    ],
    ids=["truncated", "extended", "empty", "other version", "doubled"],
)
def test_damaged_messages_are_refused_with_a_typed_error(
    make_setup, identities, updates, noise, stage, change
):
    from protocol.aggregators import _Peer

    setup = make_setup()
    registry = frozenset(identity.public for identity in identities)
    peers = {
        i: _Peer(
            RoundClient(identity, registry, ClientPolicy()),
            setup.announce(),
            bytes(32),
            lambda i=i: (updates(i), noise(i)),
        )
        for i, identity in enumerate(identities)
    }
    peers[2] = Tamperer(peers[2], stage, change)
    server = ServerSession(setup.context)
    with pytest.raises(ProtocolError) as caught:
        MemoryRound(server, setup.context.mode, peers, {}).run()
    assert caught.value.party == 2
