"""Hidden cohorts on Flower: who comes is asked of every client, and announced is nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.schemes.committee import Everyone, Named

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import FIRST_NODE, World, make_app, shifted
from flwr.app import Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg, Result

from dp import Ledger
from protocol.adapters.flower import SecureGrid, SettingsError, TooFewNodesError
from protocol.adapters.flower.folders import policy_text
from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.nodes import NodeBook
from protocol.adapters.flower.places import places_of
from protocol.adapters.flower.record import KEY, Request, Step
from protocol.adapters.flower.settings import read_settings
from protocol.allocation import Allocation
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.round.stored_history import StoredHistory
from protocol.round.turns import NO, YES, Question, StoredTurns
from protocol.training.private import hiding_plan
from secagg import ParameterError, RemoteProtocolError
from secagg.shamir import Rand

WORLD = Allocation(population=8, block=2, rounds=4, fewest=3, most=5)
SCHEMES: dict[str, Any] = {
    "pairwise": {"degree": 0},
    "everyone": {"committee": Everyone()},
    "named": {"committee": Named(size=4, corrupt=0, away=1)},
}
ALL = pytest.mark.parametrize("kind", SCHEMES)


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[int]], list[int]]:
    """Has clients draw these, over and over, in place of the system's; what was drawn."""

    def give(turns: Iterable[int]) -> list[int]:
        endless, drawn, known = cycle(turns), list[int](), dict[bytes, int]()

        def draw(block: int, rand: Rand) -> int:
            coin = rand(16)
            if coin not in known:
                known[coin] = next(endless)
                drawn.append(known[coin])
            return known[coin]

        monkeypatch.setattr("protocol.round.turns.drawn_turn", draw)
        return drawn

    return give


class Hidden:
    """A network whose clients hide in which round they come, and what each trained on."""

    def __init__(self, make_world: Callable[..., World], kind: str, **changes: int) -> None:
        self.trained: list[int] = []
        goal, allocation = PrivacyGoal(200.0, 1e-5, 2), replace(WORLD, **changes)
        self.world = make_world(
            goal=goal, allocation=allocation, app=make_app(self._train), **SCHEMES[kind]
        )
        self.grid = self.world.grid

    def _train(self, message: Message, context: Context) -> Message:
        self.trained.append(context.node_config["partition-id"])
        (arrays,) = message.content.array_records.values()
        return Message(RecordDict({"arrays": shifted(arrays, 0.01)}), reply_to=message)

    def run(self, secure: SecureGrid, arrays: Any, rounds: int = 1) -> Result:
        strategy = FedAvg(fraction_evaluate=0.0)
        return strategy.start(grid=secure, initial_arrays=arrays, num_rounds=rounds)

    def seen(self, *steps: str) -> list[int]:
        """Partitions that were sent one of these steps."""
        return [node - FIRST_NODE for node, step in self.grid.seen if step in steps]

    def charged(self, partition: int) -> int:
        with StoredHistory(self.world.home(partition) / "state", self.world.plan.goal) as history:
            return history.rounds


@ALL
def test_every_client_comes_to_one_round_of_each_block(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
    kind: str,
) -> None:
    drawn, hidden = coins([0, 0, 1, 1, 0, 1, 1, 1]), Hidden(make_world, kind)
    with hidden.world.secure() as secure:
        result = hidden.run(secure, parts.model(), 4)
        reports = secure.reports
    assert [report.cohort for report in reports] == [3, 5, 3, 5]
    assert [report.lost for report in reports] == [{}] * 4
    for block in (hidden.trained[:8], hidden.trained[8:]):
        assert sorted(block) == list(range(8))
    # A coin for each client and block, asked about in every round; nobody else was announced.
    assert len(drawn) == 16
    assert sorted(hidden.seen("turn")) == sorted(4 * list(range(8)))
    assert sorted(hidden.seen("advertise", "upload")) == sorted(2 * list(range(8)))
    assert [hidden.charged(i) for i in range(8)] == [2] * 8
    assert len(Ledger.open(hidden.world.root / "ledger.jsonl").entries()) == 4
    # What a strategy gets is the same whoever came, and says what it is.
    metrics = list(result.train_metrics_clientapp.values())
    assert len(metrics) == 4
    told = {"epsilon", "sketch-size", "epsilon-outsider-hidden-cohorts"}
    assert all(set(each) - {"num-examples"} == told for each in metrics)
    assert {report.weight for report in reports} == {WORLD.divisor}
    assert [report.epsilons.guaranteed for report in reports] == [200.0] * 4


