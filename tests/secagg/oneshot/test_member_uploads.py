"""Rounds to which members upload: who may take something back, and how many of each are needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import one_shot_rounds as kit
import pytest
from msgspec.structs import replace

from secagg import (
    SERVER,
    ParameterError,
    Reason,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.framing import decode_set
from secagg.oneshot import member as member_module
from secagg.oneshot import server as server_module
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header, counts_of, record_of
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import (
    HEADER_BYTES,
    Complaints,
    Delivery,
    context_tag,
    decode_to_member,
    decode_upload,
)
from secagg.oneshot.records import RoundRecord
from secagg.oneshot.states import Confirmed, MemberParty
from secagg.storage import TokenFolder, resume, suspend
from secagg.tags import Usage

# Five clients, then six members. Members 0 .. 3 were in the last record.
CLIENTS, FLAG = 5, 96
LAST = RoundRecord(2, 4, (0, 1, 2, 3), (1, 2))
RECORDS = (RoundRecord(0, 5, (0, 1, 2, 3, 4, 5), ()), LAST)
TAKERS = (5, 6)


def later(**changes: Any) -> Any:
    """A round in which at least two members take something back."""
    terms = {"returning": True, "fewest_returning": 2, "records": RECORDS, **changes}
    return kit.adding(kit.uploads(**terms))


def collected(
    context: Any, returning: Collection[int] = (), lost: Collection[int] = ()
) -> kit.Round:
    round_ = kit.Round(context, returning=returning)
    round_.collect(lost)
    return round_


def delivered(round_: kit.Round, member: int = 0) -> Delivery:
    data = dict(round_.server.close_round_bytes())[member]
    message = decode_to_member(data, SERVER, len(data))
    assert isinstance(message, Delivery)
    return message


def with_headers(round_: kit.Round, message: Delivery, headers: dict[int, bytes]) -> Delivery:
    """What a server that took other headers delivers."""
    uploaded = decode_set(message.uploaded, round_.context.size)
    cut = [
        headers.get(sender, message.headers[i * HEADER_BYTES : (i + 1) * HEADER_BYTES])
        for i, sender in enumerate(uploaded)
    ]
    return replace(message, headers=b"".join(cut))


def flagged(round_: kit.Round, sender: int) -> bytes:
    """The header of a collected upload with the flag, rightly signed by its sender."""
    header = dataclasses.replace(round_.server._uploads.headers[sender], returns=True)
    signed = header.signed_parts(round_.context)
    signature = kit.uploader(round_.context, sender).sign(Usage.UPLOAD, *signed)
    return dataclasses.replace(header, signature=signature).encode()


def complained(round_: kit.Round, message: Delivery, member: int = 0) -> tuple[int, ...]:
    answer = round_.members[member].receive(message)
    assert isinstance(answer, Complaints)
    return decode_set(answer.bad, round_.context.size)


# -- the whole round ------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [(), (1,), (7, 10), (1, 9, 10)])
def test_the_sum_has_everybodys_vector_and_the_record_says_who(lost: tuple[int, ...]) -> None:
    returning = {5, 6, 7, 8} - set(lost)
    round_ = kit.Round(later(), returning=returning)
    round_.collect(lost)
    assert round_.server.record is None
    round_.pass_on()
    assert round_.server.record is None
    round_.pass_on()
    survivors = [i for i in range(11) if i not in lost]
    record = RoundRecord(
        3,
        sum(i < CLIENTS for i in survivors),
        tuple(i - CLIENTS for i in survivors if i >= CLIENTS),
        tuple(sorted(i - CLIENTS for i in returning)),
    )
    assert round_.server.record == record
    assert {member.record for member in round_.members.values()} == {record}
    assert round_.server.survivors == tuple(i for i in survivors if i < CLIENTS)
    round_.pass_on()
    assert {member.record for member in round_.members.values()} == {None}
    opened = round_.server.open()
    assert opened.vector.elements.tolist() == round_.expected(survivors)
    assert opened.survivors == round_.server.survivors
    assert round_.server.record == record


def test_there_is_no_record_where_clients_alone_upload() -> None:
    round_ = kit.Round(kit.context())
    round_.finish()
    assert round_.server.record is None
    assert round_.members[0].record is None


# -- the flag -------------------------------------------------------------------------------------

UNDUE: list[tuple[str, dict[str, Any], int]] = [
    ("a client", {}, 0),
    ("a member that was away", {}, 9),
    ("in the first round", {"records": (), "fewest_returning": 0}, 5),
    ("after a sum that was not opened", {"returning": False, "fewest_returning": 0}, 5),
]
undue = pytest.mark.parametrize(
    ("changes", "sender"), [u[1:] for u in UNDUE], ids=[u[0] for u in UNDUE]
)


@undue
def test_a_member_complains_about_an_undue_flag(changes: dict[str, Any], sender: int) -> None:
    round_ = collected(later(**{"fewest_returning": 0, **changes}))
    forged = with_headers(round_, delivered(round_, 2), {sender: flagged(round_, sender)})
    assert complained(round_, forged, member=2) == (sender,)


@pytest.mark.parametrize("where", ["server", "member"])
def test_the_twin_that_takes_every_flag(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule clients could raise the count of those who take something back."""
    monkeypatch.setattr(Header, "may_return", lambda *_: True)
    round_ = kit.Round(later())
    if where == "server":
        data = round_.upload(0)
        honest = decode_upload(data, 0, len(data))
        round_.server.receive(kit.signed_upload(round_.context, replace(honest, returns=True)))
        assert round_.server._uploads.headers[0].returns
        return
    round_ = collected(later(fewest_returning=0))
    forged = with_headers(round_, delivered(round_), {0: flagged(round_, 0)})
    assert complained(round_, forged) == ()


