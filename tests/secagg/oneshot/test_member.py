"""What a member of the committee signs and answers; once, and on one set.

What it refuses and complains about is in the corpus: test_refusals.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import one_shot_rounds as kit
import pytest
from msgspec.structs import replace
from single_use import Asked, SingleUseTests

from secagg import (
    SERVER,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
)
from secagg.framing import decode_set, encode_message, encode_set
from secagg.oneshot import member as member_module
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.layout import decode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import (
    Answer,
    Complaints,
    Confirmation,
    Proposal,
    Quorum,
    Upload,
    context_tag,
    decode_to_member,
    decode_upload,
)
from secagg.oneshot.transitions import MemberPhase
from secagg.shamir import PRIME
from secagg.tags import Usage

CHECK, CONFIRM, OPEN = range(3)
PHASES = (MemberPhase.WAITING, MemberPhase.CHECKED, MemberPhase.CONFIRMED)
each_stage = pytest.mark.parametrize("stage", [CHECK, CONFIRM, OPEN])
N = 5


class Pending(kit.Round):
    """A round whose members have not yet got the server's message of a stage."""

    def __init__(
        self, stage: int, change: Callable[[Upload], Upload] | None = None, **changes: Any
    ) -> None:
        super().__init__(kit.context(**changes))
        for client in self.clients:
            data = self.upload(client)
            message = decode_upload(data, client, len(data))
            if change and client == 3:
                message = kit.signed_upload(self.context, change(message))
            self.server.receive(message)
        self.seat()
        for _ in range(stage):
            self.pass_on()
        self.pending = dict(self.server.close_round_bytes())

    def incoming(self, member: int = 0) -> Any:
        data = self.pending[member]
        return decode_to_member(data, SERVER, len(data))

    def complains(self, member: int = 0) -> tuple[int, ...]:
        """Whom a member complains about."""
        answer = self.members[member].receive(self.incoming(member))
        assert isinstance(answer, Complaints)
        return decode_set(answer.bad, self.context.size)

    def refuses(self, message: Any, reason: Reason) -> None:
        """Member 0 refuses, and takes nothing afterwards, not even the honest message."""
        with pytest.raises(RemoteProtocolError) as raised:
            self.members[0].receive(message)
        assert (raised.value.reason, raised.value.party) == (reason, SERVER)
        self.assert_over()

    def assert_over(self) -> None:
        session = self.members[0]
        assert session.phase is MemberPhase.ABORTED
        with pytest.raises(SessionAbortedError):
            session.receive_bytes(self.pending[0])
        with pytest.raises(SessionAbortedError):
            session.hand_over()

    def header(self, client: int) -> Header:
        return self.server._uploads.headers[client]

    def digest(self, clients: Sequence[int]) -> bytes:
        """What members sign for the uploads of some clients."""
        return survivors_digest(self.context, [self.header(client) for client in clients])

    def quorum(self, signers: Sequence[int], survivors: Sequence[int] = range(N)) -> Quorum:
        """Signatures that members rightly made over a set."""
        signed = self.digest(survivors)
        return Quorum(
            context=context_tag(self.context),
            signers=encode_set(signers, self.context.committee.size),
            signatures=b"".join(
                self.member_identity(signer).sign(Usage.SURVIVORS, signed) for signer in signers
            ),
        )

    def proposal(self, survivors: Sequence[int]) -> Proposal:
        return Proposal(context_tag(self.context), encode_set(survivors, self.context.size))


# -- check: what is delivered ---------------------------------------------------------------------


@pytest.mark.parametrize("known", ["all", "more", "one less", "nobody"])
def test_a_cohort_beyond_the_registry(known: str) -> None:
    """The root may be the announced one, and its clients made up by the server all the same."""
    pending = Pending(CHECK)
    keys = set(pending.cohort.keys)
    registry = {
        "all": keys,
        "more": keys | {kit.identity("registered", 9).public},
        "one less": keys - {pending.cohort.keys[4]},
        "nobody": set(),
    }[known]
    identity, sealing = kit.identity("member", 0), kit.sealing("member", 0)
    pending.members[0] = OneShotMember(
        pending.context, 0, identity, sealing, registry=frozenset(registry)
    )
    if known in ("all", "more"):
        assert pending.complains() == ()
    else:
        pending.refuses(pending.incoming(), Reason.NOT_IN_TREE)


def test_two_uploads_of_one_client_have_two_names() -> None:
    """Told of one each, two halves of a committee sign two different things."""
    pending = Pending(CHECK)
    other = kit.Round(pending.context).clients[2]
    other.seeds(b"again")
    again = Header.of(other.submit(pending.vector(1)))
    first = survivors_digest(pending.context, [pending.header(i) for i in range(N)])
    headers = [pending.header(i) if i != 2 else again for i in range(N)]
    assert again.is_signed(pending.context, pending.cohort.keys[2])
    assert survivors_digest(pending.context, headers) != first


# -- confirm: the set -----------------------------------------------------------------------------


def test_every_set_of_good_uploads_that_is_large_enough_is_signed() -> None:
    for survivors in ([0, 1, 2, 3, 4], [0, 1, 2, 3], [1, 2, 3, 4]):
        pending = Pending(CONFIRM)
        answer = pending.members[0].receive(pending.proposal(survivors))
        assert isinstance(answer, Confirmation)
        wanted = pending.member_identity(0).sign(Usage.SURVIVORS, pending.digest(survivors))
        assert answer.signature == wanted