@ALL
@pytest.mark.parametrize(("turn", "came"), [(0, 8), (1, 0)])
def test_a_round_out_of_bounds_is_called_off_and_ends_the_run(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
    kind: str,
    turn: int,
    came: int,
) -> None:
    coins([turn])
    hidden = Hidden(make_world, kind)
    with hidden.world.secure() as secure:
        with pytest.raises(ParameterError, match=f"'{came} clients'.*3 .. 5.*called off"):
            hidden.run(secure, parts.model())
        # The number is used up, whoever would have come to it.
        with pytest.raises(ParameterError, match="1 announced, 0 finished"):
            hidden.run(secure, parts.model())
    assert {step for _, step in hidden.grid.seen} == {"hello", "turn"}
    assert Ledger.open(hidden.world.root / "ledger.jsonl").entries() == ()
    assert [hidden.charged(i) for i in range(8)] == [0] * 8


@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("why", ["drops", "loses", "block", "no block"])
def test_whether_there_is_a_round_follows_who_is_there_and_not_who_comes(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
    why: str,
    away: int,
) -> None:
    drawn, hidden = coins([0, 0, 0, 0, 1, 1, 1, 1]), Hidden(make_world, "named", away=away)
    policy = hidden.world.home(0) / "policy.toml"
    rules = ClientHome(hidden.world.home(0)).rules
    if why in ("drops", "loses"):
        setattr(hidden.grid, why, lambda node, step: node == FIRST_NODE and step == "turn")
        said = "did not say in time"
    else:
        other = None if why == "no block" else 3
        changes = {"block": other, "name_refused_clauses": True}
        policy.write_text(policy_text(rules.model_copy(update=changes)))
        said = "does not say whether it comes: PolicyError: block"
    with hidden.world.secure() as secure:
        hidden.run(secure, parts.model())
        # In this order coins were drawn; by the client that was not reached or refused, last.
        order = [i for i in hidden.seen("turn") if i or why == "loses"]
        order += [] if why == "loses" else [0]
        if away:
            (report,) = secure.reports
            assert report.lost[FIRST_NODE].startswith(said)
            assert sorted(hidden.trained) == sorted(i for i in order[:4] if i)
            return
        # Nothing was announced, and the same round is asked about again: the same coins.
        assert not secure.reports and not hidden.seen("upload")
        hidden.grid.drops = hidden.grid.loses = lambda node, step: False
        policy.write_text(policy_text(rules))
        hidden.run(secure, parts.model())
    assert len(drawn) == 8
    assert sorted(hidden.trained) == sorted(order[:4])


