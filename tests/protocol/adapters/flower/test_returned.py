"""Noise that comes back, on Flower: members upload it before they check, and take it back."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import FIRST_NODE, World, make_app, model
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg
from returned_worlds import changed

from dp import Ledger
from protocol.adapters.flower import StrategyError
from protocol.adapters.flower.folders import policy_text
from protocol.adapters.flower.frozen import Restored, freeze
from protocol.adapters.flower.home import ClientHome, ClientRules
from protocol.adapters.flower.record import (
    KEY,
    MEMBER_ANNOUNCED,
    Request,
    Step,
    read_request,
)
from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.serving import Site
from protocol.errors import ConfigurationError
from protocol.exchange.remote_one_shot import (
    round_of,
    split_announcement,
    with_announcement,
)
from protocol.goal import PrivacyGoal, goal_entry
from protocol.noise.noise import Returned
from protocol.planning.configuration import load
from protocol.round.stored_upload import UploadFolder
from protocol.schemes.committee import Named
from protocol.training.local import local_aggregator
from protocol.training.private import PrivateTraining
from secagg import Identity, TooFewSurvivorsError
from sketch.controllers import FixedRate

N, MEMBERS, APART, ROUNDS = 4, 4, 3, 9
CLIENTS = MEMBERS + N * APART
WORDS: dict[str, Any] = {
    "clients": CLIENTS,
    "goal": PrivacyGoal(8.0, 1e-5, 3),
    "cohort": N,
    "tolerated_dropouts": 1,
    "committee": Named(size=MEMBERS, corrupt=0, away=1),
    "noise": Returned(rounds=ROUNDS, apart=APART),
    "error_share": 0.1,
}
"""Four clients a round, each in every third; the first four of the network are its members."""


def played(world: World, rounds: int) -> Any:
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=rounds)
    return secure.reports


def records(world: World) -> list[Any]:
    return [
        entry.metadata["record"] for entry in Ledger.open(world.root / "ledger.jsonl").entries()
    ]


def test_a_run_is_charged_as_a_simulated_one(make_world: Callable[..., World]) -> None:
    world, rounds = make_world(**WORDS), 5
    people = [Identity.generate() for _ in range(N * APART)]
    with Ledger.open(world.root / "simulated.jsonl") as ledger:
        aggregator = local_aggregator(world.plan, people, 40)
        training = PrivateTraining(world.plan, 40, FixedRate(1.0), aggregator, ledger)
        for number in range(rounds):
            cohort = [each.public for each in people[number % APART :: APART]]
            result = training.run_round(cohort, bytes(32), lambda _: np.zeros(40))
        expected = [entry.metadata["record"] for entry in ledger.entries()]
    reports = played(world, rounds)
    assert [report.lost for report in reports] == [{}] * rounds
    assert [report.survivors for report in reports] == [N] * rounds
    assert records(world) == expected
    assert reports[-1].epsilons == result.epsilons
    for number in range(CLIENTS):
        seen = [step for node, step in world.grid.seen if node == FIRST_NODE + number]
        if number < MEMBERS:
            assert seen == ["hello", *["noise", "check", "sign", "open"] * rounds]
        else:
            assert set(seen) == {"hello", "upload"}


def test_cohorts_rest_for_rounds_that_have_a_record_and_no_others(
    make_world: Callable[..., World],
) -> None:
    """One round is lost before members sign, and one behind it; nobody is asked too soon."""
    world, rounds = make_world(**WORDS), iter(range(100))
    now = [0]

    def drops(node: int, step: str) -> bool:
        if step == "hello":
            return False
        if step == "upload" and (not world.grid.seen[:-1] or world.grid.seen[-2][1] != "upload"):
            now[0] = next(rounds)
        return (step, now[0]) in {("upload", 1), ("open", 3)}

    world.grid.drops = drops
    reports = played(world, 8)
    assert [report.survivors for report in reports] == [N] * 6
    assert [report.lost for report in reports] == [{}] * 6
    # The sum that was not opened is in the list all the same, and nothing of it comes back.
    assert [(each[0], len(each[3])) for each in records(world)] == [
        (number, MEMBERS if number not in (0, 4) else 0) for number in (0, 2, 3, 4, 5, 6, 7)
    ]


def test_a_member_whose_reply_is_lost_sends_the_same_noise_again(
    make_world: Callable[..., World],
) -> None:
    world, sent = make_world(**WORDS), list[bytes]()

    def watched(reply: Message) -> Message:
        if reply.metadata.src_node_id == FIRST_NODE:
            sent.append(reply.content[KEY]["answer"])
        return reply

    handled = world.node(0).handle
    world.node(0).handle = lambda *of: watched(handled(*of))  # type: ignore[method-assign]
    world.grid.loses = lambda node, step: (
        (node, step) == (FIRST_NODE, "noise") and world.grid.seen.count((FIRST_NODE, "noise")) == 1
    )
    (report,) = played(world, 1)
    assert report.lost == {} and sent[1] == sent[2] and len(sent[1]) > 1000
    assert records(world)[0][2] == [*range(MEMBERS)]


# -- hostile servers ------------------------------------------------------------------------------


@dataclass
class Due:
    """A network after one round; in the next one, the first member has got no message yet.

    Attributes:
        sent: what it was to get, by number of the round and step.
    """

    world: World
    sent: dict[tuple[int, Step], Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = [0]

        def spoil(message: Message) -> Message:
            request = read_request(message.content)
            if message.metadata.dst_node_id == FIRST_NODE and request is not None:
                if request.step in MEMBER_ANNOUNCED:
                    number[0] = round_of(request.payload)[1]
                self.sent[number[0], request.step] = request
            return message

        self.world.grid.spoil = spoil
        self.world.grid.drops = lambda node, step: node == FIRST_NODE and number[0] == 1
        assert [len(report.lost) for report in played(self.world, 2)] == [0, 1]
        with ClientHome(self.home).history(ClientHome(self.home).policy):
            """Its own as a client, which is made when it is first asked."""

    @property
    def home(self) -> Path:
        return self.world.home(0)

    def ask(self, request: Request, partition: int = 0) -> bytes:
        node = self.world.node(partition)
        message = Message(RecordDict({KEY: request.record()}), node.number, "train")
        record = node.handle(self.world.grid.app, message).content[KEY]
        assert isinstance(record, ConfigRecord) and isinstance(record["answer"], bytes)
        return record["answer"]

    def state(self, partition: int = 0) -> dict[str, bytes]:
        folder = self.world.home(partition) / "state"
        found = {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        return found | {"of Flower": self.world.node(partition).state}

    def policy(self, **changes: Any) -> None:
        rules = load(self.home / "policy.toml", ClientRules)
        (self.home / "policy.toml").write_text(policy_text(rules.model_copy(update=changes)))


@pytest.fixture
def due(make_world: Callable[..., World]) -> Due:
    return Due(make_world(**WORDS))


def other_terms(request: Request, **terms: Any) -> Request:
    """The same round with other words in its announcement."""
    announced, delivered = split_announcement(request.payload)
    made = changed(announced, **terms)
    return replace(request, payload=with_announcement(made, delivered))


REFUSED: dict[str, Callable[[Due], Request]] = {
    "noise for a number that has had some, on other terms": lambda due: other_terms(
        due.sent[0, Step.NOISE], lifetime_seconds=60
    ),
    "noise for a number far ahead": lambda due: other_terms(
        due.sent[1, Step.NOISE], round_number=1 << 11
    ),
    "a list without a round that it signed for": lambda due: other_terms(
        due.sent[1, Step.NOISE], returns={"records": b"", "returning": False, "fewest_returning": 0}
    ),
    "noise of fewer members than it insists on": lambda due: other_terms(
        due.sent[1, Step.NOISE], returns={"fewest": 2}
    ),
    "a round of another run": lambda due: other_terms(
        due.sent[1, Step.NOISE], session_id=bytes(16)
    ),
    "noise at the moment of a check": lambda due: replace(due.sent[1, Step.NOISE], step=Step.CHECK),
    "a check at the moment of noise": lambda due: replace(due.sent[1, Step.CHECK], step=Step.NOISE),
    "noise as a client's upload": lambda due: replace(due.sent[1, Step.NOISE], step=Step.UPLOAD),
    "noise in the middle of a round": lambda due: replace(due.sent[1, Step.NOISE], step=Step.SIGN),
    "a check that was answered": lambda due: due.sent[0, Step.CHECK],
    "what was signed before": lambda due: due.sent[0, Step.SIGN],
    "an open sum": lambda due: due.sent[0, Step.OPEN],
}


def test_what_is_refused_before_the_noise_of_a_round_uses_nothing_up(due: Due) -> None:
    before = due.state()
    for name, request in REFUSED.items():
        assert due.ask(request(due))[:1] == b"\1", name
        assert due.state() == before, name
    # Whose noise it is not.
    assert due.ask(due.sent[1, Step.NOISE], MEMBERS)[:1] == b"\1"
    noise = {name for name in due.state(MEMBERS) if "/noise/" in name or "/added/" in name}
    assert {Path(name).name for name in noise} <= {"lock"}
    # The last round's is sent again, and draws nothing.
    assert due.ask(due.sent[0, Step.NOISE])[:1] == b"\0" and due.state() == before
    assert due.ask(due.sent[1, Step.NOISE])[:1] == b"\0" and due.state() != before


def test_after_its_noise_a_member_checks_and_uploads_nothing_else(due: Due) -> None:
    noise, check = due.sent[1, Step.NOISE], due.sent[1, Step.CHECK]
    first = due.ask(noise)
    before = due.state()
    assert due.ask(noise) == first and due.state() == before
    for wrong in (
        other_terms(noise, lifetime_seconds=60),
        replace(check, step=Step.NOISE),
        due.sent[0, Step.NOISE],
    ):
        assert due.ask(wrong)[:1] == b"\1" and due.state() == before
    assert due.ask(check)[:1] == b"\0"
    assert due.ask(noise) == first


def test_a_member_that_has_checked_adds_no_noise_behind_it(due: Due) -> None:
    assert due.ask(due.sent[1, Step.CHECK])[:1] == b"\0"
    before = due.state()
    assert due.ask(due.sent[1, Step.NOISE])[:1] == b"\1"
    assert due.state() == before


def full(*_: object) -> None:
    raise OSError("the disk is full")


def test_a_member_that_is_killed_loses_the_round_and_draws_nothing_twice(
    due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between upload and answer, and between what it remembers and the upload."""
    noise, node, copy = due.sent[1, Step.NOISE], due.world.node(0), due.world.root / "copy"
    shutil.copytree(due.home, copy)
    flowers = node.state
    first = due.ask(noise)
    node.state = flowers  # never kept: the process died before it answered
    assert due.ask(noise) == first
    assert due.ask(due.sent[1, Step.CHECK])[:1] == b"\1"
    shutil.rmtree(due.home)
    shutil.copytree(copy, due.home)
    with monkeypatch.context() as patched:
        patched.setattr(UploadFolder, "keep", full)
        assert due.ask(noise)[:1] == b"\1"
    before = due.state()
    assert due.ask(noise)[:1] == b"\1" and due.state() == before


