"""One client's side of a round: a state machine without sockets, threads or clocks.

Handlers are pure functions `(party, state, event) -> Step`; `ClientSession` uses every
state once (`secagg.session`). That is a defence: a client that answered two different survivor sets
would give away both the self mask and the pairwise masks of a party.

Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4; checks before each answer as listed there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from secagg.checks import require_int
from secagg.errors import (
    SERVER,
    LocalProtocolError,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    blaming,
)
from secagg.field import FieldVector, pack
from secagg.framing import decode_set, encode_message, encode_set, split_items
from secagg.keys import (
    KEY_BYTES,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    AgreedSecret,
    AgreementKey,
    Identity,
    SecretSeed,
    os_random,
    signature_is_valid,
)
from secagg.pairwise.client_codec import CLIENT_CODEC
from secagg.pairwise.client_states import (
    Aborted,
    Advertised,
    Confirmed,
    Finished,
    Fresh,
    Masked,
    Party,
    Ready,
    Released,
    Shared,
    State,
    Step,
)
from secagg.pairwise.context import Mode, SessionContext
from secagg.pairwise.graph import held_by
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.pairwise.messages import (
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_server,
    largest_message_bytes,
    sealed_share_bytes,
    shared_secrets,
)
from secagg.pairwise.prg import accumulate_masks
from secagg.pairwise.roster import RoundRoster, advertisement_parts, commitment, masked_input_parts
from secagg.pairwise.transitions import CLIENT_MOVES, ClientPhase, Local
from secagg.sealing import seal, unseal
from secagg.session import SingleUseSession
from secagg.shamir import Rand, decode_share, encode_share, split
from secagg.tags import Usage, encode_index

_SELF_MASK, _MASKING_KEY, _FIRST_SEED = 0, 1, 2
"""Order of the shared secrets inside a share."""


def begin(party: Party, state: Fresh, _: None) -> Step:
    """Round 0: draw two key pairs and sign the public halves."""
    sealing = AgreementKey(party.rand(KEY_BYTES))
    masking = AgreementKey(party.rand(KEY_BYTES))
    nonce = party.rand(NONCE_BYTES)
    parts = advertisement_parts(party.context, party.index, sealing.public, masking.public, nonce)
    advertisement = Advertisement(
        context=context_tag(party.context),
        sender=party.index,
        sealing_key=sealing.public,
        masking_key=masking.public,
        nonce=nonce,
        signature=party.identity.sign(Usage.ADVERTISE, *parts),
    )
    return Step(Advertised(sealing, masking, advertisement), advertisement)


def on_roster(party: Party, state: Advertised, message: Roster) -> Step:
    """Round 1: check everybody's keys, then share both secrets with all holders."""
    roster = RoundRoster.from_message(party.context, state.advertisement, message)
    seed = SecretSeed(party.rand(KEY_BYTES))
    removable = tuple(SecretSeed(party.rand(KEY_BYTES)) for _ in range(party.context.seeds))
    holders = roster.graph.holders(party.index)
    secrets = [seed.expose(), state.masking.expose(), *(each.expose() for each in removable)]
    threshold = roster.threshold
    if len(holders) < threshold:
        raise RemoteProtocolError(SERVER, Reason.SET_TOO_SMALL, f"{len(holders)} share holders")
    shares = split(secrets, holders, threshold, party.rand)
    plain = {h: encode_share(shares[i]) for i, h in enumerate(holders)}
    agreed = {h: _agree(state.sealing, roster, h) for h in holders if h != party.index}
    sealed = b"".join(
        seal(secret.expose(), roster.hash, party.index, h, plain[h]) for h, secret in agreed.items()
    )
    committed = b"".join(
        commitment(roster.hash, party.index, which, each)
        for which, each in enumerate((seed, *removable))
    )
    bundle = ShareBundle(
        context=context_tag(party.context),
        sender=party.index,
        commitments=committed,
        sealed=sealed,
        signature=party.identity.sign(
            Usage.SHARE, roster.hash, encode_index(party.index), committed, sealed
        ),
    )
    own = plain.get(party.index, b"")
    return Step(Shared(agreed, state.masking, seed, roster, own, removable), bundle)


