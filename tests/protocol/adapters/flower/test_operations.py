"""A site's operations: frozen, looked at, backed up, restored, examined; and their page."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

import msgspec
from flower_doubles import FIRST_NODE, World, make_app, model, step_of
from flwr.app import Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from pages import ROOT, blocks
from round_kit import IDENTITIES, REGISTRY, make_setup
from typer.testing import CliRunner

from dp import LedgerError
from protocol.adapters.flower import client
from protocol.adapters.flower.folders import new_client, policy_text, write_client
from protocol.adapters.flower.frozen import Restored, freeze, restored, unfreeze, why_frozen
from protocol.adapters.flower.home import ClientHome, ClientRules
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.record import read_answer
from protocol.adapters.flower.site import backup, status
from protocol.adapters.flower.site.backup import back_up, restore
from protocol.adapters.flower.site.journal import Journal, JsonLines, counts
from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.serving import Site
from protocol.adapters.flower.site.status import status_of
from protocol.errors import ConfigurationError, PolicyError
from protocol.exchange.remote import open_answer
from protocol.exchange.stages import Refusal
from protocol.goal import PrivacyGoal
from protocol.round.turns import StoredTurns
from secagg import Identity
from simulations.commands import cli
from simulations.reports.doctor import kernels
from simulations.reports.doctor import site as doctor
from simulations.reports.doctor.findings import Level
from tests.doubles.federation import Federation

SETUPS = [make_setup(coins=20_000, round_number=number) for number in range(16)]
ROUNDS = 6
GOAL = PrivacyGoal(
    SETUPS[0].released.epsilon_of_rounds(PrivacyGoal(1.0, 1e-5, ROUNDS)), 1e-5, ROUNDS
)
RULES = ClientRules(
    epsilon=GOAL.epsilon,
    delta=GOAL.delta,
    rounds=ROUNDS,
    clip_l2=2.5,
    minimum_survivors=3,
    tolerated_colluders=1,
)
COST = backup._COST
PASSPHRASE = b"correct horse battery staple"
APP = b"an app"


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_COST", 1 << 4)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A site that has nothing behind it."""
    write_client(tmp_path / "home", IDENTITIES[0], REGISTRY, RULES)
    (tmp_path / "home" / "site.toml").write_text('approved_apps = []\ntrainer = ["true"]\n')
    return tmp_path / "home"


class Rounds:
    """Numbers that nobody has announced before, and how many of them were paid for."""

    def __init__(self) -> None:
        self.setups, self.paid = iter(SETUPS), 0

    def join(self, home: Path) -> Any:
        setup = next(self.setups)
        with ClientHome(home).history(ClientHome(home).policy) as history, suppress(PolicyError):
            history.answer(setup)
        return setup

    def pay(self, home: Path, setup: Any) -> None:
        with ClientHome(home).history(ClientHome(home).policy) as history, suppress(PolicyError):
            history.charge(setup)
            self.paid += 1

    def take(self, home: Path, count: int) -> None:
        """Join and pay for rounds, as far as they are not refused."""
        for _ in range(count):
            self.pay(home, self.join(home))


