"""Whole validated rounds: the sum of all that is short enough, whoever lies, spoils or is away."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from secagg import (
    OpeningFailedError,
    ParameterError,
    Reason,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.errors import TooLongError
from secagg.field import centre, lift
from secagg.framing import decode_message, encode_message
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.member import answer_parts
from secagg.oneshot.messages import Answer
from secagg.oneshot.states import MemberParty
from secagg.storage import TokenFolder, resume, suspend
from secagg.tags import Usage, encode_index
from secagg.validated.client import ValidatedClient, squared_norm
from secagg.validated.context import ValidatedContext, exact_unit
from secagg.validated.member import ValidatedMember, checked
from secagg.validated.messages import (
    FIRST,
    SECOND,
    Delivery,
    Trees,
    Upload,
    ValidatedHeader,
    Verdicts,
    decode_from_member,
    decode_to_member,
    decode_upload,
    delivered_bytes,
    encoded,
    leaf,
    pack,
    part_bytes,
    part_words,
    seal_label,
    unpack,
    upload_bytes,
    values,
)
from secagg.validated.proof import Rows
from secagg.validated.ring import PrimeRing
from secagg.validated.server import ValidatedCollection, ValidatedServer
from simulations.threats.one_shot.too_long import upload_of_any_length

CLIENTS, MEMBERS, LENGTH = 6, 8, 300
Change = Callable[[int, bytes], bytes | None]


def context(**changes: Any) -> ValidatedContext:
    """A small round: one member may be corrupt, and one away."""
    members = changes.pop("members", MEMBERS)
    terms: dict[str, Any] = {
        "session_id": kit.SESSION,
        "round_number": 3,
        "size": CLIENTS,
        "cohort_root": kit.cohort(CLIENTS).root,
        "minimum_survivors": fewest_survivors(CLIENTS, 1),
        "tolerated_colluders": 1,
        "committee": kit.committee(members, corrupt=1, per_polynomial=2),
        "bits": 24,
        "length": LENGTH,
        "application_digest": bytes(32),
        "away": 1,
        "ring_bits": 46,
        "unit": exact_unit(CLIENTS),
        "bound": 10**9,
    }
    return ValidatedContext(**{**terms, **changes})


CONTEXT = context()
USUAL = 80
"""A length of numbers that is below the bound, with errors."""


def vector(client: int, length: float = USUAL) -> NDArray[np.int64]:
    """Numbers of about this length together."""
    drawn = np.random.default_rng(client).normal(size=LENGTH)
    return np.rint(drawn * length / np.linalg.norm(drawn)).astype(np.int64)


def uploaded(client: int, numbers: NDArray[np.int64], terms: ValidatedContext = CONTEXT) -> bytes:
    """The upload of an honest client."""
    proof, rand = kit.cohort(CLIENTS).proof(client), kit.Stream("client", client)
    session = ValidatedClient(terms, client, kit.identity("client", client), proof, 10**9, rand)
    session.seeds(numbers.tobytes())
    return session.submit_bytes(lift(numbers, terms.field))


def of_any_length(client: int, numbers: NDArray[np.int64]) -> bytes:
    """The upload of one that knows no bound, and claims that it keeps it."""
    proof, rand = kit.cohort(CLIENTS).proof(client), kit.Stream("cheat", client)
    identity = kit.identity("client", client)
    return upload_of_any_length(CONTEXT, client, identity, proof, numbers, rand)


UPLOADS = {i: uploaded(i, vector(i)) for i in range(CLIENTS)}


def upload_of(data: bytes) -> Upload:
    """An upload from its bytes."""
    return decode_message(decode_upload, data, 0, len(data))


def header_of(message: Upload) -> ValidatedHeader:
    """The header of an upload, by its sender."""
    return Trees.of(CONTEXT, message, values(CONTEXT, message.functional)).header(message)


def signed(message: Upload) -> bytes:
    """A changed upload as its sender, who is malicious, signs it."""
    header = header_of(message)
    identity = kit.identity("client", message.sender)
    signature = identity.sign(Usage.UPLOAD, *header.signed_parts(CONTEXT))
    return encode_message(replace(message, signature=signature))


def completed(message: Upload) -> Upload:
    """A changed upload with the functional that its roots ask for."""
    collection = ValidatedCollection(CONTEXT, kit.cohort(CLIENTS))
    p, header = CONTEXT.parameters, header_of(message)
    ciphertext = unpack(p.ring, message.ciphertext, p.ring.degree).reshape(1, -1)
    functional = collection._functional(header, ciphertext)
    return replace(message, functional=encoded(CONTEXT, functional))


class Round:
    """A round that is played stage by stage."""

    def __init__(
        self, uploads: Mapping[int, bytes] = UPLOADS, terms: ValidatedContext = CONTEXT
    ) -> None:
        self.server = ValidatedServer(terms, kit.cohort(CLIENTS))
        self.members = {
            j: ValidatedMember(terms, j, kit.identity("member", j), kit.sealing("member", j))
            for j in range(MEMBERS)
        }
        for client, data in uploads.items():
            self.server.receive_upload(client, data)

    def stage(
        self, change: Change = lambda _, data: data, gone: Collection[int] = ()
    ) -> Mapping[int, bytes]:
        """Close a stage; members that are not gone answer, and what they say can be changed."""
        sent = dict(self.server.close_round_bytes())
        for member, data in sent.items():
            found = (
                None if member in gone else change(member, self.members[member].receive_bytes(data))
            )
            if found is not None:
                self.server.receive_from_member(member, found)
        return sent

    def total(self, clients: Collection[int]) -> None:
        """Play the rest of it: the sum is that of these clients."""
        self.stage()
        self.stage()
        opened = self.server.open()
        assert opened.survivors == tuple(clients) == self.server.survivors
        assert np.array_equal(centre(opened.vector), sum(map(vector, clients)))


EVERYBODY = tuple(range(CLIENTS))


def test_a_round() -> None:
    played = Round()
    sent = played.stage()
    for member, data in sent.items():
        delivery: Delivery = decode_message(decode_to_member, data, -1, len(data))  # type: ignore[assignment]
        assert len(delivery.parts) == CLIENTS * delivered_bytes(CONTEXT.parameters, member)
    played.total(EVERYBODY)
    assert played.server.excluded == ()
    sizes = upload_bytes(CONTEXT)
    assert 0 <= sum(sizes.values()) - len(UPLOADS[0]) < 64


def test_errors_stay_where_the_unit_is_one() -> None:
    terms = context(unit=1)
    numbers = {i: 100 * vector(i) for i in EVERYBODY}
    played = Round({i: uploaded(i, x, terms=terms) for i, x in numbers.items()}, terms)
    for _ in range(3):
        played.stage()
    errors = centre(played.server.open().vector) - sum(numbers.values())
    # Of the sum of six: 6.4 sqrt(6) = 15.7, of 300 coordinates; 7 sigma of its estimate.
    assert abs(errors.std() / 15.68 - 1.0) < 0.29 and np.abs(errors).max() < 15.7 * 7


def test_members_are_stored_between_their_steps(tmp_path: Path) -> None:
    played, keys = Round(), TokenFolder(tmp_path)
    for stage in range(2):
        for j, member in played.members.items():
            party = MemberParty(
                CONTEXT, j, kit.identity("member", j), kit.sealing("member", j), None, None
            )
            stored = suspend(member, keys)
            played.members[j] = resume(ValidatedMember, stored, party, keys)
        if stage == 0:
            played.stage()
    played.total(EVERYBODY)


def test_who_sends_too_much_is_left_out() -> None:
    norm = CONTEXT.longest(1) / CONTEXT.unit
    cheats = {
        1: of_any_length(1, vector(1, 1.05 * norm)),
        4: of_any_length(4, -10 * vector(4, norm)),
    }
    played = Round({**UPLOADS, **cheats})
    played.stage()
    played.total((0, 2, 3, 5))
    assert played.server.excluded == (1, 4)


def test_a_bound_at_which_silence_would_tell_something_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least 1000000000, for what we add"):
        uploaded(0, vector(0), context(bound=10**9 - 1))


def test_an_honest_client_does_not_send_too_much() -> None:
    with pytest.raises(TooLongError, match="nothing is sent"):
        uploaded(0, vector(0, 1.05 * CONTEXT.longest(1) / CONTEXT.unit))


def test_a_liar_and_one_away_change_nothing() -> None:
    played = Round()

    def lie(member: int, data: bytes) -> bytes:
        if member != 2:
            return data
        verdicts: Verdicts = decode_message(decode_from_member, data, member, len(data))  # type: ignore[assignment]
        answers = bytes([verdicts.answers[0] ^ 1]) + verdicts.answers[1:]
        answers = answers[:-1] + bytes([answers[-1] ^ 1])
        parts = (CONTEXT.hash, encode_index(member), verdicts.bad, answers)
        signature = kit.identity("member", member).sign(Usage.COMPLAIN, *parts)
        return encode_message(replace(verdicts, answers=answers, signature=signature))

    played.stage(lie, gone=[5])
    # Two uploads disagree with the liar: it goes, and they stay.
    played.total(EVERYBODY)


@pytest.mark.parametrize(("spoilt", "stay"), [((4,), EVERYBODY), ((4, 6), (0, 1, 2, 4, 5))])
def test_who_spoils_seals(spoilt: tuple[int, ...], stay: tuple[int, ...]) -> None:
    message = upload_of(UPLOADS[3])
    size = part_bytes(CONTEXT.parameters)[1]
    second = bytearray(message.second)
    for member in spoilt:
        second[member * size] ^= 1
    changed = completed(replace(message, second=bytes(second)))
    played = Round({**UPLOADS, 3: signed(changed)})
    played.stage()
    # One seal costs one member, who is spared no more than that; two are dearer than the client.
    played.total(stay)


def test_with_too_many_away_nobody_is_judged() -> None:
    played = Round()
    played.stage(gone=[0, 1, 2])
    # Not that too few uploads are left: nobody was looked at.
    with pytest.raises(TooFewSurvivorsError, match="5 clients answered, 6 are needed"):
        dict(played.server.close_round_bytes())


def lied_about(shifts: Mapping[int, int], gone: Collection[int] = ()) -> Round:
    """A round in whose answers some members' shares are off by something, and others are not."""
    played = Round()
    played.stage()
    played.stage()

    def lie(member: int, data: bytes) -> bytes:
        answer: Any = decode_message(decode_from_member, data, member, len(data))
        p = CONTEXT.parameters
        shares = unpack(p.ring, answer.sums, part_words(p)[0])
        if member in shifts:
            # Of the first share by so much; or of all of them, by anything.
            drawn = np.random.default_rng(member).integers(0, 2**40, shares.size)
            drawn = drawn if shifts[member] > 1 else np.eye(1, shares.size, dtype=np.int64)[0]
            shares = (shares + drawn.astype(np.uint64)) % p.ring.q
        sums = pack(p.ring, shares)
        parts = answer_parts(CONTEXT, member, played.server._signed, sums, b"", b"")
        signature = kit.identity("member", member).sign(Usage.ANSWER, *parts)
        return encode_message(replace(answer, sums=sums, signature=signature))

    played.stage(lie, gone)
    return played


