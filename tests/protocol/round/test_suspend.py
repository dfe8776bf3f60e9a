"""A round that is stored between messages: it goes on once, for its own client, unchanged."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_kit import (
    IDENTITIES,
    MODEL,
    expiring,
    make_client,
    make_setup,
    noise,
    updates,
)

from protocol.exchange.aggregators import IdealAggregator, _Peer
from protocol.exchange.in_memory import MemoryRound
from protocol.round import stored_round
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.setup import Announcement, RoundSetup
from secagg import FieldSum, LocalProtocolError, Mode, ServerSession, SessionAbortedError
from secagg.pairwise.transitions import ClientPhase
from secagg.storage import StoredStateError, TokenFolder
from sketch import SketchSpec


class Restarted(_Peer):
    """A peer whose client is stored and taken up by a new object before every message.

    `keep` gets what is stored, with the phase that it is of.
    """

    def __init__(
        self, make: Callable[..., Any], tokens: TokenFolder, keep: dict[Any, Any], *rest: Any
    ) -> None:
        super().__init__(make(), *rest)
        self.make, self.tokens, self.keep = make, tokens, keep

    def restart(self) -> None:
        stored = self.client.suspend(self.tokens)
        assert self.client.phase is ClientPhase.ABORTED
        self.client = self.make()
        self.client.resume(stored, self.tokens)
        self.keep[self.client.phase] = stored

    def receive(self, data: bytes) -> bytes | None:
        self.restart()
        return super().receive(data)

    def submit(self) -> bytes:
        self.restart()
        return super().submit()


def run_restarted(
    tokens: TokenFolder, setup: RoundSetup, dropouts: dict[int, Stage] | None = None
) -> tuple[FieldSum, dict[ClientPhase, bytes]]:
    """A whole round in which client 0 restarts before every message; what it stored, by phase."""
    keep, histories = {}, {}

    def peer(index: int) -> _Peer | Restarted:
        history = histories.setdefault(index, ClientHistory())
        rest = setup.announce(), MODEL, lambda: (updates(index), noise(index))
        make = lambda: make_client(index, history)  # noqa: E731
        return Restarted(make, tokens, keep, *rest) if index == 0 else _Peer(make(), *rest)

    peers = {index: peer(index) for index in range(len(IDENTITIES))}
    server = ServerSession(setup.context)
    outcome = MemoryRound(server, setup.context.mode, peers, dropouts or {}).run()
    assert outcome.refused == {}
    return outcome.total, keep


@pytest.mark.parametrize("removable", [False, True])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_round_with_restarts_gives_the_same_sum(
    tokens: TokenFolder, mode: Mode, removable: bool
) -> None:
    setup = make_setup(mode=mode, removable=removable, coins=20_000 if removable else 101)
    lost = {3: Stage.UNMASK, 5: Stage.INPUT}
    total, stored = run_restarted(tokens, setup, lost)
    assert total.survivors == (0, 1, 2, 3, 4)
    if not removable:
        ideal = IdealAggregator(noise=noise).run(setup, updates, lost).total
        assert np.array_equal(total.vector.elements, ideal.vector.elements)
    left_out = {ClientPhase.CONFIRMED} if mode is not Mode.ACTIVE else set()
    left_out |= {ClientPhase.RELEASED} if not removable else set()
    assert set(stored) == set(PHASES) - left_out


@pytest.fixture(scope="module")
def whole_round(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[ClientPhase, bytes]]:
    """Client 0 in every phase that waits, stored; that run has not destroyed a key."""

    class Forgetful(TokenFolder):
        def consume(self, token: bytes) -> bool:
            return True

    folder = tmp_path_factory.mktemp("whole") / "tokens"
    setup = expiring(make_setup(removable=True, coins=20_000))
    lost = {3: Stage.UNMASK, 5: Stage.INPUT}
    return folder, run_restarted(Forgetful(folder), setup, lost)[1]


@pytest.fixture
def stored(
    whole_round: tuple[Path, dict[ClientPhase, bytes]], tmp_path: Path
) -> dict[ClientPhase, bytes]:
    """Every state opens once more, as it would for a host that rolled back states and keys."""
    shutil.copytree(whole_round[0], tmp_path / "tokens", dirs_exist_ok=True)
    return whole_round[1]


PHASES = [
    ClientPhase.ADVERTISED,
    ClientPhase.SHARED,
    ClientPhase.READY,
    ClientPhase.MASKED,
    ClientPhase.CONFIRMED,
    ClientPhase.RELEASED,
]


@pytest.mark.parametrize("phase", PHASES, ids=str)
class TestStoredRounds:
    """What holds in whatever phase a round was stored."""

    def test_it_is_resumed_once(
        self,
        tokens: TokenFolder,
        tmp_path: Path,
        stored: dict[ClientPhase, bytes],
        phase: ClientPhase,
    ) -> None:
        first = make_client()
        first.resume(stored[phase], tokens)
        assert first.phase is phase
        # Another process knows that it was, too.
        for again in (tokens, TokenFolder(tmp_path / "tokens")):
            second = make_client()
            with pytest.raises(StoredStateError, match="before"):
                second.resume(stored[phase], again)
            assert second.phase is ClientPhase.FRESH

    def test_it_is_no_use_to_another_client(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes], phase: ClientPhase
    ) -> None:
        with pytest.raises(StoredStateError, match="cannot be opened"):
            make_client(1).resume(stored[phase], tokens)
        # And the attempt does not use it up.
        make_client().resume(stored[phase], tokens)

    def test_a_changed_announcement_does_not_open_it(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes], phase: ClientPhase
    ) -> None:
        for announcement in changed_announcements(decoded(stored[phase])[1]):
            with pytest.raises(StoredStateError):
                make_client().resume(encoded(stored[phase], announcement=announcement), tokens)
        make_client().resume(stored[phase], tokens)

    def test_another_model_does_not_open_it(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes], phase: ClientPhase
    ) -> None:
        for digest in (b"\1" * 32, b"", bytes(31)):
            with pytest.raises(StoredStateError):
                make_client().resume(encoded(stored[phase], digest=digest), tokens)


def decoded(stored: bytes) -> tuple[bytes | int | None, ...]:
    return msgspec.msgpack.decode(stored, type=stored_round.Plain)


def encoded(
    stored: bytes,
    *,
    version: int | None = None,
    announcement: bytes | None = None,
    digest: bytes | None = None,
    seen: bytes | None = None,
    sealed: bytes | None = None,
) -> bytes:
    """A stored round with some parts put in the place of others."""
    instead = (version, announcement, digest, seen, sealed)
    parts = [new if new is not None else old for new, old in zip(instead, decoded(stored))]  # noqa: B905
    return msgspec.msgpack.encode(parts)


def changed_announcements(announcement: bytes) -> Iterator[bytes]:
    """One for each parameter of a round, changed a little and still a round where possible."""
    whole = msgspec.msgpack.decode(announcement[1:], type=Announcement)
    instead = {
        "session_id": b"\1" * 16,
        "round_number": whole.round_number + 1,
        "cohort": whole.cohort[:32] + whole.cohort[64:96] + whole.cohort[32:64] + whole.cohort[96:],
        "threshold": whole.threshold - 1,
        "minimum_survivors": whole.minimum_survivors + 1,
        "mode": "semi_honest",
        "tolerated_colluders": 1,
        "degree": 2,
        "bits": whole.bits + 1,
        "clip_l2": whole.clip_l2 * 1.5,
        "sketch": SketchSpec.identity(201).encode_bytes(),
        "sketch_clip_l2": whole.sketch_clip_l2 * 0.5,
        "public_seed": bytes(32),
        "scale": whole.scale * 0.5,
        "linf_bound": whole.linf_bound - 1,
        "noise": whole.noise - 1,
        "tolerated_dropouts": whole.tolerated_dropouts + 1,
        "wrap_probability": 1e-9,
        "removable": not whole.removable,
        "security_bits": whole.security_bits + 1,
        "opened_at": whole.opened_at + 1,
        "lifetime_seconds": whole.lifetime_seconds + 1,
    }
    assert set(instead) == set(Announcement.__struct_fields__)
    for name, value in instead.items():
        other = msgspec.structs.replace(whole, **{name: value})
        yield announcement[:1] + msgspec.msgpack.encode(other)


class TestChangedBytes:
    """A stored round comes from a disk that others may write to."""

    def test_no_single_changed_bit_is_accepted(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes]
    ) -> None:
        """Unless it changes nothing: there may be more than one way to write a number."""
        data = stored[ClientPhase.ADVERTISED]
        generator = np.random.default_rng(1)
        places = generator.choice(len(data), 200, replace=False)
        for place in (*range(12), *places.tolist()):
            changed = bytearray(data)
            changed[place] ^= 1 << int(generator.integers(8))
            with pytest.raises(StoredStateError):
                make_client().resume(bytes(changed), tokens)

    @pytest.mark.parametrize("cut", [0, 1, 2, 30, -40, -1])
    def test_cut_or_extended_bytes_are_refused(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes], cut: int
    ) -> None:
        data = stored[ClientPhase.MASKED]
        for damaged in (data[:cut], data + b"\0", data * 2):
            with pytest.raises(StoredStateError):
                make_client().resume(damaged, tokens)

    @settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.binary(max_size=300))
    def test_anything_else_is_refused(self, tokens: TokenFolder, data: bytes) -> None:
        with pytest.raises(StoredStateError):
            make_client().resume(data, tokens)

    @pytest.mark.parametrize("sealed", [b"", b"\1", b"\1" * 17, b"\1" * 200])
    def test_a_seal_of_ones_own_is_refused(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes], sealed: bytes
    ) -> None:
        with pytest.raises(StoredStateError):
            make_client().resume(encoded(stored[ClientPhase.READY], sealed=sealed), tokens)

    def test_the_version_is_checked(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes]
    ) -> None:
        changed = encoded(stored[ClientPhase.READY], version=stored_round.VERSION + 1)
        with pytest.raises(StoredStateError, match="version"):
            make_client().resume(changed, tokens)

    def test_the_state_of_another_phase_is_one_of_its_own(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes]
    ) -> None:
        """Each has its token: going back to an earlier one works once, if it was never resumed."""
        make_client().resume(stored[ClientPhase.MASKED], tokens)
        make_client().resume(stored[ClientPhase.READY], tokens)
        for phase in (ClientPhase.MASKED, ClientPhase.READY):
            with pytest.raises(StoredStateError, match="before"):
                make_client().resume(stored[phase], tokens)

    def test_a_cohort_without_us_is_that_of_another_client(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes]
    ) -> None:
        setup = make_setup()
        others = (*setup.context.cohort[1:], b"\7" * 32)
        context = dataclasses.replace(setup.context, cohort=others)
        elsewhere = dataclasses.replace(setup, context=context).announce()
        changed = encoded(stored[ClientPhase.READY], announcement=elsewhere)
        with pytest.raises(StoredStateError, match="another client"):
            make_client().resume(changed, tokens)


def joined() -> RoundClient:
    """Client 0, which has joined a round."""
    client = make_client()
    client.join(make_setup().announce(), MODEL)
    return client


class TestObjects:
    """What becomes of the objects on both sides."""

    def test_secrets_are_not_readable(self, tokens: TokenFolder) -> None:
        client = joined()
        state = client._joined_round[0]._state
        stored = client.suspend(tokens)
        for secret in (state.sealing, state.masking):
            assert secret.expose() not in stored

    def test_a_suspended_client_is_of_no_use(self, tokens: TokenFolder) -> None:
        client = joined()
        client.suspend(tokens)
        assert client.phase is ClientPhase.ABORTED
        with pytest.raises(SessionAbortedError):
            client.suspend(tokens)
        with pytest.raises(SessionAbortedError):
            client.receive(b"")
        with pytest.raises(LocalProtocolError, match="already"):
            client.join(make_setup(round_number=4).announce(), MODEL)

    def test_there_is_nothing_to_suspend_before_a_round_or_after_it(
        self, tokens: TokenFolder
    ) -> None:
        client = make_client()
        with pytest.raises(LocalProtocolError, match="join"):
            client.suspend(tokens)
        client.join(make_setup().announce(), MODEL)
        client.abort()
        with pytest.raises(SessionAbortedError):
            client.suspend(tokens)

    def test_a_client_with_a_round_takes_no_other(self, tokens: TokenFolder) -> None:
        first, second = joined(), joined()
        stored = first.suspend(tokens)
        for busy in (first, second):
            with pytest.raises(LocalProtocolError, match="already"):
                busy.resume(stored, tokens)
        # Neither attempt used it up.
        make_client().resume(stored, tokens)

    def test_the_key_is_destroyed_before_there_is_a_client(
        self, tokens: TokenFolder, tmp_path: Path
    ) -> None:
        class Failing(TokenFolder):
            def consume(self, token: bytes) -> NoReturn:
                raise OSError("disk full")

        client, other = joined(), make_client()
        with pytest.raises(OSError, match="disk full"):
            other.resume(client.suspend(tokens), Failing(tmp_path / "tokens"))
        assert other.phase is ClientPhase.FRESH

    def test_a_resumed_round_is_charged_to_the_history_of_its_new_object(
        self, tokens: TokenFolder, stored: dict[ClientPhase, bytes]
    ) -> None:
        class Counting(ClientHistory):
            charged = 0

            def charge(self, setup: RoundSetup) -> None:
                super().charge(setup)
                self.charged += 1

        history = Counting()
        client = make_client(0, history)
        client.resume(stored[ClientPhase.READY], tokens)
        assert client.setup == expiring(make_setup(removable=True, coins=20_000))
        assert history.charged == 0
        client.submit(np.zeros(200))
        assert history.charged == 1

    def test_stored_rounds_of_one_client_differ(self, tokens: TokenFolder) -> None:
        """A fresh token each time: two stored states never share a key."""
        client = joined()
        seals = []
        for _ in range(3):
            stored = client.suspend(tokens)
            seals.append(decoded(stored)[-1])
            client = make_client()
            client.resume(stored, tokens)
        assert len({seal[1:17] for seal in seals}) == 3 == len(set(seals))

    def test_nothing_is_left_of_a_round_that_was_resumed(
        self, tmp_path: Path, tokens: TokenFolder
    ) -> None:
        client = joined()
        stored = client.suspend(tokens)
        (path,) = (tmp_path / "tokens").iterdir()
        assert os.stat(path).st_mode & 0o077 == 0
        make_client().resume(stored, tokens)
        assert list((tmp_path / "tokens").iterdir()) == []

    def test_a_round_that_is_given_up_opens_for_nobody(
        self, tmp_path: Path, tokens: TokenFolder
    ) -> None:
        client = joined()
        stored = client.suspend(tokens)
        for nothing in (b"", b"\x00", stored[:-30], stored + b"\0"):
            RoundClient.discard(nothing, tokens)
        assert len(list((tmp_path / "tokens").iterdir())) == 1
        RoundClient.discard(stored, tokens)
        assert list((tmp_path / "tokens").iterdir()) == []
        with pytest.raises(StoredStateError, match="before"):
            make_client().resume(stored, tokens)