def on_delivered_shares(party: Party, state: Shared, message: DeliveredShares) -> Step:
    """End of round 1: open the shares that the other participants sent us."""
    participants = _announced(party, message.participants, state.roster.members)
    held = {}
    if party.index in state.roster.graph.holders(party.index):
        held[party.index] = state.own_share
    senders = held_by(party.index, set(participants), state.roster.graph, include_self=False)
    with blaming(SERVER, Reason.BAD_LENGTH):
        items = split_items(message.sealed, sealed_share_bytes(party.context), len(senders))
    for sender, sealed in zip(senders, items, strict=True):
        held[sender] = _open_share(party, state, sender, sealed)
    ready = Ready(state.masking, state.seed, state.roster, participants, held, state.removable)
    return Step(ready, None)


def on_input(party: Party, state: Ready, vector: FieldVector) -> Step:
    """Round 2: add the self mask and all pairwise masks to the input."""
    context, index = party.context, party.index
    if vector.field != context.field or len(vector) != context.length:
        raise ParameterError(
            "vector",
            f"{len(vector)} elements of {vector.field.bits} bits",
            f"{context.length} elements of {context.bits} bits",
        )
    present = set(state.participants)
    peers = [v for v in state.roster.graph.neighbours(index) if v in present]
    keys = [self_key(state.seed, state.roster.hash, index)]
    keys += [_pair_key(state, index, v) for v in peers]
    subtract = [False, *(pairwise_is_subtracted(index, v) for v in peers)]
    total = np.array(vector.elements)
    accumulate_masks(total, context.field, keys, subtract)
    packed = pack(FieldVector(context.field, total))
    signed = masked_input_parts(state.roster.hash, index, packed)
    masked = MaskedInput(
        context=context_tag(context),
        sender=index,
        vector=packed,
        signature=party.identity.sign(Usage.INPUT, *signed),
    )
    after = Masked(state.roster, state.participants, state.held, state.removable)
    return Step(after, masked)


def on_survivors(party: Party, state: Masked, message: SurvivorSet) -> Step:
    """Round 3: sign the survivor set; without the consistency round, answer it with shares."""
    survivors = _announced(party, message.survivors, state.participants)
    if party.context.mode is Mode.SEMI_HONEST:
        return _release(party, state, survivors)
    confirmation = Confirmation(
        context=context_tag(party.context),
        sender=party.index,
        signature=party.identity.sign(Usage.CONFIRM, state.roster.hash, message.survivors),
    )
    return Step(Confirmed(state, survivors), confirmation)


def on_confirmations(party: Party, state: Confirmed, message: ConfirmationSet) -> Step:
    """Round 4: release shares once a quorum of the committee signed the set that we signed."""
    context, roster = party.context, state.masked.roster
    committee = roster.committee
    with blaming(SERVER, Reason.BAD_LENGTH):
        confirmers = decode_set(message.confirmers, context.size)
        signatures = split_items(message.signatures, SIGNATURE_BYTES, len(confirmers))
    if not set(confirmers) <= set(state.survivors):
        raise RemoteProtocolError(SERVER, Reason.SET_NOT_NESTED, "confirmers beyond survivors")
    if not set(confirmers) <= committee.members:
        raise RemoteProtocolError(SERVER, Reason.SET_NOT_NESTED, "confirmers beyond the committee")
    if len(confirmers) < committee.quorum:
        raise RemoteProtocolError(
            SERVER, Reason.MISSING_SIGNATURES, f"{len(confirmers)} of {committee.quorum}"
        )
    signed = encode_set(state.survivors, context.size)
    for signer, signature in zip(confirmers, signatures, strict=True):
        public = context.cohort[signer]
        if not signature_is_valid(public, signature, Usage.CONFIRM, roster.hash, signed):
            raise RemoteProtocolError(signer, Reason.BAD_SIGNATURE, "survivor set")
    return _release(party, state.masked, state.survivors)


