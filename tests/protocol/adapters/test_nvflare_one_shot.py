"""One-shot rounds over NVFlare's tasks: a sealing key, an upload, and three answers of members."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="nvflare is not installed; make test-nvflare has a place")

from nvflare.apis.controller_spec import Task
from nvflare.apis.dxo import from_shareable
from nvflare.apis.shareable import Shareable
from nvflare_doubles import AGREEMENT, DIMENSION, NAMES, STEP, Federation, model
from returned_worlds import changed

from dp import Ledger
from protocol import RoundResult
from protocol.adapters.nvflare import PrivateAveraging, client_rounds, exchange
from protocol.adapters.nvflare.client_rounds import ClientRounds
from protocol.adapters.nvflare.messages import (
    STEP_OF,
    TASK_OF_MEMBERS,
    Assignment,
    Incoming,
    OneShotTask,
    Step,
    reply,
    task_name,
)
from protocol.adapters.nvflare.models import difference
from protocol.adapters.nvflare.site import Site, write_registry
from protocol.errors import ConfigurationError, PolicyError
from protocol.exchange import sealing_book
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.remote import MESSAGE, refuse
from protocol.exchange.remote_one_shot import split_announcement, with_announcement
from protocol.round.one_shot_setup import OneShotAnnouncement
from protocol.round.stored_history import StoredHistory
from protocol.training.private import PrivateTraining
from secagg import Identity, LocalProtocolError, RemoteProtocolError
from secagg.storage import StoredStateError
from sketch.controllers import FixedRate

ALPHA = 1e-6
BOUND = np.sqrt(2 * np.log(2 * DIMENSION / ALPHA))
"""Largest of `DIMENSION` errors, in deviations of the noise: see `test_nvflare`."""
SCHEME = '\n[scheme]\nkind = "one-shot"\n'
ONE_SHOT = AGREEMENT.replace("tolerated_colluders = 1", "tolerated_colluders = 0") + SCHEME


ASKED = [OneShotTask.UPLOAD, OneShotTask.CHECK, OneShotTask.SIGN, OneShotTask.OPEN]
"""Of every round in which clients alone upload."""


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[RoundResult]:
    """Every release of the job, in order."""
    seen, release = list[RoundResult](), PrivateTraining._release

    def noted(*args: Any) -> RoundResult:
        seen.append(release(*args))
        return seen[-1]

    monkeypatch.setattr(PrivateTraining, "_release", noted)
    return seen


@pytest.fixture
def make_federation(tmp_path: Path) -> Callable[..., Federation]:
    """A federation whose agreement is about one-shot rounds."""

    def make(agreement: str = ONE_SHOT, **options: Any) -> Federation:
        return Federation(tmp_path, agreement, **options)

    return make


def off_by(result: RoundResult, numbers: list[int]) -> float:
    """Largest error, in standard deviations of the noise that the release states."""
    deviations = np.abs(result.release.update - STEP * np.mean(numbers))
    return float(deviations.max() / np.sqrt(result.release.noise_variance))


def tasks_of(federation: Federation, name: str) -> list[str]:
    return [task.removeprefix("veilsum_") for who, task, _ in federation.results if who == name]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", ["one-shot", "validated"])
def test_the_mean_comes_of_one_upload_of_each_client(
    make_federation: Callable[..., Federation],
    results: list[RoundResult],
    kind: str,
    restarts: bool,
) -> None:
    federation = make_federation(ONE_SHOT.replace("one-shot", kind), num_rounds=2)
    federation.restarts = restarts
    assert federation.run() == []
    assert [off_by(result, list(range(1, 7))) < BOUND for result in results] == [True, True]
    weights, facts = federation.persistor.saved[0]
    assert facts["survivors"] == 6
    assert np.allclose(difference(weights, model()), results[0].release.update)
    # The key of the session is asked for once.
    each = ["upload", "check", "sign", "open"]
    assert all(tasks_of(federation, name) == ["keys", *each, *each] for name in NAMES)
    assert all(federation.trainers[name].numbers == [0, 1] for name in NAMES)
    with Ledger.open(federation.folder("server") / "ledger.jsonl") as ledger:
        assert len(ledger.entries()) == 2
    for name in NAMES:
        with StoredHistory(federation.folder(name) / name / "member") as signed:
            assert signed.epsilon == 0.0
        assert not list((federation.folder(name) / name / "round" / "keys").iterdir())
        assert not (federation.folder(name) / name / "round" / "member").exists()


@pytest.mark.parametrize("task", [OneShotTask.KEYS, *ASKED])
def test_a_client_that_falls_silent_does_not_lose_the_round(
    make_federation: Callable[..., Federation], results: list[RoundResult], task: OneShotTask
) -> None:
    federation = make_federation()

    def silent(name: str, asked: str, data: Shareable, message: bytes) -> str | None:
        del data, message
        return "silent" if (name, asked) == (NAMES[0], task_name(task)) else None

    federation.on_task = silent
    panics = federation.run()
    if task is OneShotTask.KEYS:
        # Everyone is on the committee, and it takes everyone's key.
        assert "5 registered clients have sent a sealing key" in str(panics)
        return
    assert panics == []
    lost = task is OneShotTask.UPLOAD
    numbers = list(range(2 if lost else 1, 7))
    assert results[0].release.survivors == len(numbers) and off_by(results[0], numbers) < BOUND


def test_what_a_trainer_raises_stays_at_home_and_its_client_is_a_member(
    make_federation: Callable[..., Federation], results: list[RoundResult]
) -> None:
    federation = make_federation()
    federation.trainers[NAMES[2]].raises = ValueError("patient 17")
    assert federation.run() == []
    assert results[0].release.survivors == 5
    sent = [data for who, task, data in federation.results if task == task_name(OneShotTask.UPLOAD)]
    refusal = reply(refuse(LocalProtocolError("any"))).to_bytes()
    assert sent.count(refusal) == 1 and not any(b"patient" in data for data in sent)
    assert tasks_of(federation, NAMES[2]) == ["keys", "upload", "check", "sign", "open"]


def test_it_trains_on_no_other_model_than_everybody(
    make_federation: Callable[..., Federation], results: list[RoundResult]
) -> None:
    federation = make_federation()

    def other(name: str, asked: str, data: Shareable, message: bytes) -> None:
        del message
        if (name, asked) == (NAMES[1], task_name(OneShotTask.UPLOAD)):
            from_shareable(data).data["bias"][0] = 7.0

    federation.on_task = other
    assert federation.run() == []
    assert federation.trainers[NAMES[1]].models == []
    assert results[0].release.survivors == 5


@pytest.mark.parametrize("task", ASKED)
def test_a_task_that_is_delivered_again_gets_the_same_bytes_or_none(
    make_federation: Callable[..., Federation], task: OneShotTask
) -> None:
    """The same bytes while the process lives; of one that was started again, an upload only."""
    federation = make_federation()
    seen: list[tuple[Shareable, bytes]] = []
    sent: list[bytes] = []

    def note(name: str, asked: str, data: Shareable, message: bytes) -> None:
        if (name, asked) == (NAMES[0], task_name(task)) and not seen:
            seen.append((data, message))
            first = federation.answer(name, asked, data, message).to_bytes()
            assert federation.answer(name, asked, data, message).to_bytes() == first
            sent.append(first)

    federation.on_task = note
    assert federation.run() == []
    (data, message), federation.restarts = seen[0], True
    federation.on_task = lambda *_: None
    again = federation.answer(NAMES[0], task_name(task), data, message)
    (answer,) = from_shareable(again).data.values()
    if task is OneShotTask.UPLOAD:
        assert again.to_bytes() == sent[0] and answer[:1] == MESSAGE
        assert len(federation.trainers[NAMES[0]].models) == 1
    else:
        assert answer[:1] != MESSAGE


def test_a_bad_sealing_key_keeps_its_client_out(
    make_federation: Callable[..., Federation],
) -> None:
    federation = make_federation()
    real = federation.answer

    def answer(name: str, task: str, data: Shareable, message: bytes) -> Shareable | None:
        if (name, task) == (NAMES[3], task_name(OneShotTask.KEYS)):
            return Shareable.from_bytes(reply(MESSAGE + bytes(144)).to_bytes())
        return real(name, task, data, message)

    federation.answer = answer
    assert "5 registered clients have sent a sealing key" in str(federation.run())


def test_a_site_that_agreed_to_pairwise_rounds_gives_no_key(
    make_federation: Callable[..., Federation],
) -> None:
    federation = make_federation()
    pairwise = ONE_SHOT.replace(SCHEME, "")
    (federation.folder(NAMES[0]) / "agreement.toml").write_text(pairwise)
    assert "5 registered clients have sent a sealing key" in str(federation.run())
    (sent,) = [data for who, _, data in federation.results if who == NAMES[0]]
    assert sent == reply(refuse(PolicyError("a", "b", "c"))).to_bytes()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_run_goes_on_over_the_end_of_a_sealing_key(
    tmp_path: Path, results: list[RoundResult], restarts: bool
) -> None:
    agreement = ONE_SHOT.replace("rounds = 4", "rounds = 5\nkey_rounds = 2")
    federation = Federation(tmp_path, agreement, num_rounds=5)
    federation.restarts = restarts
    kept: list[set[str]] = []

    def note(name: str, asked: str, data: Shareable, message: bytes) -> None:
        del data, message
        if (name, asked) == (NAMES[0], task_name(OneShotTask.OPEN)):
            files = (federation.folder(name) / name / "sealing").iterdir()
            kept.append({path.name.partition("-")[2] for path in files})

    federation.on_task = note
    assert federation.run() == []
    assert [result.release.survivors for result in results] == [6] * 5
    each, keys = ["upload", "check", "sign", "open"], ["keys"]
    # The next key is handed over before the present one ends; what has ended is erased.
    tasks = [*keys, *each, *keys, *each, *keys, *each, *each, *keys, *each]
    assert all(tasks_of(federation, name) == tasks for name in NAMES)
    early, later = {"0-1", "2-3"}, {"2-3", "4-5"}
    assert kept == [{"0-1"}, early, later, later, {"4-5", "6-7"}]


def test_clients_are_asked_again_before_the_time_of_their_keys_is_over(
    make_federation: Callable[..., Federation],
    results: list[RoundResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealing_book, "ASK_SECONDS", 0)
    federation = make_federation(num_rounds=2)
    assert federation.run() == [] and len(results) == 2
    each = ["keys", "upload", "check", "sign", "open"]
    assert all(tasks_of(federation, name) == [*each, *each] for name in NAMES)


def test_any_task_erases_a_key_whose_time_is_over(
    make_federation: Callable[..., Federation], results: list[RoundResult]
) -> None:
    federation = make_federation()
    folder = federation.folder(NAMES[0]) / NAMES[0]

    def age(name: str, asked: str, data: Shareable, message: bytes) -> None:
        del data, message
        if (name, asked) == (NAMES[0], task_name(OneShotTask.SIGN)):
            (file,) = (folder / "sealing").iterdir()
            file.write_bytes(file.read_bytes()[:32] + bytes(8))

    federation.on_task = age
    assert federation.run() == []
    assert results[0].release.survivors == 6
    assert tasks_of(federation, NAMES[0]) == ["keys", "upload", "check", "sign"]
    assert not list((folder / "sealing").iterdir())
    assert not list((folder / "round" / "keys").iterdir())


class TestNamedCommittees:
    """Members that the sites' own files name; a client need not be one, nor a member a client."""

    NAMED = ONE_SHOT + "[scheme.committee]\nsize = 4\ncorrupt = 0\naway = 1\n"
    MEMBER: tuple[str, ...] = ("check", "sign", "open")

    @pytest.mark.parametrize("restarts", [False, True])
    def test_members_open_what_all_clients_have_uploaded(
        self, tmp_path: Path, results: list[RoundResult], restarts: bool
    ) -> None:
        federation = Federation(tmp_path, self.NAMED, committee=NAMES[:4], num_rounds=2)
        federation.restarts = restarts
        assert federation.run() == []
        assert [off_by(result, list(range(1, 7))) < BOUND for result in results] == [True, True]
        each = ["upload", *self.MEMBER]
        assert all(tasks_of(federation, name) == ["keys", *each, *each] for name in NAMES[:4])
        assert all(tasks_of(federation, name) == ["upload", "upload"] for name in NAMES[4:])

    def test_a_member_need_not_be_a_client(
        self, tmp_path: Path, results: list[RoundResult]
    ) -> None:
        agreement = self.NAMED.replace("size = 6", "size = 5", 1)
        members, auditor = NAMES[2:], NAMES[5]
        federation = Federation(tmp_path, agreement, committee=members, clients=NAMES[:5])
        assert federation.run() == []
        assert results[0].release.survivors == 5 and off_by(results[0], list(range(1, 6))) < BOUND
        assert tasks_of(federation, auditor) == ["keys", *self.MEMBER]
        assert federation.trainers[auditor].models == []

    @pytest.mark.parametrize("task", ASKED)
    def test_a_member_that_falls_silent_does_not_lose_the_round(
        self, tmp_path: Path, results: list[RoundResult], task: OneShotTask
    ) -> None:
        federation = Federation(tmp_path, self.NAMED, committee=NAMES[:4])

        def silent(name: str, asked: str, data: Shareable, message: bytes) -> str | None:
            del data, message
            return "silent" if (name, asked) == (NAMES[0], task_name(task)) else None

        federation.on_task = silent
        assert federation.run() == []
        lost = task is OneShotTask.UPLOAD
        numbers = list(range(2 if lost else 1, 7))
        assert results[0].release.survivors == len(numbers)
        assert off_by(results[0], numbers) < BOUND

    def test_the_key_of_every_member_must_be_known(self, tmp_path: Path) -> None:
        federation = Federation(tmp_path, self.NAMED, committee=NAMES[:4])
        silent = task_name(OneShotTask.KEYS)
        federation.on_task = lambda name, asked, *_: (
            "silent" if (name, asked) == (NAMES[1], silent) else None
        )
        assert f"no sealing key of ['{NAMES[1]}']" in str(federation.run())

    def test_a_client_accepts_the_members_of_its_own_file_only(
        self, tmp_path: Path, results: list[RoundResult]
    ) -> None:
        federation = Federation(tmp_path, self.NAMED, committee=NAMES[:4])
        others = {name: federation.registry[name] for name in NAMES[1:5]}
        write_registry(federation.folder(NAMES[5]), others, "committee.json")
        assert federation.run() == []
        assert results[0].release.survivors == 5
        (upload,) = [data for who, _, data in federation.results if who == NAMES[5]]
        assert upload == reply(refuse(PolicyError("a", "b", "c"))).to_bytes()

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda keys: {NAMES[0]: keys[NAMES[0]]}, "1 members; valid: 4, as agreed"),
            (
                lambda keys: {**{n: keys[n] for n in NAMES[:3]}, NAMES[3]: bytes(32)},
                "another name or key in registry.json",
            ),
            (
                lambda keys: {**{n: keys[n] for n in NAMES[:3]}, "auditor": keys[NAMES[3]]},
                "another name or key in registry.json",
            ),
        ],
        ids=["too few", "another key", "another name"],
    )
    def test_a_file_that_cannot_be_used(
        self, tmp_path: Path, change: Callable[[Any], Any], problem: str
    ) -> None:
        federation = Federation(tmp_path, self.NAMED, committee=NAMES[:4])
        folder = federation.folder(NAMES[0])
        write_registry(folder, change(federation.registry), "committee.json")
        with pytest.raises(ConfigurationError, match=problem):
            _ = Site(folder).committee
        (folder / "committee.json").unlink()
        with pytest.raises(ConfigurationError, match=r"committee.json: No such file"):
            _ = Site(folder).policy

    def test_the_agreed_range_of_keys_is_in_the_policy(self, tmp_path: Path) -> None:
        text = self.NAMED.replace("rounds = 4", "rounds = 4\nkey_rounds = 3")
        federation = Federation(tmp_path, text, committee=NAMES[:4])
        committee = Site(federation.folder(NAMES[0])).policy.committee
        assert committee is not None and committee.largest_key_rounds == 3
        assert committee.named == frozenset(federation.registry[name] for name in NAMES[:4])