@pytest.mark.parametrize("kind", ["pairwise", "named"])
def test_whoever_is_announced_out_of_turn_declines_and_spends_nothing(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    coins([0, 0, 0, 0, 1, 1, 1, 1])
    hidden, asks = Hidden(make_world, kind, fewest=4, tolerated=1), NodeBook.turns

    def more(self: NodeBook, *args: Any) -> tuple[dict[bytes, bool], dict[int, str]]:
        said, reasons = asks(self, *args)
        (first, *_) = (key for key, comes in said.items() if not comes)
        return {**said, first: True}, reasons

    monkeypatch.setattr(NodeBook, "turns", more)
    with hidden.world.secure() as secure:
        hidden.run(secure, parts.model())
        (report,) = secure.reports
    (node,) = report.lost
    assert (report.cohort, report.survivors, len(hidden.trained)) == (5, 4, 4)
    partition = node - FIRST_NODE
    assert partition not in hidden.trained and hidden.charged(partition) == 0
    assert not list((hidden.world.home(partition) / "state" / "answered").iterdir())


def test_more_losses_than_are_tolerated_end_the_run_whoever_is_left(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
) -> None:
    coins([0, 0, 0, 0, 0, 1, 1, 1])
    hidden = Hidden(make_world, "named")
    first = partial(hidden.seen, "upload")
    hidden.grid.drops = lambda node, step: step == "upload" and node - FIRST_NODE == first()[0]
    with hidden.world.secure() as secure:
        assert not hidden.run(secure, parts.model()).arrays
        # Four of five are left, more than a sum needs; had three come, none could be lost.
        assert sum(map(hidden.charged, range(8))) == 4 and not secure.reports
        with pytest.raises(ParameterError, match="1 announced, 0 finished"):
            hidden.run(secure, parts.model())


def test_whoever_says_in_every_round_that_it_comes_comes_once_in_a_block(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coins([0, 0, 0, 0, 1, 1, 1])
    hidden, comes = Hidden(make_world, "named"), StoredTurns.comes
    folder = hidden.world.home(0) / "state" / "turns"

    def always(self: StoredTurns, session_id: bytes, round_number: int) -> bool:
        return self._path.parent == folder or comes(self, session_id, round_number)

    monkeypatch.setattr(StoredTurns, "comes", always)
    with hidden.world.secure() as secure:
        hidden.run(secure, parts.model(), 4)
        reports = secure.reports
    assert [report.cohort for report in reports] == [5, 3, 5, 3]
    said = [report.lost.get(FIRST_NODE, "") for report in reports]
    again = "says that it comes, and came to round "
    assert said == ["", f"{again}0", "", f"{again}2"]
    assert hidden.charged(0) == 2


def test_what_a_server_asks_does_not_change_a_coin(
    make_world: Callable[..., World], coins: Callable[[Iterable[int]], list[int]]
) -> None:
    drawn, hidden = coins([1, 0, 1]), Hidden(make_world, "pairwise")

    def ask(session: bytes, number: int, block: int = 2, cut: int = 0) -> bytes:
        node = hidden.world.node(0)
        payload = Question(session, number, block).encode()
        request = Request(Step.TURN, payload[: len(payload) - cut])
        content = RecordDict({KEY: request.record()})
        reply = node.handle(hidden.grid.app, Message(content, node.number, "train"))
        return bytes(reply.content[KEY]["answer"])

    one, other = bytes(16), bytes(range(16))
    # In advance, out of order, again, and of another session: one coin each, and one round each.
    for _ in range(2):
        asked = [ask(one, 3), ask(one, 2), ask(one, 0), ask(one, 1), ask(other, 0), ask(other, 1)]
        assert asked == [b"\0" + said for said in (YES, NO, YES, NO, NO, YES)]
    assert len(drawn) == 3
    for refused in (ask(one, 0, block=3), ask(one, 0, block=0), ask(one, 0, cut=1)):
        assert refused[:1] == b"\1"
    with pytest.raises(RemoteProtocolError, match="whose turn"):
        Question.read(bytes(27))
    assert len(drawn) == 3


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("registry", {"allocation": replace(WORLD, population=10)}),
        ("evaluation", {"evaluation": 1}),
    ],
)
def test_a_registry_of_others_and_evaluations_are_refused(
    make_world: Callable[..., World], key: str, wrong: dict[str, Any]
) -> None:
    world = Hidden(make_world, "pairwise").world
    with pytest.raises(ConfigurationError) as caught:
        world.secure(**wrong)
    assert caught.value.key == key