def test_a_wrong_answer_is_corrected_and_named() -> None:
    opened: Any = lied_about({6: 1}).server.open()
    assert opened.wrong_members == (6,)
    assert np.array_equal(centre(opened.vector), sum(map(vector, EVERYBODY)))


def test_as_many_answers_must_agree_as_no_liars_can_make_up() -> None:
    """T + l = 3 fix a key, and one member may lie: of three answers it would choose the sum."""
    assert lied_about({}, gone=range(4)).server.open().survivors == EVERYBODY
    with pytest.raises(OpeningFailedError, match="fewer than 4 of them agree"):
        lied_about({}, gone=range(5)).server.open()


@pytest.mark.parametrize(
    ("shifts", "why"),
    [
        # A polynomial, of another key; and none.
        (dict.fromkeys(range(MEMBERS), 1), "longer than its vectors"),
        ({1: 2, 3: 2, 4: 2, 6: 2}, "too many of them are wrong"),
    ],
)
def test_what_cannot_be_corrected_releases_nothing(shifts: dict[int, int], why: str) -> None:
    with pytest.raises(OpeningFailedError, match=why):
        lied_about(shifts).server.open()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"functional": "flip"}, Reason.BAD_SHARE),
        ({"functional": "cut"}, Reason.NOT_IN_FIELD),
        ({"ciphertext": "cut"}, Reason.NOT_IN_FIELD),
        ({"ciphertext": "flip"}, Reason.BAD_SHARE),
        ({"first": "cut"}, Reason.BAD_LENGTH),
        ({"second": "cut"}, Reason.BAD_LENGTH),
        ({"first": "flip"}, Reason.BAD_SHARE),
        ({"ephemeral_key": "zero"}, Reason.BAD_KEY),
    ],
)
def test_an_upload_that_does_not_fit_together_is_refused(
    change: dict[str, str], reason: Reason
) -> None:
    ((name, how),) = change.items()
    message = upload_of(UPLOADS[0])
    given = getattr(message, name)
    changed = {
        "flip": bytes([given[0] ^ 1]) + given[1:],
        "cut": given[:-1],
        "zero": bytes(32),
    }[how]
    try:
        data = signed(replace(message, **{name: changed}))
    except ValueError:
        data = encode_message(replace(message, **{name: changed}))
    server = ValidatedServer(CONTEXT, kit.cohort(CLIENTS))
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_upload(0, data)
    assert (caught.value.reason, caught.value.party) == (reason, 0)
    assert not server.answered and not server._uploads.total().values.any()


