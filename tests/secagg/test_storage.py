"""Stored sessions: the same round as without storing, once each, and nothing that was changed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pairwise_rounds as kit
import pytest
from cryptography.exceptions import InvalidTag

from secagg import ClientSession, Mode, SessionAbortedError
from secagg.pairwise.client_states import Party
from secagg.pairwise.reference import Stage
from secagg.pairwise.transitions import ClientPhase
from secagg.state_codec import StateCodec
from secagg.storage import (
    STORAGE_VERSION,
    TOKEN_BYTES,
    StoredStateError,
    TokenFolder,
    _cipher,
    discard,
    resume,
    suspend,
)

REMOVAL = (0b11, 0b10, 0b01, 0)


@pytest.fixture
def keys(tmp_path: Path) -> TokenFolder:
    return TokenFolder(tmp_path / "keys")


def resumed(
    stored: bytes, context: Any, index: int, identity: Any, keys: Any, beside: bytes = b""
) -> ClientSession:
    return resume(ClientSession, stored, Party(context, index, identity), keys, beside)


def restart(cohort: Any, u: int, keys: TokenFolder) -> None:
    """Client u's process ends, and another goes on from what it stored."""
    stored = suspend(cohort.clients[u], keys)
    assert cohort.clients[u].phase is ClientPhase.ABORTED
    cohort.clients[u] = resume(ClientSession, stored, cohort.clients[u]._party, keys)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("degree", [0, 6])
@pytest.mark.parametrize("removal", [(), REMOVAL])
def test_a_round_with_restarts_is_the_round_without(
    keys: TokenFolder, mode: Mode, degree: int, removal: tuple
) -> None:
    context = kit.context(
        10, mode, degree=degree, removal=removal, threshold=4 if degree else 6, minimum_survivors=8
    )

    class Restarting(kit.Cohort):
        identity = staticmethod(kit.identity)

        def answer(self, stage: Stage, u: int, data: bytes | None) -> bytes | None:
            if self.clients[u].phase not in (ClientPhase.FINISHED, ClientPhase.ABORTED):
                restart(self, u, keys)
            return super().answer(stage, u, data)

    drops = {2: Stage.MASK, 5: Stage.UNMASK}
    plain, stored = kit.Cohort(context, drops), Restarting(context, drops)
    total, other = plain.run(), stored.run()
    assert plain.wire == stored.wire
    assert total.vector.elements.tolist() == other.vector.elements.tolist()


@pytest.fixture
def stored(keys: TokenFolder) -> SimpleNamespace:
    """Client 1 of a small round, stored in every phase that can be."""
    context = kit.context(4, removal=REMOVAL[:2], minimum_survivors=3)
    states = {}

    class Storing(kit.Cohort):
        def answer(self, stage: Stage, u: int, data: bytes | None) -> bytes | None:
            answer = super().answer(stage, u, data)
            client = self.clients[u]
            if u == 1 and client.phase is not ClientPhase.FINISHED:
                party, state = client._party, client._state
                phase = client.phase
                states[phase] = suspend(client, keys)
                self.clients[u] = ClientSession.from_state(party, state)
            return answer

    cohort = Storing(context)
    cohort.run()
    assert cohort.failed == {}
    return SimpleNamespace(context=context, states=states, identity=kit.identity(1))


def test_every_phase_that_waits_can_be_stored(stored: SimpleNamespace) -> None:
    assert set(stored.states) == {
        ClientPhase.ADVERTISED,
        ClientPhase.SHARED,
        ClientPhase.MASKED,
        ClientPhase.CONFIRMED,
        ClientPhase.RELEASED,
    }


def test_a_state_is_resumed_once(stored: SimpleNamespace, keys: TokenFolder) -> None:
    for phase, state in stored.states.items():
        first = resumed(state, stored.context, 1, stored.identity, keys)
        assert first.phase is phase
        with pytest.raises(StoredStateError, match="before"):
            resumed(state, stored.context, 1, stored.identity, keys)


def test_another_process_knows_what_was_resumed(stored: SimpleNamespace, tmp_path: Path) -> None:
    state = stored.states[ClientPhase.CONFIRMED]
    resumed(state, stored.context, 1, stored.identity, TokenFolder(tmp_path / "keys"))
    with pytest.raises(StoredStateError, match="before"):
        resumed(state, stored.context, 1, stored.identity, TokenFolder(tmp_path / "keys"))


def test_the_key_is_destroyed_before_the_session_exists(
    stored: SimpleNamespace, tmp_path: Path
) -> None:
    class Failing(TokenFolder):
        def consume(self, token: bytes) -> bool:
            raise OSError("disk full")

    failing = Failing(tmp_path / "keys")
    with pytest.raises(OSError, match="disk full"):
        resumed(stored.states[ClientPhase.MASKED], stored.context, 1, stored.identity, failing)


