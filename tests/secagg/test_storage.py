"""Stored sessions: the same round as without storing, once each, and nothing that was changed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from secagg import ClientSession, Mode, SessionAbortedError
from secagg.reference import Stage
from secagg.storage import STORAGE_VERSION, StoredStateError, TokenFolder, resume, suspend
from secagg.transitions import ClientPhase

REMOVAL = (0b11, 0b10, 0b01, 0)


@pytest.fixture
def consumed(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path / "consumed")


def restart(cohort, u: int, consumed: TokenFolder) -> None:
    """Client u's process ends, and another goes on from what it stored."""
    stored = suspend(cohort.clients[u])
    assert cohort.clients[u].phase is ClientPhase.ABORTED
    cohort.clients[u] = resume(
        stored, cohort.context, u, cohort.identity(u), consumed, cohort.clients[u]._party.rand
    )


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("degree", [0, 6])
@pytest.mark.parametrize("removal", [(), REMOVAL])
def test_a_round_with_restarts_is_the_round_without(
    secagg_kit: SimpleNamespace, consumed: TokenFolder, mode: Mode, degree: int, removal: tuple
) -> None:
    context = secagg_kit.context(
        10, mode, degree=degree, removal=removal, threshold=4 if degree else 6, minimum_survivors=8
    )

    class Restarting(secagg_kit.Cohort):
        identity = staticmethod(secagg_kit.identity)

        def answer(self, stage, u, data):
            if self.clients[u].phase not in (ClientPhase.FINISHED, ClientPhase.ABORTED):
                restart(self, u, consumed)
            return super().answer(stage, u, data)

    drops = {2: Stage.MASK, 5: Stage.UNMASK}
    plain, stored = secagg_kit.Cohort(context, drops), Restarting(context, drops)
    total, other = plain.run(), stored.run()
    assert plain.wire == stored.wire
    assert total.vector.elements.tolist() == other.vector.elements.tolist()


@pytest.fixture
def stored(secagg_kit: SimpleNamespace) -> SimpleNamespace:
    """Client 1 of a small round, stored in every phase that can be."""
    context = secagg_kit.context(4, removal=REMOVAL[:2], minimum_survivors=3)
    states = {}

    class Storing(secagg_kit.Cohort):
        def answer(self, stage, u, data):
            answer = super().answer(stage, u, data)
            client = self.clients[u]
            if u == 1 and client.phase is not ClientPhase.FINISHED:
                party, state = client._party, client._state
                phase = client.phase
                states[phase] = suspend(client)
                self.clients[u] = ClientSession.from_state(party, state)
            return answer

    cohort = Storing(context)
    cohort.run()
    assert cohort.failed == {}
    return SimpleNamespace(context=context, states=states, identity=secagg_kit.identity(1))


def test_every_phase_that_waits_can_be_stored(stored: SimpleNamespace) -> None:
    assert set(stored.states) == {
        ClientPhase.ADVERTISED,
        ClientPhase.SHARED,
        ClientPhase.MASKED,
        ClientPhase.CONFIRMED,
        ClientPhase.RELEASED,
    }


def test_a_state_is_resumed_once(stored: SimpleNamespace, consumed: TokenFolder) -> None:
    for phase, state in stored.states.items():
        first = resume(state, stored.context, 1, stored.identity, consumed)
        assert first.phase is phase
        with pytest.raises(StoredStateError, match="before"):
            resume(state, stored.context, 1, stored.identity, consumed)


def test_another_process_knows_what_was_consumed(stored: SimpleNamespace, tmp_path: Path) -> None:
    state = stored.states[ClientPhase.CONFIRMED]
    resume(state, stored.context, 1, stored.identity, TokenFolder(tmp_path))
    with pytest.raises(StoredStateError, match="before"):
        resume(state, stored.context, 1, stored.identity, TokenFolder(tmp_path))


def test_the_token_is_consumed_before_the_session_exists(stored: SimpleNamespace) -> None:
    class Failing:
        def consume(self, token: bytes) -> bool:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        resume(stored.states[ClientPhase.MASKED], stored.context, 1, stored.identity, Failing())


def test_every_changed_bit_is_noticed(stored: SimpleNamespace, consumed: TokenFolder) -> None:
    state = stored.states[ClientPhase.ADVERTISED]
    for position in range(len(state)):
        changed = bytearray(state)
        changed[position] ^= 1
        with pytest.raises(StoredStateError):
            resume(bytes(changed), stored.context, 1, stored.identity, consumed)
    # A changed state does not use up the token of the right one.
    assert resume(state, stored.context, 1, stored.identity, consumed)


@pytest.mark.parametrize("cut", [0, 1, 10, 17, 18, 40])
def test_cut_states_are_refused(stored: SimpleNamespace, consumed: TokenFolder, cut: int) -> None:
    state = stored.states[ClientPhase.MASKED]
    for damaged in (state[:cut], state[:-1], state + b"\0"):
        with pytest.raises(StoredStateError):
            resume(damaged, stored.context, 1, stored.identity, consumed)


def test_a_state_belongs_to_its_client_and_round(
    secagg_kit: SimpleNamespace, stored: SimpleNamespace, consumed: TokenFolder
) -> None:
    state = stored.states[ClientPhase.SHARED]
    other_round = secagg_kit.context(4, removal=REMOVAL[:2], minimum_survivors=3, round_number=9)
    for context, index, identity in (
        (other_round, 1, stored.identity),
        (stored.context, 2, stored.identity),
        (stored.context, 1, secagg_kit.identity(2)),
    ):
        with pytest.raises(StoredStateError, match="does not open"):
            resume(state, context, index, identity, consumed)


def test_secrets_are_not_readable_in_a_stored_state(
    secagg_kit: SimpleNamespace,
) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(4))
    cohort.run(until=Stage.SHARE)
    secret = cohort.clients[0]._state.masking.expose()
    assert secret not in suspend(cohort.clients[0])


def test_a_session_that_is_over_cannot_be_stored(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(4))
    cohort.run()
    with pytest.raises(SessionAbortedError):
        suspend(cohort.clients[0])


def test_the_version_is_checked(stored: SimpleNamespace, consumed: TokenFolder) -> None:
    state = stored.states[ClientPhase.MASKED]
    with pytest.raises(StoredStateError, match="version"):
        resume(
            bytes([STORAGE_VERSION + 1]) + state[1:], stored.context, 1, stored.identity, consumed
        )


def test_token_files_are_private(tmp_path: Path) -> None:
    folder = TokenFolder(tmp_path / "tokens")
    assert folder.consume(b"\x01" * 16)
    assert not folder.consume(b"\x01" * 16)
    (path,) = (tmp_path / "tokens").iterdir()
    assert os.stat(path).st_mode & 0o077 == 0