def test_a_client_takes_nothing_back() -> None:
    data = signed(replace(upload_of(UPLOADS[0]), returns=True))
    with pytest.raises(RemoteProtocolError, match="takes back what it has not added"):
        Round({}).server.receive_upload(0, data)


def test_a_signature_of_another_is_refused() -> None:
    message = replace(upload_of(UPLOADS[0]), sender=1)
    with pytest.raises(RemoteProtocolError) as caught:
        Round({}).server.receive_upload(1, encode_message(message))
    assert caught.value.reason is Reason.BAD_SIGNATURE


def test_a_member_answers_on_its_own_part_alone() -> None:
    played = Round()
    sent = dict(played.server.close_round_bytes())
    deliveries: dict[int, Any] = {
        member: decode_message(decode_to_member, data, -1, len(data))
        for member, data in sent.items()
    }
    party, p = played.members[2]._party, CONTEXT.parameters
    message = upload_of(UPLOADS[0])
    header = header_of(message)
    sender = kit.identity("client", 0).public
    mine, other = (deliveries[j].parts[: delivered_bytes(p, j)] for j in (2, 3))
    checked(party, header, sender, mine)
    seals = sum(part_bytes(p))
    cut = seals + (delivered_bytes(p, 2) - seals - 3 * 32 * 3)
    for wrong in (
        other,
        # The leaf of another member, with its path; and a seal of the other part.
        mine[:seals] + other[seals:cut] + mine[cut:-96] + other[-96:],
        bytes([mine[0] ^ 1]) + mine[1:],
        mine[: part_bytes(p)[0]]
        + bytes([mine[part_bytes(p)[0]] ^ 1])
        + mine[1 + part_bytes(p)[0] :],
    ):
        with pytest.raises(ValueError, match="not under its root"):
            checked(party, header, sender, wrong)
    with pytest.raises(ValueError, match="not signed"):
        checked(party, header, kit.identity("client", 1).public, mine)