def on_seed_request(party: Party, state: Released, message: SeedRequest) -> Step:
    """Round 5: shares of the seeds that the missing survivors should have given up.

    Which seeds follows from the survivor set that we signed; the others stay secret for good.
    """
    masked, context = state.masked, party.context
    with blaming(SERVER, Reason.BAD_LENGTH):
        missing = decode_set(message.missing, context.size)
    if not set(missing) <= set(state.survivors) - {party.index}:
        raise RemoteProtocolError(SERVER, Reason.SET_NOT_NESTED, "missing beyond survivors")
    owners = held_by(party.index, set(missing), masked.roster.graph)
    shares = b"".join(masked.held[owner] for owner in owners)
    signed = (masked.roster.hash, encode_index(party.index), message.missing, shares)
    answer = SeedShares(
        context=context_tag(context),
        sender=party.index,
        shares=shares,
        signature=party.identity.sign(Usage.RECOVER, *signed),
    )
    return Step(Finished(), answer)


def _release(party: Party, state: Masked, survivors: tuple[int, ...]) -> Step:
    alive = set(survivors)
    owners = held_by(party.index, set(state.participants), state.roster.graph)
    secrets = shared_secrets(party.context)
    held = {owner: decode_share(state.held[owner], secrets) for owner in owners}
    shares = b"".join(
        encode_share(share[_SELF_MASK if owner in alive else _MASKING_KEY])
        for owner, share in held.items()
    )
    bitmap = encode_set(survivors, party.context.size)
    removed = party.context.removed_seeds(len(survivors))
    seeds = b"".join(state.removable[which].expose() for which in removed)
    signed = (state.roster.hash, encode_index(party.index), bitmap, shares, seeds)
    message = UnmaskShares(
        context=context_tag(party.context),
        sender=party.index,
        shares=shares,
        seeds=seeds,
        signature=party.identity.sign(Usage.UNMASK, *signed),
    )
    if not removed:
        return Step(Finished(), message)
    # Of all that we held, only shares of surplus seeds may still be asked for: forget the rest.
    surplus = {
        owner: encode_share(share[[_FIRST_SEED + which for which in removed]])
        for owner, share in held.items()
        if owner in alive and owner != party.index
    }
    forgetful = replace(state, removable=(), held=surplus)
    return Step(Released(forgetful, survivors), message)


def _announced(party: Party, bitmap: bytes, within: tuple[int, ...]) -> tuple[int, ...]:
    """Check a set that the server announced against the one before it."""
    with blaming(SERVER, Reason.BAD_LENGTH):
        announced = decode_set(bitmap, party.context.size)
    if not set(announced) <= set(within):
        raise RemoteProtocolError(SERVER, Reason.SET_NOT_NESTED)
    if party.index not in announced:
        raise RemoteProtocolError(SERVER, Reason.OWN_ENTRY_MISSING, "declared to have dropped out")
    needed = party.context.minimum_survivors
    if len(announced) < needed:
        raise RemoteProtocolError(
            SERVER, Reason.SET_TOO_SMALL, f"{len(announced)} clients, at least {needed} needed"
        )
    return announced


def _open_share(party: Party, state: Shared, sender: int, sealed: bytes) -> bytes:
    try:
        secret = state.agreed[sender].expose()
        plain = unseal(secret, state.roster.hash, sender, party.index, sealed)
    except ValueError:
        raise RemoteProtocolError(sender, Reason.BAD_SEAL) from None
    with blaming(sender, Reason.BAD_SHARE):
        decode_share(plain, shared_secrets(party.context))
    return plain


def _agree(own: AgreementKey, roster: RoundRoster, peer: int) -> AgreedSecret:
    try:
        return AgreedSecret(own.agree(roster.advertisements[peer].sealing_key))
    except ValueError:
        raise RemoteProtocolError(peer, Reason.BAD_KEY, "sealing key") from None


def _pair_key(state: Ready, index: int, peer: int) -> bytes:
    public = state.roster.advertisements[peer].masking_key
    try:
        return pairwise_key(state.masking, public, state.roster.hash, index, peer)
    except ValueError:
        raise RemoteProtocolError(peer, Reason.BAD_KEY, "masking key") from None


