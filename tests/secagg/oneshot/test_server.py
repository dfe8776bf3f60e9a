"""What the one-shot server refuses. A refused message changes nothing, and the round completes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest
from msgspec.structs import replace

from secagg import (
    LocalProtocolError,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
)
from secagg.framing import encode_message, encode_set
from secagg.oneshot.header import Header
from secagg.oneshot.messages import (
    AnyMessage,
    Confirmation,
    decode_from_member,
    decode_upload,
    largest_answer_bytes,
    largest_upload_bytes,
    seal_bytes,
)
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.spool import Spool
from secagg.oneshot.transitions import ServerPhase
from secagg.tags import Usage

UPLOAD, CHECK, CONFIRM, OPEN = range(4)
STAGES = {"upload": UPLOAD, "check": CHECK, "confirm": CONFIRM, "open": OPEN}
each_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
each_member_stage = pytest.mark.parametrize("stage", [CHECK, CONFIRM, OPEN])
SEEDS = (0b11, 0b01)


class Before(kit.Round):
    """A round before a stage, with what its parties are about to send.

    Args:
        gone: members that are silent in the stage before.
    """

    def __init__(self, stage: int, gone: Collection[int] = (), **changes: Any) -> None:
        super().__init__(kit.context(**{"removal": SEEDS, **changes}))
        self.stage = stage
        self.outgoing: dict[int, bytes] = {}
        if stage == UPLOAD:
            self.outgoing = {client: self.upload(client) for client in self.clients}
            return
        self.collect()
        for passing in range(1, stage):
            silent = gone if passing == stage - 1 else ()
            self.pass_on(lambda member, data, s=silent: None if member in s else data)  # type: ignore[misc]
        self.ask()

    def ask(self) -> None:
        """Close the stage before, and keep what the members answer."""
        self.sent = dict(self.server.close_round_bytes())
        self.outgoing = {j: self.members[j].receive_bytes(data) for j, data in self.sent.items()}

    @property
    def role(self) -> str:
        return "client" if self.stage == UPLOAD else "member"

    def message(self, party: int = 1) -> Any:
        data = self.outgoing[party]
        decode = decode_upload if self.stage == UPLOAD else decode_from_member
        return decode(data, party, len(data))

    def deliver(self, party: int, data: bytes) -> None:
        if self.stage == UPLOAD:
            self.server.receive_upload(party, data)
        else:
            self.server.receive_from_member(party, data)

    def finish_from_here(self) -> OpenedSum:
        """Deliver what is outstanding and play on to the end."""
        for party, data in self.outgoing.items():
            if party not in self.server.answered:
                self.deliver(party, data)
        for _ in range(self.stage, OPEN):
            self.pass_on()
        return self.server.open()

    def refuses(self, message: AnyMessage | bytes, reason: Reason, party: int = 1) -> None:
        """The message is refused, nothing changes, and the honest messages make the sum."""
        data = message if isinstance(message, bytes) else encode_message(message)
        before = (self.server.phase, self.server.answered, self.server._uploads.total().sums.copy())
        with pytest.raises(RemoteProtocolError) as raised:
            self.deliver(party, data)
        error = raised.value
        assert (error.reason, error.party, error.role) == (reason, party, self.role)
        assert (self.server.phase, self.server.answered) == before[:2]
        assert np.array_equal(self.server._uploads.total().sums, before[2])
        opened = self.finish_from_here()
        assert opened.survivors == tuple(range(5))
        assert opened.vector.elements.tolist() == self.expected(range(5))
        assert opened.wrong_members == ()


# -- at every stage -------------------------------------------------------------------------------


@each_stage
def test_message_of_another_context(stage: int) -> None:
    before = Before(stage)
    before.refuses(replace(before.message(), context=bytes(8)), Reason.WRONG_CONTEXT)


@each_stage
def test_message_in_the_name_of_another(stage: int) -> None:
    before = Before(stage)
    before.refuses(before.message(2), Reason.UNKNOWN_SENDER)


@each_stage
@pytest.mark.parametrize("change", ["", "truncated", "trailing", "version", "oversized"])
def test_bytes_that_are_no_message(stage: int, change: str) -> None:
    before = Before(stage)
    data = before.outgoing[1]
    limit = (largest_upload_bytes if stage == UPLOAD else largest_answer_bytes)(before.context)
    changed = {
        "": b"",
        "truncated": data[:-1],
        "trailing": data + b"\0",
        "version": bytes([data[0] + 1]) + data[1:],
        "oversized": data.ljust(limit + 1, b"\0"),
    }[change]
    before.refuses(changed, Reason.OVERSIZED if change == "oversized" else Reason.MALFORMED)


@each_stage
@pytest.mark.parametrize("sender", [6, 7, 1 << 40, -1, -2])
def test_stranger(stage: int, sender: int) -> None:
    before = Before(stage)
    with pytest.raises(RemoteProtocolError) as raised:
        before.deliver(sender, before.outgoing[1])
    assert raised.value.reason is Reason.UNKNOWN_SENDER
    if sender >= 0:
        with pytest.raises(RemoteProtocolError) as raised:
            before.server.receive(replace(before.message(), sender=sender))
        assert (raised.value.reason, raised.value.role) == (Reason.UNKNOWN_SENDER, before.role)
    before.finish_from_here()


def test_a_member_has_a_number_that_no_client_has() -> None:
    """Six members, five clients: member 5 speaks, client 5 does not exist."""
    before = Before(UPLOAD)
    with pytest.raises(RemoteProtocolError) as raised:
        before.server.receive(replace(before.message(), sender=5))
    assert raised.value.reason is Reason.UNKNOWN_SENDER
    before = Before(CHECK)
    before.deliver(5, before.outgoing[5])
    assert before.server.answered == (5,)


@each_stage
def test_duplicate(stage: int) -> None:
    """A second copy of an upload must not be added to the sum."""
    before = Before(stage)
    before.deliver(1, before.outgoing[1])
    before.refuses(before.message(), Reason.DUPLICATE_MESSAGE)


@each_stage
def test_late_message(stage: int) -> None:
    before = Before(stage)
    late = before.outgoing.pop(1)
    for party, data in before.outgoing.items():
        before.deliver(party, data)
    if stage == OPEN:
        opened = before.server.open()
        with pytest.raises(SessionAbortedError):
            before.deliver(1, late)
        assert opened.survivors == tuple(range(5))
        return
    before.ask()
    with pytest.raises(RemoteProtocolError) as raised:
        before.deliver(1, late)
    assert raised.value.reason is Reason.UNEXPECTED_MESSAGE
    before.stage += 1
    opened = before.finish_from_here()
    assert (1 in opened.survivors) == (stage != UPLOAD)
    assert opened.vector.elements.tolist() == before.expected(opened.survivors)


@pytest.mark.parametrize("stage", [CONFIRM, OPEN])
def test_member_that_missed_the_stage_before(stage: int) -> None:
    honest, before = Before(stage), Before(stage, gone=[1])
    assert 1 not in before.outgoing
    before.refuses(honest.message(), Reason.UNKNOWN_SENDER)


# -- uploads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ephemeral_key", "ciphertext", "commitments", "seals"])
@pytest.mark.parametrize("position", [0, -1])
def test_changed_upload(name: str, position: int) -> None:
    before = Before(UPLOAD)
    value = bytearray(getattr(before.message(), name))
    value[position] ^= 1
    changed = replace(before.message(), **{name: bytes(value)})
    before.refuses(changed, Reason.BAD_SIGNATURE)


@pytest.mark.parametrize("signer", ["client 0", "another context", "nobody"])
def test_upload_that_its_sender_did_not_sign(signer: str) -> None:
    before = Before(UPLOAD)
    message = before.message()
    if signer == "client 0":
        changed = replace(kit.signed_upload(before.context, replace(message, sender=0)), sender=1)
    elif signer == "another context":
        changed = kit.signed_upload(kit.context(removal=SEEDS, round_number=4), message)
    else:
        changed = replace(message, signature=bytes(64))
    before.refuses(changed, Reason.BAD_SIGNATURE)


def test_upload_of_another_context_under_this_tag() -> None:
    """Two rounds with all the same keys and bytes: the header names its context."""
    before, other = Before(UPLOAD), Before(UPLOAD, application_digest=b"other model".ljust(32))
    changed = replace(other.message(), context=before.message().context)
    before.refuses(changed, Reason.BAD_SIGNATURE)


@pytest.mark.parametrize("key", [bytes(32), b"\xff" * 32, b"\1" + bytes(31)])
def test_ephemeral_key_that_no_honest_client_sends(key: bytes) -> None:
    before = Before(UPLOAD)
    before.refuses(
        kit.signed_upload(before.context, replace(before.message(), ephemeral_key=key)),
        Reason.BAD_KEY,
    )


@pytest.mark.parametrize("name", ["commitments", "seals"])
@pytest.mark.parametrize(
    "change",
    [lambda d: b"", lambda d: d[:-1], lambda d: d[:-32], lambda d: d + b"\0"],
)
def test_upload_with_a_list_of_another_length(name: str, change: Callable[[bytes], bytes]) -> None:
    before = Before(UPLOAD)
    message = before.message()
    changed = kit.signed_upload(
        before.context, replace(message, **{name: change(getattr(message, name))})
    )
    before.refuses(changed, Reason.BAD_LENGTH)


def test_upload_with_one_seal_too_few() -> None:
    before = Before(UPLOAD)
    message = before.message()
    seals = message.seals[: -seal_bytes(before.context)]
    before.refuses(
        kit.signed_upload(before.context, replace(message, seals=seals)), Reason.BAD_LENGTH
    )


@pytest.mark.parametrize("rounding_bits", [0, 4])
@pytest.mark.parametrize("change", ["short", "long", "range", "padding"])
def test_ciphertext_that_is_none(rounding_bits: int, change: str) -> None:
    # Below 64 coefficients are 64, which end with a byte.
    before = Before(UPLOAD, rounding_bits=rounding_bits, length=67)
    message = before.message()
    data = message.ciphertext
    changed = {
        "short": data[:-1],
        "long": data + b"\0",
        # All ones are beyond every modulus.
        "range": b"\xff\xff\xff\xff" + data[4:],
        "padding": data[:-1] + bytes([data[-1] | 0x80]),
    }[change]
    before.refuses(
        kit.signed_upload(before.context, replace(message, ciphertext=changed)), Reason.NOT_IN_FIELD
    )


def test_a_client_may_send_what_it_likes_and_counts_once() -> None:
    """A second, other upload, rightly signed: the first one stands."""
    before = Before(UPLOAD)
    before.deliver(1, before.outgoing[1])
    other = kit.Round(before.context)
    second = other.clients[1]
    second.seeds(b"other")
    message = second.submit(other.vector(2))
    before.refuses(message, Reason.DUPLICATE_MESSAGE)


# -- complaints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bitmap", [b"", b"\x1f\0", b"\x20", b"\x80"])
def test_complaints_of_another_form(bitmap: bytes) -> None:
    before = Before(CHECK)
    before.refuses(replace(before.message(), bad=bitmap), Reason.BAD_LENGTH)


def test_complaints_that_the_member_did_not_sign() -> None:
    """One bit more on the way would evict an honest client."""
    for change in ({"bad": b"\x02"}, {"signature": bytes(64)}):
        before = Before(CHECK)
        before.refuses(replace(before.message(), **change), Reason.BAD_SIGNATURE)
    before = Before(CHECK)
    signed = before.complaints(2, [0])
    before.refuses(replace(signed, sender=1), Reason.BAD_SIGNATURE)


def test_complaint_about_an_upload_that_did_not_arrive() -> None:
    round_ = kit.Round(kit.context(6))
    round_.collect({2})
    sent = dict(round_.server.close_round_bytes())
    with pytest.raises(RemoteProtocolError) as raised:
        round_.server.receive(round_.complaints(1, [2]))
    assert (raised.value.reason, raised.value.role) == (Reason.SET_NOT_NESTED, "member")
    round_.server.receive_from_member(1, round_.members[1].receive_bytes(sent[1]))


# -- confirmations and answers --------------------------------------------------------------------


@pytest.mark.parametrize("of", ["nothing", "member 2", "other uploads"])
def test_confirmation_of_something_else(of: str) -> None:
    before = Before(CONFIRM)
    message = before.message()
    if of == "nothing":
        signature = bytes(64)
    elif of == "member 2":
        signature = before.message(2).signature
    else:
        signature = before.member_identity(1).sign(Usage.SURVIVORS, bytes(32))
    before.refuses(replace(message, signature=signature), Reason.BAD_SIGNATURE)


def test_complaints_are_no_confirmation() -> None:
    """One stage's message in another, the same member's and rightly signed."""
    before = Before(CONFIRM)
    before.refuses(before.complaints(1, []), Reason.UNEXPECTED_MESSAGE)
    before = Before(OPEN)
    tag, signature = before.message().context, before.server._confirmations[1]
    before.refuses(Confirmation(tag, 1, signature), Reason.UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("name", ["sums", "seeds", "checks"])
def test_changed_answer(name: str) -> None:
    before = Before(OPEN)
    message = before.message()
    value = bytearray(getattr(message, name))
    value[0] ^= 1
    before.refuses(replace(message, **{name: bytes(value)}), Reason.BAD_SIGNATURE)


@pytest.mark.parametrize("name", ["sums", "seeds", "checks"])
@pytest.mark.parametrize(
    "change",
    [
        lambda d: b"",
        lambda d: d[:-4],
        lambda d: d[:-1],
        lambda d: d + bytes(4),
        lambda d: b"\xff\xff\xff\x7f" + d[4:],
        lambda d: d[:-4] + b"\xff\xff\xff\xff",
    ],
)
def test_answer_that_is_no_vector_of_shares(name: str, change: Callable[[bytes], bytes]) -> None:
    before = Before(OPEN)
    message = before.message()
    changed = replace(message, **{name: change(getattr(message, name))})
    before.refuses(before.answer(1, changed), Reason.BAD_SHARE)


def test_answer_of_another_set() -> None:
    """The same member, the same context, another set of survivors."""
    before, other = Before(OPEN), Before(CHECK)
    other.deliver(1, encode_message(other.complaints(1, [0])))
    for member in (0, 2, 3, 4, 5):
        data = encode_message(other.complaints(member, [0] if member == 2 else []))
        other.deliver(member, data)
    other.stage = OPEN
    other.pass_on()
    other.ask()
    assert other.server.survivors == (1, 2, 3, 4)
    changed = other.message(3)
    before.refuses(changed, Reason.BAD_SIGNATURE, party=3)


# -- our own caller -------------------------------------------------------------------------------


def test_a_server_of_another_cohort_is_refused() -> None:
    for size in (4, 5, 6):
        keys = [kit.identity("stranger", i).public for i in range(size)]
        with pytest.raises(ParameterError, match="cohort"):
            OneShotServer(kit.context(), type(kit.cohort(size))(keys))
    with pytest.raises(ParameterError, match="cohort"):
        OneShotServer(kit.context(), kit.cohort(6))


@each_stage
def test_opening_and_closing_at_the_wrong_time(stage: int) -> None:
    """Our own mistake, not a peer's: nothing is lost."""
    before = Before(stage)
    with pytest.raises(LocalProtocolError):
        before.server.close_round() if stage == OPEN else before.server.open()
    opened = before.finish_from_here()
    assert opened.vector.elements.tolist() == before.expected(range(5))