def refused(member: ValidatedMember, message: Any) -> Reason:
    """Why a member refuses a message."""
    with pytest.raises(RemoteProtocolError) as caught:
        member.receive(message)
    return caught.value.reason


def test_members_look_at_what_they_are_sent() -> None:
    played = Round()
    sent = dict(played.server.close_round_bytes())
    delivery = decode_message(decode_to_member, sent[0], -1, len(sent[0]))
    cohort = kit.cohort(CLIENTS + 1).keys[1:]
    assert refused(played.members[0], replace(delivery, cohort=b"".join(cohort))) is (
        Reason.NOT_IN_TREE
    )
    played = Round()
    played.stage()
    played.stage()
    sent = dict(played.server.close_round_bytes())
    quorum: Any = decode_message(decode_to_member, sent[0], -1, len(sent[0]))
    few = replace(quorum, signers=b"\1", signatures=quorum.signatures[:64])
    assert refused(played.members[0], few) is Reason.MISSING_SIGNATURES
    other = replace(quorum, signatures=quorum.signatures[64:] + quorum.signatures[:64])
    assert refused(played.members[1], other) is Reason.BAD_SIGNATURE


def from_member(message: Verdicts, member: int, **changes: bytes) -> bytes:
    """Changed verdicts of a member, signed by it."""
    changed = replace(message, **changes)
    parts = (CONTEXT.hash, encode_index(member), changed.bad, changed.answers)
    signature = kit.identity("member", member).sign(Usage.COMPLAIN, *parts)
    return encode_message(replace(changed, signature=signature))


