"""One hash of all that a message and a run bring to a training function, in its order.

Were only the model in it, the server could send one client a learning rate and the others none,
and read that client's update from the sum. So the other records, the kind of message and the run's
configuration are in it too. So is the order of records, of their keys and of arrays: many training
functions read arrays by position. (Of the run's configuration Flower keeps no order; the mod sorts
it before training sees it.) Of the message's header, its type and its group are; the rest training
sees as the mod sets it. What is not in the hash is the app's code, which Flower brings from the
server, and the node's number, which the SuperLink drew when the node came
(docs/integrations/flower.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from protocol.adapters.named_arrays import add_array
from secagg import ParameterError
from secagg.tags import encode_parts

_LABEL = b"veilsum/flower/training input/2"


def input_digest(
    content: RecordDict, message_type: str, group_id: str, run_config: Mapping[str, Any]
) -> bytes:
    """SHA-256 of what training sees, 32 bytes; the same on both sides of any transport."""
    hasher = hashlib.sha256(encode_parts(_LABEL, message_type.encode(), group_id.encode()))
    hasher.update(encode_parts(*_values(in_order(run_config))))
    for name, record in content.items():
        hasher.update(encode_parts(b"record", name.encode(), type(record).__name__.encode()))
        _add(hasher, record)
    return hasher.digest()


def in_order(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's configuration by sorted keys, as training is to see it."""
    return dict(sorted(run_config.items()))


def _add(hasher: Any, record: ArrayRecord | ConfigRecord | MetricRecord) -> None:
    if not isinstance(record, ArrayRecord):
        hasher.update(encode_parts(*_values(record)))
        return
    for name, array in record.items():
        form = repr((array.dtype, tuple(array.shape), array.stype))
        add_array(hasher, name, form, array.data)


def _values(mapping: Mapping[str, Any]) -> Iterator[bytes]:
    yield len(mapping).to_bytes(8, "little")
    for key, value in mapping.items():
        yield key.encode()
        yield encode_parts(*_scalars(key, value))


def _scalars(key: str, value: Any) -> Iterator[bytes]:
    if not isinstance(value, list):
        yield _scalar(key, value)
        return
    yield b"list"
    for each in value:
        yield _scalar(key, each)


def _scalar(key: str, value: Any) -> bytes:
    """One value and its type: True, 1 and 1.0 are three different things."""
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, int):
        return b"i" + str(value).encode()
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, str):
        return b"s" + value.encode()
    if isinstance(value, bytes):
        return b"y" + value
    raise ParameterError(key, type(value).__name__, "a bool, int, float, str or bytes")