@pytest.mark.parametrize("own", [None, (2, None)])
def test_an_upload_in_our_name_though_we_know_of_none(own: tuple[int, None] | None) -> None:
    committee = kit.committee(N, "client", kind=CommitteeKind.EVERYONE)
    pending = Pending(CHECK, committee=committee)
    identity, sealing = kit.identity("client", 2), kit.sealing("client", 2)
    pending.members[2] = OneShotMember(pending.context, 2, identity, sealing, own)
    assert pending.complains(member=2) == (2,)


# -- open: the quorum -----------------------------------------------------------------------------


def test_any_quorum_opens_and_the_answer_does_not_depend_on_it() -> None:
    """An answer under another challenge would be one more equation between shares."""
    answers = []
    for signers in ([0, 1, 2, 3], [2, 3, 4, 5], [0, 1, 2, 3, 4, 5]):
        pending = Pending(OPEN)
        answers.append(pending.members[0].receive(pending.quorum(signers)))
    assert isinstance(answers[0], Answer)
    assert answers[0] == answers[1] == answers[2]


def test_signatures_on_another_upload_of_the_same_clients() -> None:
    pending = Pending(OPEN)
    other = Pending(OPEN, lambda upload: replace(upload, ciphertext=bytes(len(upload.ciphertext))))
    assert other.header(3) != pending.header(3)
    pending.refuses(other.quorum([0, 1, 2, 3]), Reason.BAD_SIGNATURE)


def test_an_answer_holds_the_sums_over_the_set_and_nothing_of_single_keys() -> None:
    """Recomputed from the shares, word by word; the post-mortem's words are all masked."""
    pending = Pending(OPEN, removal=(0b11, 0b01))
    session, context = pending.members[2], pending.context
    shares = session._state.shares.astype(object)
    layout = context.layout
    answer: Any = session.receive(pending.incoming(2))
    sums = decode_rows(answer.sums, 1, layout.key_polynomials)[0].tolist()
    assert sums == [sum(column) % PRIME for column in shares.T[: layout.key_polynomials]]
    columns = layout.seed_columns(context.removed_seeds(N))
    seeds = decode_rows(answer.seeds, N, len(columns))
    assert seeds.tolist() == shares[:, columns].tolist()
    challenge = layout.challenge_of(pending.digest(range(N))).astype(object)
    keys, masks = shares[:, : layout.key_polynomials], shares[:, -4:]
    wanted = (keys @ challenge.T + masks) % PRIME
    assert decode_rows(answer.checks, N, 4).tolist() == wanted.tolist()


def test_surplus_seeds_follow_from_the_signed_set_alone() -> None:
    """With nobody lost it is seed 1, with one lost seed 0: never both of one upload."""
    given_up = {}
    for survivors in (range(N), range(4)):
        pending = Pending(CONFIRM, removal=(0b10, 0b01))
        session = pending.members[0]
        session.receive(pending.proposal(survivors))
        shares, layout = session._state.shares, pending.context.layout
        answer: Any = session.receive(pending.quorum(range(4), survivors))
        found = decode_rows(answer.seeds, len(survivors), layout.seed_polynomials).tolist()
        columns = {seed: shares[:, layout.seed_columns([seed])].tolist() for seed in (0, 1)}
        given_up[len(survivors)] = [seed for seed in (0, 1) if columns[seed] == found]
    assert given_up == {5: [1], 4: [0]}


# -- our own caller -------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 6, 7])
def test_a_member_needs_a_place(index: int) -> None:
    with pytest.raises(ParameterError, match=r"^index = "):
        OneShotMember(kit.context(), index, kit.identity("member", 0), kit.sealing("member", 0))


@pytest.mark.parametrize(
    ("argument", "identity", "sealing"),
    [("identity", "another", "member"), ("sealing", "member", "another")],
)
def test_a_member_needs_its_own_keys(argument: str, identity: str, sealing: str) -> None:
    with pytest.raises(ParameterError) as raised:
        OneShotMember(kit.context(), 1, kit.identity(identity, 1), kit.sealing(sealing, 1))
    assert raised.value.argument == argument
    with pytest.raises(ParameterError):
        OneShotMember(kit.context(), 1, kit.identity("member", 2), kit.sealing("member", 1))


@each_stage
def test_shares_are_not_printed_and_aborting_forgets_everything(stage: int) -> None:
    pending = Pending(stage)
    assert pending.members[0].phase is PHASES[stage]
    assert "shares" not in repr(pending.members[0]._state)
    pending.members[0].abort()
    assert "shares" not in repr(pending.members[0]._state)
    pending.assert_over()


class TestSharing(SingleUseTests):
    """One state signs one set: whoever asks at once, and whatever copies there are."""

    @pytest.fixture
    def asked(self) -> Asked:
        pending = Pending(CONFIRM)
        stories = [pending.proposal(range(N)), pending.proposal(range(N - 1))]
        return Asked(
            session=pending.members[0],
            module=member_module,
            event=(MemberPhase.CHECKED, Proposal),
            ask=lambda session, story: session.receive(stories[story]),
            ask_bytes=lambda session, story: session.receive_bytes(encode_message(stories[story])),
            decoder="decode_to_member",
            aborted=MemberPhase.ABORTED,
        )
