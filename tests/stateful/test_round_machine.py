"""A whole round under a machine that may do anything to its messages, at any time.

Messages wait in two lists, one in each direction. Rules deliver, drop, double, swap, damage and
replay them, close the server's stage, and restart clients from their stored states. After every
step: phases only move forward, only typed errors came out, nobody spoke twice in one stage, and
whoever is over refuses everything. At the end the stages are closed until there is a sum, which
must be exact, or a typed error.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from secagg import (
    ClientSession,
    FieldSum,
    FieldVector,
    Mode,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    SessionAbortedError,
    SessionContext,
    TooFewSurvivorsError,
    lowest_threshold,
)
from secagg.pairwise import (
    client,
    server,
)
from secagg.pairwise.client_states import Party
from secagg.pairwise.messages import decode_from_client
from secagg.pairwise.transitions import ClientPhase, ServerPhase
from secagg.server import Parties
from secagg.storage import StoredStateError, resume, suspend
from simulations.threats.game.contexts import cohort_keys, identity_of, new_session

OVER = (ClientPhase.ABORTED, ClientPhase.FINISHED)
RANK = {phase: rank for rank, phase in enumerate(ClientPhase)}
SERVER_RANK = {phase: rank for rank, phase in enumerate(ServerPhase)}

# (clients, degree, colluders, clients that may be lost)
SHAPES = [(3, 0, 0, 1), (4, 0, 0, 1), (5, 0, 0, 2), (5, 0, 1, 1), (8, 4, 0, 2), (8, 6, 1, 1)]

ends: Counter[str] = Counter()
"""How rounds ended, over all runs of the machine: a test looks that good ends occur."""


@dataclass
class Memory:
    """Keys of stored states, in memory."""

    kept: dict[bytes, bytes] = field(default_factory=dict)

    def keep(self, token: bytes, key: bytes) -> None:
        self.kept[token] = key

    def key(self, token: bytes) -> bytes | None:
        return self.kept.get(token)

    def consume(self, token: bytes) -> bool:
        return self.kept.pop(token, None) is not None


class RoundMachine(RuleBasedStateMachine):
    """One server, its clients, and everything that is on its way between them."""

    begins_at: int | None = None
    """The stage at whose uploads trouble begins; None for any."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        mode=st.sampled_from([Mode.ACTIVE, Mode.ACTIVE, Mode.SEMI_HONEST]),
        removable=st.booleans(),
        seed=st.integers(0, 1 << 16),
        passed=st.integers(0, 5),
        heard=st.booleans(),
    )
    def start(
        self,
        shape: tuple[int, int, int, int],
        mode: Mode,
        removable: bool,
        seed: int,
        passed: int,
        heard: bool,
    ) -> None:
        """Begin a round, and let some stages pass in peace, so that trouble comes at any stage."""
        self.make(shape, mode, removable, seed)
        if self.begins_at is not None:
            passed, heard = self.begins_at, True
        for _ in range(passed if mode is Mode.ACTIVE else min(passed, 4)):
            # Not the last stage: a round that is over is no longer of interest.
            if self.server.phase is not ServerPhase.UNMASKING:
                self.deliver_all()
                self.close()
        if heard:
            self.clients_hear()

    def make(
        self, shape: tuple[int, int, int, int], mode: Mode, removable: bool, seed: int
    ) -> None:
        size, degree, colluders, lost = shape
        threshold = lowest_threshold(size, colluders, mode, degree)
        self.context = SessionContext(
            session_id=bytes(16),
            round_number=seed,
            cohort=cohort_keys(size),
            threshold=threshold,
            minimum_survivors=max(size - lost, threshold),
            mode=mode,
            tolerated_colluders=colluders,
            degree=degree,
            removal=(0b11, 0b01, 0b10)[: lost + 1] if removable else (),
            bits=16,
            length=3,
            application_digest=bytes(32),
        )
        rng = np.random.default_rng(seed)
        modulus = self.context.field.modulus
        self.inputs = rng.integers(0, modulus, (size, 3), np.uint64).astype("<u2")
        self.server = ServerSession(self.context)
        self.clients = [new_session(self.context, u, b"machine %d" % seed) for u in range(size)]
        self.seeds: dict[int, tuple[bytes, ...]] = {}
        self.keys = Memory()
        self.up: list[tuple[int, bytes]] = []
        self.down: list[tuple[int, bytes]] = []
        self.old: list[bytes] = []
        self.spoken: Counter[tuple[int, str]] = Counter()
        self.ranks = [RANK[ClientPhase.FRESH]] * size
        self.server_rank = SERVER_RANK[ServerPhase.ADVERTISING]
        self.end: FieldSum | ProtocolError | None = None
        for u, session in enumerate(self.clients):
            self.send_up(u, session.begin_bytes())

    # -- rules --------------------------------------------------------------------------------

    @precondition(lambda self: self.up)
    @rule()
    def server_hears_the_next(self) -> None:
        self.to_server(*self.up.pop(0))

    @precondition(lambda self: self.down)
    @rule()
    def a_client_hears_the_next(self) -> None:
        self.to_client(*self.down.pop(0))

    @precondition(lambda self: self.down)
    @rule()
    def all_clients_hear(self) -> None:
        self.clients_hear()

    @precondition(lambda self: self.up or self.down)
    @rule()
    def all_is_delivered(self) -> None:
        self.deliver_all()

    @precondition(lambda self: self.up or self.down)
    @rule(upward=st.booleans(), at=st.integers(0, 100))
    def one_is_lost(self, upward: bool, at: int) -> None:
        wire = self.wire(upward)
        del wire[at % len(wire)]

    @precondition(lambda self: self.up or self.down)
    @rule(upward=st.booleans(), at=st.integers(0, 100))
    def one_is_doubled(self, upward: bool, at: int) -> None:
        wire = self.wire(upward)
        wire.append(wire[at % len(wire)])

    @precondition(lambda self: self.up or self.down)
    @rule(upward=st.booleans(), at=st.integers(0, 100))
    def one_jumps_the_queue(self, upward: bool, at: int) -> None:
        wire = self.wire(upward)
        wire.insert(0, wire.pop(at % len(wire)))

    @precondition(lambda self: self.up or self.down)
    @rule(
        upward=st.booleans(),
        at=st.integers(0, 100),
        place=st.integers(0, 10_000),
        bits=st.integers(1, 255),
    )
    def one_is_damaged(self, upward: bool, at: int, place: int, bits: int) -> None:
        wire = self.wire(upward)
        party, data = wire[at % len(wire)]
        place %= len(data)
        changed = data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]
        wire[at % len(wire)] = party, changed

    @precondition(lambda self: self.old)
    @rule(upward=st.booleans(), at=st.integers(0, 1000), party=st.integers(0, 100))
    def an_old_one_comes_again(self, upward: bool, at: int, party: int) -> None:
        data = self.old[at % len(self.old)]
        (self.up if upward else self.down).append((party % self.context.size, data))

    @precondition(lambda self: self.end is None)
    @rule()
    def a_stage_passes(self) -> None:
        self.deliver_all()
        self.close()

    @precondition(lambda self: self.end is None and not self.up and not self.down)
    @rule()
    def the_stage_is_closed(self) -> None:
        self.close()

    @precondition(lambda self: self.end is None and (self.up or self.down))
    @rule(really=st.sampled_from([False, False, False, True]))
    def the_stage_is_closed_early(self, really: bool) -> None:
        if really:
            self.close()

    @rule(party=st.integers(0, 100))
    def a_client_is_stored_and_restored(self, party: int) -> None:
        u = party % self.context.size
        old = self.clients[u]
        if old.phase in OVER:
            with pytest.raises(SessionAbortedError):
                suspend(old, self.keys)
            return
        phase, stored = old.phase, suspend(old, self.keys)
        assert old.phase is ClientPhase.ABORTED
        self.clients[u] = self.restored(u, stored)
        assert self.clients[u].phase is phase
        with pytest.raises(StoredStateError):
            self.restored(u, stored)

    # -- what holds at any time -------------------------------------------------------------------

    @invariant()
    def phases_only_move_forward(self) -> None:
        for u, session in enumerate(self.clients):
            rank = RANK[session.phase]
            assert rank >= self.ranks[u]
            assert rank == self.ranks[u] or list(ClientPhase)[self.ranks[u]] not in OVER
            self.ranks[u] = rank
        rank = SERVER_RANK[self.server.phase]
        assert rank >= self.server_rank
        self.server_rank = rank

    @invariant()
    def nobody_speaks_twice(self) -> None:
        assert all(count == 1 for count in self.spoken.values())

    @invariant()
    def whoever_is_over_refuses(self) -> None:
        for session in self.clients:
            if session.phase in OVER:
                with pytest.raises(SessionAbortedError):
                    session.receive_bytes(b"")
        if self.end is not None:
            for use in (self.server.close_round, self.server.unmask):
                with pytest.raises(SessionAbortedError):
                    use()

    def teardown(self) -> None:
        """Whatever happened, the round ends, in one of the two good ways."""
        if not hasattr(self, "server"):
            return
        for _ in ServerPhase:
            self.deliver_all()
            if self.end is None:
                self.close()
        assert self.end is not None
        self.check_end()
        self.phases_only_move_forward()
        self.nobody_speaks_twice()
        self.whoever_is_over_refuses()

    # -- helpers ------------------------------------------------------------------------------

    def wire(self, upward: bool) -> list[tuple[int, bytes]]:
        """The messages of one direction, or of the other if there are none."""
        first, second = (self.up, self.down) if upward else (self.down, self.up)
        return first or second

    def restored(self, u: int, stored: bytes) -> ClientSession:
        return resume(ClientSession, stored, Party(self.context, u, identity_of(u)), self.keys)

    def clients_hear(self) -> None:
        while self.down:
            self.to_client(*self.down.pop(0))

    def deliver_all(self) -> None:
        self.clients_hear()
        while self.up:
            self.to_server(*self.up.pop(0))

    def send_up(self, u: int, data: bytes) -> None:
        kind = type(decode_from_client(data, u, len(data))).__name__
        self.spoken[u, kind] += 1
        self.up.append((u, data))
        self.old.append(data)

    def to_server(self, sender: int, data: bytes) -> None:
        before = (self.server.phase, self.server.answered)
        try:
            self.server.receive_bytes(sender, data)
        except (RemoteProtocolError, SessionAbortedError):
            assert (self.server.phase, self.server.answered) == before

    def to_client(self, u: int, data: bytes) -> None:
        session = self.clients[u]
        was_over = session.phase in OVER
        try:
            answer = session.receive_bytes(data)
            if answer is None:
                self.seeds[u] = tuple(seed.expose() for seed in session.removable_seeds)
                answer = session.submit_bytes(FieldVector(self.context.field, self.inputs[u]))
        except SessionAbortedError:
            assert was_over
        except RemoteProtocolError:
            assert session.phase is ClientPhase.ABORTED
        else:
            self.send_up(u, answer)

    def close(self) -> None:
        try:
            if self.server.phase is ServerPhase.RECOVERING:
                self.end = self.server.unmask()
                return
            sent = self.server.close_round_bytes()
        except ProtocolError as error:
            self.end = error
            return
        self.down += sent
        self.old += [data for _, data in sent]

    def check_end(self) -> None:
        if isinstance(self.end, ProtocolError):
            assert isinstance(self.end, TooFewSurvivorsError | RemoteProtocolError)
            assert self.server.phase is ServerPhase.ABORTED
            ends[type(self.end).__name__] += 1
            return
        total: Any = self.end
        survivors = list(total.survivors)
        assert len(survivors) >= self.context.minimum_survivors
        plain = self.inputs[survivors].astype(np.uint64).sum(axis=0) % self.context.field.modulus
        assert total.vector.elements.tolist() == plain.tolist()
        which = self.context.removed_seeds(len(survivors))
        expected = {u: tuple(self.seeds[u][i] for i in which) for u in survivors if which}
        assert total.removed == expected
        assert total.culprits == ()
        ends["exact sum"] += 1


