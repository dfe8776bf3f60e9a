"""What a member of the committee refuses, complains about and answers; once, and on one set."""

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
from secagg.keys import Identity
from secagg.oneshot import member as member_module
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.layout import decode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import (
    HEADER_BYTES,
    Answer,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    Upload,
    context_tag,
    decode_to_member,
    decode_upload,
    largest_delivery_bytes,
    seal_bytes,
)
from secagg.oneshot.transitions import MemberPhase
from secagg.sealing import seal
from secagg.shamir import PRIME
from secagg.tags import Usage

CHECK, CONFIRM, OPEN = range(3)
PHASES = (MemberPhase.WAITING, MemberPhase.CHECKED, MemberPhase.CONFIRMED)
each_stage = pytest.mark.parametrize("stage", [CHECK, CONFIRM, OPEN])
N = 5


class Pending(kit.Round):
    """A round whose members have not yet got the server's message of a stage.

    Args:
        uploads: by client, what it sends instead.
    """

    def __init__(
        self,
        stage: int,
        uploads: Callable[[int, Upload], Upload | None] | None = None,
        **changes: Any,
    ) -> None:
        super().__init__(kit.context(**changes))
        for client in self.clients:
            data = self.upload(client)
            message = decode_upload(data, client, len(data))
            changed = uploads(client, message) if uploads else message
            if changed is not None:
                self.server.receive(changed)
        self.seat()
        for _ in range(stage):
            self.pass_on()
        self.pending = dict(self.server.close_round_bytes())

    def incoming(self, member: int = 0) -> Any:
        data = self.pending[member]
        return decode_to_member(data, SERVER, len(data))

    def complains(self, message: Delivery | None = None, member: int = 0) -> tuple[int, ...]:
        """Whom a member complains about."""
        answer = self.members[member].receive(message or self.incoming(member))
        assert isinstance(answer, Complaints)
        return decode_set(answer.bad, self.context.size)

    def refuses(self, message: Any, reason: Reason, member: int = 0) -> None:
        """The member refuses, and takes nothing afterwards, not even the honest message."""
        session = self.members[member]
        with pytest.raises(RemoteProtocolError) as raised:
            session.receive(message)
        assert (raised.value.reason, raised.value.party) == (reason, SERVER)
        self.assert_over(member)

    def assert_over(self, member: int = 0) -> None:
        session = self.members[member]
        assert session.phase is MemberPhase.ABORTED
        with pytest.raises(SessionAbortedError):
            session.receive_bytes(self.pending[member])
        with pytest.raises(SessionAbortedError):
            session.hand_over()

    def header(self, client: int) -> Header:
        return self.server._uploads.headers[client]

    def digest(self, clients: Sequence[int]) -> bytes:
        """What members sign for the uploads of some clients."""
        return survivors_digest(self.context, [self.header(client) for client in clients])

    def quorum(
        self,
        signers: Sequence[int],
        survivors: Sequence[int] = range(N),
        identity: Callable[[int], Identity] | None = None,
    ) -> Quorum:
        """Signatures that members, or others, rightly made over a set."""
        signed, identity = self.digest(survivors), identity or self.member_identity
        return Quorum(
            context=context_tag(self.context),
            signers=encode_set(signers, self.context.committee.size),
            signatures=b"".join(
                identity(signer).sign(Usage.SURVIVORS, signed) for signer in signers
            ),
        )

    def proposal(self, survivors: Sequence[int]) -> Proposal:
        return Proposal(context_tag(self.context), encode_set(survivors, self.context.size))


# -- anything from the server ---------------------------------------------------------------------


@each_stage
def test_message_of_another_context(stage: int) -> None:
    pending = Pending(stage)
    pending.refuses(replace(pending.incoming(), context=bytes(8)), Reason.WRONG_CONTEXT)


@each_stage
def test_message_of_another_stage(stage: int) -> None:
    other = Pending((stage + 1) % 3)
    Pending(stage).refuses(other.incoming(), Reason.UNEXPECTED_MESSAGE)


