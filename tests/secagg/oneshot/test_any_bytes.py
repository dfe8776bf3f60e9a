"""Arbitrary bytes at every stage, also rightly signed: accepted, or one kind of error."""

from __future__ import annotations

from typing import Any

import msgspec
import one_shot_rounds as kit
import pytest
from codec import changed_bytes
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from secagg import SERVER, LocalProtocolError, RemoteProtocolError
from secagg.framing import WIRE_VERSION, encode_message
from secagg.oneshot.header import Header
from secagg.oneshot.messages import (
    HEADER_BYTES,
    decode_from_member,
    decode_to_member,
    decode_upload,
)
from secagg.oneshot.transitions import MemberPhase
from secagg.oneshot.wire import decode, wire_bytes
from secagg.tags import Usage, encode_index

CONTEXT = kit.context(removal=(0b11, 0b01))
STAGES = ("upload", "check", "confirm", "open")


def some_changes(limit: int = 4000) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, limit), st.integers(0, 255)), max_size=4)


def played(stage: int) -> tuple[kit.Round, dict[int, bytes], dict[int, bytes]]:
    """A round before a stage: what members are sent, and what parties answer."""
    round_ = kit.Round(CONTEXT)
    if stage == 0:
        return round_, {}, {client: round_.upload(client) for client in round_.clients}
    round_.collect()
    for _ in range(stage - 1):
        round_.pass_on()
    sent = dict(round_.server.close_round_bytes())
    # Member 1 has not got its message yet.
    return round_, sent, {j: round_.members[j].receive_bytes(sent[j]) for j in sent if j != 1}


def bodies() -> st.SearchStrategy[bytes]:
    """Numbered MessagePack arrays of this context, with any fields."""
    scalars = st.one_of(
        st.integers(0, 6),
        st.binary(max_size=80),
        st.sampled_from([bytes(32), bytes(64), b"\x1f", b"\x0f", b"\x3f"]),
        st.none(),
        st.text(max_size=3),
    )
    return st.tuples(st.integers(31, 39), st.lists(scalars, max_size=6)).map(
        lambda pair: (
            bytes([WIRE_VERSION]) + msgspec.msgpack.encode([pair[0], CONTEXT.hash[:8], *pair[1]])
        )
    )


@pytest.mark.parametrize("stage", range(4), ids=STAGES)
def test_any_bytes_at_any_stage_are_accepted_or_refused(stage: int) -> None:
    round_, sent, answers = played(stage)
    party = 0
    honest = [answers[party], *list(sent.values())[:1]]
    data = st.one_of(
        st.tuples(st.sampled_from(honest), some_changes()).map(lambda pair: changed_bytes(*pair)),
        bodies(),
        st.binary(max_size=60).map(lambda rest: bytes([WIRE_VERSION]) + rest),
    )
    receive = round_.server.receive_from_member if stage else round_.server.receive_upload

    @settings(max_examples=80)
    @given(data=data)
    def check(data: bytes) -> None:
        before = round_.server.phase, round_.server.answered
        try:
            receive(party, data)
        except RemoteProtocolError as error:
            assert (error.party, error.role) == (party, "member" if stage else "client")
            assert (round_.server.phase, round_.server.answered) == before
        else:
            event("the server accepts")
        if not stage:
            return
        # A member's session ends with an error, so each example has one of its own.
        session = type(round_.members[1]).from_state(round_.members[1]._party, state)
        try:
            session.receive_bytes(data)
        except RemoteProtocolError as error:
            assert error.party == SERVER
            assert session.phase is MemberPhase.ABORTED
        else:
            event("the member accepts")

    state = round_.members[1]._state
    check()


# -- rightly signed -------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    field=st.sampled_from(["ephemeral_key", "ciphertext", "commitments", "seals"]),
    changes=some_changes(),
    cut=st.sampled_from([0, 0, 0, 1, 4, 32]),
    added=st.binary(max_size=3),
)
def test_whatever_a_client_signs_is_accepted_or_refused(
    field: str, changes: list[tuple[int, int]], cut: int, added: bytes
) -> None:
    """And members that then find its seals bad complain; the others' sum is right, or lost."""
    round_ = kit.Round(CONTEXT)
    uploads = {client: round_.upload(client) for client in round_.clients}
    message: Any = decode_upload(uploads[2], 2, len(uploads[2]))
    value = changed_bytes(getattr(message, field), changes)
    value = value[: len(value) - cut] + added
    try:
        changed = kit.signed_upload(CONTEXT, replace(message, **{field: value}))
    except ValueError:
        return  # such a message cannot be made
    data = encode_message(changed)
    try:
        round_.server.receive_upload(2, data)
    except RemoteProtocolError as error:
        event(f"{field}: {error.reason.name}")
        assert (error.party, error.role) == (2, "client")
    for client in (0, 1, 3, 4):
        round_.server.receive_upload(client, uploads[client])
    for _ in range(3):
        round_.pass_on()
    try:
        opened = round_.server.open()
    except LocalProtocolError:
        event("lost")
        return
    if 2 not in opened.survivors or data == uploads[2]:
        event("summed")
        assert opened.vector.elements.tolist() == round_.expected(opened.survivors)


