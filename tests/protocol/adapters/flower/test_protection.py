"""`protect`: a mod and a grid with defaults, and errors before anybody trains."""

from __future__ import annotations

import logging
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.schemes import Pairwise
from protocol.schemes.pairwise import pairwise_of
from veilsum.extras import install_command

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import FIRST_NODE, RUN_ID, FakeGrid, FakeTime, Node, flat, make_app, model
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian
from flwr.supercore.task_identity import TaskIdentity

import veilsum
from dp import BudgetExceededError, Ledger
from protocol.adapters.flower import SecureGrid, SettingsError, StrategyError, TooFewNodesError
from protocol.adapters.flower.defaults import ARGUMENTS, Asked, filled
from protocol.adapters.flower.folders import new_client, policy_text, write_registry
from protocol.adapters.flower.home import SIMULATION_VARIABLE, ClientRules, read_identity
from protocol.adapters.flower.rounds import RoundReport
from protocol.adapters.flower.strategies import REPORTED, REPORTED_HIDDEN
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from secagg import Mode
from sketch.controllers import AdaptNorm, FixedRate
from veilsum.flower import protect

ROOT = Path(__file__).parents[4]
WEAK = {"epsilon": 200.0, "clip_l2": 1.0}
"""A promise with so little noise that a mean can be told from it."""
RULES = {
    "epsilon": 200.0,
    "delta": 1e-5,
    "rounds": 3,
    "clip_l2": 1.0,
    "minimum_survivors": 4,
    "tolerated_colluders": 0,
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, in which the default folder is, and a simulation."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(SIMULATION_VARIABLE, "1")
    for name, value in (("_run_id", RUN_ID), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


def simulated(
    clients: int = 6, app: ClientApp | None = None, config: Mapping[str, Any] | None = None
) -> FakeGrid:
    run_config = {"num-server-rounds": 3} if config is None else dict(config)
    nodes = [
        Node(FIRST_NODE + i, {"partition-id": i, "num-partitions": clients}, dict(run_config))
        for i in range(clients)
    ]
    return FakeGrid(nodes, app or make_app(mods=[protect()]))


def server(config: Mapping[str, Any] | None = None) -> Context:
    return Context(RUN_ID, 1, {}, RecordDict(), dict(config or {}))


def guard(
    grid: FakeGrid,
    config: Mapping[str, Any] | None = None,
    strategy: Any = "average",
    **arguments: Any,
) -> SecureGrid:
    """The server's half, of three rounds unless somebody says otherwise."""
    values = {"num-server-rounds": 3} if config is None else dict(config)
    average = FedAvg(fraction_evaluate=0.0) if strategy == "average" else strategy
    return protect(grid, server(values), average, clock=FakeTime().clock(), **arguments)


def plan_of(secure: SecureGrid) -> TrainingPlan:
    return secure._rounds._plan


def trained(secure: SecureGrid, rounds: int = 1, strategy: FedAvg | None = None) -> Any:
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    return strategy.start(grid=secure, initial_arrays=model(), num_rounds=rounds)


HIDING: dict[str, Any] = {
    "num-server-rounds": 4,
    "veilsum.cohort.choice": "allocation",
    "veilsum.cohort.population": 440,
    "veilsum.cohort.tolerated-dropouts": 5,
    "veilsum.cohort.tolerated-colluders": 2,
}


def test_hidden_cohorts_ask_all_clients_and_have_more_rounds_than_a_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    promise = {"epsilon": 8.0, "clip_l2": 1.0, "cohort": 220}
    grid = simulated(440)
    with pytest.raises(SettingsError) as caught:
        guard(grid, HIDING, **promise)
    # What the app has is no number of rounds of one client.
    assert [problem.key for problem in caught.value.problems] == ["veilsum.rounds"]
    for nodes, fraction, error in ((440, 0.9, StrategyError), (439, 1.0, SettingsError)):
        strategy = FedAvg(fraction_train=fraction, fraction_evaluate=0.0)
        with pytest.raises(error, match="440"):
            guard(simulated(nodes), HIDING, strategy, rounds=2, **promise)
    follows, told = (
        FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=weighted(key))
        for key in ("survivors", "epsilon-outsider-hidden-cohorts")
    )
    with pytest.raises(StrategyError, match="reads 'survivors'"):
        guard(grid, HIDING, follows, rounds=2, **promise)
    with guard(grid, HIDING, told, rounds=2, **promise) as secure:
        assert plan_of(secure).goal.rounds == 2
        assert len(secure.get_node_ids()) == 440
        del grid.nodes[FIRST_NODE]
        with pytest.raises(TooFewNodesError, match="needs 440"):
            secure.get_node_ids()
    assert "161 to 279 of 440 clients" in caplog.text
    assert "never told who came (not the server)" in caplog.text


@pytest.mark.parametrize("mods", [[protect()], [protect]], ids=["called", "itself"])
def test_two_calls_make_an_app_private(mods: list[Any], tmp_path: Path) -> None:
    config = {"num-server-rounds": 3}
    grid = simulated(app=make_app(mods=mods), config=config)
    with guard(grid, **WEAK) as secure:
        result = trained(secure, 3)
        ledger = secure.ledger
    assert [report.survivors for report in secure.reports] == [6, 6, 6]
    moved = flat(result.arrays) - flat(model())
    # Each round moves every weight by 0.035 on average; the noise is some 0.01 a weight.
    assert abs(moved.mean() - 3 * 0.035) < 0.03
    assert ledger == tmp_path / f".cache/veilsum/flower/{RUN_ID}/ledger.jsonl"
    with Ledger.open(ledger) as opened:
        assert len(list(opened.entries())) == 3


@pytest.mark.parametrize("where", ["simulation", "deployment"])
def test_two_calls_in_one_server_app_share_a_budget(
    deployed: Callable[..., FakeGrid],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
) -> None:
    """As for two models, one after the other: the first grid is closed, and rounds count both."""
    config = {"num-server-rounds": 3}
    given: dict[str, Any] = dict(WEAK)
    if where == "deployment":
        grid = deployed(make_app(mods=[protect(policy=RULES)]), config)
        for i in range(6):
            new_client(tmp_path / f"node-{i}")
        given |= {"ledger": tmp_path / "ledger.jsonl", "registry": register(tmp_path)}
    else:
        monkeypatch.setenv(SIMULATION_VARIABLE, "1")
        grid = simulated(config=config)
    with guard(grid, config, **given) as first:
        trained(first)
        with pytest.raises(SettingsError, match=r"veilsum\.ledger: .* in use.*with protect"):
            guard(grid, config, **given)
    with guard(grid, config, **given) as second:
        trained(second, 2)
        assert [report.survivors for report in (*first.reports, *second.reports)] == [6] * 3
        with pytest.raises(BudgetExceededError):
            trained(second)
    if where == "simulation":
        with pytest.raises(SettingsError, match=r"veilsum\.simulation-dir: .*different settings"):
            guard(grid, config, **given | {"rounds": 4})


def test_what_nobody_says_has_a_default() -> None:
    with guard(simulated(20), **WEAK) as secure:
        plan = plan_of(secure)
        assert (plan.goal.epsilon, plan.goal.delta, plan.goal.rounds) == (200.0, 1e-5, 3)
        assert (plan.cohort, plan.tolerated_dropouts, plan.tolerated_colluders) == (20, 4, 1)
        assert pairwise_of(plan).mode is Mode.ACTIVE and plan.lifetime_seconds > 0
        assert isinstance(secure._rounds._controller, AdaptNorm)
        assert (secure._patience.stage, secure._patience.training) == (None, 3600.0)


def test_the_configuration_counts_more_than_a_default_and_an_argument_more_than_both(
    tmp_path: Path,
) -> None:
    config = {
        "num-server-rounds": 3,
        "veilsum.rounds": 5,
        "veilsum.privacy.epsilon": 20.0,
        "veilsum.privacy.delta": 1e-6,
        "veilsum.cohort.size": 10,
        "veilsum.cohort.tolerated-dropouts": 1,
        "veilsum.stage-seconds": 7.0,
        "veilsum.sketch.controller": "fixed",
        "veilsum.simulation-dir": str(tmp_path / "elsewhere"),
    }
    arguments = {
        **{"epsilon": 30.0, "clip_l2": 0.5, "cohort": 8, "tolerated_colluders": 1},
        **{"training_seconds": 50.0, "ledger": tmp_path / "ledger.jsonl"},
    }
    with guard(simulated(10), config, **arguments) as secure:
        plan = plan_of(secure)
        assert (plan.goal.epsilon, plan.goal.delta, plan.goal.rounds) == (30.0, 1e-6, 5)
        assert (plan.cohort, plan.tolerated_dropouts, plan.tolerated_colluders) == (8, 1, 1)
        assert plan.clip_l2 == 0.5
        assert (secure._patience.stage, secure._patience.training) == (7.0, 50.0)
        assert isinstance(secure._rounds._controller, FixedRate)
        assert secure.ledger == tmp_path / "ledger.jsonl"
    homes = tmp_path / "elsewhere" / str(RUN_ID)
    # A client for every node, more than are in one round.
    assert len(list(homes.glob("client-*"))) == 10


def test_every_argument_arrives() -> None:
    """Each changes the settings that are made of it."""
    values = {
        **{"epsilon": 3.0, "delta": 1e-7, "clip_l2": 0.3, "mechanism": "skellam", "rounds": 4},
        **{"cohort": 9, "tolerated_dropouts": 1, "tolerated_colluders": 1},
        **{"scheme": "one-shot"},
        **{"ledger": "/l", "registry": "/r"},
        **{"allow_evaluation_in_the_clear": True, "allow_queries_in_the_clear": True},
        **{"evaluation": {"loss": {"high": 4.0, "low": 0.0}}, "evaluation_records": 3},
        **{"stage_seconds": 1.0, "training_seconds": 2.0, "connect_seconds": 3.0},
    }
    assert values.keys() == ARGUMENTS.keys()
    asked = Asked(values, None, True, FakeTime().clock())
    settings, clients = filled(asked, simulated(10), {})
    assert clients == 10
    for name, path in ARGUMENTS.items():
        found: Any = settings
        for key in path:
            found = getattr(found, key)
        # A simulation makes its own registry, whatever the deployment of the same app has.
        assert found == (None if name == "registry" else values[name])


def test_a_plan_counts_for_what_it_is_made_of() -> None:
    plan = TrainingPlan(
        goal=PrivacyGoal(200.0, 1e-5, 2),
        cohort=5,
        tolerated_dropouts=1,
        tolerated_colluders=0,
        clip_l2=1.0,
        scheme=Pairwise(mode=Mode.SEMI_HONEST),
    )
    controller = FixedRate(2.0)
    with guard(simulated(6, config={}), {}, plan=plan, controller=controller) as secure:
        assert plan_of(secure) is plan
        assert secure._rounds._controller is controller
        trained(secure)
    assert secure.reports[0].cohort == 5
    with pytest.raises(TypeError, match=r"clip_l2, epsilon: in the plan as well"):
        guard(simulated(6), {}, plan=plan, **WEAK)


def test_without_a_clip_bound_or_an_epsilon_both_are_asked_for() -> None:
    with pytest.raises(SettingsError) as caught:
        guard(simulated())
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["veilsum.privacy.clip-l2", "veilsum.privacy.epsilon"]
    said = str(caught.value)
    assert "protect(..., clip_l2=...) or this key: the largest l2 norm" in said
    assert "[tool.flwr.app.config.veilsum.privacy]" in said and "clip-l2 = 1.0" in said
    with pytest.raises(SettingsError) as caught:
        guard(simulated(), epsilon=8.0)
    assert [problem.key for problem in caught.value.problems] == ["veilsum.privacy.clip-l2"]
    config = {"num-server-rounds": 3, "veilsum.privacy.noise-multiplier": 1.0}
    with guard(simulated(), config, clip_l2=1.0):
        pass


def test_without_rounds_they_are_asked_for() -> None:
    with pytest.raises(SettingsError, match=r"veilsum\.rounds: missing.*num-server-rounds"):
        guard(simulated(), {}, **WEAK)
    with pytest.raises(SettingsError, match=r"veilsum\.rounds: value 'three'"):
        guard(simulated(), {"num-server-rounds": "three"}, **WEAK)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"clip_l2": -1.0}, "veilsum.privacy.clip-l2"),
        ({"epsilon": 0.0}, "veilsum.privacy.epsilon"),
        ({"cohort": 1}, "veilsum.cohort.size"),
        ({"tolerated_dropouts": 6}, "veilsum.cohort.tolerated-dropouts"),
        ({"stage_seconds": "long"}, "veilsum.stage-seconds"),
        ({"ledger": "ledger.jsonl"}, "veilsum.ledger"),
    ],
)
def test_a_value_that_does_not_do_is_named(arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        guard(simulated(), **WEAK | arguments)
    assert [problem.key for problem in caught.value.problems] == [key]


def test_a_value_where_a_table_belongs_is_named() -> None:
    config = {"num-server-rounds": 3, "veilsum.cohort": 5, "veilsum.privacy": 1.0}
    with pytest.raises(SettingsError) as caught:
        guard(simulated(), config)
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"veilsum.cohort", "veilsum.privacy"}