@each_stage
@pytest.mark.parametrize("change", ["", "truncated", "trailing", "oversized", "answer"])
def test_bytes_that_are_no_message_abort(stage: int, change: str) -> None:
    pending = Pending(stage)
    data = pending.pending[0]
    limit = largest_delivery_bytes(pending.context)
    changed = {
        "": b"",
        "truncated": data[:-1],
        "trailing": data + b"\0",
        "oversized": data.ljust(limit + 1, b"\0"),
        "answer": encode_message(pending.complaints(1, [])),
    }[change]
    with pytest.raises(RemoteProtocolError) as raised:
        pending.members[0].receive_bytes(changed)
    expected = Reason.OVERSIZED if change == "oversized" else Reason.MALFORMED
    assert (raised.value.reason, raised.value.party) == (expected, SERVER)
    pending.assert_over()


BITMAPS = [b"", b"\x1f\0", b"\x20", b"\x80"]


@pytest.mark.parametrize("bitmap", BITMAPS)
@pytest.mark.parametrize(("stage", "name"), [(CHECK, "uploaded"), (CONFIRM, "survivors")])
def test_sets_of_another_form(stage: int, name: str, bitmap: bytes) -> None:
    pending = Pending(stage)
    pending.refuses(replace(pending.incoming(), **{name: bitmap}), Reason.BAD_LENGTH)


@pytest.mark.parametrize("bitmap", [b"", b"\x3f\0", b"\x40", b"\x80"])
def test_signers_of_another_form(bitmap: bytes) -> None:
    pending = Pending(OPEN)
    pending.refuses(replace(pending.incoming(), signers=bitmap), Reason.BAD_LENGTH)


@pytest.mark.parametrize(
    ("stage", "name"),
    [(CHECK, "cohort"), (CHECK, "headers"), (CHECK, "seals"), (OPEN, "signatures")],
)
@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:-1], lambda d: d + b"\0"])
def test_lists_of_another_length(stage: int, name: str, change: Callable[[bytes], bytes]) -> None:
    pending = Pending(stage)
    message = pending.incoming()
    changed = replace(message, **{name: change(getattr(message, name))})
    pending.refuses(changed, Reason.BAD_LENGTH)


# -- check: what is delivered ---------------------------------------------------------------------


@pytest.mark.parametrize("change", ["stranger", "order", "repeated", "one byte"])
def test_another_cohort_than_the_announced_one(change: str) -> None:
    pending = Pending(CHECK)
    keys = list(pending.cohort.keys)
    if change == "stranger":
        keys[4] = kit.identity("stranger", 4).public
    elif change == "order":
        keys[3], keys[4] = keys[4], keys[3]
    elif change == "repeated":
        keys[4] = keys[3]
    else:
        keys[4] = bytes([keys[4][0] ^ 1]) + keys[4][1:]
    changed = replace(pending.incoming(), cohort=b"".join(keys))
    pending.refuses(changed, Reason.NOT_IN_TREE)


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


def test_all_is_well() -> None:
    pending = Pending(CHECK)
    assert all(pending.complains(member=j) == () for j in pending.members)


def swap(data: bytes, size: int, position: int, item: bytes) -> bytes:
    return data[: size * position] + item + data[size * (position + 1) :]


def item(data: bytes, size: int, position: int) -> bytes:
    return data[size * position : size * (position + 1)]


@pytest.mark.parametrize("position", [0, 31, 32, 63, 64, 95, 96, 159])
def test_a_header_that_was_changed(position: int) -> None:
    """Ephemeral key, hashes, signature: the signature covers or is all of them."""
    pending = Pending(CHECK)
    message = pending.incoming()
    header = bytearray(item(message.headers, HEADER_BYTES, 3))
    header[position] ^= 1
    headers = swap(message.headers, HEADER_BYTES, 3, bytes(header))
    assert pending.complains(replace(message, headers=headers)) == (3,)


def test_headers_in_another_order() -> None:
    """Each is signed, but not by the client in whose place it stands."""
    pending = Pending(CHECK)
    message = pending.incoming()
    first, second = (item(message.headers, HEADER_BYTES, i) for i in (1, 2))
    headers = swap(swap(message.headers, HEADER_BYTES, 1, second), HEADER_BYTES, 2, first)
    assert pending.complains(replace(message, headers=headers)) == (1, 2)


