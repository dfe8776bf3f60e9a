"""What the training's process is given, and the arrays that it gives back, as bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictBytes

from protocol.adapters.flower.arrays import loaded, opened
from protocol.adapters.flower.settings import PREFIX
from protocol.errors import TrainingFailedError

Scalars = Mapping[str, bool | int | float | str]


class Request(msgspec.Struct, frozen=True):
    """An app, and the message that it is to train on.

    Attributes:
        app: the app's file (FAB).
        content: the message's, as Flower writes it.
        message_type, group_id: of the message.
        run_config, node_config: of the app's context.
    """

    app: bytes
    content: bytes
    message_type: str
    group_id: str
    run_config: Scalars
    node_config: Scalars

    @classmethod
    def of(cls, app: bytes, message: Message, context: Context) -> Request:
        """For a message as training is to see it."""
        # What is ours in a node's configuration is no app's business.
        node = {k: value for k, value in context.node_config.items() if not k.startswith(PREFIX)}
        return cls(
            app=app,
            content=recorddict_to_proto(message.content).SerializeToString(),
            message_type=message.metadata.message_type,
            group_id=message.metadata.group_id,
            run_config=dict(context.run_config),
            node_config=node,
        )

    @classmethod
    def read(cls, written: bytes) -> Request:
        """The request in bytes of `write`."""
        return msgspec.msgpack.decode(written, type=cls)

    def write(self) -> bytes:
        """The request as bytes, which `read` takes."""
        return msgspec.msgpack.encode(self)

    @property
    def records(self) -> RecordDict:
        """The message's content as Flower's records."""
        return recorddict_from_proto(RecordDictBytes.FromString(self.content))


def written(arrays: ArrayRecord, like: ArrayRecord) -> bytes:
    """The bytes of arrays, in the order and the types of the model that came."""
    parts = []
    for name, before in opened(like, like):
        values = loaded(name, arrays[name])
        if values.shape != before.shape:
            raise ValueError(f"array {name!r} of shape {values.shape}, not {before.shape}")
        parts.append(np.ascontiguousarray(values, before.dtype).tobytes())
    return b"".join(parts)


def expected_bytes(like: ArrayRecord) -> int:
    """How many bytes `written` makes of a model like this."""
    return sum(array.nbytes for _, array in opened(like, like))


def read_arrays(data: bytes, like: ArrayRecord) -> ArrayRecord:
    """The arrays in so many bytes.

    Raises:
        TrainingFailedError: a number is not finite.
    """
    found, start = {}, 0
    for name, before in opened(like, like):
        values = np.frombuffer(data, before.dtype, before.size, start).reshape(before.shape)
        if before.dtype.kind == "f" and not np.isfinite(values).all():
            raise TrainingFailedError(f"array {name!r} is not finite")
        found[name] = Array(values)
        start += before.nbytes
    return ArrayRecord(found)