def test_too_few_nodes_for_the_plan_are_counted() -> None:
    with pytest.raises(TooFewNodesError, match=r"4 simulated nodes.*planned for 6.*supernodes=6"):
        guard(simulated(4), **WEAK, cohort=6)
    with pytest.raises(TooFewNodesError, match=r"0 simulated nodes"):
        guard(simulated(0), **WEAK)
    with pytest.raises(SettingsError, match=r"veilsum\.cohort\.size"):
        guard(simulated(1), **WEAK)


def test_nodes_that_an_engine_is_still_making_are_waited_for() -> None:
    """One more each time somebody looks, as when the server's program starts beside the engine."""
    grid, looked = simulated(6), []

    def so_far() -> list[int]:
        looked.append(len(looked))
        return list(grid.nodes)[: len(looked)]

    grid.get_node_ids = so_far
    with guard(grid, **WEAK) as secure:
        assert plan_of(secure).cohort == 6


def test_a_strategy_that_asks_a_sample_is_refused() -> None:
    strategy = FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
    with pytest.raises(StrategyError, match=r"fraction_train = 0\.5\): 3 of 6 clients.*= 1\.0"):
        guard(simulated(), strategy=strategy, **WEAK)
    # A round of as many as are asked is what was planned.
    with guard(simulated(), strategy=strategy, **WEAK, cohort=3) as secure:
        trained(secure, strategy=strategy)
    assert (secure.reports[0].survivors, secure.reports[0].cohort) == (3, 3)
    # Flower asks `min_train_nodes`, if that is more.
    fresh()
    enough = FedAvg(fraction_train=0.5, min_train_nodes=6, fraction_evaluate=0.0)
    with guard(simulated(), strategy=enough, **WEAK | {"rounds": 4}):
        pass