TestRound = RoundMachine.TestCase
TestRound.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
class TestManyRounds(RoundMachine.TestCase):
    """The same for longer."""

    settings = settings(max_examples=240, stateful_step_count=40)


def test_both_good_ends_occur() -> None:
    """Runs the machine itself, so that it depends on no other test."""
    ends.clear()
    run_state_machine_as_test(
        RoundMachine, settings=settings(max_examples=25, stateful_step_count=12)
    )
    assert ends["exact sum"] >= 3
    assert ends["TooFewSurvivorsError"] >= 3


# -- controls: with one defence less the machine must find a failure ----------------------------


def find_failure(machine: type[RoundMachine] = RoundMachine) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=300, stateful_step_count=12, phases=[Phase.generate], database=None
        ),
    )


def test_uploads_that_count_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class AtUploads(RoundMachine):
        begins_at = 2

    monkeypatch.setattr(Parties, "first", lambda self, sender, seen, allowed=(): sender)
    with pytest.raises(AssertionError):
        find_failure(AtUploads)


def test_a_client_that_keeps_its_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers the same message twice."""
    monkeypatch.setattr(ClientSession, "_take", lambda self: self._state)
    handlers = dict(client.HANDLERS)

    def stays(handler: Any) -> Any:
        return lambda party, state, event: type(handler(party, state, event))(
            state, handler(party, state, event).outbound
        )

    for key, handler in handlers.items():
        if key[0] is ClientPhase.MASKED:
            monkeypatch.setitem(client.HANDLERS, key, stays(handler))
            moves = {**ClientSession.MOVES, key: frozenset({ClientPhase.MASKED})}
            monkeypatch.setattr(ClientSession, "MOVES", moves)
    with pytest.raises(AssertionError):
        find_failure()


def test_a_state_that_is_restored_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "consume", lambda self, token: True)
    with pytest.raises(pytest.fail.Exception):
        find_failure()


def test_an_untyped_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError

    monkeypatch.setattr(ServerSession, "_on_bundle", broken)
    for key, handler in list(server.ServerSession.RECEIVERS.items()):
        if handler.__name__ == "_on_bundle":
            monkeypatch.setitem(server.ServerSession.RECEIVERS, key, broken)
    with pytest.raises(IndexError):
        find_failure()