def test_of_two_that_resume_at_once_one_gets_the_state(
    stored: SimpleNamespace, tmp_path: Path
) -> None:
    """Both have read the key before either has destroyed it."""

    class Slow(TokenFolder):
        def consume(self, token: bytes) -> bool:
            both.wait(60)
            return super().consume(token)

    def one(state: bytes) -> bool:
        try:
            resumed(state, stored.context, 1, stored.identity, Slow(tmp_path / "keys"))
        except StoredStateError:
            return False
        return True

    for state in stored.states.values():
        both = Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(one, [state] * 2)) == [False, True]


def test_every_changed_bit_is_noticed(stored: SimpleNamespace, keys: TokenFolder) -> None:
    state = stored.states[ClientPhase.ADVERTISED]
    for position in range(len(state)):
        changed = bytearray(state)
        changed[position] ^= 1
        with pytest.raises(StoredStateError):
            resumed(bytes(changed), stored.context, 1, stored.identity, keys)
    # A changed state does not use up the token of the right one.
    assert resumed(state, stored.context, 1, stored.identity, keys)


@pytest.mark.parametrize("cut", [0, 1, 10, 17, 18, 40])
def test_cut_states_are_refused(stored: SimpleNamespace, keys: TokenFolder, cut: int) -> None:
    state = stored.states[ClientPhase.MASKED]
    for damaged in (state[:cut], state[:-1], state + b"\0"):
        with pytest.raises(StoredStateError):
            resumed(damaged, stored.context, 1, stored.identity, keys)


def test_a_state_belongs_to_its_client_and_round(
    stored: SimpleNamespace, keys: TokenFolder
) -> None:
    state = stored.states[ClientPhase.SHARED]
    other_round = kit.context(4, removal=REMOVAL[:2], minimum_survivors=3, round_number=9)
    for context, index, identity in (
        (other_round, 1, stored.identity),
        (stored.context, 2, stored.identity),
        (stored.context, 1, kit.identity(2)),
    ):
        with pytest.raises(StoredStateError, match="cannot be opened"):
            resumed(state, context, index, identity, keys)


def test_secrets_are_not_readable_in_a_stored_state(keys: TokenFolder) -> None:
    cohort = kit.Cohort(kit.context(4))
    cohort.run(until=Stage.SHARE)
    secret = cohort.clients[0]._state.masking.expose()
    assert secret not in suspend(cohort.clients[0], keys)


def test_a_session_that_is_over_cannot_be_stored(keys: TokenFolder, tmp_path: Path) -> None:
    cohort = kit.Cohort(kit.context(4))
    cohort.run()
    with pytest.raises(SessionAbortedError):
        suspend(cohort.clients[0], keys)
    assert list((tmp_path / "keys").iterdir()) == []


def test_the_version_is_checked(stored: SimpleNamespace, keys: TokenFolder) -> None:
    state = stored.states[ClientPhase.MASKED]
    with pytest.raises(StoredStateError, match="version"):
        resumed(bytes([STORAGE_VERSION + 1]) + state[1:], stored.context, 1, stored.identity, keys)


