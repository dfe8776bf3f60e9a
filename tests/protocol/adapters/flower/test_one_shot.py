"""One-shot rounds on Flower: one upload with the training reply, short exchanges with members."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from protocol.schemes import OneShot, Pairwise, Validated
from protocol.schemes.committee import CommitteePlan, Drawn, Everyone, Named

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import World
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.serverapp.strategy import FedAvg, Result
from typer.testing import CliRunner

from dp import Ledger
from protocol.adapters.flower import RoundLostError, SecureGrid, TooFewNodesError
from protocol.adapters.flower.errors import SettingsError
from protocol.adapters.flower.folders import policy_text, rules_of, write_registry
from protocol.adapters.flower.home import ClientHome, ClientRules, read_registry
from protocol.adapters.flower.nodes import NodeBook
from protocol.adapters.flower.places import places_of
from protocol.adapters.flower.record import CLAIM_BYTES, KEY
from protocol.adapters.flower.settings import read_settings
from protocol.errors import ConfigurationError, PolicyError
from protocol.exchange.remote import refuse
from protocol.exchange.sealing_book import SealingBook
from protocol.planning.configuration import parse
from protocol.round.committee_policy import KEY_ROUNDS, CommitteePolicy, ValidatedPolicy
from protocol.round.member import SealingKeys
from protocol.round.stored_history import StoredHistory
from secagg import Identity, LocalProtocolError, OpeningFailedError
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.server import OneShotServer
from secagg.tags import Usage
from simulations.commands.cli import app

N = 6
SESSION = bytes(range(16))
EVERYONE: dict[str, Any] = {"committee": Everyone()}
NAMED: dict[str, Any] = {"committee": Named(size=4, corrupt=0, away=1)}
DRAWN: dict[str, Any] = {"committee": Drawn(size=3, corrupt=0, away=1, odds=0.9999)}
"""One draw in 10^11 has fewer than three candidates of five."""
BOTH = pytest.mark.parametrize("kind", [EVERYONE, NAMED], ids=["everyone", "named"])


def start(secure: SecureGrid, arrays: ArrayRecord, rounds: int = 1) -> Result:
    strategy = FedAvg(fraction_evaluate=0.0)
    return strategy.start(grid=secure, initial_arrays=arrays, num_rounds=rounds)


def close_to_mean(
    secure: SecureGrid, world: World, moved: np.ndarray, parts: SimpleNamespace, who: list[int]
) -> bool:
    """Within 6.5 deviations of the noise, in 40 coordinates."""
    report = secure.reports[-1]
    noise = 1.02 * world.plan.goal.noise_multiplier * world.plan.clip_l2 / report.survivors
    mean = np.mean([parts.shift_of(i) for i in who])
    return bool(np.abs(moved - mean).max() < 6.5 * noise)


@BOTH
def test_fedavg_gets_the_mean_with_one_message_of_each_client(
    make_world: Callable[..., World], parts: SimpleNamespace, kind: dict[str, Any]
) -> None:
    world = make_world(**kind)
    with world.secure() as secure:
        result = start(secure, parts.model())
        moved = parts.flat(result.arrays) - parts.flat(parts.model())
        assert close_to_mean(secure, world, moved, parts, list(range(N)))
        start(secure, result.arrays)
    reports = secure.reports
    assert [report.survivors for report in reports] == [N, N]
    assert [report.lost for report in reports] == [{}, {}]
    # Who they are, uploads, and three short exchanges with members.
    assert [report.exchanges for report in reports] == [5, 4]
    steps = {node: [s for n, s in world.grid.seen if n == node] for node in world.grid.nodes}
    member = ["check", "sign", "open"]
    members = {world.node(i).number for i in range(4 if kind is NAMED else N)}
    for node, seen in steps.items():
        rest = member if node in members else []
        assert seen == ["hello", "upload", *rest, "upload", *rest]
    # A client's own count is one round each; what it signed as a member is in other records.
    for i in range(N):
        with StoredHistory(world.home(i) / "state", world.plan.goal) as history:
            assert 0 < history.epsilon < world.plan.goal.epsilon
        marks = list((world.home(i) / "state" / "member").glob("answered/*"))
        assert len(marks) == (2 if world.node(i).number in members else 0)
    assert len(Ledger.open(world.root / "ledger.jsonl").entries()) == 2


@BOTH
@pytest.mark.parametrize("step", ["upload", "check", "sign", "open"])
def test_a_node_lost_at_any_step_does_not_lose_the_round(
    make_world: Callable[..., World], parts: SimpleNamespace, step: str, kind: dict[str, Any]
) -> None:
    world = make_world(**kind)
    first = ["hello", "upload", "check", "sign", "open"].index(step)
    world.grid.drops = lambda node, s: (
        node == parts.FIRST_NODE and s in ["hello", "upload", "check", "sign", "open"][first:]
    )
    with world.secure() as secure:
        result = start(secure, parts.model())
        (report,) = secure.reports
        who = [i for i in range(N) if i or step != "upload"]
        moved = parts.flat(result.arrays) - parts.flat(parts.model())
        assert close_to_mean(secure, world, moved, parts, who)
    assert report.survivors == len(who)
    (reason,) = report.lost.values()
    # It is a member, too: the last stage in which it was silent counts.
    word = {"upload": "check", "sign": "confirm"}.get(step, step)
    assert reason.startswith(f"{word}: no answer in 60 s")
    assert world.time.seconds < 600.0 + 3 * 60.0 + 1.0


def test_training_that_fails_costs_its_client_and_says_nothing(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    answers = []

    def train(message: Message, context: Context) -> Message:
        partition = context.node_config["partition-id"]
        if partition == 2:
            raise SystemExit("patient 17")
        if partition == 3:
            raise ValueError("patient 18")
        (arrays,) = message.content.array_records.values()
        moved = parts.shifted(arrays, parts.shift_of(partition))
        message.content["arrays"] = moved
        return Message(message.content, reply_to=message)

    world = make_world(app=parts.make_app(train), **EVERYONE)

    def watched(reply: Message) -> Message:
        if reply.metadata.src_node_id in (parts.FIRST_NODE + 2, parts.FIRST_NODE + 3):
            answers.append(reply.content[KEY]["answer"])
        return reply

    world.grid.answers = watched
    with caplog.at_level(logging.WARNING, "veilsum"), world.secure() as secure:
        start(secure, parts.model())
        (report,) = secure.reports
    assert report.survivors == N - 2
    # Claims, two refusals in the same bytes, and what they answer as members all the same.
    refusals = [answer for answer in answers if answer[:1] == b"\1"]
    assert refusals == [refuse(LocalProtocolError("any"))] * 2
    assert len(answers) == 2 * 5
    assert set(report.lost) == {parts.FIRST_NODE + 2, parts.FIRST_NODE + 3}
    assert "patient 17" in caplog.text and "patient 17" not in str(report.lost)


def test_a_node_keeps_nothing_but_its_upload_or_a_sealed_state(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(**EVERYONE)
    kept: dict[str, set[str]] = {}

    def watched(node: int, step: str) -> bool:
        others = world.grid.nodes[node].state
        record = state_of(others)
        kept.setdefault(step, set()).update(record)
        if step in ("check", "sign"):
            uploads = world.home(node - parts.FIRST_NODE) / "state" / "upload"
            assert sorted(path.name for path in uploads.iterdir()) == ["receipt", "upload"]
            keys = list((world.home(node - parts.FIRST_NODE) / "state" / "keys").iterdir())
            assert len(keys) == (0 if step == "check" else 1)
        return False

    world.grid.drops = watched
    with world.secure() as secure:
        start(secure, parts.model())
    assert kept == {
        "hello": set(),
        "upload": set(),
        "check": set(),
        "sign": {"stored"},
        "open": {"stored"},
    }
    assert all(state_of(node.state) == set() for node in world.grid.nodes.values())
    assert not any(list((world.home(i) / "state" / "keys").iterdir()) for i in range(N))


def state_of(state: bytes) -> set[str]:
    """Names of what a node keeps."""
    proto = context_to_proto(Context(1, 1, {}, RecordDict(), {}))
    proto.state.ParseFromString(state)
    record = context_from_proto(proto).state.get(KEY)
    return set(record) if isinstance(record, ConfigRecord) else set()


@pytest.mark.parametrize("step", ["upload", "check", "sign", "open"])
def test_a_request_is_answered_once(
    make_world: Callable[..., World], parts: SimpleNamespace, step: str
) -> None:
    """The same message again gets a refusal, or the same upload; nothing is made twice."""
    world = make_world(**EVERYONE)
    caught, answers = [], []

    def spoil(message: Message) -> Message:
        record = message.content[KEY]
        if record["step"] == step and message.metadata.dst_node_id == parts.FIRST_NODE:
            caught.append(message)
        return message

    def watched(reply: Message) -> Message:
        if len(caught) > len(answers):
            answers.append(reply.content[KEY]["answer"])
        return reply

    world.grid.spoil, world.grid.answers = spoil, watched
    with world.secure() as secure:
        start(secure, parts.model())
        (message,) = caught
        first = answers[0]
        reply = world.node(0).handle(world.grid.app, message)
    again = reply.content[KEY]["answer"]
    assert again == first if step == "upload" else again[:1] == b"\1"


def test_each_client_trains_on_what_was_announced_only(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(**EVERYONE)
    trained = []

    def train(message: Message, context: Context) -> Message:
        trained.append(context.node_config["partition-id"])
        return Message(message.content, reply_to=message)

    world.grid.app = parts.make_app(train)

    def spoil(message: Message) -> Message:
        first = message.metadata.dst_node_id == parts.FIRST_NODE
        if first and message.content[KEY]["step"] == "upload":
            message.content["config"]["lr"] = 7.0
        return message

    world.grid.spoil = spoil
    with world.secure() as secure:
        start(secure, parts.model())
        (report,) = secure.reports
    assert sorted(trained) == [1, 2, 3, 4, 5]
    assert report.lost[parts.FIRST_NODE].startswith("upload: RemoteProtocolError")


def test_a_committee_is_drawn_for_every_round(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Of those who have handed over a key: three of five, all eight times the same once in 10^7."""
    world = make_world(**DRAWN)
    world.grid.drops = lambda node, _: node == parts.FIRST_NODE
    with world.secure() as secure:
        result = start(secure, parts.model(), rounds=1)
        moved = parts.flat(result.arrays) - parts.flat(parts.model())
        assert close_to_mean(secure, world, moved, parts, list(range(1, N)))
        start(secure, parts.model(), rounds=7)
    checked = [node for node, step in world.grid.seen if step == "check"]
    committees = {frozenset(checked[i : i + 3]) for i in range(0, len(checked), 3)}
    assert len(checked) == 24 and {len(each) for each in committees} == {3}
    assert len(committees) > 1 and parts.FIRST_NODE not in checked