@pytest.mark.parametrize("other", ["round", "model", "committee"])
def test_an_upload_of_another_context(other: str) -> None:
    """Rightly signed by the same client, with a seal for the same member."""
    changes: dict[str, Any] = {
        "round": {"round_number": 4},
        "model": {"application_digest": b"another model".ljust(32)},
        "committee": {"committee": kit.committee(7, per_polynomial=3)},
    }[other]
    pending, elsewhere = Pending(CHECK), Pending(CHECK, **changes)
    message, foreign = pending.incoming(), elsewhere.incoming()
    headers = swap(message.headers, HEADER_BYTES, 2, item(foreign.headers, HEADER_BYTES, 2))
    size = seal_bytes(pending.context)
    assert size == seal_bytes(elsewhere.context)
    seals = swap(message.seals, size, 2, item(foreign.seals, size, 2))
    assert pending.complains(replace(message, headers=headers, seals=seals)) == (2,)


@pytest.mark.parametrize("bad", ["changed", "another client's", "another member's", "cut"])
def test_a_seal_that_does_not_open(bad: str) -> None:
    pending = Pending(CHECK)
    message, size = pending.incoming(), seal_bytes(pending.context)
    sealed = item(message.seals, size, 2)
    if bad == "changed":
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    elif bad == "another client's":
        sealed = item(message.seals, size, 1)
    elif bad == "another member's":
        sealed = item(pending.incoming(1).seals, size, 2)
    else:
        sealed = sealed[:-16] + bytes(16)
    assert pending.complains(replace(message, seals=swap(message.seals, size, 2, sealed))) == (2,)


def corrupt(change: Callable[[Upload], Upload]) -> Callable[[int, Upload], Upload]:
    """Client 3 works for the server: it sends something else, and signs it."""

    def changed(client: int, message: Upload) -> Upload:
        return kit.signed_upload(kit.context(), change(message)) if client == 3 else message

    return changed


def sealed_by_corrupt(plain: bytes) -> Callable[[Upload], Upload]:
    """For member 0 it seals these bytes, under an ephemeral key that it knows."""

    def change(message: Upload) -> Upload:
        context, key = kit.context(), kit.sealing("ephemeral", 3)
        size = seal_bytes(context)
        shared = key.agree(context.committee.members[0].sealing_key)
        sealed = seal(shared, context.hash, 3, 0, plain)
        return replace(
            message, ephemeral_key=key.public, seals=sealed.ljust(size) + message.seals[size:]
        )

    return change


@pytest.mark.parametrize("element", [PRIME, PRIME + 1, (1 << 32) - 1])
@pytest.mark.parametrize("place", [0, -4])
def test_a_share_that_is_no_vector_of_field_elements(element: int, place: int) -> None:
    share = bytearray(kit.context().layout.share_bytes)
    share[place : place + 4 or None] = element.to_bytes(4, "little")
    pending = Pending(CHECK, corrupt(sealed_by_corrupt(bytes(share))))
    assert pending.complains() == (3,)


def test_a_share_of_zeros_is_taken() -> None:
    """What a corrupt client deals is its own matter, as long as these are field elements."""
    share = bytes(kit.context().layout.share_bytes)
    pending = Pending(CHECK, corrupt(sealed_by_corrupt(share)))
    assert pending.complains() == ()


def test_an_ephemeral_key_of_small_order_is_complained_about() -> None:
    """The server lets it through; with it anybody could open the seal."""
    pending = Pending(CHECK)
    message = pending.incoming()
    old = pending.header(3)
    header = Header(3, bytes(32), old.ciphertext_hash, old.seals_hash, False, b"")
    signature = kit.identity("client", 3).sign(Usage.UPLOAD, *header.signed_parts(pending.context))
    changed = header.encode() + signature
    headers = swap(message.headers, HEADER_BYTES, 3, changed)
    assert pending.complains(replace(message, headers=headers)) == (3,)


def test_seals_and_ephemeral_key_replayed_under_another_name() -> None:
    """Else twice the victim's key, and with it the key, would be in the sum that is opened.

    Client 3 copies all of client 1's upload and signs it as its own: its seals open for nobody,
    because the sender is in their key. Client 1 is not complained about.
    """
    copied: dict[int, Upload] = {}

    def uploads(client: int, message: Upload) -> Upload:
        copied[client] = message
        return corrupt(lambda _: replace(copied[1], sender=3))(client, message)

    pending = Pending(CHECK, uploads)
    assert pending.header(3).ephemeral_key == pending.header(1).ephemeral_key
    assert all(pending.complains(member=j) == (3,) for j in pending.members)


