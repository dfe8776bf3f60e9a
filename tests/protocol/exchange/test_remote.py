"""Rounds with clients elsewhere: the same sums whoever leaves, typed errors for whoever lies."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_kit import (
    IDENTITIES,
    OPEN_POLICY,
    REGISTRY,
    make_client,
    make_setup,
    noise,
    updates,
    waiting,
)
from training_doubles import MODEL, keys, plan_of

from dp import Ledger, LedgerError, NoiseSeed, NonFiniteUpdateError, PrivacyError
from dp.events import BinomialRelease
from protocol.errors import PolicyError, TrainingFailedError
from protocol.exchange.aggregators import IdealAggregator, NoiseSource, UpdateSource, own_updates
from protocol.exchange.remote import (
    MAX_REASON_BYTES,
    OTHER,
    RemoteAggregator,
    RemoteClient,
    answer_or_refuse,
    open_answer,
    refuse,
)
from protocol.exchange.stages import PEER_ERRORS, Outbound, Refusal
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage, stages_of
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundSetup
from protocol.training.private import PrivateTraining
from secagg import (
    FieldSum,
    LocalProtocolError,
    Mode,
    ParameterError,
    ProtocolError,
    Reason,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)
from secagg.pairwise.transitions import ClientPhase
from secagg.storage import TokenFolder
from sketch.controllers import FixedRate


class Elsewhere:
    """A transport to clients of which nothing is left between two messages but stored bytes.

    For every message a client is a new object that goes on from them; `lost` says which message of
    whom does not arrive, `change` what happens to answers on their way.
    """

    def __init__(
        self,
        updates: UpdateSource,
        folder: Path,
        *,
        lost: dict[int, Stage] | None = None,
        change: Callable[..., Any] | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self.updates, self.lost = updates, lost or {}
        self.noise, self.change = noise, change or (lambda stage, index, answer: answer)
        self.tokens = [TokenFolder(folder / str(i)) for i in range(len(IDENTITIES))]
        self.histories = [ClientHistory() for _ in IDENTITIES]
        self.stored, self.errors, self.asked = {}, {}, []

    def exchange(self, stage: Stage, messages: Outbound) -> Iterator[tuple[int, bytes]]:
        if stage is Stage.ADVERTISE:
            self.stored.clear()
        for index, data in messages:
            self.asked.append((stage, index))
            if self.lost.get(index, len(Stage)) > stage:
                yield index, self.change(stage, index, self.answer(index, data))

    def answer(self, index: int, data: bytes) -> bytes:
        ours = (IDENTITIES[index], REGISTRY, OPEN_POLICY, self.histories[index])
        client = RoundClient(*ours) if self.noise is None else Repeatable(self.noise(index), *ours)
        if index in self.stored:
            client.resume(self.stored.pop(index), self.tokens[index])
        remote = RemoteClient(client, MODEL, lambda _: self.updates(index))
        answer, error = answer_or_refuse(remote, data)
        if error is not None:
            self.errors[index] = error
        assert remote.is_over == (error is not None or client.phase is ClientPhase.FINISHED)
        if not remote.is_over:
            self.stored[index] = client.suspend(self.tokens[index])
        return answer


class Repeatable(RoundClient):
    """A client whose noise is that of the ideal sum it is compared with."""

    def __init__(self, noise: NoiseSeed, *ours: Any) -> None:
        super().__init__(*ours)
        self.own_noise = noise

    def submit(self, update: np.ndarray, noise: NoiseSeed | None = None) -> bytes:
        return super().submit(update, self.own_noise)


def exact(
    setup: RoundSetup, updates: UpdateSource, noise: NoiseSource, lost: dict[int, Stage]
) -> FieldSum:
    """The ideal functionality's sum."""
    return IdealAggregator(noise=noise).run(setup, updates, lost).total