Handler = Callable[[Party, Any, Any], Step]

HANDLERS: dict[tuple[ClientPhase, Local | type], Handler] = {
    (ClientPhase.FRESH, Local.BEGIN): begin,
    (ClientPhase.ADVERTISED, Roster): on_roster,
    (ClientPhase.SHARED, DeliveredShares): on_delivered_shares,
    (ClientPhase.READY, Local.INPUT): on_input,
    (ClientPhase.MASKED, SurvivorSet): on_survivors,
    (ClientPhase.CONFIRMED, ConfirmationSet): on_confirmations,
    (ClientPhase.RELEASED, SeedRequest): on_seed_request,
}


class ClientSession(SingleUseSession[Party, State, AnyMessage]):
    """One client in one round. Feed it the server's messages; send what it returns.

    Args:
        context: the public parameters, checked by the caller against its own policy.
        index: our position in the cohort.
        identity: our signing key; must be the one registered at that position.
        rand: source of secrets; leave it alone except in test vectors.

    Raises:
        ParameterError: index or identity do not match the context.

    Every method may raise `LocalProtocolError` or `RemoteProtocolError`; the session is aborted
    from then on, and a new round needs a new session. Threads may share a session: one waits for
    the other, and the second finds the state that the first left. A process that was forked while
    there was a session may not use it, and it is neither copied nor pickled; see `secagg.storage`.
    """

    HANDLERS = HANDLERS
    MOVES = CLIENT_MOVES
    FINAL = (Aborted, Finished)
    ABORTED = Aborted
    STORED_AS = CLIENT_CODEC

    def __init__(
        self, context: SessionContext, index: int, identity: Identity, rand: Rand = os_random
    ) -> None:
        require_int("index", index, 0, context.size - 1)
        if context.cohort[index] != identity.public:
            raise ParameterError(
                "identity", identity.public.hex(), f"the identity registered for {index}"
            )
        super().__init__(Party(context, index, identity, rand), Fresh())
        self._limit = largest_message_bytes(context)

    @property
    def phase(self) -> ClientPhase:
        """The phase that the session is in."""
        return self._state.phase

    @property
    def removable_seeds(self) -> tuple[SecretSeed, ...]:
        """Our removable seeds, while the input is being made.

        Raises:
            SessionAbortedError: the session is over.
            LocalProtocolError: it does not wait for its input.
        """
        state = self._state
        if isinstance(state, Aborted | Finished):
            raise SessionAbortedError(f"this session is over: {state.phase.value}")
        if not isinstance(state, Ready):
            raise LocalProtocolError(f"no removable seeds when {state.phase.value!r}")
        return state.removable

    @classmethod
    def from_state(cls, party: Party, state: State) -> ClientSession:
        """A session that goes on from a state that was handed over."""
        session = cls(party.context, party.index, party.identity, party.rand)
        session._state = state
        return session

    def begin_bytes(self) -> bytes:
        """The message of `begin`, encoded."""
        return encode_message(self.begin())

    def submit_bytes(self, vector: FieldVector) -> bytes:
        """The message of `submit`, encoded."""
        return encode_message(self.submit(vector))

    def begin(self) -> AnyMessage:
        """Open the round: returns the advertisement to send."""
        outbound = self._step(Local.BEGIN, None)
        assert outbound is not None  # noqa: S101 - guaranteed by the handler
        return outbound

    def submit(self, vector: FieldVector) -> AnyMessage:
        """Hand over the input: returns the masked vector to send."""
        outbound = self._step(Local.INPUT, vector)
        assert outbound is not None  # noqa: S101 - guaranteed by the handler
        return outbound

    def receive(self, message: AnyMessage) -> AnyMessage | None:
        """Process a message from the server; returns the answer to send, if there is one."""
        return self._step(type(message), message)

    def receive_bytes(self, data: bytes) -> bytes | None:
        """`receive` for bytes: decodes, steps, encodes."""
        with self._alone():
            message = self._decoded(lambda: decode_from_server(data, SERVER, self._limit))
            outbound = self.receive(message)
        return None if outbound is None else encode_message(outbound)
