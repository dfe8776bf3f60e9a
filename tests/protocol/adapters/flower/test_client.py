"""What a client refuses, whoever asks: every check has a test that fails without it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

import numpy as np
from flower_doubles import World
from flwr.app import (
    DEFAULT_TTL,
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg

from dp import LedgerError, NonFiniteUpdateError
from dp.clipping import Bounded, l2_norm
from protocol.adapters.flower import RoundLostError, RoundReport, TooFewNodesError, client, record
from protocol.adapters.flower.client import REFUSED
from protocol.adapters.flower.home import SIMULATION_VARIABLE
from protocol.adapters.flower.record import KEY, Request, Step
from protocol.adapters.flower.waiting import Clock
from protocol.errors import PolicyError
from protocol.round.client import RoundClient
from protocol.round.pipeline import Clip, Pipeline
from secagg import FieldVector


def ask(
    world: World, content: RecordDict, message_type: str = "train", partition: int = 0
) -> Message:
    """One message to one node, as any server could send it."""
    node = world.node(partition)
    (number,) = world.grid.push_messages([Message(content, node.number, message_type)])
    (reply,) = world.grid.pull_messages([number])
    return reply


def run(
    world: World,
    parts: SimpleNamespace,
    arrays: ArrayRecord | None = None,
    strategy: FedAvg | None = None,
    rounds: int = 1,
) -> RoundReport:
    strategy = strategy or FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=arrays or parts.model(), num_rounds=rounds)
    return secure.reports[0]


class Trained:
    """Training that counts its calls."""

    def __init__(
        self, parts: SimpleNamespace, answer: Callable[[Message], Message] | None = None
    ) -> None:
        self.parts, self.answer, self.calls, self.seen = parts, answer, 0, []

    def __call__(self, message: Message, context: Context) -> Message:
        self.calls += 1
        self.seen.append((sorted(message.content), dict(message.content["config"])))
        if self.answer:
            return self.answer(message)
        (arrays,) = message.content.array_records.values()
        content = {
            "arrays": self.parts.shifted(arrays, 0.01),
            "m": MetricRecord({"num-examples": 3}),
        }
        return Message(RecordDict(content), reply_to=message)


def plain(parts: SimpleNamespace) -> RecordDict:
    return RecordDict({"arrays": parts.model(), "config": ConfigRecord({"server-round": 1})})


@pytest.mark.parametrize("message_type", ["train", "train.default"])
def test_a_plain_training_message_is_refused(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    message_type: str,
) -> None:
    """The most important check: without it the server simply asks for the plain update."""
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained))
    with caplog.at_level(logging.WARNING, "veilsum"):
        reply = ask(world, plain(parts), message_type)
    assert trained.calls == 0
    assert reply.has_error() and reply.error.code == REFUSED == ErrorCode.MOD_FAILED_PRECONDITION
    assert reply.error.reason == "PolicyError"
    assert "plain update" in caplog.text


@pytest.mark.parametrize(
    ("kind", "clause"),
    [("train", "training"), ("evaluate", "message type"), ("query", "message type")],
)
def test_outside_the_protocol_a_clause_is_named_as_the_policy_says(
    make_world: Callable[..., World], parts: SimpleNamespace, kind: str, clause: str
) -> None:
    app = parts.make_app()
    app.query()(Trained(parts))
    world = make_world(app=app)
    policy = world.home(1) / "policy.toml"
    policy.write_text(policy.read_text().replace("clauses = false", "clauses = true"))
    answers = [ask(world, plain(parts), kind, partition) for partition in (0, 1)]
    told = [(reply.error.code, reply.error.reason) for reply in answers]
    assert told == [(REFUSED, "PolicyError"), (REFUSED, f"PolicyError: {clause}")]


def test_without_the_mod_the_same_message_gives_the_update_away(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """The control: the message is one that a training function answers."""
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained, mods=[]))
    reply = ask(world, plain(parts))
    assert trained.calls == 1 and not reply.has_error() and reply.content.array_records


@pytest.mark.parametrize("step", list(Step))
def test_no_step_out_of_turn_trains(
    make_world: Callable[..., World], parts: SimpleNamespace, step: Step
) -> None:
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained))
    content = plain(parts)
    content[KEY] = Request(step, b"anything", bytes(32)).record()
    reply = ask(world, content)
    assert trained.calls == 0
    assert sorted(reply.content) == [KEY]


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2, "step": "hello", "payload": b"", "digest": b""},
        {"version": 1, "step": "goodbye", "payload": b"", "digest": b""},
        {"version": 1, "step": "hello", "payload": "text", "digest": b""},
        {"version": 1, "step": "hello", "payload": b""},
        {},
    ],
)
def test_a_malformed_request_is_refused(
    make_world: Callable[..., World], parts: SimpleNamespace, fields: dict[str, bytes | int | str]
) -> None:
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained))
    content = plain(parts)
    content[KEY] = ConfigRecord(fields)
    reply = ask(world, content)
    assert trained.calls == 0 and reply.has_error()
    assert "RemoteProtocolError" in reply.error.reason


def test_training_sees_the_strategy_s_message_and_not_ours(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained))
    run(world, parts)
    assert trained.seen == [(["arrays", "config"], {"server-round": 1})] * parts.N


def test_training_sees_no_header_that_the_server_chose_for_one_client(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """By a message's lifetime, say, one client alone could be told to train otherwise."""
    headers, kept = {}, {}

    def train(message: Message, context: Context) -> Message:
        headers[context.node_id] = dict(message.metadata.__dict__)
        reply = Trained(parts)(message, context)
        assert reply.metadata.ttl > 0
        return reply

    def spoil(message: Message) -> Message:
        if parts.step_of(message) == "input":
            if message.metadata.dst_node_id == parts.FIRST_NODE:
                message.metadata.ttl, message.metadata.created_at = 1e6, time.time() - 1e5
                message.metadata.src_task_id = 99
            kept[message.metadata.dst_node_id] = message.metadata
        return message

    world = make_world(app=parts.make_app(train))
    world.grid.spoil = spoil
    replies = []
    world.grid.answers = lambda reply: replies.append(reply.metadata) or reply
    assert run(world, parts).survivors == parts.N
    for node, header in headers.items():
        assert header.pop("_dst_node_id") == node
        assert abs(header.pop("_created_at") - time.time()) < 600
    first, *others = headers.values()
    assert others == [first] * (parts.N - 1)
    assert (first["_ttl"], first["_message_id"], first["_src_task_id"]) == (DEFAULT_TTL, "", None)
    # The answer that leaves is a reply to the message that came.
    answered = {each.reply_to_message_id for each in replies}
    assert {each.message_id for each in kept.values()} <= answered
    assert {each.dst_node_id for each in replies} == {1}


