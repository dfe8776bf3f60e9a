"""Private evaluation: one masked round of a survey, on the ledger of the training beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import FIRST_NODE, World, make_app, model, step_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from dp import BudgetExceededError
from protocol.adapters.evaluation import survey_of
from protocol.adapters.flower import RoundLostError, SecureGrid, StrategyError
from protocol.adapters.flower.carrier import Job
from protocol.adapters.flower.digest import input_digest
from protocol.adapters.flower.record import KEY
from protocol.adapters.flower.strategies import check_strategy
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.round.setup import RoundEncoding
from protocol.round.stored_history import StoredHistory
from protocol.schemes import Validated
from protocol.statistics.private import PlannedSurvey, SurveySum
from protocol.statistics.survey import Survey
from sketch import SketchSpec

DECLARED: dict[str, dict[str, Any]] = {
    "classifier": {"kind": "evaluation", "bins": 8},
    "loss": {"low": 0.0, "high": 4.0},
    "seen": {"kind": "count"},
}
MANY = 24

Answer = Callable[[int], dict[str, Any]]


def survey(**declared: dict[str, Any]) -> Survey:
    made = survey_of(declared or DECLARED)
    assert made is not None
    return made


def local(part: int) -> dict[str, Any]:
    """What a client has: scores of a perfect classifier, a loss, and whether it has seen it."""
    truth, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.1, 0.8, 0.2], np.float32)
    columns = ArrayRecord({"y_true": Array(truth), "y-score": Array(scores)})
    metrics = MetricRecord({"loss": 1.0 + part % 2, "seen": part % 2})
    return {"columns": columns, "metrics": metrics}


def evaluating(answer: Answer = local) -> ClientApp:
    def evaluate(message: Message, context: Context) -> Message:
        assert KEY not in message.content
        return Message(RecordDict(answer(context.node_config["partition-id"])), reply_to=message)

    return make_app(evaluate=evaluate)


def private(make_world: Callable[..., World], answer: Answer = local, **details: Any) -> World:
    return make_world(app=evaluating(answer), evaluations=[survey().digest.hex()], **details)


def planned(world: World, asked: Survey | None = None) -> PlannedSurvey:
    return PlannedSurvey.of(asked or survey(), world.plan)


def evaluated(secure: SecureGrid, world: World) -> Message:
    """The one reply to an evaluation."""
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"lr": 0.5})})
    batch = [Message(content, node, "evaluate") for node in world.grid.nodes]
    (reply,) = secure.send_and_receive(batch)
    return reply


def figures(reply: Message) -> MetricRecord:
    (metrics,) = reply.content.metric_records.values()
    return metrics


@pytest.mark.parametrize(
    "kind",
    # A larger epsilon makes the silence of clients whose noise is long too dear.
    [{}, {"committee": None}, {"scheme": Validated(), "goal": PrivacyGoal(30.0, 1e-5, 4)}],
    ids=["pairwise", "one-shot", "validated"],
)
def test_an_evaluation_is_a_round_like_any_other(
    make_world: Callable[..., World], kind: dict[str, Any]
) -> None:
    many = {"clients": MANY, "cohort": MANY, "goal": PrivacyGoal(200.0, 1e-5, 4)}
    world, strategy = private(make_world, **many | kind), FedAvg()
    goal = world.plan.goal.epsilon
    with world.secure(strategy, evaluation=planned(world)) as secure:
        result = strategy.start(grid=secure, initial_arrays=model(), num_rounds=2)
        entries = list(secure._ledger.entries())
        # The goal is spent, by training and evaluations together.
        with pytest.raises(BudgetExceededError):
            evaluated(secure, world)
    for metrics in result.evaluate_metrics_clientapp.values():
        assert metrics["survivors"] == MANY
        truths = {"loss": 1.5, "seen": 0.5}
        if goal == 200.0:  # or the noise leaves nothing of the area
            truths |= {"auc": 1.0, "accuracy": 1.0}
        for name, truth in truths.items():
            error = metrics[f"eval_{name}_se"]
            assert 0.0 < error < 60.0 / goal
            assert abs(metrics[f"eval_{name}"] - truth) < 6.0 * error + 1e-9
        assert abs(metrics["eval_missing"]) < 5.0 * 200.0 / goal
    kinds = ["survey" in entry.metadata["notes"] for entry in entries]
    assert kinds == [False, True, False, True]
    # One session: members' sealing keys are for one, and numbers go on.
    assert len({entry.metadata["session"] for entry in entries}) == 1
    assert [entry.metadata["attempt"] for entry in entries] == [0, 1, 2, 3]
    spent = [report.epsilons.server for report in (secure.reports[1], secure.evaluations[1])]
    assert spent[0] < spent[1] <= goal
    with StoredHistory(world.home(0) / "state", world.plan.goal) as history:
        # Four rounds by the client's own count, too.
        assert spent[0] < history.epsilon <= goal


def test_the_one_reply_has_survivors_as_its_weight_and_bad_values_are_missing(
    make_world: Callable[..., World],
) -> None:
    def answer(part: int) -> dict[str, Any]:
        columns = {"y_true": [1, 0, 1, 0], "y_score": [1.5, 0.1, float("nan"), 0.2]}
        bad = {"loss": float("nan"), "seen": 7} if part % 2 else {"loss": 9.0, "seen": 1}
        return {"metrics": MetricRecord({**columns, **bad})}

    many = {"clients": MANY, "cohort": MANY, "goal": PrivacyGoal(200.0, 1e-5, 1)}
    world = private(make_world, answer, **many)
    world.grid.drops = lambda node, step: node == FIRST_NODE and step == "input"
    with world.secure(evaluation=planned(world)) as secure:
        found = figures(evaluated(secure, world))
    assert found["num-examples"] == found["survivors"] == MANY - 1
    (report,) = secure.evaluations
    assert list(report.lost) == [FIRST_NODE] and not secure.reports
    # Of 23 clients, 12 have no loss, nor a yes or no; and half of everybody's scores are none.
    assert abs(found["eval_loss"] - 4.0) < 6.0 * found["eval_loss_se"] < 1.0
    assert abs(found["eval_seen_missing"] - 12.0) < 2.0
    assert abs(found["eval_loss_missing"] - 12.0) < 2.0
    assert abs(found["eval_missing"] - 11.5) < 4.0


def test_training_goes_on_behind_an_evaluation_that_was_lost(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    world, strategy = private(make_world), FedAvg()

    def drops(node: int, step: str) -> bool:
        return step == "input" and bool(secure.reports) and not secure.evaluations and lost[0]

    lost = [True]
    world.grid.drops = drops
    with world.secure(evaluation=planned(world)) as secure:
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
        assert "lost a round" in caplog.text and not secure.evaluations
        lost[0] = False
        result = strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
        attempts = [entry.metadata["attempt"] for entry in secure._ledger.entries()]
    assert result.evaluate_metrics_clientapp and attempts == [0, 2, 3]
    assert [report.number for report in secure.reports] == [0, 1]


def other_weights(message: Message) -> Message:
    """Ask one client the same with other weights, when the model comes."""
    if step_of(message) == "input" and message.metadata.dst_node_id == FIRST_NODE:
        record = message.content[KEY]
        asked = Survey.read(record["survey"])
        weights = tuple(weight + 1 for weight in asked.weights)
        record["survey"] = replace(asked, weights=weights).written()
    return message


def test_one_client_is_not_asked_another_survey_than_the_rest(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    world = private(make_world)
    world.grid.spoil = other_weights
    with world.secure(evaluation=planned(world)) as secure:
        evaluated(secure, world)
    assert list(secure.evaluations[0].lost) == [FIRST_NODE]
    assert "is not the one announced" in caplog.text


def too_little_noise(sums: SurveySum, cohort: Sequence[bytes], digest: bytes) -> RoundEncoding:
    """A setup with noise for half of what one client changes."""
    survey = sums.planned.survey
    return sums.sums.setup(
        SketchSpec.identity(survey.length),
        cohort,
        digest,
        clip_l2=survey.l2_bound / 2,
        goal=sums.planned.goal,
        linf_bound=survey.linf_bound,
    )


OTHER = survey(loss={"low": 0.0, "high": 5.0})


@pytest.mark.parametrize(
    ("asked", "setup", "words"),
    [
        ([OTHER], SurveySum.next_setup, f"a survey of digest {OTHER.digest.hex()}"),
        ([], too_little_noise, "l2_bound squared"),
    ],
    ids=["not allowed", "too little noise"],
)
@pytest.mark.parametrize("kind", [{}, {"committee": None}], ids=["pairwise", "one-shot"])
def test_clients_refuse_what_their_policies_do_not_allow(
    make_world: Callable[..., World],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: dict[str, Any],
    asked: list[Survey],
    setup: Callable[..., RoundEncoding],
    words: str,
) -> None:
    world = private(make_world, **kind)
    monkeypatch.setattr(SurveySum, "next_setup", setup)
    with world.secure(evaluation=planned(world, *asked)) as secure:
        reply = evaluated(secure, world)
    assert reply.has_error() and words in caplog.text and words not in reply.error.reason
    assert "PolicyError" in reply.error.reason


def test_an_evaluation_is_no_training_under_another_name(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    """A round of updates is no round of integers; nor are there evaluations without a survey."""
    world = private(make_world, clip_l2=0.5)
    arrays = ArrayRecord({"w": Array(np.zeros(survey().length, np.float32))})
    content, nodes = RecordDict({"arrays": arrays}), list(world.grid.nodes)
    digest = input_digest(content, "evaluate", "", world.run_config)
    for asked, words in ((survey(), "integers = False"), (None, "0 bytes")):
        with world.secure() as secure:
            job = Job(content, "evaluate", "", digest, asked)
            with pytest.raises(RoundLostError):
                secure._rounds.run(job, arrays, nodes, 100.0)
        assert words in caplog.text
        caplog.clear()


def as_training(message: Message) -> Message:
    """An evaluation of a model, until the model comes."""
    if step_of(message) == "advertise":
        message.metadata.__dict__["_message_type"] = "evaluate"
        message.content[KEY]["survey"] = survey().written()
    return message


def test_what_was_joined_as_an_evaluation_does_not_go_on_as_training(
    make_world: Callable[..., World],
) -> None:
    """Or a model could be asked for with the clip of a survey."""
    world = private(make_world)
    world.grid.spoil = as_training
    arrays = ArrayRecord({"w": Array(np.zeros(survey().length, np.float32))})
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=arrays, num_rounds=1)
    assert not secure.reports
    assert {step for _, step in world.grid.seen} == {"hello", "advertise"}


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (MetricRecord({"loss": 1.0, "num-examples": 9}), "'num-examples'"),
        (MetricRecord({"loss": 1.0, "accuracy": 0.5}), "'accuracy'"),
        (ArrayRecord({"weight": Array(np.zeros(3))}), "'weight'"),
        (ConfigRecord({"loss": 1.0}), "ConfigRecord"),
        (MetricRecord({"y_true": [1], "y-true": [0]}), "'y-true' twice"),
    ],
)
def test_what_is_not_declared_is_refused_and_not_dropped(
    make_world: Callable[..., World],
    caplog: pytest.LogCaptureFixture,
    record: Any,
    word: str,
) -> None:
    world = private(make_world, lambda part: {"metrics": record})
    with world.secure(evaluation=planned(world)) as secure:
        reply = evaluated(secure, world)
    assert word in caplog.text and "which is not declared" in caplog.text
    assert reply.has_error() and word not in reply.error.reason
    with StoredHistory(world.home(0) / "state", world.plan.goal) as history:
        assert history.epsilon == 0.0


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        ({"loss": {}}, "evaluation.loss.low"),
        ({"loss": {"low": 1.0, "high": 1.0}}, "evaluation.loss.high"),
        ({"loss": {"low": 0.0, "high": math.inf}}, "evaluation.loss.high"),
        ({"loss": {"kind": "median"}}, "evaluation.loss.kind"),
        ({"loss": {"kind": "count", "high": 1.0}}, "evaluation.loss.high"),
        ({"auc": {"kind": "evaluation", "bins": 7}}, "evaluation.auc.bins"),
        ({"loss": {"lowest": 1.0}}, "evaluation.loss.lowest"),
        ({"eval-loss": {"kind": "count"}, "loss": {"kind": "count"}}, "evaluation"),
        ({"any": {"kind": "evaluation"}, "auc": {"kind": "count"}}, "evaluation"),
    ],
)
def test_what_cannot_be_declared_is_named(declared: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        survey_of(declared)
    assert caught.value.key == key


def test_a_strategy_has_no_averages_of_its_own() -> None:
    with pytest.raises(StrategyError, match="evaluate_metrics_aggr_fn of strategy FedAvg"):
        own = FedAvg(evaluate_metrics_aggr_fn=lambda *_: MetricRecord())
        check_strategy(own, evaluates_privately=True)


def test_messages_of_evaluations_are_neither_pushed_nor_mixed(
    make_world: Callable[..., World],
) -> None:
    world = private(make_world)
    content = RecordDict({"arrays": model()})
    kinds = [Message(content, FIRST_NODE, kind) for kind in ("evaluate", "query")]
    with world.secure(evaluation=planned(world), allow_queries_in_the_clear=True) as secure:
        with pytest.raises(StrategyError, match="EVALUATE messages are mixed"):
            secure.send_and_receive(kinds)
        with pytest.raises(StrategyError, match="EVALUATE messages are not pushed"):
            secure.push_messages(kinds)