@pytest.mark.parametrize("flag", [True, False])
def test_the_flag_is_signed_and_part_of_the_name(flag: bool) -> None:
    """Else the server could say of an upload whether it takes something back."""
    round_ = collected(later(), TAKERS)
    sender = 7 if flag else 6
    honest = round_.server._uploads.headers[sender]
    turned = dataclasses.replace(honest, returns=flag)
    assert turned.digest(round_.context) != honest.digest(round_.context)
    forged = with_headers(round_, delivered(round_), {sender: turned.encode()})
    assert complained(round_, forged) == (sender,)
    fresh = kit.Round(later(), returning=TAKERS)
    data = fresh.upload(sender)
    with pytest.raises(RemoteProtocolError) as raised:
        fresh.server.receive(replace(decode_upload(data, sender, len(data)), returns=flag))
    assert raised.value.reason is Reason.BAD_SIGNATURE


def test_the_twin_whose_signature_leaves_out_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Header.signed_parts
    monkeypatch.setattr(Header, "signed_parts", lambda self, context: whole(self, context)[:-1])
    round_ = collected(later(), TAKERS)
    turned = dataclasses.replace(round_.server._uploads.headers[7], returns=True)
    forged = with_headers(round_, delivered(round_), {7: turned.encode()})
    assert complained(round_, forged) == ()


def test_a_client_session_has_no_flag() -> None:
    context = later()
    proof = kit.seated(5, 6).proof(2)
    with pytest.raises(ParameterError, match=r"^returns = "):
        OneShotClient(context, 2, kit.identity("client", 2), proof, returns=True)
    member = kit.seated(5, 6).proof(7)
    assert OneShotClient(context, 7, kit.identity("member", 2), member, returns=True)


# -- how many of each -----------------------------------------------------------------------------

# Lost uploads, what is short, how many there are, how many are needed.
SHORT: list[tuple[tuple[int, ...], str, int, int]] = [
    ((0, 1), "uploads", 3, 4),
    ((8, 9, 10), "uploads of members", 3, 4),
    ((6,), "uploads that take something back", 1, 2),
]
COUNTS = [(lost, left, needed) for lost, _, left, needed in SHORT]


@pytest.mark.parametrize(("lost", "left", "needed"), COUNTS)
def test_the_server_asks_nobody_to_sign_for_too_few(
    lost: tuple[int, ...], left: int, needed: int
) -> None:
    round_ = collected(later(), TAKERS, lost)
    with pytest.raises(TooFewSurvivorsError) as raised:
        list(round_.server.close_round())
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == (
        "upload",
        left,
        needed,
    )
    # One more of what was short is enough.
    fresh = collected(later(), TAKERS, lost[1:])
    assert len(list(fresh.server.close_round())) == 6


@pytest.mark.parametrize(("lost", "left", "needed"), COUNTS)
def test_too_few_are_noticed_after_complaints_too(
    lost: tuple[int, ...], left: int, needed: int
) -> None:
    """Two members complain about the same uploads, so these are left out."""
    round_ = collected(later(), TAKERS)
    round_.check({0: lost, 1: lost, 2: lost, 3: lost})
    with pytest.raises(TooFewSurvivorsError) as raised:
        list(round_.server.close_round())
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == (
        "check",
        left,
        needed,
    )


