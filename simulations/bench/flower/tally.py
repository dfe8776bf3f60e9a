"""A grid between a server and Flower's own that counts bytes and takes times.

It is the same for all systems, and the only place where anything is measured but whole rounds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from protocol.adapters.flower.record import KEY
from simulations.common.peers import Peer, load

ConfigRecord = load("flwr.app", Peer.FLOWER).ConfigRecord
message_to_proto = load("flwr.common.serde", Peer.FLOWER).message_to_proto
_secaggplus = load("flwr.common.secure_aggregation.secaggplus_constants", Peer.FLOWER)
_STAGE_KEYS = ((KEY, "step"), (_secaggplus.RECORD_KEY_CONFIGS, _secaggplus.Key.STAGE))
"""Records that say which stage a request belongs to, and where."""


@dataclass
class Stages:
    """When each stage of a round was under way: from its first message to its last answer."""

    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, float]:
        """By stage, in order."""
        return {stage: self.ended.get(stage, began) - began for stage, began in self.began.items()}


class TallyGrid:
    """Passes everything on; has all that servers use of a `Grid`.

    Serialising a message to learn its size takes time, so bytes are counted in rounds that ask for
    it and that nobody times.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._stage: dict[str, str] = {}
        self.stages = Stages()
        self.counts = False
        self.bytes_down: dict[int, int] = defaultdict(int)
        self.bytes_up: dict[int, int] = defaultdict(int)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """To Flower's grid."""
        batch = list(messages)
        for message in batch:
            self.stages.began.setdefault(stage_of(message), time.perf_counter())
        sent = list(self._grid.push_messages(batch))
        self._stage |= {number: stage_of(each) for number, each in zip(sent, batch, strict=False)}
        if self.counts:
            # Only now do messages have their numbers, which travel too.
            for message in batch:
                self.bytes_down[message.metadata.dst_node_id] += wire_bytes(message)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """From Flower's grid."""
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            stage = self._stage.pop(reply.metadata.reply_to_message_id, "")
            self.stages.ended[stage] = time.perf_counter()
            if self.counts:
                self.bytes_up[reply.metadata.src_node_id] += wire_bytes(reply)
        return replies

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        """As Flower's in-memory grid does it: push all, then pull until all are there."""
        waiting = set(self.push_messages(messages))
        end = time.monotonic() + timeout if timeout is not None else None
        replies: list[Any] = []
        while waiting and (end is None or time.monotonic() < end):
            pulled = self.pull_messages(waiting)
            replies.extend(pulled)
            waiting -= {reply.metadata.reply_to_message_id for reply in pulled}
            if waiting:
                time.sleep(self._grid.pull_interval)
        return replies

    def new_round(self) -> None:
        """Forget the stages of the round before."""
        self.stages = Stages()


def stage_of(message: Any) -> str:
    """The stage that a request belongs to, in its own system's words."""
    for key, name in _STAGE_KEYS:
        record = message.content.get(key)
        if isinstance(record, ConfigRecord) and name in record:
            return str(record[name])
    return str(message.metadata.message_type)


def wire_bytes(message: Any) -> int:
    """Bytes of a message as Flower serialises it, content and metadata."""
    return int(message_to_proto(message).ByteSize())