def test_a_finished_server_takes_nothing() -> None:
    before = Before(OPEN)
    before.finish_from_here()
    for use in (
        before.server.open,
        before.server.close_round,
        lambda: before.server.receive(before.message()),
        lambda: before.server.receive_from_member(1, b""),
        lambda: before.server.receive_upload(1, b""),
    ):
        with pytest.raises(SessionAbortedError):
            use()
        assert before.server.phase is ServerPhase.FINISHED
    assert before.server.answered == ()


def test_an_interrupt_while_closing_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the ciphertexts that are left out may be off the sum already."""
    round_ = kit.Round(kit.context(7))
    round_.collect()
    round_.check({1: {2, 3}, 4: {2, 3}})
    real = round_.server._uploads.total().subtract
    calls = []

    def interrupted(ciphertext: Any) -> None:
        if calls:
            raise KeyboardInterrupt
        calls.append(real(ciphertext))

    monkeypatch.setattr(round_.server._uploads.total(), "subtract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        round_.server.close_round()
    assert round_.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        round_.server.close_round()


def test_who_has_answered() -> None:
    round_ = kit.Round(kit.context())
    round_.server.receive_upload(3, round_.upload(3))
    assert round_.server.answered == (3,)
    assert (round_.server.survivors, round_.server.excluded) == ((), ())
    for client in (0, 1, 2, 4):
        round_.server.receive_upload(client, round_.upload(client))
    for _ in range(3):
        round_.pass_on(lambda member, data: data if member != 2 else None)
        assert round_.server.answered == (0, 1, 3, 4, 5)
    assert round_.server.survivors == (0, 1, 2, 3, 4)


def test_messages_to_members_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they are clients times members seals: at 64,000 clients more than fits memory.

    What the spool reads at once is bounded by a number of bytes; here by a column.
    """
    context = kit.context(40, 30, length=2)
    round_ = kit.Round(context, inputs=[[1, 2]] * 40)
    round_.collect()
    one, real = 40 * seal_bytes(context), Spool.columns
    monkeypatch.setattr(Spool, "columns", lambda *arguments: real(*arguments, together=one))
    tracemalloc.start()
    total, fewest = 0, 1 << 30
    for _, data in round_.server.close_round_bytes():
        total, fewest = total + len(data), min(fewest, len(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fewest > one
    assert peak < total / 4


def test_members_get_their_own_seals_and_the_same_headers() -> None:
    round_ = kit.Round(kit.context())
    round_.collect({3})
    sent = dict(round_.server.close_round())
    size = seal_bytes(round_.context)
    uploads = {i: round_.clients[i]._state for i in (0, 1, 2, 4)}
    messages = {i: decode_upload(each.upload, i, 1 << 20) for i, each in uploads.items()}
    for member, delivery in sent.items():
        wanted = [messages[i].seals[member * size : (member + 1) * size] for i in messages]
        assert delivery.seals == b"".join(wanted)
        assert delivery.headers == b"".join(Header.of(each).encode() for each in messages.values())
        assert delivery.uploaded == encode_set([0, 1, 2, 4], 5)
        assert delivery.cohort == b"".join(round_.cohort.keys)