def spent(home: Path) -> Any:
    return status_of(home).goal


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sites(world: World, sleep: Callable[[int], Any] = lambda _: None) -> Callable[..., Message]:
    """A site for each client, whose training fails at once."""
    digest = hashlib.sha256(APP).hexdigest()
    rules = SiteRules(approved_apps=[digest], trainer=["true"])

    def answer(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        site = Site(ClientHome(world.home(part)), rules, lambda _: sleep(part))
        return site.answer(message, context, APP)

    return answer


def run(world: World) -> Any:
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
    return secure.reports


@pytest.mark.parametrize(("how", "step"), [("site", "hello"), ("mod", "input")])
def test_a_frozen_site_answers_no_step_and_writes_nothing(
    make_world: Callable[..., World], step: str, how: str
) -> None:
    world, before, replies = make_world(), list[Any](), list[Message]()
    home, inner = world.home(0), sites(world) if how == "site" else make_app()

    def answer(message: Message, context: Context) -> Message:
        if (is_ours := context.node_id == FIRST_NODE) and step_of(message) == step and not before:
            freeze(home, "stolen")
            before.append(tree(home))
        reply = inner(message, context)
        replies.extend([reply] if is_ours and before else [])
        return reply

    world.grid.app = answer  # type: ignore[assignment]
    run(world)
    assert before and replies and tree(home) == before[0]
    for each in replies:
        answered = read_answer(each)
        refusal = answered if isinstance(answered, Refusal) else open_answer(answered)
        assert isinstance(refusal, Refusal) and "stolen" not in refusal.reason


@pytest.mark.parametrize("how", ["site", "mod"])
def test_an_update_that_is_being_made_does_not_leave(
    make_world: Callable[..., World], how: str
) -> None:
    world, slept = make_world(), list[int]()

    def train(message: Message, context: Context) -> Message:
        if context.node_id == FIRST_NODE:
            freeze(world.home(0), "stolen")
        return Message(RecordDict({"arrays": model()}), reply_to=message)

    def sleep(part: int) -> None:  # at the end of training, and when the answer is made
        slept.append(part)
        if slept.count(0) == 2 and part == 0:
            freeze(world.home(0), "stolen")

    world.grid.app = sites(world, sleep) if how == "site" else make_app(train)  # type: ignore[assignment]
    (report,) = run(world)
    assert report.survivors == len(world.grid.nodes) - 1


def test_a_frozen_node_answers_no_evaluation_either(make_world: Callable[..., World]) -> None:
    world, seen = make_world(allow_evaluation_in_the_clear=True), list[Message]()

    def evaluate(message: Message, _: Context) -> Message:
        seen.append(message)
        if len(seen) == 2:
            freeze(world.home(0), "stolen")
        return Message(RecordDict(), reply_to=message)

    world.grid.app = make_app(evaluate=evaluate)
    asked = Message(RecordDict({"arrays": model()}), FIRST_NODE, "evaluate")
    failed = [world.grid.send_and_receive([asked])[0].has_error() for _ in range(3)]
    assert failed == [False, True, True] and len(seen) == 2


def test_whatever_bears_the_name_freezes(home: Path, tmp_path: Path) -> None:
    frozen = home / "frozen"
    assert why_frozen(home) is None and status_of(home).ready
    freeze(home, "two\nlines")
    assert why_frozen(home) == "two lines" and frozen.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ConfigurationError, match="left out"):
        unfreeze(home, 3)
    for make in (
        frozen.mkdir,
        lambda: frozen.symlink_to("nowhere"),
        lambda: frozen.write_bytes(b"\xff"),
        lambda: ((home / "state").mkdir(), (home / "state/restored.json").write_text("{}")),
    ):
        frozen.rmdir() if frozen.is_dir() else frozen.unlink(missing_ok=True)
        assert why_frozen(home) is None
        make()
        assert status_of(home).frozen and not status_of(home).ready
    with pytest.raises(ConfigurationError, match="no client's folder"):
        freeze(tmp_path, "mistyped")


@pytest.mark.parametrize(
    ("before", "under_way", "lost", "accepted"),
    [(2, 0, 2, 2), (2, 0, 1, 3), (1, 1, 2, 2), (0, 0, 6, 6), (3, 0, 3, 9), (0, 0, 3, 1)],
)
def test_a_restored_site_spends_no_more_than_its_goal(
    home: Path, tmp_path: Path, before: int, under_way: int, lost: int, accepted: int
) -> None:
    """If no more rounds were lost than was said; the one under way at the backup is not said.

    The last row is the twin: whoever says too little spends more.
    """
    rounds, new = Rounds(), tmp_path / "new"
    rounds.take(home, before)
    joined = rounds.join(home) if under_way else None
    back_up(home, tmp_path / "file", PASSPHRASE)
    if under_way:
        rounds.pay(home, joined)
    rounds.take(home, lost)
    assert rounds.paid == before + under_way + lost
    restore(tmp_path / "file", new, PASSPHRASE)
    unfreeze(new, accepted)
    assert spent(new).rounds_elsewhere == accepted + under_way
    rounds.take(new, ROUNDS + 1)
    assert rounds.paid == before + under_way + lost + max(0, ROUNDS - before - under_way - accepted)
    assert rounds.paid <= ROUNDS or accepted < lost


