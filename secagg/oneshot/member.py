"""A member of the committee: it checks, signs one set of uploads, and answers once.

Everything that keeps the server from opening two sums is here: the set is made of uploads whose
signatures and seals we checked, it is large enough, we sign one, and we answer only on the set that
we signed and that a quorum signed with us. The state is taken out before the answer is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from secagg.checks import require_int
from secagg.errors import SERVER, ParameterError, Reason, RemoteProtocolError, blaming
from secagg.framing import Message, decode_set, encode_message, encode_set, split_items
from secagg.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    AgreementKey,
    Identity,
    signature_is_valid,
)
from secagg.oneshot.context import Cohort, CommitteeContext, OneShotContext
from secagg.oneshot.header import Header, counts_of, record_of, survivors_digest
from secagg.oneshot.layout import decode_rows, encode_rows
from secagg.oneshot.messages import (
    HEADER_BYTES,
    Answer,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    context_tag,
    decode_to_member,
    largest_delivery_bytes,
    seal_bytes,
)
from secagg.oneshot.records import RoundRecord
from secagg.oneshot.state_codecs import MEMBER_CODEC
from secagg.oneshot.states import (
    Checked,
    Confirmed,
    Finished,
    MemberAborted,
    MemberParty,
    MemberState,
    Step,
    Waiting,
)
from secagg.oneshot.transitions import MEMBER_MOVES, MemberPhase
from secagg.sealing import unseal
from secagg.session import SingleUseSession
from secagg.tags import Usage, encode_index


def on_delivery(party: MemberParty, state: Waiting, message: Delivery) -> Step:
    """Check every header, open every seal that is ours, and name what is bad."""
    del state
    context: OneShotContext = party.context
    with blaming(SERVER, Reason.BAD_LENGTH):
        keys = split_items(message.cohort, KEY_BYTES, context.size)
        uploaded = decode_set(message.uploaded, context.size)
        headers = split_items(message.headers, HEADER_BYTES, len(uploaded))
        seals = split_items(message.seals, seal_bytes(context), len(uploaded))
    check_cohort(party, keys)
    kept: list[Header] = []
    shares = np.empty((len(uploaded), context.layout.polynomials), np.uint32)
    bad = []
    for sender, encoded, sealed in zip(uploaded, headers, seals, strict=True):
        try:
            header = Header.decode(sender, encoded)
            shares[len(kept)] = share_of(party, header, keys[sender], sealed)
        except ValueError:
            bad.append(sender)
            continue
        kept.append(header)
    complaints = encode_set(bad, context.size)
    signed = (context.hash, encode_index(party.index), complaints)
    answer = Complaints(
        context=context_tag(context),
        sender=party.index,
        bad=complaints,
        signature=party.identity.sign(Usage.COMPLAIN, *signed),
    )
    return Step(Checked(tuple(kept), shares[: len(kept)].copy()), answer)


def check_cohort(party: MemberParty, keys: list[bytes]) -> None:
    """See that the cohort is the announced one, of those who may be in it."""
    context = party.context
    with blaming(SERVER, Reason.NOT_IN_TREE):
        if Cohort(keys).root != context.cohort_root:
            raise ValueError("another cohort than the announced one")
        if party.registry is not None and not party.registry.issuperset(keys[: context.invited]):
            raise ValueError("the cohort has members that are not registered")
        seated = [member.identity for member in context.committee.members]
        if context.member_uploads and keys[context.invited :] != seated:
            raise ValueError("the uploads after the clients' are not those of the committee")


def on_proposal(party: MemberParty, state: Checked, message: Proposal) -> Step:
    """Sign the one set of uploads that we shall answer on, if all of it was good here."""
    context = party.context
    with blaming(SERVER, Reason.BAD_LENGTH):
        survivors = decode_set(message.survivors, context.size)
    places = {header.sender: place for place, header in enumerate(state.headers)}
    if not places.keys() >= set(survivors):
        raise RemoteProtocolError(
            SERVER, Reason.SET_NOT_NESTED, "uploads that we did not see, or complained about"
        )
    chosen = [places[sender] for sender in survivors]
    headers = [state.headers[place] for place in chosen]
    for what, count, needed in counts_of(context, headers):
        if count < needed:
            detail = f"{count} {what}, at least {needed} needed"
            raise RemoteProtocolError(SERVER, Reason.SET_TOO_SMALL, detail)
    signed = survivors_digest(context, headers)
    confirmation = Confirmation(
        context=context_tag(context),
        sender=party.index,
        signature=party.identity.sign(Usage.SURVIVORS, signed),
    )
    record = record_of(context, headers) if context.member_uploads else None
    return Step(Confirmed(signed, survivors, record, state.shares[chosen]), confirmation)


def on_quorum(party: MemberParty, state: Confirmed, message: Quorum) -> Step:
    """Answer, once, when a quorum signed the set that we signed."""
    context: OneShotContext = party.context
    layout = context.layout
    check_quorum(party, state, message)
    surplus = context.removed_seeds(len(state.survivors))
    sums = encode_rows(layout.sum_keys(state.shares))
    seeds = encode_rows(state.shares[:, layout.seed_columns(surplus)])
    checks = encode_rows(layout.checks(state.shares, layout.challenge_of(state.signed)))
    signed = answer_parts(context, party.index, state.signed, sums, seeds, checks)
    answer = Answer(
        context=context_tag(context),
        sender=party.index,
        sums=sums,
        seeds=seeds,
        checks=checks,
        signature=party.identity.sign(Usage.ANSWER, *signed),
    )
    return Step(Finished(), answer)


def check_quorum(party: MemberParty, state: Confirmed, message: Quorum) -> None:
    """See that a quorum of the committee signed the set that we signed."""
    committee = party.context.committee
    with blaming(SERVER, Reason.BAD_LENGTH):
        signers = decode_set(message.signers, committee.size)
        signatures = split_items(message.signatures, SIGNATURE_BYTES, len(signers))
    if len(signers) < committee.quorum:
        raise RemoteProtocolError(
            SERVER, Reason.MISSING_SIGNATURES, f"{len(signers)} of {committee.quorum}"
        )
    for signer, signature in zip(signers, signatures, strict=True):
        identity = committee.members[signer].identity
        if not signature_is_valid(identity, signature, Usage.SURVIVORS, state.signed):
            raise RemoteProtocolError(
                SERVER, Reason.BAD_SIGNATURE, f"of member {signer} on the survivors"
            )


def answer_parts(
    context: CommitteeContext, index: int, signed: bytes, sums: bytes, seeds: bytes, checks: bytes
) -> tuple[bytes, ...]:
    """What the signature of a member's answer covers."""
    return context.hash, encode_index(index), signed, sums, seeds, checks


