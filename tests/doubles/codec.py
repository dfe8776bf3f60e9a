"""Tests of a protocol's codec: honest messages round trip, anything else is a typed error.

A test class takes `CodecTests` as its base, and names its `Codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from secagg import SERVER, Reason, RemoteProtocolError
from secagg.framing import WIRE_VERSION, encode_message

TAG, SENDER, LIMIT = b"contexts", 5, 10_000


@dataclass(frozen=True)
class Codec:
    """A protocol's messages, one honest one of each kind."""

    # messages and the function (data, party, limit) that decodes them; with a function the role of
    # whom errors are about. Those of the server come last
    decoders: Sequence[tuple[Sequence[Any], Callable[..., Any], str]]
    lengths: dict[str, int]  # fields of a fixed length
    numbers: Sequence[int]  # of the messages, in order

    @property
    def messages(self) -> list[Any]:
        """One message of every kind."""
        return [message for kind, *_ in self.decoders for message in kind]

    @property
    def sent(self) -> list[Any]:
        """Those that have a sender."""
        return [message for message in self.messages if hasattr(message, "sender")]

    def kind(self, message: Any) -> tuple[Sequence[Any], Callable[..., Any], str]:
        """The entry of `decoders` that a message is in."""
        return next(entry for entry in self.decoders if message in entry[0])

    def decode(self, message: Any, data: bytes) -> Any:
        """Decode as the kind of party that gets this kind of message."""
        party = SENDER if hasattr(message, "sender") else SERVER
        return self.kind(message)[1](data, party, LIMIT)

    def refused(self, message: Any, data: bytes, reason: Reason) -> None:
        """The party that gets this kind of message refuses the bytes, and says whose they are."""
        with pytest.raises(RemoteProtocolError) as raised:
            self.decode(message, data)
        assert raised.value.reason is reason
        assert raised.value.party == (SENDER if hasattr(message, "sender") else SERVER)
        assert raised.value.role == self.kind(message)[2]

    def takes_or_refuses(self, data: bytes) -> int:
        """Every decoder accepts the bytes or raises the one error; returns how many accept."""
        accepted = 0
        for kind, *_ in self.decoders:
            try:
                found = self.decode(kind[0], data)
            except RemoteProtocolError:
                continue
            accepted += 1
            assert self.decode(kind[0], encode_message(found)) == found
        return accepted

    def bodies(self) -> st.SearchStrategy[bytes]:
        """Bytes, well-formed MessagePack, and honest messages with a few bytes changed."""
        scalars = st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(1 << 63), (1 << 64) - 1),
            st.floats(),
            st.text(max_size=4),
            st.binary(max_size=40),
            st.sampled_from([TAG, bytes(32), bytes(64)]),
        )
        trees = st.recursive(
            scalars, lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(), inner)
        )
        number = st.integers(min(self.numbers) - 1, max(self.numbers) + 1)
        numbered = st.tuples(number, st.just(TAG)).flatmap(
            lambda head: st.lists(scalars, max_size=6).map(lambda rest: [*head, *rest])
        )
        changed = st.tuples(
            st.sampled_from([encode_message(message)[1:] for message in self.messages]),
            st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
        ).map(lambda pair: changed_bytes(*pair))
        packed = st.one_of(trees, numbered).map(msgspec.msgpack.encode)
        return st.one_of(st.binary(max_size=200), packed, changed)


def changed_bytes(data: bytes, changes: Sequence[tuple[int, int]]) -> bytes:
    """The data with other bytes at some places."""
    out = bytearray(data)
    for at, value in changes:
        if out:
            out[at % len(out)] = value
    return bytes(out)


def name(message: object) -> str:
    """The kind of a message."""
    return type(message).__name__


def fields_of(message: Any) -> list[Any]:
    """The MessagePack array of a message as plain objects."""
    fields: list[Any] = msgspec.msgpack.decode(encode_message(message)[1:])
    return fields


def wire(fields: object) -> bytes:
    """Plain objects as bytes on the wire."""
    return bytes([WIRE_VERSION]) + msgspec.msgpack.encode(fields)