def test_what_was_lost_before_is_remembered_by_later_backups(home: Path, tmp_path: Path) -> None:
    """A folder that waits for the number is not backed up: that would forget what it waits for."""
    rounds, homes = Rounds(), [home, *(tmp_path / f"home-{i}" for i in range(3))]
    for old, new in pairwise(homes):
        rounds.take(old, 1)
        back_up(old, tmp_path / "file", PASSPHRASE)
        rounds.take(old, 1)
        restore(tmp_path / "file", new, PASSPHRASE)
        assert "nobody said" in str(status_of(new).frozen) and not status_of(new).ready
        with pytest.raises(ConfigurationError, match="nobody said"):
            back_up(new, tmp_path / "newer", PASSPHRASE)
        for number in (None, -1):
            with pytest.raises(ConfigurationError, match="accept_loss"):
                unfreeze(new, number)
        for number in (0, 1, None):  # what was too small is raised
            unfreeze(new, number)
    assert rounds.paid == ROUNDS and spent(homes[-1]).rounds_left == 0
    rounds.take(homes[-1], 1)
    assert rounds.paid == ROUNDS
    # What was lost is of one goal: of a smaller share it would be less, and no backup renames it.
    (new / "policy.toml").write_text(policy_text(RULES.model_copy(update={"rounds": 600})))
    assert "were lost" in status_of(new).problems["history"]
    with pytest.raises(ConfigurationError, match="were lost"):
        back_up(new, tmp_path / "newer", PASSPHRASE)
    assert not (tmp_path / "newer").exists()


def test_a_restored_identity_is_no_member_and_another_is(home: Path) -> None:
    (home / "state").mkdir()
    Restored(IDENTITIES[0].public.hex(), 0, {}, 0, accepted=True).write(home)
    context, challenge = Context(1, 2, {}, RecordDict(), {}), bytes(32)
    assert client.claim(ClientHome(home), context, challenge)
    with pytest.raises(ConfigurationError, match="committee"):
        client.claim(ClientHome(home), context, challenge + b"\x92")
    with pytest.raises(ConfigurationError, match="committee"), ClientHome(home).member_history():
        pass
    (home / "identity.key").write_text(Identity.generate().private_bytes().hex())
    with ClientHome(home).member_history():
        pass


def moved(home: Path, name: str) -> None:
    (home / name).rename(home.parent / "elsewhere")
    (home / name).symlink_to(home.parent / "elsewhere")


def altered(home: Path, name: str) -> None:
    (home / "state" / name).parent.mkdir(exist_ok=True)
    (home / "state" / name).write_bytes(b"altered\n")


@pytest.mark.parametrize(
    ("problem", "change"),
    [
        ("symbolic link", partial(moved, name="state")),
        ("symbolic link", partial(moved, name="state/charges.jsonl")),
        ("0 rounds joined, and 2 at the last backup", lambda home: shutil.rmtree(home / "state")),
        ("no mark", lambda home: shutil.rmtree(home / "state" / "answered")),
        ("altered", partial(altered, name="charges.jsonl")),
        ("ledger", partial(altered, name="member/charges.jsonl")),
        ("last-backup", lambda home: (home / "last-backup").write_text("1")),
    ],
)
def test_a_history_that_is_not_whole_replaces_no_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, change: Any
) -> None:
    monkeypatch.setattr(status, "_PAUSE", 0.0)
    Rounds().take(home, 2)
    back_up(home, file := tmp_path / "file", PASSPHRASE)
    good = file.read_bytes()
    change(home)
    with pytest.raises((ConfigurationError, LedgerError), match=problem) as raised:
        back_up(home, file, PASSPHRASE)
    assert file.read_bytes() == good and "veilsum-" not in str(raised.value)  # a copy's folder
    if problem != "ledger":  # of clients' rounds
        assert not status_of(home).ready and problem in status_of(home).problems["history"]


