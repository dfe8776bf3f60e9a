"""The codec of one-shot messages: honest ones round trip, other bytes are typed errors."""

from __future__ import annotations

from typing import Any

import msgspec
import one_shot_rounds as kit
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from secagg import SERVER, Reason, RemoteProtocolError
from secagg.framing import WIRE_VERSION, encode_message
from secagg.oneshot.messages import (
    HEADER_BYTES,
    Answer,
    AnyMessage,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    Upload,
    decode_from_member,
    decode_to_member,
    decode_upload,
    largest_answer_bytes,
    largest_delivery_bytes,
    largest_upload_bytes,
    seal_bytes,
    upload_bytes,
)
from secagg.pairwise.messages import AnyMessage as PairwiseMessage

TAG, SENDER, LIMIT = b"contexts", 5, 10_000
KEY, SIGNATURE = b"k" * 32, b"x" * 64
UPLOAD = Upload(TAG, SENDER, KEY, b"ciphertext", b"commitments", b"seals", SIGNATURE)
UP: list[AnyMessage] = [
    Complaints(TAG, SENDER, b"\x05", SIGNATURE),
    Confirmation(TAG, SENDER, SIGNATURE),
    Answer(TAG, SENDER, b"sums", b"seeds", b"checks", SIGNATURE),
]
DOWN: list[AnyMessage] = [
    Delivery(TAG, b"cohort", b"\x0f", b"headers", b"seals"),
    Proposal(TAG, b"\x0f"),
    Quorum(TAG, b"\x0f", b"signatures"),
]
ALL = [UPLOAD, *UP, *DOWN]
LENGTHS = {"context": 8, "ephemeral_key": 32, "signature": 64}


def name(message: object) -> str:
    return type(message).__name__


def decode(message: AnyMessage, data: bytes) -> AnyMessage:
    """Decode as the kind of party that gets this kind of message."""
    if message in DOWN:
        return decode_to_member(data, SERVER, LIMIT)
    if message is UPLOAD:
        return decode_upload(data, SENDER, LIMIT)
    return decode_from_member(data, SENDER, LIMIT)


def refused(message: AnyMessage, data: bytes, reason: Reason) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        decode(message, data)
    assert raised.value.reason is reason
    assert raised.value.party == (SERVER if message in DOWN else SENDER)
    assert raised.value.role == ("member" if message in UP else "client")


def fields_of(message: AnyMessage) -> list[Any]:
    """The MessagePack array of a message as plain objects."""
    fields: list[Any] = msgspec.msgpack.decode(encode_message(message)[1:])
    return fields


def wire(fields: object) -> bytes:
    return bytes([WIRE_VERSION]) + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_round_trip(message: AnyMessage) -> None:
    back = decode(message, encode_message(message))
    assert back == message
    assert type(back) is type(message)