def test_rounds_of_evaluation_are_refused_unless_they_are_allowed() -> None:
    with pytest.raises(StrategyError, match=r"fraction_evaluate = 1\.0; valid: 0\.0.*protect"):
        guard(simulated(), strategy=FedAvg(), **WEAK)
    grid = simulated(config={"num-server-rounds": 3})
    with guard(grid, strategy=FedAvg(), **WEAK, allow_evaluation_in_the_clear=True) as secure:
        result = trained(secure, strategy=FedAvg())
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)


def evaluating(mod: Any) -> ClientApp:
    def evaluate(message: Message, context: Context) -> Message:
        accuracy = 0.5 + 0.1 * (context.node_config["partition-id"] % 2)
        content = RecordDict({"metrics": MetricRecord({"eval_acc": accuracy})})
        return Message(content, reply_to=message)

    return make_app(mods=[mod], evaluate=evaluate)


DECLARED = {
    "num-server-rounds": 2,
    "veilsum.evaluation.eval-acc.low": 0.0,
    "veilsum.evaluation.eval-acc.high": 1.0,
}


def test_an_evaluation_that_the_configuration_declares_is_private(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = simulated(app=evaluating(protect()), config=DECLARED)
    caplog.set_level(logging.INFO, "veilsum")
    with guard(grid, DECLARED, strategy=FedAvg(), **WEAK) as secure:
        # Evaluations are rounds as well.
        assert plan_of(secure).goal.rounds == 4
        result = trained(secure, 2, strategy=FedAvg())
    for metrics in result.evaluate_metrics_clientapp.values():
        assert abs(metrics["eval_acc"] - 0.55) < 6.0 * metrics["eval_acc_se"] < 0.6
    (digest,) = re.findall("; evaluation ([0-9a-f]{64});", caplog.text)
    (home,) = Path.home().glob(f".cache/veilsum/flower/{RUN_ID}/client-000")
    assert f'evaluations = ["{digest}"]' in (home / "policy.toml").read_text()


def test_a_strategy_that_never_evaluates_needs_no_rounds_for_it() -> None:
    grid = simulated(app=evaluating(protect()), config=DECLARED)
    with guard(grid, DECLARED, strategy=FedAvg(fraction_evaluate=0.0), **WEAK) as secure:
        assert plan_of(secure).goal.rounds == 2


@pytest.mark.parametrize("allowed", [True, False])
def test_a_client_takes_what_the_run_declares_if_its_policy_says_so(
    caplog: pytest.LogCaptureFixture, allowed: bool
) -> None:
    rules = RULES | {"rounds": 4, "allow_declared_evaluation": allowed}
    grid = simulated(app=evaluating(protect(policy=rules)), config=DECLARED)
    with guard(grid, DECLARED, strategy=FedAvg(), **WEAK) as secure:
        trained(secure, 1, strategy=FedAvg())
    assert len(secure.reports) == 1 and len(secure.evaluations) == allowed
    assert ("a survey of digest" in caplog.text) != allowed


def test_an_evaluation_of_a_sample_is_refused() -> None:
    half = FedAvg(fraction_evaluate=0.5)
    with pytest.raises(StrategyError, match=r"evaluates on a sample \(fraction_evaluate = 0\.5\)"):
        guard(simulated(), DECLARED, strategy=half, **WEAK)
    # Nobody at all is no sample.
    with guard(simulated(), DECLARED, **WEAK) as secure:
        assert secure._evaluation is not None


def test_a_declaration_that_cannot_be_is_in_the_table_of_what_is_wrong() -> None:
    wrong = DECLARED | {"veilsum.evaluation.eval-acc.high": -1.0}
    with pytest.raises(SettingsError) as caught:
        guard(simulated(), wrong, strategy=FedAvg(), **WEAK)
    assert caught.value.key == "veilsum.evaluation.eval-acc.high"
    # One that can be stays in the table to be copied, when something else is wrong.
    with pytest.raises(SettingsError) as caught:
        guard(simulated(), DECLARED, strategy=FedAvg(), epsilon=200.0)
    table = tomllib.loads(caught.value.table)["tool"]["flwr"]["app"]["config"]["veilsum"]
    assert table["evaluation"] == {"eval-acc": {"low": 0.0, "high": 1.0}}


def test_a_strategy_that_needs_more_than_a_mean_is_refused() -> None:
    with pytest.raises(StrategyError, match="FedMedian needs every client's update"):
        guard(simulated(), strategy=FedMedian(fraction_evaluate=0.0), **WEAK)


def weighted(key: str) -> Callable[[list[RecordDict], str], MetricRecord]:
    """Somebody's own average of a metric."""

    def combine(replies: list[RecordDict], weight: str) -> MetricRecord:
        found = [each["metrics"] for each in replies]
        total = sum(metrics[weight] for metrics in found)
        mean = sum(metrics[weight] * metrics[key] for metrics in found) / total
        return MetricRecord({key: mean})

    return combine


def test_a_metric_that_stays_with_the_clients_is_named_before_anybody_trains() -> None:
    own = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=weighted("train-loss"))
    grid = simulated()
    with pytest.raises(StrategyError, match=r"reads 'train-loss'.*one reply has: num-examples, s"):
        guard(grid, strategy=own, **WEAK)
    assert grid.seen == []
    good = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=weighted("survivors"))
    with guard(grid, strategy=good, **WEAK) as secure:
        result = trained(secure, strategy=good)
    assert result.train_metrics_clientapp[1]["survivors"] == 6