def test_a_backup_has_what_it_says_and_no_key(home: Path, tmp_path: Path) -> None:
    Rounds().take(home, 2)
    noise = "noise/" + "0a" * 16
    secret, file, new = b"a secret of some bytes", tmp_path / "file", tmp_path / "new"
    StoredTurns(home / "state" / "turns", 2).comes(bytes(16), 3)
    coin = "state/turns/secret"  # drawn again, it would bring the client twice
    for name in (
        "keys/" + "0a" * 16,
        "sealing/x-0-7",
        "upload/upload",
        "upload/receipt",
        noise,
        "added/upload",
    ):
        (home / "state" / name).parent.mkdir(exist_ok=True)
        (home / "state" / name).write_bytes(secret)
    (home / "node.secret").write_bytes(secret)
    for _ in range(2):
        old = file.read_bytes() if file.exists() else b""
        back_up(home, file, PASSPHRASE)
    data, identity = file.read_bytes(), IDENTITIES[0].private_bytes()
    assert old[17:33] != data[17:33]  # with one salt, both were sealed with one key stream
    assert COST >= 1 << 17 and file.stat().st_mode & 0o777 == 0o600
    assert identity not in data and b"epsilon" not in data
    opened = backup._opened(file, PASSPHRASE)
    assert secret not in msgspec.msgpack.encode(opened) and secret.hex() not in repr(opened)
    assert str(identity) not in repr(opened)
    marks = {name for name in opened.files if "/answered/" in name}
    assert len(marks) == 2
    assert set(opened.files) - marks == {
        "last-backup", "policy.toml", "registry.txt", "site.toml", "state/charges.jsonl", coin,
    }  # fmt: skip
    header, cipher = data[:33], backup._cipher(PASSPHRASE, data[:33])
    strange = msgspec.msgpack.encode(backup._Backup(0, identity, {"../new": b""}))
    unbound = cipher.encrypt(bytes(12), msgspec.msgpack.encode(opened), None)
    for spoilt in (
        data[:-1], data[:20], data[:40] + b"\0" + data[41:], b"x" + data[1:], header + unbound,
        header + cipher.encrypt(bytes(12), strange, header),
    ):  # fmt: skip
        (tmp_path / "spoilt").write_bytes(spoilt)
        with pytest.raises(ConfigurationError, match="spoilt"):
            restore(tmp_path / "spoilt", new, PASSPHRASE)
    with pytest.raises(ConfigurationError, match="another passphrase"):
        restore(file, new, PASSPHRASE + b"?")
    with pytest.raises(ConfigurationError, match="passphrase"):
        back_up(home, file, b"short")
    with pytest.raises(ConfigurationError, match="not empty"):
        restore(file, home, PASSPHRASE)
    assert not new.exists()