def test_message_numbers_are_distinct_and_not_those_of_the_pairwise_protocol() -> None:
    numbers = [fields_of(message)[0] for message in ALL]
    assert numbers == [32, 34, 36, 38, 33, 35, 37]
    pairwise = {each.__struct_config__.tag for each in PairwiseMessage.__args__}  # type: ignore[attr-defined]
    assert len(pairwise) == 11
    assert pairwise.isdisjoint(numbers)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_truncated_at_every_byte(message: AnyMessage) -> None:
    data = encode_message(message)
    for length in range(len(data)):
        refused(message, data[:length], Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_trailing_bytes(message: AnyMessage) -> None:
    data = encode_message(message)
    for trailing in (b"\0", b"\xc0", data):
        refused(message, data + trailing, Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_other_versions(message: AnyMessage) -> None:
    data = encode_message(message)
    for version in set(range(256)) - {WIRE_VERSION}:
        refused(message, bytes([version]) + data[1:], Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_too_many_too_few_or_renumbered_fields(message: AnyMessage) -> None:
    fields = fields_of(message)
    for changed in (fields[:-1], [*fields, b""], [*fields, [[[]]]], [0, *fields[1:]], []):
        refused(message, wire(changed), Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
@pytest.mark.parametrize("other", ALL, ids=name)
def test_a_message_of_another_kind_of_party(message: AnyMessage, other: AnyMessage) -> None:
    """Within a kind of sender the state decides."""
    kinds = [[UPLOAD], UP, DOWN]
    same = any(message in kind and other in kind for kind in kinds)
    if same:
        assert decode(message, encode_message(other)) == other
    else:
        refused(message, encode_message(other), Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
@pytest.mark.parametrize("value", [None, True, 1.5, "text", [], {}, -1, 1 << 63, b"\0", 0])
def test_fields_of_another_type_or_length(message: AnyMessage, value: object) -> None:
    fields = fields_of(message)
    for i, field_name in enumerate(type(message).__struct_fields__, start=1):
        if isinstance(value, bytes) and field_name not in LENGTHS and field_name != "sender":
            continue
        if field_name == "sender" and type(value) is int and value >= 0:
            continue
        refused(message, wire([*fields[:i], value, *fields[i + 1 :]]), Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_an_illegal_message_cannot_be_made(message: AnyMessage) -> None:
    fields = {f: getattr(message, f) for f in type(message).__struct_fields__}
    for field_name, length in LENGTHS.items():
        if field_name in fields:
            for other in (0, length - 1, length + 1):
                with pytest.raises(ValueError, match=field_name):
                    type(message)(**{**fields, field_name: bytes(other)})
    if "sender" in fields:
        with pytest.raises(ValueError, match="sender"):
            type(message)(**{**fields, "sender": -1})
    with pytest.raises(AttributeError):
        message.context = b""  # type: ignore[misc]


@pytest.mark.parametrize("message", [UPLOAD, *UP], ids=name)
@pytest.mark.parametrize("sender", [0, SENDER + 1, (1 << 32) - 1, (1 << 64) - 1])
def test_wrong_sender(message: AnyMessage, sender: int) -> None:
    fields = fields_of(message)
    fields[2] = sender
    refused(message, wire(fields), Reason.UNKNOWN_SENDER)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_oversized_is_refused_before_it_is_read(message: AnyMessage) -> None:
    refused(message, bytes(LIMIT + 1), Reason.OVERSIZED)
    refused(message, bytes(LIMIT), Reason.MALFORMED)


@pytest.mark.parametrize("message", ALL, ids=name)
def test_shares_and_seals_are_not_printed(message: AnyMessage) -> None:
    fields = msgspec.structs.asdict(message)
    named = {f: b"<" * LENGTHS.get(f, 40) for f in fields if f != "sender"}
    assert "<" not in repr(msgspec.structs.replace(message, **named))


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("rounding_bits", [0, 6])
def test_no_honest_message_exceeds_the_bounds(everybody: bool, rounding_bits: int) -> None:
    """A large cohort and committee, so that the bounds are near."""
    committee = kit.committee(40, corrupt=4, per_polynomial=3)
    context = kit.context(
        40, committee=committee, removal=(0b1111,) * 20, length=300, rounding_bits=rounding_bits
    )
    round_ = kit.Round(context, inputs=[[client % 5] * 300 for client in range(40)])
    uploads = [round_.upload(client) for client in round_.clients]
    assert max(map(len, uploads)) <= largest_upload_bytes(context)
    assert min(map(len, uploads)) > largest_upload_bytes(context) - 64
    message = decode_upload(uploads[1], 1, len(uploads[1]))
    parts = upload_bytes(context)
    assert {"ciphertext", "seals", "commitments", "header"} == set(parts)
    assert len(message.ciphertext) == parts["ciphertext"]
    assert len(message.seals) == parts["seals"] == 40 * seal_bytes(context)
    assert len(message.commitments) == parts["commitments"] == 4 * 32
    for client, data in enumerate(uploads):
        if everybody or client > 3:
            round_.server.receive_upload(client, data)
    answers = []
    for _ in range(3):
        round_.pass_on(lambda _, data: answers.append(len(data)) or data)  # type: ignore[func-returns-value]
        assert max(map(len, round_.sent.values())) <= largest_delivery_bytes(context)
    assert max(answers) <= largest_answer_bytes(context)
    assert round_.server.open().survivors == tuple(range(0 if everybody else 4, 40))


def test_a_header_is_as_long_as_it_is_said() -> None:
    round_ = kit.Round(kit.context())
    round_.collect()
    headers = round_.server._uploads.headers.values()
    assert {len(header.encode()) for header in headers} == {HEADER_BYTES}


# -- arbitrary bytes ------------------------------------------------------------------------------


def change(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for at, value in changes:
        out[at % len(out)] = value
    return bytes(out)


def bodies() -> st.SearchStrategy[bytes]:
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
    numbered = st.tuples(st.integers(31, 39), st.just(TAG)).flatmap(
        lambda head: st.lists(scalars, max_size=6).map(lambda rest: [*head, *rest])
    )
    changed = st.tuples(
        st.sampled_from([encode_message(message)[1:] for message in ALL]),
        st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    ).map(lambda pair: change(*pair))
    packed = st.one_of(trees, numbered).map(msgspec.msgpack.encode)
    return st.one_of(st.binary(max_size=200), packed, changed)


@settings(max_examples=200)
@given(body=bodies(), version=st.sampled_from([WIRE_VERSION] * 9 + [0]))
@example(body=b"", version=WIRE_VERSION)
@example(body=b"\x91" * 9_000, version=WIRE_VERSION)
@example(body=b"\xdd\xff\xff\xff\xff\x22", version=WIRE_VERSION)
@example(body=b"\x93\x23\xc6\xff\xff\xff\xff", version=WIRE_VERSION)
@example(body=b"\x93\xcf" + b"\xff" * 8, version=WIRE_VERSION)
@example(body=b"\x93\xa1\xff\xc4\x00\xc4\x00", version=WIRE_VERSION)
def test_any_bytes_are_accepted_or_refused(body: bytes, version: int) -> None:
    data = bytes([version]) + body
    for message in (UPLOAD, UP[0], DOWN[0]):
        try:
            accepted = decode(message, data)
        except RemoteProtocolError:
            continue
        event("accepted")
        assert decode(message, encode_message(accepted)) == accepted