def test_the_key_of_the_weights_is_in_the_reply_if_it_is_one() -> None:
    other = FedAvg(fraction_evaluate=0.0, weighted_by_key="pictures")
    with guard(simulated(), strategy=other, **WEAK) as secure:
        trained(secure, strategy=other)
    for key in (None, ""):
        none = FedAvg(fraction_evaluate=0.0, weighted_by_key=key)
        with pytest.raises(StrategyError, match=r"weighted_by_key = .*'num-examples'"):
            guard(simulated(), strategy=none, **WEAK)


@pytest.mark.parametrize(("hidden", "promised"), [(None, REPORTED), (1.0, REPORTED_HIDDEN)])
def test_the_metrics_that_are_promised_are_those_of_a_report(
    hidden: float | None, promised: tuple[str, ...]
) -> None:
    report = RoundReport(
        number=0,
        survivors=1,
        cohort=1,
        lost={},
        epsilons=SimpleNamespace(guaranteed=1.0, server=1.0, hidden_cohorts=hidden),
        sketch_size=1,
        dimension=1,
        bytes_per_survivor=1.0,
        exchanges=1,
        why="",
    )
    assert tuple(report.metrics()) == promised


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: protect(epsilon=8.0), "epsilon: settings of the server"),
        (lambda: guard(simulated(), **WEAK, policy=RULES), "policy: the client's"),
        (lambda: guard(simulated(), **WEAK, clip=1.0), "clip: unknown; valid: epsilon, .*clip_l2"),
        (lambda: protect(simulated(), {}, FedAvg(), **WEAK), "context is dict; valid: protect"),
        (lambda: protect(simulated()), "context is NoneType; valid: protect"),
    ],
)
def test_arguments_of_the_other_half_are_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