def share_of(party: MemberParty, header: Header, sender: bytes, sealed: bytes) -> Any:
    """Our share of an upload, uint32[polynomials]."""
    check_upload(party, header, sender)
    shared = party.sealing.agree(header.ephemeral_key)
    plain = unseal(shared, party.context.hash, header.sender, party.index, sealed)
    return decode_rows(plain, 1, party.context.layout.polynomials)[0]


def check_upload(party: MemberParty, header: Header, sender: bytes) -> None:
    """See that an upload is its sender's, and ours if it is in our name; ValueError if not."""
    if not header.is_signed(party.context, sender):
        raise ValueError("the header is not signed by its sender")
    if not header.may_return(party.context):
        raise ValueError("the sender takes back what it has not added")
    if sender == party.identity.public:
        _require_own(party, header)


def _require_own(party: MemberParty, header: Header) -> None:
    """See that an upload in our name is ours; ValueError if it is not, or if we know of none."""
    if party.own is None or party.own[1] != header.digest(party.context):
        raise ValueError("an upload in our own name that we did not make")


HANDLERS: dict[tuple[MemberPhase, type], Callable[[MemberParty, Any, Any], Step]] = {
    (MemberPhase.WAITING, Delivery): on_delivery,
    (MemberPhase.CHECKED, Proposal): on_proposal,
    (MemberPhase.CONFIRMED, Quorum): on_quorum,
}


class OneShotMember(SingleUseSession[MemberParty, MemberState, Message]):
    """One member in one round. Feed it the server's messages; send what it returns.

    There must be one session for each session id and round number, whatever the context: the caller
    keeps that in its history before it makes one, beyond a crash.

    Args:
        own: for a member that is a client of this round, its index in the cohort and
            `OneShotClient.header_digest`, None if it uploaded nothing.
        registry: identity keys of all clients that may be in a cohort; None to take any.
    """

    HANDLERS = HANDLERS
    MOVES = MEMBER_MOVES
    FINAL = (MemberAborted, Finished)
    ABORTED = MemberAborted
    STORED_AS = MEMBER_CODEC

    def __init__(
        self,
        context: CommitteeContext,
        index: int,
        identity: Identity,
        sealing: AgreementKey,
        own: tuple[int, bytes | None] | None = None,
        registry: frozenset[bytes] | None = None,
    ) -> None:
        members = context.committee.members
        require_int("index", index, 0, len(members) - 1)
        if members[index].identity != identity.public:
            raise ParameterError("identity", identity.public.hex(), f"that of member {index}")
        if members[index].sealing_key != sealing.public:
            raise ParameterError("sealing", sealing.public.hex(), f"the key of member {index}")
        super().__init__(MemberParty(context, index, identity, sealing, own, registry), Waiting())

    @property
    def phase(self) -> MemberPhase:
        """The phase that the session is in."""
        return self._state.phase

    @property
    def record(self) -> RoundRecord | None:
        """What we have just signed for; None before, afterwards, and without members' uploads."""
        return self._state.record if isinstance(self._state, Confirmed) else None

    @classmethod
    def from_state(cls, party: MemberParty, state: MemberState) -> Self:
        """A session that goes on from a state that was handed over."""
        session = cls(
            party.context, party.index, party.identity, party.sealing, party.own, party.registry
        )
        session._state = state
        return session

    def receive(self, message: Message) -> Message:
        """Process a message from the server; returns the answer to send."""
        outbound = self._step(type(message), message)
        assert outbound is not None  # noqa: S101 - guaranteed by the handlers
        return outbound

    def receive_bytes(self, data: bytes) -> bytes:
        """`receive` for bytes: decodes, steps, encodes."""
        with self._alone():
            message = self._decoded(lambda: self._message(data))
            return encode_message(self.receive(message))

    def _message(self, data: bytes) -> Message:
        return decode_to_member(data, SERVER, largest_delivery_bytes(self._party.context))
