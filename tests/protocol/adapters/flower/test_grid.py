"""What the server's side refuses, with a message for whoever can act on it, and no endless wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

import flwr.serverapp.strategy as strategies
from flower_doubles import World
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from dp import BudgetExceededError, Ledger
from protocol.adapters.flower import SecureGrid, StrategyError, TooFewNodesError
from protocol.adapters.flower.record import KEY
from protocol.adapters.flower.strategies import MEAN_BASED, REFUSED, check_strategy
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from secagg import ParameterError


def start(secure: SecureGrid, arrays: ArrayRecord, rounds: int = 1, **settings: int) -> Result:
    strategy = FedAvg(**{"fraction_evaluate": 0.0, **settings})
    return strategy.start(grid=secure, initial_arrays=arrays, num_rounds=rounds)


def message(
    content: RecordDict, node: int, message_type: str = "train", group_id: str = ""
) -> Message:
    return Message(content, node, message_type, group_id=group_id)


def content(parts: SimpleNamespace, **config: float) -> RecordDict:
    return RecordDict({"arrays": parts.model(), "config": ConfigRecord(config)})


def make_strategy(name: str) -> Strategy:
    """One of Flower's strategies, with what its constructor asks for."""
    kind = getattr(strategies, name)
    if name.startswith("DifferentialPrivacy"):
        clip = {"clipping_norm": 1.0} if "Fixed" in name else {}
        return kind(FedAvg(), noise_multiplier=0.1, num_sampled_clients=6, **clip)
    return kind(**({"client_learning_rate": 0.1} if name == "QFedAvg" else {}))


CONCRETE = [name for name in strategies.__all__ if name not in ("Result", "Strategy")]


def test_all_of_flower_s_strategies_are_known() -> None:
    assert set(CONCRETE) <= set(MEAN_BASED) | set(REFUSED)
    assert not set(MEAN_BASED) & set(REFUSED)


@pytest.mark.parametrize("name", CONCRETE)
def test_strategies_that_need_more_than_a_mean_are_refused(
    make_world: Callable[..., World], name: str
) -> None:
    strategy = make_strategy(name)
    if name in MEAN_BASED:
        check_strategy(strategy, allow_evaluation_in_the_clear=True)
        return
    with pytest.raises(StrategyError, match=f"strategy {name} .*What works: FedAvg"):
        make_world().secure(strategy)


def test_subclasses_are_what_their_parents_are() -> None:
    class Ours(FedAvg):
        pass

    class OurMedian(strategies.FedMedian):
        pass

    check_strategy(Ours(fraction_evaluate=0.0))
    with pytest.raises(StrategyError, match="strategy OurMedian needs every client's update"):
        check_strategy(OurMedian())


def test_a_strategy_that_nobody_knows_is_refused() -> None:
    class Strange(strategies.Strategy):
        configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = None
        summary = None

    Strange.__abstractmethods__ = frozenset()
    with pytest.raises(StrategyError, match="Strange is not known"):
        check_strategy(Strange())


def test_messages_that_differ_between_nodes_are_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    nodes = list(world.grid.nodes)
    different = [message(content(parts, lr=0.1 * i), node) for i, node in enumerate(nodes)]
    group = [message(content(parts), node, group_id=str(node)) for node in nodes]
    with world.secure() as secure:
        for batch in (different, group):
            with pytest.raises(StrategyError, match="not the same for every node"):
                secure.send_and_receive(batch)
    assert world.grid.seen == []