def test_nobody_is_asked_but_clients_and_there_have_to_be_enough(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    coins: Callable[[Iterable[int]], list[int]],
) -> None:
    coins([0, 0, 0, 1, 1, 1])
    hidden = Hidden(make_world, "named")
    world = hidden.world
    # Two members of the committee are no clients here, whatever their own files say.
    keys = [ClientHome(world.home(i)).identity.public for i in range(8)]
    world.registry, world.allocation = frozenset(keys[2:]), replace(WORLD, population=6)
    with world.secure() as secure:
        hidden.run(secure, parts.model())
        assert sorted(hidden.seen("turn")) == list(range(2, 8))
        for node in list(hidden.grid.nodes)[5:]:
            del hidden.grid.nodes[node]
        with pytest.raises(TooFewNodesError, match=r"5 nodes connected.* needs 6"):
            secure.get_node_ids()


TABLES: dict[str, Any] = {
    "veilsum.rounds": 2,
    "veilsum.privacy.epsilon": 8.0,
    "veilsum.privacy.delta": 1e-5,
    "veilsum.privacy.clip-l2": 1.0,
    "veilsum.privacy.error-share": 0.5,
    "veilsum.cohort.choice": "allocation",
    "veilsum.cohort.size": 220,
    "veilsum.cohort.population": 440,
    "veilsum.cohort.away": 4,
    "veilsum.cohort.tolerated-dropouts": 5,
    "veilsum.cohort.tolerated-colluders": 2,
}


DRAWN = {
    f"scheme.committee.{key}": value
    for key, value in {"kind": "drawn", "size": 20, "corrupt": 2, "away": 2, "odds": 0.2}.items()
}


@pytest.mark.parametrize("scheme", ["pairwise", "one-shot"])
def test_settings_make_the_plan_and_every_policy(tmp_path: Path, scheme: str) -> None:
    given = {"veilsum.simulation-dir": str(tmp_path), "veilsum.scheme.kind": scheme}
    settings = read_settings({**TABLES, **given})
    hidden = settings.hidden
    assert hidden == Allocation.within(1e-5, 440, 2, 4, 0.0, 5, 4)
    assert hidden.fewest < Allocation.within(1e-5, 440, 2, 4, 0.0, 5).fewest
    plan = settings.plan()
    assert plan == hiding_plan(plan, hidden) and plan.goal.rounds == 2
    assert hidden.epsilon(plan.goal, 4, integers=True) < 7.0
    registry = places_of(settings, plan, 5).registry
    rules = ClientHome(tmp_path / "5" / "client-439").rules
    assert (len(registry), rules.block, rules.largest_cohort) == (440, 2, hidden.most)
    assert rules.minimum_survivors == hidden.fewest - 5


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ({"cohort.population": ""}, "cohort.population", "None"),
        ({"cohort.population": 450}, "cohort.population", "twice"),
        ({"cohort.population": 220}, "cohort.population", "twice"),
        ({"cohort.away": 440}, "cohort.away", "fewer"),
        ({"cohort.away": 300}, "cohort.choice", "larger cohorts"),
        ({"cohort.choice": "connected"}, "cohort.population", "left out"),
        ({"cohort.choice": "connected", "cohort.population": ""}, "cohort.away", "left out"),
        ({"cohort.size": 64, "cohort.population": 128}, "cohort.choice", "larger cohorts"),
        ({"noise.mechanism": "skellam"}, "cohort.choice", "binomial"),
        ({"scheme.kind": "validated"}, "cohort.choice", "one-shot"),
        ({"scheme.kind": "one-shot", **DRAWN}, "cohort.choice", "no draw"),
        ({"evaluation.loss.low": 0.0, "evaluation.loss.high": 1.0}, "evaluation", "turns"),
        ({"simulated-clients": 450}, "simulated-clients", "population = 440"),
    ],
)
def test_settings_that_tell_a_cohort_are_refused(
    tmp_path: Path, changes: dict[str, Any], key: str, said: str
) -> None:
    given = {f"veilsum.{name}": value for name, value in changes.items()}
    with pytest.raises(SettingsError) as caught:
        read_settings({**TABLES, "veilsum.simulation-dir": str(tmp_path), **given})
    assert [problem.key for problem in caught.value.problems] == [f"veilsum.{key}"]
    assert said in str(caught.value.problems[0])