def restored(due: Due) -> None:
    goal, who = due.world.plan.goal, ClientHome(due.home).identity.public.hex()
    Restored(who, 0, goal_entry(goal), 0, accepted=True).write(due.home)


@pytest.mark.parametrize(
    "made",
    [
        restored,
        lambda due: freeze(due.home, "stolen"),
        lambda due: due.policy(returned=None),
        lambda due: due.policy(
            returned=ClientHome(due.home).rules.returned.model_copy(update={"fewest_members": 4})  # type: ignore[union-attr]
        ),
    ],
    ids=["restored", "frozen", "no such policy", "another policy"],
)
def test_who_adds_no_noise_keeps_what_it_had(due: Due, made: Callable[[Due], None]) -> None:
    made(due)
    before = due.state()
    for step in (Step.NOISE, Step.CHECK):
        assert due.ask(due.sent[1, step])[:1] == b"\1" and due.state() == before


def test_noise_that_is_drawn_while_somebody_freezes_the_member_stays(
    due: Due, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = UploadFolder.keep

    def keep(*of: Any) -> None:
        kept(*of)
        freeze(due.home, "stolen")

    monkeypatch.setattr(UploadFolder, "keep", keep)
    assert due.ask(due.sent[1, Step.NOISE])[:1] == b"\1"


def test_clients_without_such_a_policy_send_nothing(make_world: Callable[..., World]) -> None:
    world = make_world(**WORDS)
    for number in range(MEMBERS, CLIENTS):
        path = world.home(number) / "policy.toml"
        rules = load(path, ClientRules).model_copy(update={"returned": None})
        path.write_text(policy_text(rules))
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(TooFewSurvivorsError, match="PolicyError"):
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=3)