def test_what_members_say_has_to_fit() -> None:
    played = Round({i: data for i, data in UPLOADS.items() if i})
    sent = dict(played.server.close_round_bytes())
    data = played.members[0].receive_bytes(sent[0])
    verdicts: Any = decode_message(decode_from_member, data, 0, len(data))
    for changes, reason in (
        ({"answers": verdicts.answers[:-1]}, Reason.BAD_SHARE),
        ({"answers": verdicts.answers + b"\0"}, Reason.BAD_SHARE),
        ({"answers": 2 * verdicts.answers}, Reason.BAD_SHARE),
        ({"answers": b"\xff" * len(verdicts.answers)}, Reason.BAD_SHARE),
        ({"bad": b"\1"}, Reason.SET_NOT_NESTED),
        ({"bad": b""}, Reason.BAD_LENGTH),
    ):
        with pytest.raises(RemoteProtocolError) as caught:
            played.server.receive_from_member(0, from_member(verdicts, 0, **changes))
        assert caught.value.reason is reason
    for message in (replace(verdicts, answers=b""), replace(verdicts, signature=bytes(64))):
        with pytest.raises(RemoteProtocolError) as caught:
            played.server.receive_from_member(0, encode_message(message))
        assert caught.value.reason is Reason.BAD_SIGNATURE
    played.server.receive_from_member(0, data)
    with pytest.raises(RemoteProtocolError) as caught:
        played.server.receive_from_member(0, data)
    assert caught.value.reason is Reason.DUPLICATE_MESSAGE