def test_a_simulation_s_clients_insist_on_the_policy_of_their_app() -> None:
    config = {"num-server-rounds": 3}
    for clip, survivors in ((1.0, 6), (0.5, None)):
        policy = RULES | {"clip_l2": clip, "name_refused_clauses": True}
        grid = simulated(app=make_app(mods=[protect(policy=policy)]), config=config)
        with guard(grid, config, **WEAK) as secure:
            if survivors:
                trained(secure)
                assert secure.reports[0].survivors == survivors
            else:
                with pytest.raises(Exception, match="clip"):
                    trained(secure, 3)
        fresh()


def fresh() -> None:
    """Away with the folders of the run that was."""
    shutil.rmtree(Path.home() / ".cache")


def test_a_policy_that_cannot_be_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="clip_l2"):
        protect(policy=RULES | {"clip_l2": -1.0})
    with pytest.raises(ConfigurationError, match="unknown key"):
        protect(policy=RULES | {"clip": 1.0})
    protect(policy=ClientRules(**RULES))


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeGrid]]:
    """Nodes with folders of their own, in which nobody has put an identity."""
    monkeypatch.delenv(SIMULATION_VARIABLE)

    def make(app: ClientApp, config: Mapping[str, Any]) -> FakeGrid:
        nodes = []
        for i in range(6):
            home = tmp_path / f"node-{i}"
            home.mkdir(exist_ok=True)
            named = {"partition-id": i, "num-partitions": 6, "veilsum.home": str(home)}
            nodes.append(Node(FIRST_NODE + i, named, dict(config)))
        return FakeGrid(nodes, app)

    return make