@settings(max_examples=80)
@given(
    stage=st.sampled_from([1, 2, 3]),
    where=st.integers(0, 3),
    changes=some_changes(),
    cut=st.sampled_from([0, 0, 0, 1, 4]),
)
def test_whatever_a_member_signs_is_accepted_or_refused(
    stage: int, where: int, changes: list[tuple[int, int]], cut: int
) -> None:
    round_, _, answers = played(stage)
    message: Any = decode_from_member(answers[0], 0, len(answers[0]))
    names = {1: ["bad"], 2: ["signature"], 3: ["sums", "seeds", "checks"]}[stage]
    name = names[where % len(names)]
    value = changed_bytes(getattr(message, name), changes)
    value = value[: len(value) - cut] if name != "signature" else value
    changed = replace(message, **{name: value})
    if stage == 1:
        parts = (CONTEXT.hash, encode_index(0), value)
        signature = round_.member_identity(0).sign(Usage.COMPLAIN, *parts)
        data = encode_message(replace(changed, signature=signature))
    else:
        data = encode_message(changed) if stage == 2 else round_.answer(0, changed)
    try:
        round_.server.receive_from_member(0, data)
    except RemoteProtocolError as error:
        assert (error.party, error.role) == (0, "member")
        assert round_.server.answered == ()
    else:
        assert round_.server.answered == (0,)


@settings(max_examples=80)
@given(
    name=st.sampled_from(["cohort", "uploaded", "headers", "seals"]),
    changes=some_changes(),
    cut=st.sampled_from([0, 0, 0, 1, 32]),
)
def test_whatever_a_server_delivers_is_checked(
    name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    """The member complains about somebody, or refuses; what is untouched it takes."""
    round_ = kit.Round(CONTEXT)
    round_.collect()
    sent = dict(round_.server.close_round_bytes())[0]
    message: Any = decode_to_member(sent, SERVER, len(sent))
    value = changed_bytes(getattr(message, name), changes)
    changed = replace(message, **{name: value[: len(value) - cut]})
    try:
        answer: Any = round_.members[0].receive(changed)
    except RemoteProtocolError as error:
        assert error.party == SERVER
        assert round_.members[0].phase is MemberPhase.ABORTED
    else:
        assert (answer.bad == b"\0") == (changed == message)


# -- decoders that raise ValueError ---------------------------------------------------------------


@settings(max_examples=100)
@given(
    length=st.integers(1, 40),
    rounding_bits=st.sampled_from([0, 3, 4]),
    data=st.data(),
)
def test_ciphertexts_that_decode_encode_to_the_same_bytes(
    length: int, rounding_bits: int, data: st.DataObject
) -> None:
    packing = kit.context(rounding_bits=rounding_bits).packing
    size = wire_bytes(packing, length)
    raw = data.draw(st.one_of(st.binary(min_size=size, max_size=size), st.binary(max_size=30)))
    try:
        found = decode(packing, length, raw)
    except ValueError:
        return
    event("decoded")
    assert found.encode() == raw


FLAG = 3 * 32
"""Where a header says whether it takes something back."""


@settings(max_examples=20)
@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES), st.integers(0, 4))
def test_headers_encode_to_the_same_bytes_and_are_nobody_s(raw: bytes, sender: int) -> None:
    """Their flag is 0 or 1."""
    for flag in range(256):
        encoded = raw[:FLAG] + bytes([flag]) + raw[FLAG + 1 :]
        if flag > 1:
            with pytest.raises(ValueError, match="neither 0 nor 1"):
                Header.decode(sender, encoded)
            continue
        header = Header.decode(sender, encoded)
        assert header.encode() == encoded
        assert (header.sender, header.returns) == (sender, bool(flag))
        assert not header.is_signed(CONTEXT, kit.identity("client", sender).public)
        assert type(header.has_good_key()) is bool