@pytest.mark.parametrize("mode", list(Mode))
def test_the_mean_of_clients_that_restart_after_every_message_is_the_plain_one(
    tmp_path: Path, mode: Mode
) -> None:
    """Without coins, what is left is rounding: below one unit for each client and coordinate."""
    setup = make_setup(mode=mode, coins=0)
    transport = Elsewhere(updates, tmp_path)
    outcome = RemoteAggregator(transport.exchange).run(setup)
    assert outcome.total.survivors == tuple(range(6))
    mean = Pipeline(setup).decode(outcome.total).update
    clipped = [updates(i) / max(1.0, np.linalg.norm(updates(i)) / 2.0) for i in range(6)]
    # In a rotated frame each coordinate is off by less than 1/64; the norm, by sqrt(200)/64.
    assert np.linalg.norm(mean - np.mean(clipped, axis=0)) < np.sqrt(200) / 64
    # Every message of every client was answered by a client of its own.
    assert len(transport.asked) == 6 * (5 if mode is Mode.ACTIVE else 4)
    assert transport.stored == {}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stage", list(Stage))
def test_a_client_may_vanish_at_any_stage(tmp_path: Path, mode: Mode, stage: Stage) -> None:
    setup, lost = make_setup(mode=mode), {1: stage, 4: stage}
    transport = Elsewhere(updates, tmp_path, lost=lost, noise=noise)
    outcome = RemoteAggregator(transport.exchange).run(setup)
    total = exact(setup, updates, noise, lost)
    assert outcome.total.survivors == total.survivors
    assert np.array_equal(outcome.total.vector.elements, total.vector.elements)
    assert outcome.refused == {}
    # A client that did not answer in time is not asked again.
    assert sum(index == 1 and s >= stage for s, index in transport.asked) <= 1


@pytest.mark.parametrize("gone", [Stage.UNMASK, Stage.RECOVER])
def test_surplus_noise_is_taken_off_when_a_client_goes_after_its_upload(
    tmp_path: Path, gone: Stage
) -> None:
    """The sixth stage: the others give up shares of the seeds that the lost client still held."""
    setup = make_setup(removable=True, coins=20_000)
    lost = {3: gone, 2: Stage.INPUT}
    transport = Elsewhere(updates, tmp_path, lost=lost)
    outcome = RemoteAggregator(transport.exchange).run(setup)
    assert outcome.total.survivors == (0, 1, 3, 4, 5)
    asked = [index for stage, index in transport.asked if stage is Stage.RECOVER]
    assert asked == ([0, 1, 4, 5] if gone is Stage.UNMASK else [])
    assert set(outcome.total.removed) == {0, 1, 3, 4, 5}