def test_members_are_drawn_of_those_who_are_connected(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Six draws of three in six would have none of the two that are gone once in 15,000."""
    world = make_world(committee=replace(DRAWN["committee"], away=0))
    with world.secure() as secure:
        start(secure, parts.model(), rounds=1)
        for gone in (0, 1):
            world.grid.nodes.pop(parts.FIRST_NODE + gone)
        start(secure, parts.model(), rounds=6)
    assert [report.survivors for report in secure.reports] == [6] + 6 * [4]


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"odds": 0.5}, "odds"),
        ({"size": 4}, "committee"),
        ({"corrupt": 1}, "corrupt"),
        ({"kind": "everyone", "odds": None, "size": None}, "committee"),
        ("a client more", "registry_root"),
    ],
    ids=str,
)
def test_a_draw_is_held_against_the_client_s_own_rules(
    make_world: Callable[..., World], parts: SimpleNamespace, change: Any, clause: str
) -> None:
    world = make_world(**DRAWN)
    home = world.home(0)
    if isinstance(change, str):
        with (home / "registry.txt").open("a") as file:
            file.write(f"{Identity.generate().public.hex()}\n")
        change = {}
    rules = ClientHome(home).rules.model_dump() | {"name_refused_clauses": True}
    rules["committee"] |= change
    (home / "policy.toml").write_text(policy_text(parse(rules, ClientRules)))
    with world.secure() as secure:
        start(secure, parts.model())
    (report,) = secure.reports
    assert report.survivors == N - 1
    assert clause in report.lost[parts.FIRST_NODE]


def test_clients_without_a_committee_refuse(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(**EVERYONE)
    rules = rules_of(replace(world.plan, scheme=Pairwise()))
    for i in (0, 1, 2):
        (world.home(i) / "policy.toml").write_text(policy_text(rules))
    with (
        caplog.at_level(logging.WARNING, "veilsum"),
        world.secure() as secure,
        pytest.raises(TooFewNodesError, match="does not say who it is: PolicyError"),
    ):
        start(secure, parts.model(), rounds=3)
    assert "one-shot" in caplog.text and "pairwise only" in caplog.text
    # Nor do they open what others have uploaded.
    request = {"version": 1, "step": "check", "payload": b"", "digest": b""}
    asked = Message(RecordDict({KEY: ConfigRecord(request)}), parts.FIRST_NODE, "train")
    reply = world.node(0).handle(world.grid.app, asked)
    assert reply.content[KEY]["answer"] == refuse(PolicyError("a", "b", "c"))


@pytest.mark.parametrize(
    "committee", [Everyone(), Drawn(size=6, corrupt=0, away=1, odds=0.9999999)], ids=["all", "six"]
)
def test_a_committee_of_all_needs_a_whole_cohort_once(
    make_world: Callable[..., World], parts: SimpleNamespace, committee: CommitteePlan
) -> None:
    """Nobody is made up for a committee; who was here may be away afterwards."""
    world = make_world(committee=committee)
    gone = world.grid.nodes.pop(parts.FIRST_NODE)
    with world.secure() as secure:
        with pytest.raises(TooFewNodesError, match=r"5 clients have handed over .* takes 6"):
            start(secure, parts.model(), rounds=3)
        world.grid.nodes[gone.number] = gone
        arrays = start(secure, parts.model()).arrays
        del world.grid.nodes[parts.FIRST_NODE]
        start(secure, arrays)
    assert [report.survivors for report in secure.reports] == [N, N - 1]
    assert secure.reports[1].cohort == N


def test_a_named_committee_lets_clients_be_away_from_the_start(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(**NAMED)
    gone = world.grid.nodes.pop(parts.FIRST_NODE + 5)
    with world.secure() as secure:
        start(secure, parts.model())
        assert secure.reports[0].survivors == N - 1
    world.grid.nodes[gone.number] = gone
    del world.grid.nodes[parts.FIRST_NODE]
    with (
        world.secure() as secure,
        pytest.raises(TooFewNodesError, match=r"3 members of the named committee .* takes 4"),
    ):
        start(secure, parts.model(), rounds=3)


def test_a_member_of_another_run_erases_its_key(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(**EVERYONE)
    with world.secure() as secure:
        arrays = start(secure, parts.model()).arrays
        first = {i: key_file(world, i) for i in range(N)}
        # The same session has the same keys.
        start(secure, arrays)
        assert {i: key_file(world, i) for i in range(N)} == first
    with world.secure() as other:
        start(other, parts.model())
    assert not first.items() & {i: key_file(world, i) for i in range(N)}.items()


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_any_message_erases_a_key_whose_time_is_over(
    make_world: Callable[..., World], parts: SimpleNamespace, kind: str
) -> None:
    """Also one that is refused; what was stored of a round goes with it."""
    world = make_world(**EVERYONE)
    with world.secure() as secure:
        start(secure, parts.model())
    file, home = key_file(world, 0), ClientHome(world.home(0))
    home.expire()
    assert file.exists()
    file.write_bytes(file.read_bytes()[:32] + bytes(8))
    home.round_keys().keep(bytes(16), bytes(32))
    (number,) = world.grid.push_messages([Message(RecordDict(), parts.FIRST_NODE, kind)])
    assert next(iter(world.grid.pull_messages([number]))).has_error()
    assert not file.exists() and home.round_keys().key(bytes(16)) is None


def key_file(world: World, partition: int) -> Path:
    (file,) = (world.home(partition) / "state" / "sealing").iterdir()
    return file


def test_too_few_uploads_lose_the_round_and_name_the_nodes(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(**EVERYONE)
    world.grid.drops = lambda node, step: step == "upload" and node < parts.FIRST_NODE + 3
    with world.secure() as secure, pytest.raises(RoundLostError) as caught:
        start(secure, parts.model(), rounds=3)
    assert caught.value.stage == "upload" and len(caught.value.lost) == 3
    assert not Ledger.open(world.root / "ledger.jsonl").entries()


def test_a_sum_that_does_not_open_is_a_lost_round_that_was_paid(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(**EVERYONE)
    with world.secure() as secure:
        arrays = start(secure, parts.model()).arrays
        world.grid.drops = lambda node, step: step == "open" and node > parts.FIRST_NODE
        with caplog.at_level(logging.WARNING, "veilsum"):
            result = start(secure, arrays)
        assert not result.train_metrics_clientapp and "lost a round" in caplog.text
        assert "open: no answer" in caplog.text
        world.grid.drops = lambda node, step: False
        start(secure, arrays)
    assert len(secure.reports) == 2
    assert len(Ledger.open(world.root / "ledger.jsonl").entries()) == 3


def test_answers_that_do_not_open_the_sum_lose_the_round(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: OneShotServer) -> None:
        raise OpeningFailedError("the keys are too large", 6, 4, dealers=(2,))

    world = make_world(**EVERYONE)
    with world.secure() as secure:
        with monkeypatch.context() as patched:
            patched.setattr(OneShotServer, "open", fail)
            with pytest.raises(OpeningFailedError) as caught:
                start(secure, parts.model(), rounds=3)
            assert caught.value.__notes__ == ["lost before: nobody"]
        arrays = start(secure, parts.model()).arrays
        monkeypatch.setattr(OneShotServer, "open", fail)
        with caplog.at_level(logging.WARNING, "veilsum"):
            start(secure, arrays)
    assert "lost a round: stage open" in caplog.text and "clients 2" in caplog.text
    assert len(Ledger.open(world.root / "ledger.jsonl").entries()) == 5


def test_provisioned_folders_have_a_committee(tmp_path: Path) -> None:
    given = ["--epsilon", "8", "--delta", "1e-5", "--rounds", "3", "--clip-l2", "1"]
    given += ["--minimum-survivors", "4", "--tolerated-colluders", "0", "--clients", "8"]
    for name, more in (
        ("pairwise", []),
        ("everyone", ["--committee", "everyone"]),
        ("named", ["--committee", "named", "--committee-size", "6", "--committee-corrupt", "1"]),
        ("validated", ["--committee", "everyone", "--committee-scheme", "validated"]),
        ("drawn", ["--committee", "drawn", "--committee-size", "6", "--committee-odds", "0.9"]),
    ):
        command = ["provision", "network", "--out", str(tmp_path / name), *given, *more]
        assert CliRunner().invoke(app, command).exit_code == 0
    homes = {name: ClientHome(tmp_path / name / "client-005") for name in ("everyone", "named")}
    assert ClientHome(tmp_path / "pairwise" / "client-000").policy.committee is None
    accepted = {name: home.policy.committee for name, home in homes.items()}
    everyone = CommitteePolicy(kind=CommitteeKind.EVERYONE, named=frozenset(), corrupt=0)
    assert accepted["everyone"] == everyone
    validated = ClientHome(tmp_path / "validated" / "client-005").policy.committee
    assert validated == ValidatedPolicy(kind=CommitteeKind.EVERYONE, named=frozenset(), corrupt=0)
    draw = ClientHome(tmp_path / "drawn" / "client-000").policy.committee.draw
    assert (draw.registry_size, draw.smallest, draw.corrupt) == (8, 6, 0)
    members = read_registry(tmp_path / "named" / "committee.txt")
    expected = CommitteePolicy(kind=CommitteeKind.NAMED, named=members, corrupt=1)
    assert accepted["named"] == expected and len(members) == 6
    assert members < homes["named"].registry
    (tmp_path / "named" / "client-005" / "committee.txt").unlink()
    with pytest.raises(ConfigurationError, match=r"committee.txt: No such file"):
        _ = ClientHome(tmp_path / "named" / "client-005").policy


class TestLostReplies:
    """A client whose reply was lost is asked again, and sends the same bytes."""

    @pytest.mark.parametrize("told", [False, True], ids=["silence", "an error of Flower's"])
    def test_it_sends_the_same_upload_again_and_trains_once(
        self, make_world: Callable[..., World], parts: SimpleNamespace, told: bool
    ) -> None:
        trained: list[int] = []
        sent: list[bytes] = []

        def train(message: Message, context: Context) -> Message:
            partition = context.node_config["partition-id"]
            trained.append(partition)
            (arrays,) = message.content.array_records.values()
            message.content["arrays"] = parts.shifted(arrays, parts.shift_of(partition))
            return Message(message.content, reply_to=message)

        world = make_world(app=parts.make_app(train), **EVERYONE)

        def uploads() -> int:
            return world.grid.seen.count((parts.FIRST_NODE, "upload"))

        def watched(reply: Message) -> Message:
            answer = reply.content[KEY]["answer"]
            if reply.metadata.src_node_id == parts.FIRST_NODE and len(answer) > 1000:
                sent.append(answer)
                if told and uploads() == 1:
                    return lost_reply(reply)
            return reply

        world.grid.answers = watched
        if not told:
            seen = world.grid.nodes[parts.FIRST_NODE]
            world.grid.loses = lambda node, step: (
                node == seen.number and step == "upload" and uploads() == 1
            )
        with world.secure() as secure:
            result = start(secure, parts.model())
            moved = parts.flat(result.arrays) - parts.flat(parts.model())
            assert close_to_mean(secure, world, moved, parts, list(range(N)))
            (report,) = secure.reports
        assert report.survivors == N and report.lost == {} and report.exchanges == 5
        assert sorted(trained) == list(range(N)) and uploads() == 2
        if told:
            assert len(set(sent)) == 1 and len(sent) == 2
        # One charge, and all waits of the stage together are no longer than one.
        with StoredHistory(world.home(0) / "state", world.plan.goal) as history:
            assert history.epsilon > 0.0
        assert world.time.seconds < 600.0

    def test_nodes_that_stay_silent_are_asked_twice_in_the_same_time(
        self, make_world: Callable[..., World], parts: SimpleNamespace
    ) -> None:
        world = make_world(**EVERYONE)
        world.grid.drops = lambda node, step: node == parts.FIRST_NODE and step != "hello"
        with world.secure() as secure:
            start(secure, parts.model())
            assert secure.reports[0].survivors == N - 1
        seen = [step for node, step in world.grid.seen if node == parts.FIRST_NODE]
        # Members are asked once: their states are used up.
        assert seen == ["hello", "upload", "upload", "check"]
        assert world.time.seconds < 600.0 + 3 * 60.0 + 1.0

    def test_a_refusal_of_the_repeated_message_does_not_count_before_the_first(
        self, make_world: Callable[..., World], parts: SimpleNamespace
    ) -> None:
        """A client that is still training answers another process of its own with a refusal."""
        world = make_world(**EVERYONE)
        held: dict[str, Any] = {}
        real = world.grid._push

        def push(message: Message) -> str | None:
            number = real(message)
            node = message.metadata.dst_node_id
            if node == parts.FIRST_NODE and parts.step_of(message) == "upload":
                if not held:
                    # The upload is slow: it comes after the refusal of the second message.
                    held[number] = world.grid.replies.pop(number)
                else:
                    reply = world.grid.replies[number]
                    reply.content[KEY]["answer"] = refuse(LocalProtocolError("busy"))
                    world.time.sleep(1.0)
            return number

        def pull(numbers: list[str]) -> list[Message]:
            found = [world.grid.replies.pop(n) for n in numbers if n in world.grid.replies]
            if not found and len(world.grid.seen) > 2 * N and held:
                world.grid.replies.update(held)
            return found

        world.grid._push, world.grid.pull_messages = push, pull
        with world.secure() as secure:
            start(secure, parts.model())
            assert secure.reports[0].survivors == N


def shorten_keys(home: Path) -> None:
    """Have a client use, and accept, sealing keys for two rounds only."""
    policy, name = home / "policy.toml", "key_rounds"
    policy.write_text(policy.read_text().replace(f"{name} = {KEY_ROUNDS}", f"{name} = 2"))


def lost_reply(reply: Message) -> Message:
    """What Flower puts in the place of a reply that it has lost."""
    reply.metadata.__dict__["_message_id"] = ""
    lost = Message(Error(4, "gone"), reply_to=reply)
    lost.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    lost.metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id
    return lost


class TestSealingKeysOfNodes:
    """What a server takes in as a member's key, and how a run goes on over its end."""

    @BOTH
    def test_a_run_goes_on_over_the_end_of_a_key(
        self, make_world: Callable[..., World], parts: SimpleNamespace, kind: dict[str, Any]
    ) -> None:
        """Ranges of two rounds; a member is away in the very round in which its key ends."""
        world = make_world(**kind)
        for i in range(N):
            shorten_keys(world.home(i))
        names: list[set[str]] = []
        with world.secure() as secure:
            arrays = parts.model()
            for number in range(5):
                gone = world.grid.nodes.pop(parts.FIRST_NODE) if number == 2 else None
                arrays = start(secure, arrays).arrays
                if gone is not None:
                    world.grid.nodes[gone.number] = gone
                files = (world.home(1) / "state" / "sealing").iterdir()
                names.append({path.name.partition("-")[2] for path in files})
        assert [report.survivors for report in secure.reports] == [N, N, N - 1, N, N]
        # Two at a time: the present one, and the next one that is announced before its end.
        early, later = {"0-1", "2-3"}, {"2-3", "4-5"}
        assert names == [{"0-1"}, early, later, later, {"4-5", "6-7"}]

    def test_nodes_are_asked_again_before_the_time_of_their_keys_is_over(
        self, make_world: Callable[..., World], parts: SimpleNamespace
    ) -> None:
        world, asked = make_world(**EVERYONE), list[str]()
        world.grid.drops = lambda _, step: asked.append(step)
        with world.secure() as secure:
            start(secure, parts.model())
            book = secure._rounds._book.sealing
            assert book is not None
            book._last_added = dict.fromkeys(book._last_added, 0.0)
            start(secure, parts.model())
        assert (asked.count("hello"), asked.count("upload")) == (2 * N, 2 * N)

    def test_keys_for_more_rounds_than_a_policy_allows_are_refused(
        self, make_world: Callable[..., World], parts: SimpleNamespace
    ) -> None:
        world = make_world(**EVERYONE)
        shorten_keys(world.home(0))
        with world.secure() as secure:
            start(secure, parts.model())
            (report,) = secure.reports
        # The others' keys serve for longer: this client sends nothing.
        assert report.survivors == N - 1 and "PolicyError" in report.lost[parts.FIRST_NODE]

    def claim(self, book: NodeBook, who: Identity, entry: bytes) -> str:
        """What a book says to a claim of node 5."""
        challenge = bytes(32) + book.sealing.request(0)
        signed = who.public + who.sign(Usage.NODE, b"77", b"5", challenge)
        return book._enter(5, challenge, signed + entry, 0)

    def test_a_bad_key_keeps_a_node_out(self) -> None:
        who = Identity.generate()
        book = NodeBook(77, [who.public])
        book.sealing = SealingBook(SESSION)
        good = SealingKeys(who, SESSION).entry.encode()
        assert "no sealing key, as identity" in self.claim(book, who, b"")
        assert "without its own signature" in self.claim(book, who, good[:-1] + b"x")
        assert book.sealing.entries(0) == {} and book._keys == {}
        assert self.claim(book, who, good) == ""
        assert list(book.sealing.entries(0)) == [who.public]

    def test_pairwise_runs_ask_for_none(
        self, make_world: Callable[..., World], parts: SimpleNamespace
    ) -> None:
        world = make_world()
        sizes = set()

        def watched(reply: Message) -> Message:
            sizes.add(len(reply.content[KEY]["answer"]))
            return reply

        world.grid.answers = watched
        with world.secure() as secure:
            start(secure, parts.model())
        assert 1 + CLAIM_BYTES in sizes
        assert not (world.home(0) / "state" / "sealing").exists()


class TestSettings:
    """The deployment's file."""

    def values(self, folder: Path, **more: Any) -> dict[str, Any]:
        return {
            "veilsum.rounds": 3,
            "veilsum.privacy.epsilon": 8.0,
            "veilsum.privacy.delta": 1e-5,
            "veilsum.privacy.clip-l2": 1.0,
            "veilsum.cohort.size": 6,
            "veilsum.cohort.tolerated-dropouts": 2,
            "veilsum.cohort.tolerated-colluders": 0,
            "veilsum.scheme.kind": "one-shot",
            "veilsum.ledger": str(folder / "ledger.jsonl"),
            "veilsum.registry": str(folder / "registry.txt"),
            **more,
        }

    def named(self) -> dict[str, Any]:
        prefix = "veilsum.scheme.committee."
        return {prefix + "size": 4, prefix + "corrupt": 0, prefix + "away": 1}

    def test_everyone(self, tmp_path: Path) -> None:
        settings = read_settings(self.values(tmp_path))
        assert settings.plan().scheme == OneShot()
        keys = [Identity.generate().public for _ in range(6)]
        write_registry(tmp_path / "registry.txt", keys)
        places = places_of(settings, settings.plan(), 1)
        assert places.registry == frozenset(keys) and places.committee == frozenset()
        rules = rules_of(settings.plan())
        assert rules.committee is not None
        assert (rules.committee.kind, rules.corrupt_members) == ("everyone", 0)
        assert rules.policy().committee is not None
        validated = rules_of(replace(settings.plan(), scheme=Validated(), tolerated_dropouts=1))
        assert type(validated.policy().committee) is ValidatedPolicy
        assert type(rules.policy().committee) is CommitteePolicy
        pairwise = rules_of(replace(settings.plan(), scheme=Pairwise()))
        assert pairwise.policy().committee is None

    def test_a_named_committee_has_a_file(self, tmp_path: Path) -> None:
        keys = [Identity.generate().public for _ in range(6)]
        write_registry(tmp_path / "registry.txt", keys)
        committee = tmp_path / "committee.txt"
        more = self.named() | {"veilsum.committee": str(committee)}
        for values, problem in (
            (self.named(), "veilsum.committee: missing"),
            (more, r"veilsum.committee: .*committee.txt: No such file"),
        ):
            settings = read_settings(self.values(tmp_path, **values))
            with pytest.raises(SettingsError, match=problem):
                places_of(settings, settings.plan(), 1)
        write_registry(committee, keys[:3])
        with pytest.raises(SettingsError, match="has 3 identities; valid: a file of 4"):
            places_of(settings, settings.plan(), 1)
        write_registry(committee, keys[:4])
        assert places_of(settings, settings.plan(), 1).committee == frozenset(keys[:4])

    def test_a_relative_path_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"veilsum.committee: .*an absolute path"):
            read_settings(self.values(tmp_path, **{"veilsum.committee": "committee.txt"}))

    def test_a_lifetime_is_held_against_the_waits_of_the_protocol(self, tmp_path: Path) -> None:
        waits = {"veilsum.stage-seconds": 100.0, "veilsum.training-seconds": 100.0}
        enough = waits | {"veilsum.lifetime-seconds": 400}
        assert read_settings(self.values(tmp_path, **enough)).lifetime_seconds == 400
        with pytest.raises(SettingsError, match="stages of a round may take 400"):
            read_settings(self.values(tmp_path, **waits, **{"veilsum.lifetime-seconds": 399}))

    def test_a_grid_of_another_committee_than_planned_is_refused(
        self, make_world: Callable[..., World]
    ) -> None:
        world = make_world(**NAMED)
        with pytest.raises(ConfigurationError, match="0 identities; valid: 4, as planned"):
            world.secure(committee=())
        world.opened.pop().close()
        world.plan = replace(world.plan, scheme=Pairwise())
        with pytest.raises(ConfigurationError, match="4 identities; valid: 0, as planned"):
            world.secure()