def test_a_copied_ciphertext_alone_does_no_harm() -> None:
    """The copier's own shares are what is subtracted: the sum does not open, and says nothing."""
    copied: dict[int, Upload] = {}

    def uploads(client: int, message: Upload) -> Upload:
        copied[client] = message
        change = corrupt(lambda own: replace(own, ciphertext=copied[1].ciphertext))
        return change(client, message)

    pending = Pending(CHECK, uploads)
    assert all(pending.complains(member=j) == () for j in pending.members)


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


@pytest.mark.parametrize("survivors", [[], [0], [0, 1, 2], [2, 3, 4]])
def test_a_set_below_the_minimum(survivors: list[int]) -> None:
    pending = Pending(CONFIRM)
    pending.refuses(pending.proposal(survivors), Reason.SET_TOO_SMALL)


def test_a_set_with_an_upload_that_we_did_not_see() -> None:
    pending = Pending(CONFIRM, lambda client, message: message if client != 4 else None)
    pending.refuses(pending.proposal(range(N)), Reason.SET_NOT_NESTED)


def test_a_set_with_an_upload_that_we_complained_about() -> None:
    pending = Pending(CHECK)
    message, size = pending.incoming(), seal_bytes(pending.context)
    seals = swap(message.seals, size, 2, bytes(size))
    assert pending.complains(replace(message, seals=seals)) == (2,)
    pending.refuses(pending.proposal([0, 1, 2, 3]), Reason.SET_NOT_NESTED)


def everyone(stage: int, uploads: Any = None) -> Pending:
    committee = kit.committee(N, "client", kind=CommitteeKind.EVERYONE)
    return Pending(stage, uploads, committee=committee)


def test_another_upload_in_our_name() -> None:
    """Member 2 is client 2, and this is not what it uploaded; who has its key may sign it."""

    def uploads(client: int, message: Upload) -> Upload:
        if client != 2:
            return message
        other = kit.Round(everybody).clients[2]
        other.seeds(b"another")
        return other.submit(kit.Round(everybody).vector(0))

    everybody = everyone(CHECK).context
    pending = everyone(CHECK, uploads)
    assert pending.complains(member=1) == ()
    # Only the member itself can know; it complains, and does not sign a set with that upload.
    pending = everyone(CHECK)
    own = pending.members[2]._party.own
    pending = everyone(CHECK, uploads)
    members, sealing = pending.members, kit.sealing("client", 2)
    members[2] = OneShotMember(pending.context, 2, kit.identity("client", 2), sealing, own)
    assert pending.complains(member=2) == (2,)
    pending.refuses(pending.proposal(range(N)), Reason.SET_NOT_NESTED, member=2)


@pytest.mark.parametrize("own", [None, (2, None)])
def test_an_upload_in_our_name_though_we_know_of_none(own: tuple[int, None] | None) -> None:
    pending = everyone(CHECK)
    identity, sealing = kit.identity("client", 2), kit.sealing("client", 2)
    pending.members[2] = OneShotMember(pending.context, 2, identity, sealing, own)
    assert pending.complains(member=2) == (2,)


def test_a_set_without_our_own_upload_is_signed() -> None:
    """Uploads are lost; the server cannot be made to use ours."""
    pending = everyone(CONFIRM)
    assert isinstance(pending.members[2].receive(pending.proposal([0, 1, 3, 4])), Confirmation)


def test_a_second_set_is_not_signed() -> None:
    """Two sets that are both opened give their difference."""
    pending = Pending(CONFIRM)
    pending.members[0].receive(pending.proposal(range(N)))
    pending.refuses(pending.proposal([0, 1, 2, 3]), Reason.UNEXPECTED_MESSAGE)


# -- open: the quorum -----------------------------------------------------------------------------