def register(tmp_path: Path) -> Path:
    """What operators do: every public key in every registry."""
    keys = [read_identity(tmp_path / f"node-{i}" / "identity.key").public for i in range(6)]
    for folder in (tmp_path, *(tmp_path / f"node-{i}" for i in range(6))):
        write_registry(folder / "registry.txt", keys)
    return tmp_path / "registry.txt"


def test_a_deployed_client_makes_its_identity_and_keeps_it(
    deployed: Callable[..., FakeGrid], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"num-server-rounds": 3}
    grid = deployed(make_app(mods=[protect(policy=RULES)]), config)
    strangers = [new_client(tmp_path / f"stranger-{i}").public for i in range(6)]
    write_registry(tmp_path / "strangers.txt", strangers)
    path = tmp_path / "ledger.jsonl"
    with caplog.at_level(logging.WARNING, "veilsum"):
        with guard(grid, config, **WEAK, ledger=path, registry=tmp_path / "strangers.txt") as first:
            with pytest.raises(TooFewNodesError, match="not in the registry"):
                trained(first, 3)
    key = read_identity(tmp_path / "node-3" / "identity.key").public
    assert f"all registries need its public key: {key.hex()}" in caplog.text
    assert stat.S_IMODE((tmp_path / "node-3" / "identity.key").stat().st_mode) == 0o600
    registry = register(tmp_path)
    with guard(grid, config, **WEAK, ledger=path, registry=registry) as secure:
        # The cohort is what the registry has; nobody counts nodes that may still come.
        assert plan_of(secure).cohort == 6
        trained(secure)
    assert secure.reports[0].survivors == 6
    assert read_identity(tmp_path / "node-3" / "identity.key").public == key
    assert (tmp_path / "node-3" / "state").is_dir()