def test_equal_messages_need_not_be_one_object(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """A loop of one's own, without a strategy, and with a training function by its name."""
    app = parts.make_app()

    @app.train("mine")
    def mine(message: Message, context: Context) -> Message:
        (arrays,) = message.content.array_records.values()
        reply = RecordDict({"arrays": parts.shifted(arrays, 0.02)})
        return Message(reply, reply_to=message)

    world = make_world(app=app)
    batch = [message(content(parts), node, "train.mine") for node in world.grid.nodes]
    with world.secure() as secure:
        (reply,) = secure.send_and_receive(batch)
    moved = parts.flat(reply.content["arrays"]) - parts.flat(parts.model())
    assert abs(moved.mean() - 0.02) < 0.02
    assert reply.content["metrics"]["num-examples"] == parts.N


def test_kinds_of_messages_are_not_mixed(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    first, second = list(world.grid.nodes)[:2]
    batch = [message(content(parts), first), message(content(parts), second, "evaluate")]
    with world.secure() as secure, pytest.raises(StrategyError, match="are mixed with others"):
        secure.send_and_receive(batch)


def test_a_strategy_that_evaluates_in_the_clear_is_refused_before_anything_is_sent(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Flower's default is that all clients evaluate."""
    world = make_world(allow_evaluation_in_the_clear=True)
    with pytest.raises(StrategyError, match=r"fraction_evaluate = 1\.0; valid: 0\.0") as caught:
        world.secure(FedAvg())
    assert "allow-evaluation-in-the-clear = true" in str(caught.value)
    assert "policy.toml" in str(caught.value)
    assert world.grid.seen == []


@pytest.mark.parametrize("kind", ["evaluate", "evaluate.mine", "query"])
def test_messages_with_answers_in_the_clear_are_refused(
    make_world: Callable[..., World], parts: SimpleNamespace, kind: str
) -> None:
    """Also of a loop of one's own, and one permission is not the other."""
    world = make_world(allow_evaluation_in_the_clear=True)
    batch = [message(content(parts), node, kind) for node in world.grid.nodes]
    other = {"allow_queries_in_the_clear": kind != "query"}
    with world.secure(allow_evaluation_in_the_clear=kind == "query", **other) as secure:
        for send in (secure.send_and_receive, secure.push_messages):
            with pytest.raises(StrategyError, match=r"allow_\w+_in_the_clear=True"):
                send(batch)
    assert world.grid.seen == []


def test_messages_of_no_known_type_are_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    first = message(content(parts), next(iter(world.grid.nodes)), "query")
    first.metadata.__dict__["_message_type"] = "get_properties"
    with world.secure() as secure, pytest.raises(StrategyError, match="'get_properties'; valid"):
        secure.send_and_receive([first])


def test_training_is_not_pushed_past_the_protocol(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(allow_evaluation_in_the_clear=True)
    node = next(iter(world.grid.nodes))
    with world.secure(allow_evaluation_in_the_clear=True) as secure:
        with pytest.raises(StrategyError, match="send_and_receive"):
            secure.push_messages([message(content(parts), node)])
        (number,) = secure.push_messages([message(content(parts), node, "evaluate")])
        (reply,) = secure.pull_messages([number])
    assert reply.content["metrics"]["accuracy"] == 0.5


def test_a_record_by_our_name_is_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    taken = content(parts)
    taken[KEY] = ConfigRecord()
    batch = [message(taken, node) for node in world.grid.nodes]
    with world.secure() as secure, pytest.raises(StrategyError, match=f"named '{KEY}'"):
        secure.send_and_receive(batch)


def test_nothing_to_train_and_nothing_to_send(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    with world.secure() as secure:
        assert list(secure.send_and_receive([])) == []
        batch = [message(RecordDict(), node) for node in world.grid.nodes]
        with pytest.raises(Exception, match="0 array records; valid: exactly one"):
            secure.send_and_receive(batch)


def test_too_few_nodes_are_an_error_after_a_bounded_wait(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(nodes=3)
    with world.secure() as secure, pytest.raises(TooFewNodesError) as caught:
        start(secure, parts.model())
    assert "3 nodes connected after 30 s; a round needs 4" in str(caught.value)
    assert "--federation-config num-supernodes=6" in str(caught.value)
    assert 30.0 <= world.time.seconds < 31.0 and world.grid.seen == []


def test_a_few_nodes_short_is_no_error_after_the_same_wait(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(nodes=5)
    with world.secure() as secure:
        start(secure, parts.model(), rounds=2)
        assert [report.survivors for report in secure.reports] == [5, 5]
    # Only the first round waits for a whole cohort.
    assert 30.0 <= world.time.seconds < 31.0


def test_nodes_that_come_late_are_waited_for(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    nodes = dict(world.grid.nodes)
    world.grid.get_node_ids = lambda: list(nodes)[: 2 + int(world.time.seconds)]
    with world.secure() as secure:
        start(secure, parts.model())
    assert secure.reports[0].survivors == parts.N and world.time.seconds < 10.0


def test_a_strategy_that_waits_for_more_nodes_than_there_are_is_stopped(
    make_world: Callable[..., World], parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower asks again every second, for ever."""
    world = make_world()

    def sleep(seconds: int) -> None:
        assert world.time.seconds < 600.0, "it waits for ever"
        world.time.sleep(seconds)

    monkeypatch.setattr("flwr.serverapp.strategy.strategy_utils.sleep", sleep)
    with world.secure() as secure, pytest.raises(TooFewNodesError, match="min_available_nodes"):
        start(secure, parts.model(), min_available_nodes=9)
    assert world.time.seconds < 60.0


def test_somebody_who_was_busy_was_not_waiting(make_world: Callable[..., World]) -> None:
    world = make_world()
    with world.secure() as secure:
        assert len(list(secure.get_node_ids())) == 6
        world.time.sleep(500.0)
        assert len(list(secure.get_node_ids())) == 6


def test_identities_that_nobody_registered_are_named(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    from protocol.adapters.flower.folders import write_identity
    from secagg import Identity

    world = make_world()
    for partition in range(3):
        path = world.home(partition) / "identity.key"
        path.unlink()
        write_identity(path, Identity.generate())
    with world.secure() as secure, pytest.raises(TooFewNodesError) as caught:
        start(secure, parts.model(), rounds=3)
    assert "3 of 6 invited nodes can take part" in str(caught.value)
    assert f"node {parts.FIRST_NODE}: has identity" in str(caught.value)
    assert "not in the registry" in str(caught.value)


def test_more_nodes_than_a_simulation_has_clients_are_told_how_to_get_some(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(nodes=9)
    world.grid.drops = lambda node, step: node < parts.FIRST_NODE + 4
    with world.secure() as secure, pytest.raises(TooFewNodesError) as caught:
        start(secure, parts.model(), rounds=3)
    assert "only 6 clients are registered" in str(caught.value)
    assert "simulated-clients = 9" in str(caught.value)
    last = [parts.FIRST_NODE + i for i in (6, 7, 8)]
    named = re.search(r"nodes ([\d, ]+): does not say who it is: see its", str(caught.value))
    assert named and sorted(map(int, named[1].split(", "))) == last


def test_the_same_identity_on_two_nodes_counts_once(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    world.node(0).node_config["veilsum.home"] = str(world.home(1))
    with world.secure() as secure:
        start(secure, parts.model())
    (report,) = secure.reports
    assert report.survivors == parts.N - 1
    assert list(report.lost.values()) == ["speaks for an identity that another node speaks for too"]


def test_nobody_claims_the_identity_of_another(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """A claim is signed over run, node and challenge: another's claim is of no use."""
    world = make_world()
    claims = []

    def steal(reply: Message) -> Message:
        record = reply.content[KEY]
        if len(record["answer"]) == 1 + 32 + 64:
            claims.append((reply.metadata.src_node_id, record["answer"]))
            if len(claims) == 2:
                record["answer"] = claims[0][1]
        return reply

    world.grid.answers = steal
    with world.secure() as secure:
        start(secure, parts.model())
    (report,) = secure.reports
    (reason,) = report.lost.values()
    assert reason.startswith("claims identity") and "without its signature" in reason
    assert list(report.lost) == [claims[1][0]]


def test_a_node_without_the_mod_is_told_apart(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """It would train on an empty message, and answer with an error or something of its own."""
    world = make_world()
    inner = world.grid.app
    bare = parts.make_app(mods=[])

    def either(message: Message, context: Context) -> Message:
        return (bare if context.node_id == parts.FIRST_NODE else inner)(message, context)

    world.grid.app = either
    with world.secure() as secure:
        start(secure, parts.model())
    (reason,) = secure.reports[0].lost.values()
    assert reason.startswith("does not say who it is: raised an exception outside of secure_mod")


def test_a_registry_smaller_than_a_cohort_is_refused(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    with (
        Ledger.open(tmp_path / "other.jsonl") as ledger,
        pytest.raises(ConfigurationError, match="registry: 5 identities; valid: at least"),
    ):
        SecureGrid(world.grid, world.plan, None, ledger, list(world.registry)[:5], strategy=None)


def test_an_overspent_budget_ends_the_run(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(goal=PrivacyGoal(200.0, 1e-5, 2))
    with world.secure() as secure, pytest.raises(BudgetExceededError):
        start(secure, parts.model(), rounds=3)
    assert len(secure.reports) == 2
    assert secure.reports[-1].epsilons.server <= 200.0


def test_a_model_that_changes_its_shape_is_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    with world.secure() as secure:
        start(secure, parts.model())
        with pytest.raises(ParameterError, match="shape"):
            start(secure, parts.model(44))


def test_every_release_is_in_the_ledger(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    with world.secure() as secure:
        start(secure, parts.model(), rounds=2)
    with Ledger.open(world.root / "ledger.jsonl") as ledger:
        entries = ledger.entries()
    assert [entry.metadata["survivors"] for entry in entries] == [parts.N] * 2
    assert entries[0].metadata["notes"] == {"run": str(parts.RUN_ID)}


def test_the_rest_of_a_grid_is_flower_s(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.grid.create_message = lambda *args, **more: ("made", args, more)
    world.grid.set_run = lambda run: setattr(world.grid, "run", run)
    with world.secure() as secure:
        assert secure.run.run_id == 77
        secure.set_run("another")
        assert secure.run == "another"
        assert len(list(secure.get_nodes())) == 6
        assert secure.create_message(1, ttl=2.0) == ("made", (1,), {"ttl": 2.0})