# -- a site's own process -------------------------------------------------------------------------

APP = b"an app"


def test_a_site_sends_noise_at_one_moment(make_world: Callable[..., World]) -> None:
    """Whatever it drew, and whether it is asked the first time."""
    world, slept = make_world(**WORDS), dict[str, list[float]]()
    rules = SiteRules(approved_apps=[hashlib.sha256(APP).hexdigest()], noise_after_seconds=300.0)

    def answer(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        if part >= MEMBERS:
            return make_app()(message, context)
        request = read_request(message.content)
        assert request is not None
        waits = slept.setdefault(request.step.value, [])
        return Site(ClientHome(world.home(part)), rules, waits.append).answer(message, context, APP)

    world.grid.app = answer  # type: ignore[assignment]
    reports = played(world, 2)
    assert [report.lost for report in reports] == [{}, {}]
    assert [len(each[3]) for each in records(world)] == [0, MEMBERS]
    noise = slept.pop("noise")
    assert len(noise) == 2 * MEMBERS and all(290.0 < each < 300.0 for each in noise)
    assert not any(slept.values())


# -- settings -------------------------------------------------------------------------------------


def test_a_grid_that_cannot_have_such_noise_is_not_made(make_world: Callable[..., World]) -> None:
    world = make_world(**WORDS)
    with pytest.raises(StrategyError, match="FedAdam has rates of its own"):
        world.secure(FedAdam(fraction_evaluate=0.0))
    world.opened.pop().close()
    world.registry = world.registry - {min(world.registry - world.committee)}
    with pytest.raises(ConfigurationError, match=r"11 identities that are no members; .* least 12"):
        world.secure()
