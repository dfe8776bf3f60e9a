"""The codec of one-shot messages: honest ones round trip, other bytes are typed errors."""

from __future__ import annotations

import one_shot_rounds as kit
import pytest
from codec import SENDER, TAG, Codec, CodecTests
from hypothesis import event, given, settings
from hypothesis import strategies as st

from secagg.framing import WIRE_VERSION
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

KEY, SIGNATURE = b"k" * 32, b"x" * 64
UPLOAD = Upload(TAG, SENDER, KEY, b"ciphertext", b"commitments", b"seals", False, SIGNATURE)
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
CODEC = Codec(
    decoders=[
        ([UPLOAD], decode_upload, "client"),
        (UP, decode_from_member, "member"),
        (DOWN, decode_to_member, "client"),
    ],
    lengths={"context": 8, "ephemeral_key": 32, "signature": 64},
    numbers=[32, 34, 36, 38, 33, 35, 37],
)


class TestCodec(CodecTests):
    codec = CODEC


def test_message_numbers_are_not_those_of_the_pairwise_protocol() -> None:
    pairwise = {each.__struct_config__.tag for each in PairwiseMessage.__args__}  # type: ignore[attr-defined]
    assert len(pairwise) == 11
    assert pairwise.isdisjoint(CODEC.numbers)


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


@settings(max_examples=200)
@given(body=CODEC.bodies(), version=st.sampled_from([WIRE_VERSION] * 9 + [0]))
def test_any_bytes_are_accepted_or_refused(body: bytes, version: int) -> None:
    if CODEC.takes_or_refuses(bytes([version]) + body):
        event("accepted")