def changed_arrays(message: Message, parts: SimpleNamespace) -> None:
    message.content["arrays"] = parts.shifted(message.content["arrays"], 1.0)


def changed_config(message: Message, parts: SimpleNamespace) -> None:
    message.content["config"]["lr"] = 0.0


def another_record(message: Message, parts: SimpleNamespace) -> None:
    message.content["more"] = ConfigRecord({"lr": 0.0})


def another_group(message: Message, parts: SimpleNamespace) -> None:
    message.metadata.group_id = "victim"


def no_arrays(message: Message, parts: SimpleNamespace) -> None:
    del message.content["arrays"]


@pytest.mark.parametrize(
    "change", [changed_arrays, changed_config, another_record, another_group, no_arrays]
)
def test_what_was_not_announced_is_not_trained_on(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    change: Callable[..., Any],
) -> None:
    """With a model or a learning rate of its own, one client would stand out in the sum."""
    trained = Trained(parts)
    world = make_world(app=parts.make_app(trained))
    victim = parts.FIRST_NODE

    def spoil(message: Message) -> Message:
        if message.metadata.dst_node_id == victim and parts.step_of(message) == "input":
            change(message, parts)
        return message

    world.grid.spoil = spoil
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert trained.calls == parts.N - 1 == report.survivors
    assert report.lost == {victim: "input: RemoteProtocolError"}
    assert "not the one announced" in caplog.text


def list_model() -> ArrayRecord:
    """A model as list-based apps have it: names are numbers, and mean nothing to training."""
    generator = np.random.default_rng(11)
    return ArrayRecord([generator.normal(size=(4, 5)).astype(np.float32) for _ in range(3)])


class ByPosition:
    """Training that reads arrays by position: the first is what it learns, the others stay."""

    def __init__(self) -> None:
        self.seen = []

    def __call__(self, message: Message, context: Context | None) -> Message:
        (record,) = message.content.array_records.values()
        first, *others = record.to_numpy_ndarrays()
        self.seen.append(first)
        trained = ArrayRecord([first + np.float32(0.01), *others])
        return Message(RecordDict({"arrays": trained}), reply_to=message)