def drawn(size: int, away: int) -> str:
    """An agreement on a committee drawn from six."""
    table = f'kind = "drawn"\nsize = {size}\ncorrupt = 0\naway = {away}\nodds = 0.999999\n'
    honest = ONE_SHOT.replace("tolerated_colluders = 1", "tolerated_colluders = 0")
    return f"{honest}[scheme.committee]\n{table}"


def test_members_are_drawn_from_the_registry_that_a_client_has(
    tmp_path: Path, results: list[RoundResult]
) -> None:
    """Of those who gave a key; one client's own registry has somebody more, and it refuses."""
    federation = Federation(tmp_path, drawn(3, 1), num_rounds=1)
    silent = task_name(OneShotTask.KEYS)
    federation.on_task = lambda name, asked, *_: (
        "silent" if (name, asked) == (NAMES[1], silent) else None
    )
    others = {**federation.registry, "auditor": Identity.generate().public}
    write_registry(federation.folder(NAMES[0]), others)
    assert federation.run() == []
    numbers = list(range(2, 7))
    assert results[0].release.survivors == len(numbers) and off_by(results[0], numbers) < BOUND
    members = [name for name in NAMES if tasks_of(federation, name)[-1] == "open"]
    assert len(members) == 3 and NAMES[1] not in members
    (upload,) = [
        d for who, task, d in federation.results if (who, task) == (NAMES[0], task_name(UPLOAD))
    ]
    assert upload == reply(refuse(PolicyError("a", "b", "c"))).to_bytes()