class TestRefusals:
    """A client that leaves, and one that talks nonsense, are lost alone."""

    @pytest.mark.parametrize(
        ("stage", "change"),
        [
            *((stage, lambda answer: answer[:-1]) for stage in Stage if stage is not Stage.RECOVER),
            (Stage.ADVERTISE, lambda answer: refuse(PolicyError("coins", 0, "some"))),
            (Stage.SHARE, lambda answer: answer[1:]),
            (Stage.INPUT, lambda answer: b"\1" + answer[1:]),
            (Stage.CONFIRM, lambda answer: Refusal("disconnected")),
            (Stage.UNMASK, lambda answer: b"\0" + bytes(100_000)),
        ],
    )
    def test_nonsense_loses_its_sender_alone(
        self, tmp_path: Path, stage: Stage, change: Callable[..., Any]
    ) -> None:
        def changed(at: Stage, index: int, answer: bytes) -> bytes:
            return change(answer) if (at, index) == (stage, 2) else answer

        setup = make_setup()
        transport = Elsewhere(updates, tmp_path, change=changed, noise=noise)
        outcome = RemoteAggregator(transport.exchange).run(setup)
        total = exact(setup, updates, noise, {2: stage})
        assert outcome.total.survivors == total.survivors
        assert np.array_equal(outcome.total.vector.elements, total.vector.elements)
        assert list(outcome.refused) == [2]

    @pytest.mark.parametrize("answer", [b"\0nonsense", refuse(PolicyError("coins", 0, "some"))])
    @pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.SHARE, Stage.INPUT])
    def test_losses_are_told_in_their_stage(
        self, tmp_path: Path, stage: Stage, answer: bytes
    ) -> None:
        """Of whom is refused and of who refuses; those who are silent the transport knows."""
        now, heard = [], []

        def changed(at: Stage, index: int, good: bytes) -> bytes:
            return answer if (at, index) == (stage, 1) else good

        transport = Elsewhere(updates, tmp_path, lost={0: Stage.INPUT}, change=changed)

        def exchange(stage: Stage, messages: Outbound) -> Iterator[Any]:
            now[:] = [stage]
            return transport.exchange(stage, messages)

        def on_loss(index: int, reason: str) -> None:
            heard.append((now[0], index, reason))

        outcome = RemoteAggregator(exchange, on_loss=on_loss).run(make_setup())
        assert heard == [(stage, 1, outcome.refused[1])] and list(outcome.refused) == [1]

    def test_a_client_with_a_bad_update_leaves_and_keeps_its_reason_to_itself(
        self, tmp_path: Path
    ) -> None:
        def poisoned(index: int) -> np.ndarray:
            return np.full(200, np.nan) if index == 2 else updates(index)

        transport = Elsewhere(poisoned, tmp_path)
        outcome = RemoteAggregator(transport.exchange).run(make_setup())
        assert outcome.total.survivors == (0, 1, 3, 4, 5)
        assert outcome.refused == {2: OTHER}
        assert isinstance(transport.errors[2], NonFiniteUpdateError)

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (PolicyError("epsilon", 7.25, "at most 5"), "PolicyError"),
            (RemoteProtocolError(3, Reason.BAD_SEAL, "detail"), "RemoteProtocolError"),
            (NonFiniteUpdateError("3 of 200 coordinates"), OTHER),
            (LedgerError("/home/alice/charges.jsonl"), OTHER),
            (LocalProtocolError("state 17"), OTHER),
            (ParameterError("update", "shape (3,)", "shape (4,)"), OTHER),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_refusal_says_no_more_than_its_kind(self, error: Exception, told: str) -> None:
        assert refuse(error) == b"\1" + told.encode()
        assert open_answer(refuse(error)) == Refusal(told)

    @pytest.mark.parametrize(
        ("answer", "read"),
        [
            (bytearray(b"\0yes"), b"yes"),
            (memoryview(b"\0yes"), b"yes"),
            (b"\0", b""),
            (b"", Refusal("sent something that is no answer")),
            (b"\2yes", Refusal("sent something that is no answer")),
            (memoryview(b"\1no"), Refusal("no")),
            (b"\1" + b"x" * 10**6, Refusal("x" * MAX_REASON_BYTES)),
            (b"\1a\nb\x1b[31m\xff\xc3\xa9", Refusal("a?b?[31m???")),
        ],
        ids=range(8),
    )
    def test_an_answer_is_a_message_or_a_short_printable_reason(
        self, answer: bytes, read: bytes | Refusal
    ) -> None:
        assert open_answer(answer) == read