def two_arrays_in_each_other_s_place(message: Message) -> None:
    """The same names with the same arrays, of one shape; training finds the second first."""
    arrays = dict(message.content["arrays"])
    zero, one, two = arrays
    message.content["arrays"] = ArrayRecord({name: arrays[name] for name in (one, zero, two)})


def test_arrays_in_another_order_are_not_trained_on(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Two arrays of one shape change places on the way to one client.

    That is another model, and an update that stands out of the sum.
    """
    trained, victim, before = ByPosition(), parts.FIRST_NODE, list_model()
    world = make_world(app=parts.make_app(trained))

    def spoil(message: Message) -> Message:
        if message.metadata.dst_node_id == victim and parts.step_of(message) == "input":
            two_arrays_in_each_other_s_place(message)
        return message

    world.grid.spoil = spoil
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts, before)
    assert report.survivors == parts.N - 1 == len(trained.seen)
    assert report.lost == {victim: "input: RemoteProtocolError"}
    assert "not the one announced" in caplog.text
    first = before["0"].numpy()
    assert all(np.array_equal(each, first) for each in trained.seen)


def test_a_list_based_app_works_and_its_order_would_matter(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """The control: nobody is lost, and in the other order training is given another array."""
    trained, before = ByPosition(), list_model()
    world = make_world(app=parts.make_app(trained))
    assert run(world, parts, before).survivors == parts.N
    message = Message(RecordDict({"arrays": before}), 1, "train")
    two_arrays_in_each_other_s_place(message)
    trained(message, None)
    assert not np.array_equal(trained.seen[-1], trained.seen[0])


def records_in_another_order(message: Message) -> None:
    records = dict(message.content)
    for name in list(message.content):
        del message.content[name]
    for name in sorted(records, key=lambda name: name != "config"):
        message.content[name] = records[name]


def a_number_in_place_of_an_array(message: Message) -> None:
    count = Array(np.asarray([3], np.int64))
    message.content["arrays"] = ArrayRecord({**message.content["arrays"], "count": count})


@pytest.mark.parametrize("change", [records_in_another_order, a_number_in_place_of_an_array])
def test_records_in_another_order_and_other_shapes_are_noticed(
    make_world: Callable[..., World], parts: SimpleNamespace, change: Callable[..., Any]
) -> None:
    world, victim = make_world(), parts.FIRST_NODE

    def spoil(message: Message) -> Message:
        if message.metadata.dst_node_id == victim and parts.step_of(message) == "input":
            change(message)
        return message

    world.grid.spoil = spoil
    assert run(world, parts).lost == {victim: "input: RemoteProtocolError"}


def test_training_sees_the_run_s_configuration_in_one_order(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    orders = []

    def train(message: Message, context: Context) -> Message:
        orders.append(list(context.run_config))
        return Trained(parts)(message, context)

    world = make_world(app=parts.make_app(train))
    config = world.node(0).run_config
    world.node(0).run_config = dict(reversed(config.items()))
    assert run(world, parts).survivors == parts.N
    assert orders == [sorted(config)] * parts.N


def test_a_new_round_leaves_no_key_of_an_old_one(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Flower drops a run's state with the run; the key of its last round would stay for ever."""
    world = make_world()
    keys = [world.home(i) / "state" / "keys" for i in range(parts.N)]
    for folder in keys:
        folder.mkdir(parents=True)
        (folder / bytes(16).hex()).write_bytes(bytes([1]) * 32)
    run(world, parts)
    assert [path for folder in keys for path in folder.glob(bytes(16).hex())] == []


def test_another_run_configuration_is_noticed(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    world.node(0).run_config["lr"] = 0.2
    report = run(world, parts)
    assert report.lost == {parts.FIRST_NODE: "input: RemoteProtocolError"}


def test_a_client_told_another_digest_is_alone(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """It signs another context than the others, so the server can do nothing with its messages."""
    world, victim = make_world(), parts.FIRST_NODE

    def spoil(message: Message) -> Message:
        if (message.metadata.dst_node_id, parts.step_of(message)) == (victim, "advertise"):
            message.content[KEY]["digest"] = bytes(32)
        return message

    world.grid.spoil = spoil
    report = run(world, parts)
    assert report.survivors == parts.N - 1


def raising(message: Message) -> NoReturn:
    raise RuntimeError("patient 17 has diabetes")


def answering_an_error(message: Message) -> Message:
    from flwr.app import Error

    return Message(Error(99, "patient 17 has diabetes"), reply_to=message)


def without_a_model(message: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


def with_another_shape(message: Message) -> Message:
    arrays = ArrayRecord({**message.content["arrays"], "bias": Array(np.zeros(9, np.float32))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def with_another_name(message: Message) -> Message:
    arrays = ArrayRecord({**message.content["arrays"], "diabetes": Array(np.zeros(9))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def not_finite(message: Message) -> Message:
    arrays = ArrayRecord({**message.content["arrays"], "bias": Array(np.full(4, np.nan))})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def ending_the_process(message: Message) -> NoReturn:
    """No `Exception`: Flower lets it through, and the process ends without an answer."""
    raise SystemExit("patient 17 has diabetes")


def nothing_at_all(message: Message) -> None:
    """An AttributeError, as soon as somebody looks at it."""
    return None


def something_else(message: Message) -> dict[str, int]:
    return {"diabetes": 17}


def of_another_type(message: Message) -> Message:
    """Complex numbers: NumPy's error names the dtype."""
    bias = Array(np.ones(4, np.complex128))
    arrays = ArrayRecord({**message.content["arrays"], "bias": bias})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def that_is_no_array(message: Message) -> Message:
    bias = Array("float32", (4,), "numpy.ndarray", b"patient 17 has diabetes")
    arrays = ArrayRecord({**message.content["arrays"], "bias": bias})
    return Message(RecordDict({"arrays": arrays}), reply_to=message)


def overflowing(message: Message) -> NoReturn:
    raise FloatingPointError("overflow encountered in patient 17, who has diabetes")


def raising_an_error_of_ours(message: Message) -> NoReturn:
    """By its kind it would tell the server something."""
    raise PolicyError("patient", 17, "diabetes")


WRONG_ANSWERS = [
    raising,
    answering_an_error,
    without_a_model,
    with_another_shape,
    with_another_name,
    not_finite,
    nothing_at_all,
    something_else,
    of_another_type,
    that_is_no_array,
    overflowing,
    raising_an_error_of_ours,
    ending_the_process,
]

THE_REFUSAL = {KEY: {"version": 1, "answer": b"\1OwnReasons"}}
"""All that a server is told of a client that leaves for reasons of its own."""


def heard_from(world: World, node: int) -> list[str | dict[str, Any]]:
    """What a node sends, as the server reads it: records by name, or the words of an error."""
    heard = []

    def look(reply: Message) -> Message:
        if reply.metadata.src_node_id == node:
            content = None if reply.has_error() else reply.content
            heard.append(
                f"error {reply.error.code}: {reply.error.reason}"
                if content is None
                else {name: dict(record) for name, record in content.items()}
            )
        return reply

    world.grid.answers = look
    return heard


@pytest.mark.parametrize("answer", WRONG_ANSWERS)
def test_what_goes_wrong_in_training_stays_at_the_client(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[..., Any],
) -> None:
    """Flower sends the text of an exception to the server."""
    trained = Trained(parts)

    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 0:
            return answer(message)
        return trained(message, context)

    world = make_world(app=parts.make_app(train))
    heard = heard_from(world, parts.FIRST_NODE)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert report.survivors == parts.N - 1
    (reason,) = report.lost.values()
    assert reason == "input: left for reasons that only its own log tells"
    # Hello, advertise, share: whatever went wrong at the fourth step, it is said in the same words.
    assert len(heard) == 4 and heard[-1] == THE_REFUSAL
    assert not any("diabetes" in str(each) or "shape" in str(each) for each in heard)
    assert caplog.text
    # Nothing to go on with is left, here or at anybody who finished.
    assert b"stored" not in world.node(0).state and b"stored" in world.node(1).state


@pytest.mark.parametrize(
    "error",
    [
        FloatingPointError("overflow encountered in patient 17"),
        TypeError("values must have dtype float32 or float64, got complex128"),
        AttributeError("patient 17 has no attribute"),
        OSError(28, "No space left on device", "/home/patient-17"),
        MemoryError("17"),
        NonFiniteUpdateError("17 of 40 coordinates are NaN or infinite"),
        LedgerError("charges.jsonl of patient 17"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", [(Pipeline, "encode"), (RoundClient, "suspend")], ids=str)
def test_what_goes_wrong_in_encoding_stays_at_the_client(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: tuple[type[Pipeline | RoundClient], str],
    error: Exception,
) -> None:
    """While a masked update is made, and while the round is put away after it."""
    world = make_world()
    owner, name = where
    real, victim, due = getattr(owner, name), parts.FIRST_NODE, []

    def fail(self: Pipeline, *args: Any) -> FieldVector:
        if due:
            raise error
        return real(self, *args)

    def spoil(message: Message) -> Message:
        due.clear()
        if message.metadata.dst_node_id == victim and parts.step_of(message) == "input":
            due.append(True)
        return message

    world.grid.spoil = spoil
    monkeypatch.setattr(owner, name, fail)
    heard = heard_from(world, victim)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert report.survivors == parts.N - 1
    assert heard[-1] == THE_REFUSAL
    assert (error.strerror if isinstance(error, OSError) else type(error).__name__) in caplog.text


@pytest.mark.parametrize("answer", [overflowing, raising_an_error_of_ours, ending_the_process])
def test_an_evaluation_that_raises_does_not_tell_its_words(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[..., Any],
) -> None:
    app = parts.make_app()

    @app.evaluate("mine")
    def mine(message: Message, context: Context) -> Message:
        return answer(message)

    world = make_world(app=app, allow_evaluation_in_the_clear=True)
    content = RecordDict({"arrays": parts.model()})
    with caplog.at_level(logging.WARNING, "veilsum"):
        reply = ask(world, content, "evaluate.mine")
    assert (reply.error.code, reply.error.reason) == (REFUSED, "OwnReasons")
    assert "diabetes" in caplog.text


HUGE = [(np.float32, 3e38), (np.float64, 1.7e308), (np.float16, 6e4)]


@pytest.mark.parametrize("strict", [False, True], ids=["as NumPy is", "set to raise"])
@pytest.mark.parametrize(("kind", "huge"), HUGE, ids=lambda each: getattr(each, "__name__", ""))
def test_finite_weights_never_make_a_client_leave(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[np.float16 | np.float32 | np.float64],
    huge: float,
    strict: bool,
) -> None:
    """Their difference overflows in their own type, and an update is made of it all the same.

    It is clipped. If the client left instead, that would tell the server about its data.
    """

    def train(message: Message, context: Context) -> Message:
        if strict:
            np.seterr(all="raise")
        (arrays,) = message.content.array_records.values()
        far = context.node_config["partition-id"] == 0
        sign = -1 if far else 1
        values = [np.asarray(sign * array, kind) for array in arrays.to_numpy_ndarrays()]
        return Message(RecordDict({"arrays": ArrayRecord(values)}), reply_to=message)

    clipped, clip = [], Clip.client

    def look(self: Clip, update: np.ndarray) -> Bounded:
        clipped.append(clip(self, update))
        return clipped[-1]

    monkeypatch.setattr(Clip, "client", look)
    world = make_world(app=parts.make_app(train))
    before = ArrayRecord([np.array([huge, -huge, huge, 1e-7], kind), np.array(huge, kind)])
    with np.errstate(over="ignore"):
        # It really overflows: in its own type the difference is not finite.
        first = before["0"].numpy()
        assert not np.isfinite(-first - first).all()
        report = run(world, parts, before)
    assert report.survivors == parts.N and report.lost == {}
    sizes = sorted(l2_norm(each.values) for each in clipped)
    assert sizes[:-1] == [0.0] * (parts.N - 1) and sizes[-1] == pytest.approx(1.0, rel=1e-9)
    (far,) = (each.values for each in clipped if each.values.any())
    np.testing.assert_allclose(far, [-0.5, 0.5, -0.5, 0.0, -0.5], atol=1e-6)


def test_a_policy_of_the_client_s_own_is_held_against_the_server(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    policy = world.home(0) / "policy.toml"
    policy.write_text(policy.read_text().replace("clip_l2 = 1.0", "clip_l2 = 0.5"))
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert report.lost == {parts.FIRST_NODE: "advertise: PolicyError"}
    assert "clip_l2 = 1.0" in caplog.text and "at most 0.5" in caplog.text


@pytest.mark.parametrize("stage", ["advertise", "share", "input", "confirm", "unmask"])
def test_a_round_that_is_over_by_the_client_s_clock_is_left(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stage: str,
) -> None:
    world, late = make_world(lifetime_seconds=600), []

    def spoil(message: Message) -> Message:
        if message.metadata.dst_node_id == parts.FIRST_NODE and parts.step_of(message) == stage:
            late.append(True)
        return message

    def clock() -> Clock:
        # That node's clock alone shows the next hour, from this message on.
        return Clock(unix=lambda: time.time() + 3600.0 * bool(late and late.pop()))

    world.grid.spoil = spoil
    monkeypatch.setattr(client, "Clock", clock)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert report.lost == {parts.FIRST_NODE: f"{stage}: PolicyError"}
    assert "by our clock" in caplog.text


def test_a_client_may_insist_on_an_end(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    policy = world.home(0) / "policy.toml"
    policy.write_text("lifetime_seconds = 600\n" + policy.read_text())
    assert run(world, parts).lost == {parts.FIRST_NODE: "advertise: PolicyError"}


def test_a_refused_clause_is_named_if_the_client_says_so(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """By its name: neither what it says nor anything else goes with it."""
    world, heard = make_world(), []
    for partition, clause in ((0, "clip_l2 = 1.0"), (1, "epsilon = 200.0")):
        policy = world.home(partition) / "policy.toml"
        text = policy.read_text().replace(
            "name_refused_clauses = false", "name_refused_clauses = true"
        )
        policy.write_text(text.replace(clause, clause.split(" = ")[0] + " = 0.5"))

    def look(reply: Message) -> Message:
        heard.append(reply.content[KEY]["answer"])
        return reply

    world.grid.answers = look
    report = run(world, parts)
    assert report.lost == {
        parts.FIRST_NODE: "advertise: PolicyError: clip_l2",
        parts.FIRST_NODE + 1: "advertise: PolicyError: noise_multiplier",
    }
    assert {b"\1PolicyError: clip_l2", b"\1PolicyError: noise_multiplier"} < set(heard)


@pytest.mark.parametrize("damage", ["policy.toml", "registry.txt"])
def test_no_other_refusal_says_more(
    make_world: Callable[..., World], parts: SimpleNamespace, damage: str
) -> None:
    """Only a policy has clauses; and where it cannot be read, nothing is named."""
    world = make_world()
    for partition in range(2):
        policy = world.home(partition) / "policy.toml"
        policy.write_text(policy.read_text().replace("clauses = false", "clauses = true"))
    (world.home(0) / damage).write_text("nonsense")
    victim = parts.FIRST_NODE + 1

    def spoil(message: Message) -> Message:
        if (message.metadata.dst_node_id, parts.step_of(message)) == (victim, "input"):
            changed_config(message, parts)
        return message

    world.grid.spoil = spoil
    told = {node - parts.FIRST_NODE: reason for node, reason in run(world, parts).lost.items()}
    assert told.pop(1) == "input: RemoteProtocolError"
    (reason,) = told.values()
    assert reason.endswith("own log") or reason.endswith("own log tells")


def test_strangers_in_a_cohort_are_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    registry = world.home(0) / "registry.txt"
    lines = registry.read_text().splitlines()
    own = world_key(world, 0)
    registry.write_text(
        "\n".join(["# all but one", own, *[each for each in lines if each != own][1:]])
    )
    assert run(world, parts).lost == {parts.FIRST_NODE: "advertise: PolicyError"}


def world_key(world: World, partition: int) -> str:
    from protocol.adapters.flower.home import read_identity

    return read_identity(world.home(partition) / "identity.key").public.hex()


def test_a_round_is_answered_once_even_if_the_state_is_rolled_back(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """The server, or a disk, brings back an old state and the same message.

    Two answers to one state would give away both secrets of a party.
    """
    world = make_world()
    kept = {}

    def spoil(message: Message) -> Message:
        step, node = parts.step_of(message), message.metadata.dst_node_id
        if node == parts.FIRST_NODE and step == "unmask":
            kept["message"], kept["state"] = message, world.node(0).state
        return message

    world.grid.spoil = spoil
    run(world, parts)
    world.grid.spoil = lambda message: message
    world.node(0).state = kept["state"]
    reply = world.node(0).handle(world.grid.app, kept["message"])
    assert record.read_answer(reply)[:1] == b"\1"


def test_an_announcement_is_answered_once_by_a_fresh_process(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world, victim = make_world(), parts.FIRST_NODE
    kept = []

    def spoil(message: Message) -> Message:
        if (message.metadata.dst_node_id, parts.step_of(message)) == (victim, "advertise"):
            kept.append(message)
        return message

    world.grid.spoil = spoil
    run(world, parts)
    world.node(0).state = b""
    reply = world.node(0).handle(world.grid.app, kept[0])
    assert record.read_answer(reply)[:1] == b"\1"


def test_clients_count_for_themselves(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Two rounds in all: a third is refused by every client, whatever the server's ledger says."""
    from protocol.goal import PrivacyGoal

    world = make_world(goal=PrivacyGoal(200.0, 1e-5, 2))
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=parts.model(), num_rounds=2)
    (world.root / "ledger.jsonl").unlink()
    with world.secure(strategy) as secure, pytest.raises(RoundLostError) as caught:
        strategy.start(grid=secure, initial_arrays=parts.model(), num_rounds=2)
    assert set(caught.value.lost.values()) == {"advertise: PolicyError"}


@pytest.mark.parametrize("kind", ["evaluate", "evaluate.default", "query"])
def test_answers_in_the_clear_are_refused_unless_the_client_says_so(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """By the name of what it permits: one permission is not the other."""
    calls = []

    def answer(message: Message, context: Context) -> Message:
        calls.append(message)
        return Message(RecordDict({"m": MetricRecord({"patients": 17})}), reply_to=message)

    app = parts.make_app()
    app.query()(answer)
    world = make_world(app=app)
    content = RecordDict({"arrays": parts.model()})
    keys = ["allow_evaluation_in_the_clear", "allow_queries_in_the_clear"]
    right, wrong = keys if kind.startswith("evaluate") else reversed(keys)
    policy = world.home(1) / "policy.toml"
    policy.write_text(policy.read_text().replace(f"{wrong} = false", f"{wrong} = true"))
    for partition in (0, 1):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "veilsum"):
            refused = ask(world, content, kind, partition)
        assert refused.has_error() and refused.error.code == REFUSED
        assert f"training only, as its policy does not say {right} = true" in caplog.text
    assert not calls
    policy.write_text(policy.read_text().replace(f"{right} = false", f"{right} = true"))
    assert ask(world, content, kind, partition=1).content.metric_records


def test_a_policy_says_nothing_about_answers_in_the_clear_and_they_are_refused(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    policy = world.home(0) / "policy.toml"
    lines = policy.read_text().splitlines()
    policy.write_text("\n".join(line for line in lines if "in_the_clear" not in line))
    assert ask(world, RecordDict({"arrays": parts.model()}), "evaluate").has_error()


@pytest.mark.parametrize("name", ["identity.key", "registry.txt", "policy.toml"])
@pytest.mark.parametrize("damage", ["missing", "wrong"])
def test_a_damaged_folder_is_told_to_its_owner(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: str,
) -> None:
    world = make_world()
    path = world.home(0) / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("nonsense = [")
        path.chmod(0o600)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert report.survivors == parts.N - 1 and list(report.lost) == [parts.FIRST_NODE]
    assert "ConfigurationError" in caplog.text and str(path) in caplog.text


def test_a_key_that_others_can_read_is_refused(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    (world.home(0) / "identity.key").chmod(0o644)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert "own log" in report.lost[parts.FIRST_NODE] and "mode 600" in caplog.text


def test_a_node_without_a_folder_says_so(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(nodes=7)
    with caplog.at_level(logging.WARNING, "veilsum"):
        report = run(world, parts)
    assert list(report.lost) == [parts.FIRST_NODE + 6] and "veilsum.home" in caplog.text
    assert "simulated-clients as num-supernodes" in caplog.text


def test_a_node_that_is_not_simulated_takes_no_folder_from_a_run(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its operator forgot `veilsum.home`: the server may not stand in, folder and policy ready."""
    world = make_world()
    monkeypatch.delenv(SIMULATION_VARIABLE)
    with caplog.at_level(logging.WARNING, "veilsum"), pytest.raises(TooFewNodesError):
        run(world, parts, rounds=3)
    assert "a run cannot set it" in caplog.text


def test_the_node_s_own_configuration_goes_before_the_run_s(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """In a deployment the server must not choose the folder, and with it the policy."""
    world = make_world()
    world.node(0).node_config["veilsum.home"] = str(world.root / "nowhere")
    report = run(world, parts)
    assert list(report.lost) == [parts.FIRST_NODE]
