"""The one-shot server and its caller, what it sends, and what it holds.

What it refuses is in the corpus: test_refusals.py.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

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
from secagg.framing import encode_set
from secagg.oneshot.header import Header
from secagg.oneshot.messages import (
    decode_from_member,
    decode_upload,
    seal_bytes,
)
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.spool import Spool
from secagg.oneshot.transitions import ServerPhase

UPLOAD, CHECK, CONFIRM, OPEN = range(4)
STAGES = {"upload": UPLOAD, "check": CHECK, "confirm": CONFIRM, "open": OPEN}
each_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


class Before(kit.Round):
    """A round before a stage, with what its parties are about to send."""

    def __init__(self, stage: int) -> None:
        super().__init__(kit.context(removal=(0b11, 0b01)))
        self.stage = stage
        if stage == UPLOAD:
            self.outgoing = {client: self.upload(client) for client in self.clients}
            return
        self.collect()
        for _ in range(1, stage):
            self.pass_on()
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


@each_stage
def test_a_message_of_a_stranger_is_refused_without_its_bytes(stage: int) -> None:
    """Six members, five clients: client 5 does not exist, and nor does member 6."""
    before = Before(stage)
    for sender in (5 if stage == UPLOAD else 6, 1 << 40):
        with pytest.raises(RemoteProtocolError) as raised:
            before.server.receive(replace(before.message(), sender=sender))
        assert (raised.value.reason, raised.value.role) == (Reason.UNKNOWN_SENDER, before.role)
    before.finish_from_here()


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