def test_any_quorum_opens_and_the_answer_does_not_depend_on_it() -> None:
    """An answer under another challenge would be one more equation between shares."""
    answers = []
    for signers in ([0, 1, 2, 3], [2, 3, 4, 5], [0, 1, 2, 3, 4, 5]):
        pending = Pending(OPEN)
        answers.append(pending.members[0].receive(pending.quorum(signers)))
    assert isinstance(answers[0], Answer)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("signers", [[], [0], [0, 1, 2], [3, 4, 5]])
def test_too_few_signatures(signers: list[int]) -> None:
    pending = Pending(OPEN)
    pending.refuses(pending.quorum(signers), Reason.MISSING_SIGNATURES)


@pytest.mark.parametrize("survivors", [[0, 1, 2, 3], [1, 2, 3, 4]])
def test_signatures_on_another_set_than_ours(survivors: list[int]) -> None:
    """The other half of the committee was shown, and signed, something else."""
    pending = Pending(OPEN)
    pending.refuses(pending.quorum([0, 1, 2, 3], survivors), Reason.BAD_SIGNATURE)


def test_signatures_on_another_upload_of_the_same_clients() -> None:
    pending = Pending(OPEN)
    other = Pending(
        OPEN, corrupt(lambda message: replace(message, ciphertext=bytes(len(message.ciphertext))))
    )
    assert other.header(3) != pending.header(3)
    pending.refuses(other.quorum([0, 1, 2, 3]), Reason.BAD_SIGNATURE)


def test_signatures_of_another_committee() -> None:
    pending = Pending(OPEN)
    other = pending.quorum([0, 1, 2, 3], identity=lambda j: kit.identity("another", j))
    pending.refuses(other, Reason.BAD_SIGNATURE)


def test_one_member_s_signature_repeated() -> None:
    """A set of signers cannot name a member twice; under another's name it does not verify."""
    pending = Pending(OPEN)
    own = pending.quorum([1]).signatures
    for signers in ([0, 1, 2, 3], [1, 2, 3, 4]):
        repeated = Quorum(context_tag(pending.context), encode_set(signers, 6), own * len(signers))
        Pending(OPEN).refuses(repeated, Reason.BAD_SIGNATURE)


def test_signatures_of_clients_do_not_count() -> None:
    pending = Pending(OPEN)
    clients = pending.quorum([0, 1, 2, 3], identity=lambda j: kit.identity("client", j))
    pending.refuses(clients, Reason.BAD_SIGNATURE)


def test_signatures_for_something_else_do_not_count() -> None:
    """A member signs complaints, uploads and sets with one key: each for its own use only."""
    pending = Pending(OPEN)
    signed = pending.digest(range(N))
    for usage in (Usage.COMPLAIN, Usage.ANSWER, Usage.UPLOAD, Usage.CONFIRM):
        signatures = b"".join(pending.member_identity(j).sign(usage, signed) for j in range(4))
        message = Quorum(context_tag(pending.context), encode_set(range(4), 6), signatures)
        Pending(OPEN).refuses(message, Reason.BAD_SIGNATURE)


def test_one_bad_signature_among_enough_good_ones() -> None:
    pending = Pending(OPEN)
    message = pending.quorum(range(6))
    changed = replace(message, signatures=message.signatures[:-1] + b"\0")
    pending.refuses(changed, Reason.BAD_SIGNATURE)


def test_a_finished_member_answers_nothing() -> None:
    pending = Pending(OPEN)
    session = pending.members[0]
    session.receive_bytes(pending.pending[0])
    for data in (pending.pending[0], b"garbage", b""):
        with pytest.raises(SessionAbortedError):
            session.receive_bytes(data)
        assert session.phase is MemberPhase.FINISHED


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
    with pytest.raises(ParameterError) as raised:
        OneShotMember(kit.context(), index, kit.identity("member", 0), kit.sealing("member", 0))
    assert raised.value.argument == "index"


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
def test_aborting_forgets_everything(stage: int) -> None:
    pending = Pending(stage)
    assert pending.members[0].phase is PHASES[stage]
    pending.members[0].abort()
    assert "shares" not in repr(pending.members[0]._state)
    pending.assert_over()


def test_shares_are_not_printed() -> None:
    for stage in (CONFIRM, OPEN):
        session = Pending(stage).members[0]
        assert "shares" not in repr(session._state)


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