def test_a_state_with_other_fields_is_refused_by_name(
    stored: SimpleNamespace, keys: TokenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier version wrote them, whose fields are not there or not of this kind."""
    state = stored.states[ClientPhase.SHARED]
    values = StateCodec._values

    def without(codec: StateCodec, plain: dict[str, Any], *rest: Any) -> Any:
        plain.pop("agreed", None)
        return values(codec, plain, *rest)

    monkeypatch.setattr(StateCodec, "_values", without)
    with pytest.raises(StoredStateError, match="another version"):
        resumed(state, stored.context, 1, stored.identity, keys)


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_key_is_on_disk_when_it_is_kept_and_gone_when_it_is_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write is synced: the key, its destruction, and both times the folder."""
    synced: list[tuple[Path, bytes]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path, path.read_bytes() if path.is_file() else b"folder"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder, token, key = tmp_path / "keys", b"\x01" * 16, b"\x07" * 32
    keys = TokenFolder(folder)
    keys.keep(token, key)
    path = folder / token.hex()
    assert synced == [(path, key), (folder, b"folder")]
    assert keys.key(token) == key
    synced.clear()
    assert keys.consume(token)
    # Overwritten on the disk before the name goes: unlinked bytes can be read back.
    assert synced == [(path, bytes(32)), (folder, b"folder")]
    assert keys.key(token) is None
    assert not keys.consume(token)
    assert files_of(folder) == []


def test_a_key_that_was_overwritten_and_not_yet_unlinked_opens_nothing(
    stored: SimpleNamespace, keys: TokenFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of destroying a key: it is gone."""
    state = stored.states[ClientPhase.MASKED]

    class KilledError(BaseException):
        pass

    def killed(self: Path) -> None:
        raise KilledError

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KilledError):
        resumed(state, stored.context, 1, stored.identity, keys)
    monkeypatch.undo()
    with pytest.raises(StoredStateError, match="cannot be opened"):
        resumed(state, stored.context, 1, stored.identity, keys)


@pytest.mark.parametrize("damage", [b"", b"\0" * 31, b"\0" * 33])
def test_a_damaged_key_is_no_key(
    stored: SimpleNamespace, keys: TokenFolder, tmp_path: Path, damage: bytes
) -> None:
    for path in files_of(tmp_path / "keys"):
        path.write_bytes(damage)
    with pytest.raises(StoredStateError, match="lost"):
        resumed(stored.states[ClientPhase.MASKED], stored.context, 1, stored.identity, keys)


def test_what_was_resumed_opens_for_nobody(
    stored: SimpleNamespace, keys: TokenFolder, tmp_path: Path
) -> None:
    """Whoever has the state, the identity, and all that is left on the disk."""
    token_of = {phase: state[1 : 1 + TOKEN_BYTES] for phase, state in stored.states.items()}
    for phase, state in stored.states.items():
        key = keys.key(token_of[phase])
        assert key is not None
        assert any(key == path.read_bytes() for path in files_of(tmp_path / "keys"))
        resumed(state, stored.context, 1, stored.identity, keys)
        assert not any(key == path.read_bytes() for path in files_of(tmp_path / "keys"))
        for guess in (bytes(32), token_of[phase] * 2, stored.identity.private_bytes()):
            other = TokenFolder(tmp_path / "guessed" / guess.hex())
            other.keep(token_of[phase], guess)
            with pytest.raises(StoredStateError, match="cannot be opened"):
                resumed(state, stored.context, 1, stored.identity, other)


def test_a_state_needs_the_identity_and_not_its_key_alone(
    stored: SimpleNamespace, keys: TokenFolder
) -> None:
    state = stored.states[ClientPhase.SHARED]
    party = Party(stored.context, 1, kit.identity(2), os.urandom)
    cipher, bound = _cipher(party, b"", state[1:17], keys.key(state[1:17]) or b"", b"")
    with pytest.raises(InvalidTag):
        cipher.decrypt(state[17:], [bound])


def test_the_seal_covers_what_is_kept_beside_it(keys: TokenFolder) -> None:
    cohort = kit.before(Stage.MASK)
    party = cohort.clients[0]._party
    state = suspend(cohort.clients[0], keys, b"public")
    for other in (b"", b"publi", b"public\0"):
        with pytest.raises(StoredStateError, match="cannot be opened"):
            resumed(state, party.context, 0, party.identity, keys, beside=other)
    assert resumed(state, party.context, 0, party.identity, keys, beside=b"public")


def test_a_discarded_state_is_not_resumed(
    stored: SimpleNamespace, keys: TokenFolder, tmp_path: Path
) -> None:
    kept, given_up = stored.states[ClientPhase.MASKED], stored.states[ClientPhase.SHARED]
    count = len(files_of(tmp_path / "keys"))
    discard(given_up, keys)
    discard(given_up, keys)
    assert len(files_of(tmp_path / "keys")) == count - 1
    with pytest.raises(StoredStateError, match="before"):
        resumed(given_up, stored.context, 1, stored.identity, keys)
    for nothing in (b"", given_up[:17], b"\1" + given_up[1:]):
        with pytest.raises(StoredStateError, match="version"):
            discard(nothing, keys)
    assert resumed(kept, stored.context, 1, stored.identity, keys)


def test_a_cleared_folder_opens_nothing_and_was_overwritten(
    stored: SimpleNamespace, keys: TokenFolder, tmp_path: Path
) -> None:
    keys.keep(b"half", b"written")
    paths = files_of(tmp_path / "keys")
    linked = []
    for number, path in enumerate(paths):
        linked.append(tmp_path / f"linked-{number}")
        os.link(path, linked[-1])
    keys.clear()
    keys.clear()
    assert files_of(tmp_path / "keys") == []
    assert len(linked) > 3 and all(path.read_bytes() == bytes(32) for path in linked)
    for state in stored.states.values():
        with pytest.raises(StoredStateError, match="before"):
            resumed(state, stored.context, 1, stored.identity, keys)


def test_keys_are_private(tmp_path: Path) -> None:
    keys = TokenFolder(tmp_path / "keys")
    keys.keep(b"\x01" * 16, bytes(32))
    (path,) = files_of(tmp_path / "keys")
    assert os.stat(path).st_mode & 0o077 == os.stat(path.parent).st_mode & 0o077 == 0