class CodecTests:
    """Every message of a codec, whole and damaged."""

    codec: Codec

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for argument, messages in (("message", self.codec.messages), ("sent", self.codec.sent)):
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, messages, ids=name)

    def test_round_trip(self, message: Any) -> None:
        back = self.codec.decode(message, encode_message(message))
        assert back == message
        assert type(back) is type(message)

    def test_message_numbers(self) -> None:
        numbers = [fields_of(message)[0] for message in self.codec.messages]
        assert numbers == list(self.codec.numbers)
        assert len(set(numbers)) == len(numbers)

    def test_truncated_at_every_byte(self, message: Any) -> None:
        data = encode_message(message)
        for length in range(len(data)):
            self.codec.refused(message, data[:length], Reason.MALFORMED)

    def test_trailing_bytes(self, message: Any) -> None:
        data = encode_message(message)
        for trailing in (b"\0", b"\xc0", data):
            self.codec.refused(message, data + trailing, Reason.MALFORMED)

    def test_other_versions(self, message: Any) -> None:
        data = encode_message(message)
        for version in set(range(256)) - {WIRE_VERSION}:
            self.codec.refused(message, bytes([version]) + data[1:], Reason.MALFORMED)

    def test_too_many_too_few_or_renumbered_fields(self, message: Any) -> None:
        fields = fields_of(message)
        for changed in (fields[:-1], [*fields, b""], [*fields, [[[]]]], [0, *fields[1:]], []):
            self.codec.refused(message, wire(changed), Reason.MALFORMED)

    def test_a_message_of_another_kind_of_party(self, message: Any) -> None:
        """Within a kind of sender the state decides."""
        for other in self.codec.messages:
            if other in self.codec.kind(message)[0]:
                assert self.codec.decode(message, encode_message(other)) == other
            else:
                self.codec.refused(message, encode_message(other), Reason.MALFORMED)

    @pytest.mark.parametrize("value", [None, True, 1.5, "text", [], {}, -1, 1 << 63, b"\0", 0])
    def test_fields_of_another_type_or_length(self, message: Any, value: object) -> None:
        fields, lengths = fields_of(message), self.codec.lengths
        for i, field_name in enumerate(type(message).__struct_fields__, start=1):
            if isinstance(value, bytes) and field_name not in lengths and field_name != "sender":
                continue
            if field_name == "sender" and type(value) is int and value >= 0:
                continue
            if type(getattr(message, field_name)) is bool and type(value) is bool:
                continue
            changed = wire([*fields[:i], value, *fields[i + 1 :]])
            self.codec.refused(message, changed, Reason.MALFORMED)

    def test_an_illegal_message_cannot_be_made(self, message: Any) -> None:
        fields = {f: getattr(message, f) for f in type(message).__struct_fields__}
        for field_name, length in self.codec.lengths.items():
            if field_name in fields:
                for other in (0, length - 1, length + 1):
                    with pytest.raises(ValueError, match=field_name):
                        type(message)(**{**fields, field_name: bytes(other)})
        if "sender" in fields:
            with pytest.raises(ValueError, match="sender"):
                type(message)(**{**fields, "sender": -1})
        with pytest.raises(AttributeError):
            message.context = b""

    @pytest.mark.parametrize("sender", [0, SENDER + 1, (1 << 32) - 1, (1 << 64) - 1])
    def test_wrong_sender(self, sent: Any, sender: int) -> None:
        fields = fields_of(sent)
        fields[2] = sender
        self.codec.refused(sent, wire(fields), Reason.UNKNOWN_SENDER)

    def test_oversized_is_refused_before_it_is_read(self, message: Any) -> None:
        self.codec.refused(message, bytes(LIMIT + 1), Reason.OVERSIZED)
        self.codec.refused(message, bytes(LIMIT), Reason.MALFORMED)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\x91" * 9_000,
            b"\x81" * 9_000,
            b"\x92\x03" + b"\x91" * 9_000,
            b"\xdd\xff\xff\xff\xff\x06",
            b"\xdd\xff\xff\xff\xff\x22",
            b"\xdf\xff\xff\xff\xff\x06",
            b"\x93\x06\xc6\xff\xff\xff\xff",
            b"\x93\x23\xc6\xff\xff\xff\xff",
            b"\x93\x06\xdb\xff\xff\xff\xff",
            b"\x93\x06\xa4\xff\xff\xff\xff\xc4\x00",
            b"\x93\xa1\xff\xc4\x00\xc4\x00",
            b"\x93\x06\xc9\xff\xff\xff\xff\x01",
            b"\x93\xcf" + b"\xff" * 8,
            b"\xc1",
        ],
    )
    def test_hostile_bodies_are_malformed(self, body: bytes) -> None:
        for kind, *_ in self.codec.decoders:
            self.codec.refused(kind[0], bytes([WIRE_VERSION]) + body, Reason.MALFORMED)