def test_what_members_open_has_to_fit() -> None:
    played = Round()
    played.stage()
    played.stage()
    assert not played.server._uploads._trees and not played.server._verdicts
    sent = dict(played.server.close_round_bytes())
    data = played.members[0].receive_bytes(sent[0])
    answer: Any = decode_message(decode_from_member, data, 0, len(data))
    identity = kit.identity("member", 0)
    for changes, reason in (
        ({"seeds": b"1"}, Reason.BAD_SHARE),
        ({"checks": b"1"}, Reason.BAD_SHARE),
        ({"sums": answer.sums[:-1]}, Reason.BAD_SHARE),
    ):
        changed = replace(answer, **changes)
        parts = (changed.sums, changed.seeds, changed.checks)
        signed_parts = answer_parts(CONTEXT, 0, played.server._signed, *parts)
        signature = identity.sign(Usage.ANSWER, *signed_parts)
        message = encode_message(replace(changed, signature=signature))
        with pytest.raises(RemoteProtocolError) as caught:
            played.server.receive_from_member(0, message)
        assert caught.value.reason is reason
    with pytest.raises(RemoteProtocolError) as caught:
        played.server.receive_from_member(0, encode_message(replace(answer, signature=bytes(64))))
    assert caught.value.reason is Reason.BAD_SIGNATURE
    played.server.receive_from_member(0, data)


# What each derived value is bound to, by name
BOUND: Mapping[str, set[str]] = {
    "root1": {"context", "sender", "ephemeral_key", "ciphertext_hash", "seals_hash"},
    "root2": {
        *("context", "sender", "ephemeral_key", "ciphertext_hash", "seals_hash"),
        "second_root",
    },
    "digest": {
        *("context", "sender", "ephemeral_key", "ciphertext_hash", "seals_hash"),
        *("second_root", "functional_hash", "leaves_root"),
    },
    "leaf": {"context", "member", "given"},
    "label": {"context", "part"},
}


@pytest.mark.parametrize("what", BOUND)
def test_everything_is_bound_to_what_it_stands_for(what: str) -> None:
    header = header_of(upload_of(UPLOADS[0]))
    usual: dict[str, Any] = {
        **{name: getattr(header, name) for name in BOUND["digest"] - {"context"}},
        **{"context": CONTEXT, "member": 2, "given": b"given", "part": FIRST},
    }
    others = {"context": context(nonce=1), "sender": 1, "member": 3, "part": SECOND}

    def found(name: str) -> bytes:
        values = {**usual, name: others.get(name, bytes(32))}
        if what == "leaf":
            return leaf(values["context"], values["member"], values["given"])
        if what == "label":
            return seal_label(values["context"], values["part"])
        changed = {key: values[key] for key in BOUND["digest"] - {"context"}}
        made: bytes = getattr(dataclasses.replace(header, **changed), what)(values["context"])
        return made

    assert {name for name in usual if found(name) != found("nothing")} == BOUND[what]


def test_residues_are_read_as_they_were_written() -> None:
    ring = CONTEXT.parameters.ring
    for count in (0, 1, 7, 8, 100):
        given = np.arange(count, dtype=np.uint64) + (ring.q - np.uint64(count or 1))
        assert np.array_equal(unpack(ring, pack(ring, given), count), given)
    for data, count, why in (
        (bytes(6), 2, "bytes"),
        (b"\0\0\0\0\0\x80", 1, "padding"),
        (b"\xff\xff\xff\xff\xff\x3f", 1, "below the prime"),
    ):
        with pytest.raises(ValueError, match=why):
            unpack(ring, data, count)


def test_a_client_takes_the_round_s_vectors_alone() -> None:
    terms = context(length=LENGTH - 1)
    with pytest.raises(ParameterError, match="299 elements of 24 bits"):
        uploaded(0, vector(0), terms)


def test_a_client_whose_rows_are_out_of_range_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    tau = CONTEXT.parameters.tau
    for beyond in (tau, -tau - 1):

        def products(_: Rows, __: Any, beyond: int = beyond) -> NDArray[np.int64]:
            return np.array([0, beyond])

        monkeypatch.setattr(Rows, "products", products)
        with pytest.raises(TooLongError):
            uploaded(0, vector(0))


def test_a_norm_is_exact_or_surely_too_large() -> None:
    blocks = np.array([[3, -4], [0, 12]])
    assert squared_norm(blocks, 12) == 169
    assert squared_norm(blocks * (1 << 31), 12) == (12 << 31) ** 2