def test_members_are_drawn_of_those_who_are_connected(
    tmp_path: Path, results: list[RoundResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three draws of five in six would not have the one that is gone once in 216."""
    federation, gone = Federation(tmp_path, drawn(5, 0), num_rounds=4), set[str]()
    monkeypatch.setattr(
        PrivateAveraging,
        "get_client_disconnect_time",
        lambda _, name: 1.0 if name in gone else None,
    )
    opening = task_name(OneShotTask.OPEN)
    federation.on_task = lambda _, asked, *__: gone.add(NAMES[1]) if asked == opening else None
    assert federation.run() == []
    assert [result.release.survivors for result in results] == [6, 5, 5, 5]


def test_too_few_who_are_drawn_end_a_job_with_what_helps(tmp_path: Path) -> None:
    federation = Federation(
        tmp_path,
        drawn(5, 0),
    )
    silent = task_name(OneShotTask.KEYS)
    federation.on_task = lambda name, asked, *_: (
        "silent" if name in NAMES[:2] and asked == silent else None
    )
    (panic,) = federation.run()
    assert "4 clients answered, 5 are needed" in str(panic)
    assert "connect more clients, or agree on higher odds" in str(panic)


def test_every_stage_of_members_has_a_task() -> None:
    assert tuple(TASK_OF_MEMBERS) == tuple(MemberStage)


# -- noise that comes back ------------------------------------------------------------------------

MEMBERS = tuple(f"member-{number}" for number in range(1, 5))
RETURNED = """\
rounds = 2
horizon = 4
dimension = 40
noise_after_seconds = 0

[privacy]
epsilon = 10.0
delta = 1e-5
clip_l2 = 3.0

[cohort]
size = 3
tolerated_dropouts = 1
tolerated_colluders = 0

[noise]
kind = "returned"
apart = 2

[scheme]
kind = "one-shot"

[scheme.committee]
size = 4
corrupt = 0
away = 1
"""


def simulated(federation: Federation, results: list[RoundResult], away: Any) -> list[Any]:
    """What the ledger has of the same cohorts and members in a simulation, and its epsilons."""
    plan, setups = Site(federation.folder("server")).agreement.plan, [r.setup for r in results]
    members = [setup.context.committee.members for setup in setups]
    committee = SimpleNamespace(members=lambda *of: members[of[-1]])
    aggregator = IdealAggregator(committee=committee, away=away)
    with Ledger.open(federation.root / "simulated.jsonl") as ledger:
        training = PrivateTraining(
            plan,
            DIMENSION,
            FixedRate(1.0),
            aggregator,
            ledger,
            clock=time.time,
            session_id=setups[0].context.session_id,
        )
        epsilons = [
            training.run_round(setup.identities, bytes(32), lambda _: np.zeros(DIMENSION)).epsilons
            for setup in setups
        ]
        return [*charged(ledger), *epsilons]


def charged(ledger: Ledger) -> list[Any]:
    return [(each.event, each.metadata["record"]) for each in ledger.entries()]


@dataclass(frozen=True)
class Sent:
    """The folders of a job, and the first message of each task to each site."""

    root: Path
    messages: dict[tuple[str, Step], bytes]

    @property
    def client(self) -> str:
        """The one that was asked first to upload."""
        return next(name for name, step in self.messages if step is UPLOAD)

    def ask(self, step: Step, message: bytes | None = None, name: str = MEMBERS[0]) -> bytes:
        """What a new process of a site answers; to what it was sent, if left out."""
        site = Site(self.root / name / "local" / "veilsum")
        rounds = ClientRounds(site, name, lambda _: np.zeros(DIMENSION))
        came = Incoming(self.messages[name, step] if message is None else message, bytes(32), b"")
        try:
            return rounds.answer(step, came, lambda _: Assignment(model(), 0, 1))
        finally:
            rounds.close()

    def earlier(self, step: Step) -> bytes:
        """A message to the member, of a round that was opened a second before."""
        announcement, uploads = split_announcement(self.messages[MEMBERS[0], step])
        opened_at = OneShotAnnouncement.read(announcement).opened_at - 1
        return with_announcement(changed(announcement, opened_at=opened_at), uploads)

    def without_noise(self) -> bytes:
        """The member's memory is erased, as at the end of a run; noise for the next round."""
        self.ask(NOISE)
        for name in ("noise", "added"):
            shutil.rmtree(self.root / MEMBERS[0] / "local" / "veilsum" / MEMBERS[0] / name)
        return self.later(1)

    def later(self, number: int) -> bytes:
        """What would ask the member for noise in a round of another number."""
        announcement, _ = split_announcement(self.messages[MEMBERS[0], NOISE])
        return with_announcement(changed(announcement, round_number=number), b"")

    def agreed(self, name: str, agreement: str) -> Sent:
        """The same where a site agreed to something else."""
        path = self.root / name / "local" / "veilsum" / "agreement.toml"
        path.write_text(agreement)
        return self


STAYS = RETURNED.replace("horizon = 4\n", "").replace(
    'kind = "returned"\napart = 2', 'mechanism = "discrete-gaussian"'
)
ALL_MEMBERS = RETURNED.replace("away = 1", "away = 0")
ANOTHER_JOB = bytes(24)
KEYS, UPLOAD, NOISE, CHECK, SIGN, _ = OneShotTask
REFUSED: dict[str, Callable[[Sent], object]] = {
    "announced returns = ": lambda job: job.agreed(job.client, STAYS).ask(UPLOAD, name=job.client),
    "remembers no noise": lambda job: job.agreed(MEMBERS[0], STAYS).ask(NOISE),
    "announced fewest_members = 3": lambda job: job.agreed(MEMBERS[0], ALL_MEMBERS).ask(NOISE),
    "one without this member": lambda job: (
        job.ask(KEYS, job.messages[MEMBERS[0], KEYS], job.client),
        job.ask(NOISE, job.messages[MEMBERS[0], NOISE], job.client),
    ),
    # Twice, the second time in another round; and after uploads that it was shown without.
    "rounds of a run follow one another": lambda job: (
        job.ask(NOISE),
        job.ask(NOISE, job.earlier(NOISE)),
    ),
    "rounds of a run follow": lambda job: (job.ask(CHECK), job.ask(NOISE)),
    "another announcement": lambda job: (job.ask(NOISE), job.ask(CHECK, job.earlier(CHECK))),
    "of which its noise is lost": lambda job: job.ask(NOISE, job.without_noise()),
    "check without uploads": lambda job: job.ask(CHECK, job.messages[MEMBERS[0], NOISE]),
    "noise with uploads": lambda job: job.ask(NOISE, job.messages[MEMBERS[0], CHECK]),
    "first message": lambda job: (job.ask(NOISE), job.ask(SIGN, job.messages[MEMBERS[1], SIGN])),
    "no sealing key": lambda job: (job.ask(KEYS, ANOTHER_JOB), job.ask(NOISE)),
}
"""By what is refused."""


@pytest.mark.parametrize("kind", ["one-shot", "validated"])
def test_noise_comes_back_and_the_run_is_charged_as_a_simulated_one(
    tmp_path: Path, results: list[RoundResult], kind: str
) -> None:
    """Every task finds a new process; once, what asks a member for its noise is lost."""
    agreement = RETURNED.replace("one-shot", kind)
    federation = Federation(tmp_path, agreement, committee=MEMBERS, num_rounds=4)
    federation.restarts = True

    def lost(name: str, asked: str, *_: Any) -> Shareable | None:
        missed = len(results) == 1 and (name, asked) == (MEMBERS[0], "veilsum_noise")
        return Shareable() if missed else None

    federation.on_task = lost
    assert federation.run() == []
    numbers = {federation.registry[name]: number for number, name in enumerate(NAMES, 1)}
    errors = [off_by(each, [numbers[key] for key in each.setup.identities]) for each in results]
    assert len(errors) == 4 and max(errors) < np.sqrt(BOUND**2 + 2 * np.log(4))
    # Members stand in the order of their keys, which are new.
    order = [each.identity for each in results[0].setup.context.committee.members]
    all_four, missed = (0, 1, 2, 3), order.index(federation.registry[MEMBERS[0]])
    three = tuple(each for each in all_four if each != missed)
    records = [result.outcome.record for result in results]
    assert [each and each.entered for each in records] == [all_four, three] + 2 * [all_four]
    assert [each and each.returned for each in records] == [(), three, three, all_four]
    assert all(tasks_of(federation, name) == ["upload", "upload"] for name in NAMES)
    with Ledger.open(federation.folder("server") / "ledger.jsonl") as ledger:
        got = [*charged(ledger), *(result.epsilons for result in results)]
    assert got == simulated(federation, results, lambda number: {missed} if number == 1 else set())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """What a server sent in a job of one round, of which two sites have heard nothing yet."""
    job = Sent(tmp_path_factory.mktemp("job") / "job", {})
    federation = Federation(job.root, RETURNED, committee=MEMBERS)

    def lost(name: str, asked: str, data: Shareable, message: bytes) -> Shareable | None:
        step = STEP_OF[asked]
        job.messages.setdefault((name, step), message)
        gone = (MEMBERS[0], job.client) if step is not KEYS else ()
        return Shareable() if name in gone else None

    federation.on_task = lost
    assert federation.run() == []
    return job


@pytest.mark.parametrize("why", REFUSED)
def test_what_a_site_refuses(job: Sent, tmp_path: Path, why: str) -> None:
    """Every message finds a new process."""
    shutil.copytree(job.root, tmp_path / "job")
    with pytest.raises((PolicyError, RemoteProtocolError, StoredStateError), match=why):
        REFUSED[why](replace(job, root=tmp_path / "job"))


def test_a_member_sends_its_noise_at_a_fixed_time_after_it_was_asked(
    job: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(job.root, tmp_path / "job")
    agreement = RETURNED.replace("noise_after_seconds = 0", "noise_after_seconds = 20")
    job = replace(job, root=tmp_path / "job").agreed(MEMBERS[0], agreement)
    slept, now = list[float](), iter([2.0, 6.0, 5.0, 8.0, 40.0, 70.0])
    clock = SimpleNamespace(time=time.time, monotonic=lambda: next(now), sleep=slept.append)
    monkeypatch.setattr(client_rounds, "time", clock)
    with pytest.raises(PolicyError, match="one another"):
        job.ask(NOISE, job.later(1 << 11))
    assert job.ask(NOISE) == job.ask(NOISE)
    assert slept == [16.0, 17.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({"horizon = 4\n": ""}, {}, "horizon: missing"),
        ({"size = 4\ncorrupt = 0\naway = 1": 'kind = "everyone"'}, {}, "only to members who stay"),
        ({"apart = 2": "apart = 3"}, {}, "6 clients; valid: at least 9"),
        ({"rounds = 2": "rounds = 1"}, {"num_rounds": 4}, "6 clients; valid: at least 12"),
        (
            {"seconds = 0": "seconds = 19.5\nlifetime_seconds = 9"},
            {},
            "560 seconds together",
        ),
        ({}, {"num_rounds": 5}, "1 .. 4 rounds together"),
        ({}, {"evaluate_every": 1}, "answers are summed once"),
        ({}, {"sketch": {"controller": "adapt_norm"}}, "does not cancel"),
        ({}, {"committee": (*MEMBERS[:3], NAMES[0])}, "site-1 in registry.json as well"),
    ],
)
def test_jobs_that_cannot_be_such_a_run(
    tmp_path: Path, changes: dict[str, str], options: dict[str, Any], problem: str
) -> None:
    agreement = RETURNED + "\n[evaluation]\nloss = {low = 0.0, high = 4.0}\n"
    for old, new in changes.items():
        agreement = agreement.replace(old, new)
    federation = Federation(tmp_path, agreement, **{"committee": MEMBERS, **options})
    assert problem in str(federation.run())


def test_nobody_is_invited_too_soon(tmp_path: Path, results: list[RoundResult]) -> None:
    """One client has left the job, and is missed when others have had their turn."""
    federation = Federation(tmp_path, RETURNED, committee=MEMBERS, num_rounds=2)
    del federation.server.clients[0]
    assert "2 registered clients of 9 whose turn it is" in str(federation.run())
    assert len(results) == 1


def test_another_job_is_no_run_of_the_same_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the server has waited longer for noise, which is sent at a time of its own."""
    waits: dict[str, int] = {}

    def timed(name: str, timeout: int, **rest: Any) -> Task:
        waits[name] = timeout
        return Task(name=name, timeout=timeout, **rest)

    monkeypatch.setattr(exchange, "Task", timed)
    agreement = RETURNED.replace("noise_after_seconds = 0", "noise_after_seconds = 0.1")
    federation = Federation(tmp_path, agreement, committee=MEMBERS)
    assert federation.run() == []
    assert (waits["veilsum_noise"], waits["veilsum_check"]) == (91, 90)
    assert "1 sums of an earlier job" in str(federation.run())