@pytest.mark.parametrize("stop", range(5))
def test_a_restore_that_is_interrupted_leaves_a_site_that_answers_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Before any step: each is on disk before the next, and the identity is the last."""
    done, new = list[str](), tmp_path / "new"
    back_up(home, tmp_path / "file", PASSPHRASE)

    def watched(place: Any, name: str) -> None:
        real = getattr(place, name)

        def step(*arguments: Any) -> None:
            done.append(name)
            if len(done) > stop:
                raise InterruptedError
            real(*arguments)

        monkeypatch.setattr(place, name, step)

    for place, name in ((backup, "write_files"), (os, "sync"), (backup, "write_identity")):
        watched(place, name)
    new.mkdir(mode=0o755)
    with suppress(InterruptedError):
        restore(tmp_path / "file", new, PASSPHRASE)
    assert done == ["write_files", "sync", "write_identity", "sync"][: stop + 1]
    assert why_frozen(new) and (new / "identity.key").exists() == (stop > 2)
    assert new.stat().st_mode & 0o777 == 0o700


def test_looking_at_a_site_leaves_it_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, read = Rounds(), status.files
    rounds.take(home, 1)
    with ClientHome(home).history(ClientHome(home).policy) as history:
        before = tree(home)
        assert spent(home).rounds_left == ROUNDS - 1 and tree(home) == before
        history.answer(next(rounds.setups))
    turns = iter([True])

    def torn(home: Path) -> Iterator[tuple[str, bytes]]:
        """A round is paid for between its marks and its ledger."""
        for name, data in read(home):
            if name.endswith("charges.jsonl") and next(turns, False):
                rounds.take(home, 1)
                data = (home / name).read_bytes()
            yield name, data

    monkeypatch.setattr(status, "files", torn)
    back_up(home, tmp_path / "file", PASSPHRASE)
    assert rounds.paid == 2 and restore(tmp_path / "file", tmp_path / "new", PASSPHRASE).lost == 1
    unfreeze(tmp_path / "new", 0)
    assert spent(tmp_path / "new").rounds_left == ROUNDS - 3


@pytest.mark.parametrize("what", ["fine", "revoked", "expired", "old"])
def test_a_site_is_ready_while_the_registrar_says_so(tmp_path: Path, what: str) -> None:
    home, days = tmp_path / "home", {"expired": 31, "old": 3}.get(what, 0)
    federation = Federation(tmp_path / "registry.json", time.time() - days * 86400)
    federation.enrol("a", new_client(home).public)
    asked = federation.rules(largest_registry_age_seconds=86400 * (2 if what == "old" else 99))
    (home / "policy.toml").write_text(policy_text(RULES.model_copy(update={"authority": asked})))
    if what == "revoked":
        federation.revoke("a")
    shutil.copy(federation.path, home)
    assert status_of(home).ready == (what == "fine")
    assert list(status_of(home).problems) == ["registry"] * (what != "fine")


def test_metrics_and_lines_say_what_was_answered_and_no_more(
    make_world: Callable[..., World],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "veilsum")
    monkeypatch.setattr(status, "seen", None)  # after a task, nothing is copied
    world = make_world()
    home, every = world.home(0), sites(world)
    journal = Journal(home, lambda message, context, _: every(message, context))

    def answer(message: Message, context: Context) -> Message:
        if context.node_id != FIRST_NODE:
            return every(message, context)
        reply = journal.answer(message, context, APP)
        journal.write()
        return reply

    world.grid.app = answer  # type: ignore[assignment]
    run(world)
    asked = Message(RecordDict({"arrays": model()}), FIRST_NODE, "evaluate")
    world.grid.send_and_receive([asked])
    expected = {("rounds", "joined"): 1, ("rounds", "sent"): 1, ("refusals", "PolicyError"): 1}
    assert counts(home) == expected and Journal(home, journal.answer)._counts == expected
    text = (home / "metrics.prom").read_text()
    names = "epsilon_spent epsilon_goal rounds_left frozen ready last_backup_timestamp_seconds"
    assert set(re.findall(r"^veilsum_(\w+)", text, re.MULTILINE)) == {
        *names.split(), "rounds_total", "refusals_total",
    }  # fmt: skip
    assert "veilsum_rounds_left 7\n" in text and "veilsum_ready 1\n" in text
    warn("something else", ValueError("patient-17"))
    lines = [json.loads(JsonLines().format(each)) for each in caplog.records]
    assert lines[-1]["error"] == "ValueError" and "patient" not in str(lines)
    done = [line for line in lines if line["event"] == "task"]
    assert [line["step"] for line in done][:3] == ["hello", "advertise", "share"]
    assert done[-1]["outcome"] == "refused" and {line["round"] for line in done[1:-1]} == {0}
    assert len({line["session"] for line in done[1:-1]}) == 1 and done[1]["session"]
    assert set(done[0]) == {
        "time", "level", "event", "run", "session", "round", "step", "outcome",
    }  # fmt: skip


NOBODY = {"wrong identity", "wrong registry"}


def sandboxed(home: Path, text: str = 'trainer = ["true"]') -> None:
    (home / "site.toml").write_text(f'approved_apps = ["{"0a" * 32}"]\n{text}\n')


def infeasible(home: Path) -> None:
    rules = RULES.model_copy(update={"minimum_survivors": 7})
    (home / "policy.toml").write_text(policy_text(rules))


@pytest.mark.parametrize(
    ("found", "change"),
    [
        (set(), lambda home: None),
        ({"wrong folder"}, lambda home: home.chmod(0o750)),
        ({"wrong folder", *NOBODY}, lambda home: (home / "identity.key").chmod(0o640)),
        (NOBODY, lambda home: (home / "identity.key").write_text("x")),
        ({"wrong clock"}, lambda home: os.utime(home / "policy.toml", (time.time() + 900,) * 2)),
        ({"wrong history"}, lambda home: shutil.rmtree(home / "state" / "answered")),
        ({"wrong policy"}, infeasible),
        ({"wrong registry", "wrong policy"}, lambda home: (home / "registry.txt").unlink()),
        ({"wrong sandbox"}, partial(sandboxed, text="")),
        ({"wrong sandbox"}, partial(sandboxed, text='sandbox = "/nowhere/at/all"')),
        ({"warning frozen"}, lambda home: freeze(home, "upgrade")),
        ({"warning backup"}, lambda home: (home / "last-backup").write_text("1 0")),
    ],
)
def test_the_doctor_finds_what_is_broken(
    home: Path, monkeypatch: pytest.MonkeyPatch, found: set[str], change: Callable[[Path], Any]
) -> None:
    monkeypatch.setattr(doctor, "reached", lambda *_: {"a port": False})
    monkeypatch.setattr(status, "_PAUSE", 0.0)
    Rounds().take(home, 1)
    back_up(home, home.parent / "file", PASSPHRASE)
    sandboxed(home)
    change(home)
    bad = {f"{f.level} {f.subject[5:]}" for f in doctor.examine_site(home) if f.level != Level.OK}
    # Of this machine, which may have no clock that is set, and swap.
    assert bad - {"warning clock", "warning memory"} == found


def test_the_doctor_knows_dumps_files_of_others_memory_and_what_an_app_reaches(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxed(home)
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (1, 1))
    monkeypatch.setattr(doctor, "reached", lambda *_: {"a port": True})
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    found = [*doctor._memory(home), *doctor._sandbox(home), *doctor._folder(home)]
    found += doctor._disk(Path("/dev/shm"))  # noqa: S108
    told = "\n".join(map(str, found))
    assert all(each in told for each in ("crash", "a port", "not of user 4321", "tmpfs"))


def test_the_page_of_operations_from_its_first_command_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root: units are written and looked at, and no sandbox is there to be tried."""
    monkeypatch.chdir(tmp_path)
    for name in ("known_answers", "caches"):  # the installation's, which take a minute
        monkeypatch.setattr(kernels, name, lambda *_: iter(()))
    said = {"/srv/data": str(ROOT / "examples"), "/etc/systemd/system": f"{tmp_path}/units"}
    said["ANNOUNCER"] = "ab" * 32
    (tmp_path / "backup").mkdir()
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv" / "passphrase").touch(0o600)
    (tmp_path / "srv" / "passphrase").write_bytes(PASSPHRASE)

    def placed(text: str) -> str:
        for name, value in said.items():
            text = text.replace(name, value)
        return re.sub(r"(?<![\w/])/(srv|backup)/", rf"{tmp_path}/\1/", text)

    def command(words: list[str]) -> str:
        more = ["--json"] if words[1] == "doctor" else []
        done = CliRunner().invoke(cli.app, [*map(placed, words[1:]), *more])
        assert done.exit_code == 0 or more, f"{words}: {done.output}{done.exception}"
        return done.stdout

    examined, home = [], tmp_path / "srv" / "veilsum"
    for block in blocks(ROOT / "docs/integrations/flower-operations.md", "console", "toml"):
        if block.language == "toml":
            Path(placed(str(block.file))).write_text(placed(block.text))
        for words in block.commands if block.language == "console" else ():
            printed = command(words)
            if words[1:3] == ["provision", "client"]:
                said["SITE"] = printed.split()[-1]
            elif words[1:3] == ["registry", "init"]:
                said["REGISTRAR"] = printed.split()[-1]
            elif words[1:3] == ["registry", "enrol"]:
                for i in range(3):
                    key = Identity.from_private_bytes(bytes([i]) * 32).public.hex()
                    command([*words[:-3], f"other-{i}", "--key-of", key])
                shutil.copy("registry.json", home)
            elif words[1:3] == ["site", "units"]:
                assert len(list((tmp_path / "units").iterdir())) == 3
                assert status_of(home).identity == said["SITE"] and status_of(home).ready
            elif words[1] == "doctor":
                found = json.loads(printed)["findings"]
                examined.append({each["subject"] for each in found if each["level"] == "wrong"})
    assert examined == [{"site sandbox"}] and why_frozen(home)  # as it was revoked
    assert restored(tmp_path / "srv" / "veilsum-new").lost == 4  # type: ignore[union-attr]
    assert spent(tmp_path / "srv" / "veilsum-new").rounds_left == 16