FIELDS = (
    *((Upload, name) for name in ("ephemeral_key", "ciphertext", "first", "second", "functional")),
    *((Verdicts, name) for name in ("bad", "answers")),
    (Answer, "sums"),
)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
@pytest.mark.parametrize("seed", range(6))
def test_one_changed_bit_of_somebody_corrupt_spoils_no_sum(
    kind: type, name: str, seed: int
) -> None:
    random = Random(f"{kind.__name__} {name} {seed}")

    def flipped(message: Any) -> Any:
        given = bytearray(getattr(message, name))
        given[random.randrange(len(given))] ^= 1 << random.randrange(8)
        return replace(message, **{name: bytes(given)})

    uploads = dict(UPLOADS)
    if kind is Upload:
        changed = flipped(upload_of(uploads[2]))
        try:
            uploads[2] = signed(changed if name == "functional" else completed(changed))
        except ValueError:  # not even a cheat can hash it
            uploads[2] = encode_message(changed)
    played = Round({})
    for client, data in uploads.items():
        with suppress(RemoteProtocolError) if client == 2 else nullcontext():
            played.server.receive_upload(client, data)

    def change(member: int, data: bytes) -> bytes | None:
        message: Any = decode_message(decode_from_member, data, member, len(data))
        if member != 5 or type(message) is not kind:
            return data
        message = flipped(message)
        identity = kit.identity("member", member)
        if isinstance(message, Verdicts):
            parts: tuple[bytes, ...] = (CONTEXT.hash, encode_index(member))
            signature = identity.sign(Usage.COMPLAIN, *parts, message.bad, message.answers)
        else:
            parts = answer_parts(CONTEXT, member, played.server._signed, message.sums, b"", b"")
            signature = identity.sign(Usage.ANSWER, *parts)
        data = encode_message(replace(message, signature=signature))
        with suppress(RemoteProtocolError):
            played.server.receive_from_member(member, data)
        return None

    for _ in range(3):
        played.stage(change)
    opened = played.server.open()
    # A corrupt client may be left out, and nobody else, whatever a corrupt member says.
    assert set(EVERYBODY) - set(opened.survivors) <= ({2} if kind is Upload else set())
    assert np.array_equal(centre(opened.vector), sum(map(vector, opened.survivors)))


def test_headers_are_read_as_they_were_written() -> None:
    message = upload_of(UPLOADS[2])
    header = header_of(message)
    assert ValidatedHeader.decode(2, header.encode()) == header


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"members": 7}, "members"),
        ({"ring_bits": 41}, "ring_bits"),
        ({"ring_bits": 51}, "ring_bits"),
        ({"bound": 10**12}, "bound"),
        ({"away": -1}, "away"),
        ({"unit": 0}, "unit"),
        ({"removal": (0, 0, 0)}, "removal"),
        ({"members": 9, "away": 3}, "members"),
    ],
)
def test_terms_that_do_not_fit_are_refused_by_name(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        context(**changes)
    assert caught.value.argument == name


def test_what_a_context_cannot_do() -> None:
    seated: dict[str, Any] = {
        "size": CLIENTS + MEMBERS,
        "cohort_root": kit.seated(CLIENTS, MEMBERS).root,
        "member_uploads": kit.uploads(fewest=6),
    }
    # Members upload within a bound, and nobody has one who does not.
    assert context(**seated, member_bound=10**9).bound_of(CLIENTS) == 10**9
    for terms in (seated, {"member_bound": 10**9}):
        with pytest.raises(ParameterError, match="member_bound"):
            context(**terms)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ParameterError, match="nonce"):
        patch.setattr(PrimeRing, "square", lambda *_: np.arange(4))
        CONTEXT.squares(CONTEXT.elements())


def test_every_term_is_in_the_hash() -> None:
    found = [
        context(**changes)
        for changes in ({}, {"bound": 10**9 - 1}, {"nonce": 1}, {"away": 0}, {"unit": 1})
    ]
    assert len({each.hash for each in found}) == len(found)