class TestServer:
    """What the server's side insists on."""

    @pytest.mark.parametrize(
        ("name", "given"),
        [
            ("updates", lambda index: np.zeros(200)),
            ("dropouts", {0: Stage.SHARE}),
        ],
    )
    def test_what_would_be_ignored_is_refused(
        self, name: str, given: dict[int, Stage] | Callable[..., Any]
    ) -> None:
        def nobody_is_asked(stage: Stage, messages: Outbound) -> NoReturn:
            raise AssertionError("something was sent")

        with pytest.raises(ParameterError) as caught:
            RemoteAggregator(nobody_is_asked).run(make_setup(), **{name: given})
        assert caught.value.argument == name

    @pytest.mark.parametrize("stranger", [-1, 6, 1])
    def test_an_answer_of_somebody_who_was_not_asked_is_the_transports_mistake(
        self, tmp_path: Path, stranger: int
    ) -> None:
        """Client 1 was lost before; -1 and 6 are nobody."""
        transport = Elsewhere(updates, tmp_path, lost={1: Stage.ADVERTISE})

        def mixed_up(stage: Stage, messages: Outbound) -> Iterator[tuple[int, bytes] | None]:
            for index, answer in transport.exchange(stage, messages):
                yield (stranger if (stage, index) == (Stage.SHARE, 4) else index), answer

        with pytest.raises(LocalProtocolError, match=f"client {stranger} answered"):
            RemoteAggregator(mixed_up).run(make_setup())

    @pytest.mark.parametrize("mode", list(Mode))
    def test_nothing_is_given_up_before_it_is_charged(self, tmp_path: Path, mode: Mode) -> None:
        """The hook comes between the last upload and the first survivor set."""
        transport = Elsewhere(updates, tmp_path, lost={5: Stage.INPUT})
        hook = lambda survivors: transport.asked.append(("charged", survivors))  # noqa: E731
        RemoteAggregator(transport.exchange).run(make_setup(mode=mode), before_release=hook)
        at = transport.asked.index(("charged", (0, 1, 2, 3, 4)))
        assert [stage for stage, _ in transport.asked[:at:6]] == list(Stage)[:3] and at == 18
        after = set(stages_of(mode)) - {Stage.RECOVER, *list(Stage)[:3]}
        assert {stage for stage, _ in transport.asked[at + 1 :]} == after

    def test_uploads_are_used_as_they_come_and_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server has taken each answer in before it asks for the next.

        It holds at most one, so memory is one vector.
        """
        transport = Elsewhere(updates, tmp_path)
        uploads, most, taken = [], 0, []
        take = ServerSession.receive_bytes

        def counted(server: ServerSession, sender: int, data: bytes) -> None:
            taken.append(sender)
            take(server, sender, data)

        monkeypatch.setattr(ServerSession, "receive_bytes", counted)

        class Upload(bytes):
            """Bytes that can be watched."""

            def watch(self) -> weakref.ReferenceType:
                # Bytes take no weak reference; what hangs on them is forgotten with them.
                self.tracer = lambda: None
                return weakref.ref(self.tracer)

        def streaming(stage: Stage, messages: Outbound) -> Iterator[tuple[int, bytes]]:
            nonlocal most
            for index, answer in transport.exchange(stage, messages):
                assert len(taken) == len(uploads)
                most = max(most, sum(upload() is not None for upload in uploads))
                upload = Upload(answer)
                uploads.append(upload.watch())
                yield index, upload
                del upload

        outcome = RemoteAggregator(streaming).run(make_setup())
        assert len(outcome.total.survivors) == 6
        assert len(uploads) == 6 * 5 and most == 1

    def test_a_training_runs_with_public_keys_only(self, ledger: Ledger, tmp_path: Path) -> None:
        """The server holds no identity and no update, and pays like any other."""
        plan = plan_of(2, cohort=6, tolerated_dropouts=1, tolerated_colluders=0)
        transport = Elsewhere(lambda _: np.full(50, 0.05), tmp_path, lost={2: Stage.CONFIRM})
        server = RemoteAggregator(transport.exchange)
        training = PrivateTraining(plan, 50, FixedRate(1.0), server, ledger)
        results = [training.run_round(keys(IDENTITIES), MODEL) for _ in range(2)]
        assert len(ledger.entries()) == 2
        assert 0 < results[0].epsilons.server < results[1].epsilons.server <= 8.0
        assert [result.release.survivors for result in results] == [6, 6]

    def test_clients_elsewhere_have_updates_of_their_own(self) -> None:
        with pytest.raises(TooFewSurvivorsError) as caught:
            IdealAggregator().run(make_setup(), own_updates, {})
        assert "make their own updates" in caught.value.__notes__[0]


class TestClient:
    """What the client's side does for a server that lies, and for a caller that fails."""

    def remote(
        self,
        update: Callable[..., Any] | None = None,
        policy: ClientPolicy = OPEN_POLICY,
        history: ClientHistory | None = None,
    ) -> tuple[RemoteClient, RoundClient]:
        client = make_client(0, history, policy)
        return RemoteClient(client, MODEL, update or (lambda _: np.zeros(200))), client

    def ready(self, update: Callable[..., Any]) -> tuple[RemoteClient, RoundClient, bytes]:
        """A client that has answered announcement and roster, and the shares that are next."""
        remote, client = self.remote(update)
        others = [make_client(index) for index in range(1, len(IDENTITIES))]
        return remote, client, waiting(make_setup(), [client, *others])[0]

    def test_the_update_is_made_when_it_is_due_and_once(self) -> None:
        made = []

        def update(setup: RoundSetup) -> np.ndarray:
            made.append(setup)
            return np.zeros(200)

        remote, client, shares = self.ready(update)
        assert made == [] and client.phase is ClientPhase.SHARED
        assert remote.answer(shares)[:1] == b"\0"
        assert made == [make_setup()]
        with pytest.raises(RemoteProtocolError):
            remote.answer(shares)
        assert len(made) == 1

    @pytest.mark.parametrize(
        "error", [ValueError, MemoryError, NonFiniteUpdateError, SystemExit, KeyboardInterrupt]
    )
    def test_a_failing_update_ends_the_round_for_its_client(
        self, error: type[BaseException]
    ) -> None:
        """In words that are the same for all, whatever its data made it raise.

        A client that ends without a word could be told apart; an interrupt ends the program.
        """

        def fail(_: RoundSetup) -> NoReturn:
            raise error("patient 17")

        remote, client, shares = self.ready(fail)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                answer_or_refuse(remote, shares)
        else:
            answer, told = answer_or_refuse(remote, shares)
            assert answer == b"\1OwnReasons" and "patient 17" in str(told)
            assert type(told) is (TrainingFailedError if error is SystemExit else error)
        assert remote.is_over and client.phase is ClientPhase.ABORTED
        with pytest.raises(LocalProtocolError, match="left"):
            remote.answer(shares)

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, LedgerError, PolicyError])
    def test_a_charge_that_fails_keeps_the_upload_and_ends_the_round(
        self, error: type[Exception]
    ) -> None:
        class Failing(ClientHistory):
            def _pay(self, event: BinomialRelease, setup: RoundSetup, _: object) -> NoReturn:
                raise error(*(["x"] * (3 if error is PolicyError else 1)))

        _, client, shares = self.ready(lambda _: np.zeros(200))
        client._history = Failing()
        # Without the remote client, which ends a round itself.
        assert client.receive(shares) is None
        with pytest.raises(error):
            client.submit(np.zeros(200))
        assert client.phase is ClientPhase.ABORTED

    def test_after_a_refused_announcement_there_is_no_second_one(self) -> None:
        policy = ClientPolicy(minimum_noise_multiplier=0.0, minimum_survivors=5)
        remote, _ = self.remote(policy=policy)
        answer, error = answer_or_refuse(remote, make_setup().announce())
        assert isinstance(error, PolicyError) and open_answer(answer) == Refusal("PolicyError")
        assert remote.is_over
        acceptable = make_setup(minimum_survivors=6, round_number=9).announce()
        with pytest.raises(LocalProtocolError, match="left"):
            remote.answer(acceptable)
        assert self.remote(policy=policy)[0].answer(acceptable)

    @settings(
        max_examples=150,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(data=st.binary(max_size=200), joined=st.booleans())
    def test_a_server_that_sends_anything_gets_a_refusal(self, data: bytes, joined: bool) -> None:
        remote, _ = self.remote()
        if joined:
            remote.answer(make_setup().announce())
        answer, error = answer_or_refuse(remote, data)
        assert isinstance(error, PEER_ERRORS) and isinstance(open_answer(answer), Refusal)
        assert remote.is_over

    def test_a_mistake_in_the_program_is_hidden_from_the_server_only(self) -> None:
        remote, _ = self.remote()
        answer, error = answer_or_refuse(remote, 7)
        assert answer == b"\1OwnReasons" and isinstance(error, (TypeError, AttributeError))
        assert remote.is_over

    def test_peer_errors_are_the_three_families(self) -> None:
        assert set(PEER_ERRORS) == {ProtocolError, PrivacyError, PolicyError}
