"""A Flower network in one process: messages, replies and contexts cross Flower's own wire format.

Nodes keep nothing between two messages but what Flower keeps for them: their context, from bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common.serde import (
    context_from_proto,
    context_to_proto,
    message_from_proto,
    message_to_proto,
)
from flwr.serverapp.strategy import Strategy

from dp import Ledger
from protocol.adapters.flower import Patience, SecureGrid, secure_mod
from protocol.adapters.flower.record import KEY
from protocol.adapters.flower.waiting import Clock
from protocol.allocation import Allocation
from protocol.planning.training_plan import TrainingPlan
from sketch.controllers import Controller, FixedRate

RUN_ID = 77
N = 6
FIRST_NODE = 1000


class FakeTime:
    """Seconds that pass only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Node:
    """What a SuperNode keeps for its app."""

    number: int
    node_config: dict
    run_config: dict
    state: bytes = b""
    calls: list = field(default_factory=list)

    def handle(self, app: ClientApp, message: Message) -> Message:
        context = Context(RUN_ID, self.number, self.node_config, RecordDict(), self.run_config)
        if self.state:
            proto = context_to_proto(context)
            proto.state.ParseFromString(self.state)
            context = context_from_proto(proto)
        try:
            reply = app(message, context)
        except Exception as error:  # as Flower's run_clientapp.py does
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
        self.state = context_to_proto(context).state.SerializeToString()
        return reply


def step_of(message: Message) -> str:
    record = message.content.get(KEY) if message.has_content() else None
    return record["step"] if record else message.metadata.message_type


class FakeGrid:
    """Carries messages at once.

    `drops(node, step)` loses a node's message, `loses(node, step)` its answer, `spoil` changes one.
    """

    def __init__(self, nodes: list[Node], app: ClientApp) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.app = app
        self.run = SimpleNamespace(run_id=RUN_ID)
        self.drops = lambda node, step: False
        self.loses = lambda node, step: False
        self.spoil = lambda message: message
        self.answers = lambda reply: reply
        self.replies = {}
        self.seen = []

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=number) for number in self.nodes]

    def push_messages(self, messages: list[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str | None:
        number = str(uuid4())
        message.metadata.__dict__["_message_id"] = number
        delivered = self.spoil(message_from_proto(message_to_proto(message)))
        delivered.metadata.__dict__["_message_id"] = number
        node = self.nodes.get(message.metadata.dst_node_id)
        step = step_of(message)
        self.seen.append((message.metadata.dst_node_id, step))
        if node is None:
            return None
        if self.drops(node.number, step):
            return number
        reply = message_from_proto(message_to_proto(node.handle(self.app, delivered)))
        if not self.loses(node.number, step):
            self.replies[number] = self.answers(reply)
        return number

    def pull_messages(self, message_ids: list[str]) -> list[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def send_and_receive(
        self, messages: list[Message], *, timeout: int | None = None
    ) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


def model(dimension: int = 40) -> ArrayRecord:
    """Two floating arrays and a counter, as a normalisation layer has one."""
    values = np.random.default_rng(5).normal(size=dimension).astype(np.float32)
    return ArrayRecord(
        {
            "weight": Array(values[:-4].reshape(4, -1)),
            "bias": Array(values[-4:]),
            "count": Array(np.asarray(3, np.int64)),
        }
    )


def shifted(arrays: ArrayRecord, shift: float) -> ArrayRecord:
    """A model with all floating numbers moved by a constant."""
    return ArrayRecord(
        {
            name: Array(array.numpy() + np.float32(shift))
            if array.numpy().dtype.kind == "f"
            else array
            for name, array in arrays.items()
        }
    )


def flat(arrays: ArrayRecord) -> np.ndarray:
    """All floating numbers of a model."""
    values = [arrays[name].numpy().ravel() for name in sorted(arrays) if name != "count"]
    return np.concatenate(values).astype(np.float64)


def shift_of(partition: int) -> float:
    """What the training of a partition adds to every number."""
    return 0.01 * (partition + 1)


def make_app(
    train: Callable[[Message, Context], Message] | None = None,
    mods: list[Any] | None = None,
    evaluate: Callable[[Message, Context], Message] | None = None,
) -> ClientApp:
    """An app whose training moves the model, by a constant that depends on the partition."""
    app = ClientApp(mods=[secure_mod] if mods is None else mods)

    def default(message: Message, context: Context) -> Message:
        (arrays,) = message.content.array_records.values()
        moved = shifted(arrays, shift_of(context.node_config["partition-id"]))
        secret = MetricRecord({"num-examples": 17, "train-loss": 0.123456})
        return Message(RecordDict({"arrays": moved, "metrics": secret}), reply_to=message)

    app.train()(train or default)

    def measured(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    app.evaluate()(evaluate or measured)
    return app


@dataclass
class World:
    """A network, its clients' folders, and the server's ledger."""

    root: Path
    plan: TrainingPlan
    registry: frozenset[bytes]
    time: FakeTime
    grid: FakeGrid
    run_config: dict
    opened: list = field(default_factory=list)
    committee: frozenset[bytes] = frozenset()
    allocation: Allocation | None = None

    def home(self, partition: int) -> Path:
        return self.root / str(RUN_ID) / f"client-{partition:03d}"

    def node(self, partition: int) -> Node:
        return self.grid.nodes[FIRST_NODE + partition]

    def secure(
        self,
        strategy: Strategy | None = None,
        controller: Controller | None = None,
        **details: Any,
    ) -> SecureGrid:
        values = {
            "patience": Patience(stage=60.0, training=600.0),
            "connect_seconds": 30.0,
            "run_config": self.run_config,
            "clock": self.time.clock(),
            "committee": self.committee,
            "allocation": self.allocation,
        }
        ledger = Ledger.open(self.root / "ledger.jsonl")
        self.opened.append(ledger)
        return SecureGrid(
            self.grid,
            self.plan,
            controller or FixedRate(1.0),
            ledger,
            self.registry,
            strategy=strategy,
            **{**values, **details},
        )