@pytest.mark.parametrize("which", range(3))
def test_the_twins_that_leave_out_one_minimum(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of member and server that counts only two of the three goes on with too few."""

    def twin(*of: Any) -> tuple[tuple[str, int, int], ...]:
        return tuple(each for i, each in enumerate(counts_of(*of)) if i != which)

    monkeypatch.setattr(member_module, "counts_of", twin)
    monkeypatch.setattr(server_module, "counts_of", twin)
    lost = SHORT[which][0]
    round_ = collected(later(), TAKERS, lost)
    round_.pass_on()
    round_.pass_on()
    assert round_.members[0].record == round_.server.record
    assert round_.server.record is not None


def test_counts_are_of_the_right_uploads() -> None:
    round_ = collected(later(), TAKERS, lost=(0, 10))
    round_.pass_on()
    headers = [round_.server._uploads.headers[i] for i in range(1, 10)]
    assert [count[1:] for count in counts_of(round_.context, headers)] == [(4, 4), (5, 4), (2, 2)]
    assert record_of(round_.context, headers) == RoundRecord(3, 4, (0, 1, 2, 3, 4), (0, 1))


# -- who is in the cohort -------------------------------------------------------------------------


def member_with(context: Any, registry: Collection[bytes]) -> OneShotMember:
    return OneShotMember(
        context, 0, kit.identity("member", 0), kit.sealing("member", 0), None, frozenset(registry)
    )


def test_only_clients_have_to_be_registered() -> None:
    clients = [kit.identity("client", i).public for i in range(CLIENTS)]
    round_ = collected(later(), TAKERS)
    message = delivered(round_)
    answer = member_with(round_.context, clients).receive(message)
    assert isinstance(answer, Complaints)
    with pytest.raises(RemoteProtocolError, match="not registered"):
        member_with(round_.context, clients[1:]).receive(message)


@pytest.mark.parametrize("change", ["order", "stranger", "client"])
def test_the_last_uploads_are_the_committees_in_its_order(change: str) -> None:
    """Else one member could have two uploads in a sum, and another none."""
    keys = list(kit.seated(5, 6).keys)
    if change == "order":
        keys[5], keys[6] = keys[6], keys[5]
    elif change == "stranger":
        keys[10] = kit.identity("stranger", 0).public
    else:
        keys[4], keys[5] = keys[5], keys[4]
    other = kit.Cohort(keys)
    context = dataclasses.replace(later(), cohort_root=other.root)
    message = Delivery(context_tag(context), b"".join(keys), bytes(2), b"", b"")
    with pytest.raises(RemoteProtocolError) as raised:
        member_with(context, keys).receive(message)
    assert raised.value.reason is Reason.NOT_IN_TREE
    assert "not those of the committee" in str(raised.value)
    right = kit.Cohort(kit.seated(5, 6).keys)
    message = replace(message, context=context_tag(later()), cohort=b"".join(right.keys))
    assert member_with(later(), [*keys[:5], *right.keys]).receive(message)


def test_a_member_complains_about_an_upload_in_its_name_that_it_did_not_make() -> None:
    for own in ((5, None), (5, bytes(32)), None):
        round_ = collected(later(), TAKERS)
        session = OneShotMember(
            round_.context, 0, kit.identity("member", 0), kit.sealing("member", 0), own
        )
        answer = session.receive(delivered(round_))
        assert isinstance(answer, Complaints)
        assert decode_set(answer.bad, 11) == (5,)


# -- complaints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [False, True])
def test_corrupt_members_count_as_corrupt_uploads_in_complaints(
    twin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside n_C clients c members may spoil their seals: together they must not push one out."""
    if twin:
        clients_alone = property(lambda self: self.tolerated_colluders)
        monkeypatch.setattr(OneShotContext, "most_corrupt", clients_alone)
    round_ = collected(later(), TAKERS)
    # One corrupt client and one corrupt member spoil their seals for member 2, which is honest.
    round_.check({2: (0, 10)})
    sent = dict(round_.server.close_round_bytes())
    assert round_.server.excluded == (() if twin else (0, 10))
    assert (2 in sent) is not twin


# -- storage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("adds", [True, False])
def test_what_was_signed_for_survives_storage(tmp_path: Path, adds: bool) -> None:
    keys = TokenFolder(tmp_path / "keys")
    round_ = collected(later(), TAKERS) if adds else collected(kit.context())
    for _ in range(2):
        round_.pass_on()
        session = round_.members[0]
        before: Any = session._state
        party: MemberParty = session._party
        stored = suspend(session, keys)
        again = resume(OneShotMember, stored, dataclasses.replace(party, own=None), keys)
        assert again._party.own == party.own
        assert again.record == (before.record if isinstance(before, Confirmed) else None)
        if not isinstance(before, Confirmed):
            found: Any = again._state
            assert found.headers == before.headers
        round_.members[0] = again
    assert (round_.members[0].record is not None) == adds
    assert round_.members[0].record == round_.server.record
    round_.pass_on()
    assert round_.server.open().survivors == tuple(range(5))


def test_a_member_uploads_once_and_the_same_again() -> None:
    round_ = kit.Round(later(), returning=TAKERS)
    data = round_.upload(6)
    assert round_.clients[6].resend_bytes() == data
    round_.server.receive_upload(6, data)
    with pytest.raises(RemoteProtocolError) as raised:
        round_.server.receive_upload(6, data)
    assert raised.value.reason is Reason.DUPLICATE_MESSAGE
