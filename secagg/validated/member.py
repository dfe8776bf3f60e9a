"""A member of a validated round: it checks every upload on its shares, signs one set, answers once.

What a one-shot member does it does too; beside its complaints it gives V1, V2 and L of each upload.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from secagg.errors import SERVER, Reason, blaming
from secagg.framing import Message, decode_message, decode_set, encode_set, split_items
from secagg.keys import KEY_BYTES
from secagg.merkle import proof_is_valid
from secagg.oneshot.member import (
    OneShotMember,
    answer_parts,
    check_cohort,
    check_quorum,
    check_upload,
    on_proposal,
)
from secagg.oneshot.messages import Answer, Proposal, Quorum
from secagg.oneshot.state_codecs import MEMBER_CODEC
from secagg.oneshot.states import Checked, Confirmed, Finished, MemberParty, Step, Waiting
from secagg.oneshot.transitions import MemberPhase
from secagg.sealing import unseal
from secagg.state_codec import StateCodec
from secagg.tags import Usage, encode_index
from secagg.validated.check import answer
from secagg.validated.context import ValidatedContext
from secagg.validated.messages import (
    FIRST,
    HEADER_BYTES,
    SECOND,
    Delivery,
    ValidatedHeader,
    Verdicts,
    decode_to_member,
    delivered_bytes,
    largest_message_bytes,
    leaf,
    leaf_words,
    pack,
    packed_bytes,
    part_bytes,
    part_words,
    path_bytes,
    seal_label,
    unpack,
)
from secagg.validated.proof import Challenges
from secagg.validated.ring import Residues


def on_delivery(party: MemberParty, state: Waiting, message: Delivery) -> Step:
    """Check every header, open both seals, and answer on what opens."""
    del state
    context: ValidatedContext = party.context
    ring = context.parameters.ring
    with blaming(SERVER, Reason.BAD_LENGTH):
        keys = split_items(message.cohort, KEY_BYTES, context.size)
        uploaded = decode_set(message.uploaded, context.size)
        headers = split_items(message.headers, HEADER_BYTES, len(uploaded))
        size = delivered_bytes(context.parameters, party.index)
        parts = split_items(message.parts, size, len(uploaded))
    check_cohort(party, keys)
    kept: list[ValidatedHeader] = []
    shares, answers, bad = [], [], []
    for sender, encoded, part in zip(uploaded, headers, parts, strict=True):
        try:
            header = ValidatedHeader.decode(sender, encoded)
            first, found = checked(party, header, keys[sender], part)
        except ValueError:
            bad.append(sender)
            continue
        kept.append(header)
        shares.append(first)
        answers.append(pack(ring, found))
    complaints, given = encode_set(bad, context.size), b"".join(answers)
    signed = (context.hash, encode_index(party.index), complaints, given)
    verdicts = Verdicts(
        context=message.context,
        sender=party.index,
        bad=complaints,
        answers=given,
        signature=party.identity.sign(Usage.COMPLAIN, *signed),
    )
    columns = part_words(context.parameters)[0]
    stacked = np.array(shares, np.uint64).reshape(len(shares), columns)
    return Step(Checked(tuple(kept), stacked), verdicts)


def checked(
    party: MemberParty, header: ValidatedHeader, sender: bytes, part: bytes
) -> tuple[Residues, Residues]:
    """Our share of part 1 of an upload, and our answer on it; ValueError if anything is off."""
    context: ValidatedContext = party.context
    member = party.index
    p, ring = context.parameters, context.parameters.ring
    check_upload(party, header, sender)
    path = path_bytes(member, p.members)
    lengths = (*part_bytes(p), packed_bytes(ring, leaf_words(p)), path, path, path)
    cuts = list(accumulate(lengths, initial=0))
    first, second, given, *paths = (part[i:j] for i, j in pairwise(cuts))
    roots = (header.seals_hash, header.second_root, header.leaves_root)
    entries = (first, second, leaf(context, member, given))
    for root, entry, way in zip(roots, entries, paths, strict=True):
        if not proof_is_valid(root, entry, member, p.members, way):
            raise ValueError("a part of the upload is not under its root")
    shared = party.sealing.agree(header.ephemeral_key)
    one, two = (
        unpack(ring, unseal(shared, seal_label(context, label), header.sender, member, sealed), n)
        for label, sealed, n in zip((FIRST, SECOND), (first, second), part_words(p), strict=True)
    )
    every = unpack(ring, given, leaf_words(p))
    functional = every[: -p.repetitions].reshape(p.repetitions, -1)
    challenges = Challenges.of(p, header.root2(context))
    found = answer(p, member, one, two, functional, every[-p.repetitions :], challenges)
    return one, found


def on_quorum(party: MemberParty, state: Confirmed, message: Quorum) -> Step:
    """Answer, once, when a quorum signed the set that we signed."""
    context: ValidatedContext = party.context
    check_quorum(party, state, message)
    ring = context.parameters.ring
    ones = np.ones((1, len(state.shares)), np.uint64)
    shares: Residues = state.shares.astype(np.uint64)
    sums = pack(ring, ring.product(ones, shares))
    signed = answer_parts(context, party.index, state.signed, sums, b"", b"")
    message_out = Answer(
        context=message.context,
        sender=party.index,
        sums=sums,
        seeds=b"",
        checks=b"",
        signature=party.identity.sign(Usage.ANSWER, *signed),
    )
    return Step(Finished(), message_out)


def _shares_to_plain(shares: Residues) -> bytes:
    return shares.astype("<u8").tobytes()


def _shares_from_plain(raw: bytes, context: ValidatedContext) -> Residues:
    columns = part_words(context.parameters)[0]
    return np.frombuffer(raw, "<u8").astype(np.uint64).reshape(-1, columns)


CODEC = StateCodec(
    role=b"validated member",
    states=MEMBER_CODEC.states,
    fields={
        **MEMBER_CODEC.fields,
        "headers": (
            MEMBER_CODEC.fields["headers"][0],
            lambda raw, _: tuple(ValidatedHeader.decode(sender, each) for sender, each in raw),
        ),
        "shares": (_shares_to_plain, _shares_from_plain),
    },
    party=MEMBER_CODEC.party,
)


class ValidatedMember(OneShotMember):
    """One member in one round, as `OneShotMember`."""

    HANDLERS = {  # noqa: RUF012 - as in the parent
        (MemberPhase.WAITING, Delivery): on_delivery,
        (MemberPhase.CHECKED, Proposal): on_proposal,
        (MemberPhase.CONFIRMED, Quorum): on_quorum,
    }
    MOVES = {  # noqa: RUF012 - as in the parent
        (MemberPhase.WAITING, Delivery): frozenset((MemberPhase.CHECKED,)),
        (MemberPhase.CHECKED, Proposal): frozenset((MemberPhase.CONFIRMED,)),
        (MemberPhase.CONFIRMED, Quorum): frozenset((MemberPhase.FINISHED,)),
    }
    STORED_AS = CODEC

    def _message(self, data: bytes) -> Message:
        limit = largest_message_bytes(self._party.context)[0]
        return decode_message(decode_to_member, data, SERVER, limit)