def test_an_operator_s_policy_counts_more_than_the_app_s(
    deployed: Callable[..., FakeGrid], tmp_path: Path
) -> None:
    config = {"num-server-rounds": 3}
    grid = deployed(make_app(mods=[protect(policy=RULES)]), config)
    for i in range(6):
        new_client(tmp_path / f"node-{i}")
        strict = ClientRules(**RULES | {"clip_l2": 0.5, "name_refused_clauses": True})
        (tmp_path / f"node-{i}" / "policy.toml").write_text(policy_text(strict))
    registry = register(tmp_path)
    with guard(grid, config, **WEAK, ledger=tmp_path / "b", registry=registry) as secure:
        with pytest.raises(Exception, match="clip"):
            trained(secure, 3)


def test_a_deployment_without_its_files_is_told_which(
    deployed: Callable[..., FakeGrid], tmp_path: Path
) -> None:
    grid = deployed(make_app(mods=[protect()]), {})
    with pytest.raises(SettingsError) as caught:
        # The folder of a simulation of the same app is none of a deployment's.
        guard(grid, {"num-server-rounds": 3, "veilsum.simulation-dir": "/sim"}, **WEAK)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["veilsum.ledger", "veilsum.registry"]
    assert "this is no simulation" in str(caught.value)
    assert 'registry = "/srv/veilsum/registry.txt"' in caught.value.table
    assert "simulation-dir" not in caught.value.table
    missing = {"ledger": tmp_path / "l", "registry": tmp_path / "none.txt"}
    with pytest.raises(SettingsError, match=r"veilsum\.registry: .*none\.txt: No such file"):
        guard(grid, **WEAK, **missing)
    with pytest.raises(SettingsError, match=r"veilsum\.registry: value 'here'.*absolute"):
        guard(grid, **WEAK, ledger="/l", registry="here")


def test_a_fraction_is_held_against_the_registry(
    deployed: Callable[..., FakeGrid], tmp_path: Path
) -> None:
    grid = deployed(make_app(mods=[protect()]), {})
    for i in range(6):
        new_client(tmp_path / f"node-{i}")
    registry = register(tmp_path)
    half = FedAvg(fraction_train=0.5, fraction_evaluate=0.0)
    with pytest.raises(StrategyError, match="3 of 6 clients"):
        guard(grid, strategy=half, **WEAK, ledger=tmp_path / "b", registry=registry)


def test_flower_s_own_simulation_is_told_by_its_grid(
    deployed: Callable[..., FakeGrid], tmp_path: Path
) -> None:
    """Nobody sets a variable there; `flwr` 1.41 names the class so."""
    from flwr.superlink.grid import InMemoryGrid

    made = type("InMemoryGrid", (FakeGrid,), {})
    grid = deployed(make_app(mods=[protect()]), {})
    grid.__class__ = made
    assert InMemoryGrid.__name__ == made.__name__
    with guard(grid, **WEAK) as secure:
        assert secure.ledger.is_relative_to(tmp_path / ".cache")


def test_a_ledger_is_closed_when_nobody_holds_the_grid() -> None:
    secure = guard(simulated(), **WEAK)
    path = secure.ledger
    del secure
    Ledger.open(path).close()


def test_what_is_promised_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "veilsum"), guard(simulated(), **WEAK) as secure:
        said = caplog.text
    assert "private rounds of 6 clients, 5 of whom must stay; epsilon 200 at delta 1e-05" in said
    assert "over 3 rounds; updates clipped to 1; ledger " + str(secure.ledger) in said
    assert "a simulation, which protects nobody" in said


def test_the_face_has_it_and_says_which_extra_brings_flower() -> None:
    assert veilsum.flower.protect is protect
    code = "import sys; sys.modules['flwr'] = None; import veilsum.flower"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert install_command("flower") in done.stderr.splitlines()[-1]
