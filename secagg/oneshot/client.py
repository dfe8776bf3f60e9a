"""One client of a one-shot round: it draws, uploads once, and is done.

Everything that the upload needs is derived from 32 fresh bytes *and* from what is uploaded. The
same key with two vectors would show their difference; derived like this, a machine that is set back
to an earlier state and asked again has another key for another vector, and the same bytes for the
same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec

from secagg.checks import require_int
from secagg.errors import LocalProtocolError, ParameterError, SessionAbortedError
from secagg.field import FieldVector, centre
from secagg.framing import encode_message
from secagg.keys import KEY_BYTES, AgreementKey, Identity, SecretSeed, os_random
from secagg.keystream import KEY_BYTES as STREAM_KEY_BYTES
from secagg.oneshot.context import CommitteeContext, OneShotContext
from secagg.oneshot.gaussian import sample
from secagg.oneshot.header import Header, seed_commitment
from secagg.oneshot.layout import encode_rows, reader_of
from secagg.oneshot.masking import mask
from secagg.oneshot.messages import AnyMessage, Upload, context_tag
from secagg.oneshot.state_codecs import CLIENT_CODEC
from secagg.oneshot.states import (
    ClientAborted,
    ClientParty,
    ClientState,
    Fresh,
    Seeded,
    Step,
    Uploaded,
)
from secagg.oneshot.transitions import CLIENT_MOVES, ClientPhase, Local
from secagg.sealing import seal
from secagg.session import SingleUseSession
from secagg.shamir import Rand
from secagg.tags import Usage, derive, digest, encode_index

_KEY, _ERRORS, _POLYNOMIALS, _EPHEMERAL = b"key", b"errors", b"polynomials", b"ephemeral key"
"""Labels of what is derived from an upload's root."""


def draw_seeds(party: ClientParty, state: Fresh, rounded: bytes) -> Step:
    """Draw the root, and derive the removable noise seeds for these rounded integers."""
    del state
    root = SecretSeed(party.rand(KEY_BYTES))
    what = digest(Usage.NOISE_SEEDS, rounded)
    bound = party.context.hash, encode_index(party.index)

    def seed(which: int) -> SecretSeed:
        parts = (*bound, encode_index(which), what)
        return SecretSeed(derive(root.expose(), Usage.NOISE_SEEDS, KEY_BYTES, *parts))

    count = party.context.seeds
    # The last one is of the noise that stays: it is bound to the integers like the others.
    return Step(Seeded(root, tuple(map(seed, range(count))), seed(count)), None)


def upload(party: ClientParty, state: Seeded, vector: FieldVector) -> Step:
    """Mask the vector, share the key, seal the shares, sign the header."""
    context: OneShotContext = party.context
    index = party.index
    check_vector(context, vector)
    secrets = UploadSecrets(party, state, vector)
    key = sample(secrets.derived(_KEY, STREAM_KEY_BYTES), context.degree)
    ciphertext = mask(
        context.packing,
        context.public_key,
        key,
        secrets.derived(_ERRORS, STREAM_KEY_BYTES),
        centre(vector),
    )
    rand = reader_of(secrets.derived(_POLYNOMIALS, STREAM_KEY_BYTES))
    shares = context.layout.deal(key, [seed.expose() for seed in state.removable], rand)
    ephemeral = AgreementKey(secrets.derived(_EPHEMERAL, KEY_BYTES))
    seals = b"".join(
        seal(
            ephemeral.agree(member.sealing_key),
            context.hash,
            index,
            number,
            encode_rows(shares[number]),
        )
        for number, member in enumerate(context.committee.members)
    )
    commitments = b"".join(
        seed_commitment(context, index, which, seed.expose())
        for which, seed in enumerate(state.removable)
    )
    unsigned = Upload(
        context=context_tag(context),
        sender=index,
        ephemeral_key=ephemeral.public,
        ciphertext=ciphertext,
        commitments=commitments,
        seals=seals,
        returns=party.returns,
        signature=bytes(64),
    )
    header = Header.of(unsigned)
    signature = party.identity.sign(Usage.UPLOAD, *header.signed_parts(context))
    message = msgspec.structs.replace(unsigned, signature=signature)
    return Step(Uploaded(encode_message(message), header.digest(context)), message)


def check_vector(context: CommitteeContext, vector: FieldVector) -> None:
    """See that a vector is one of the round."""
    if vector.field != context.field or len(vector) != context.length:
        raise ParameterError(
            "vector",
            f"{len(vector)} elements of {vector.field.bits} bits",
            f"{context.length} elements of {context.bits} bits",
        )


def resend(party: ClientParty, state: Uploaded, _: None) -> Step:
    """Keep what was uploaded: the caller sends the same bytes again."""
    del party
    return Step(state, None)


class UploadSecrets:
    """Everything secret about one upload, derived from its root and from what is uploaded."""

    def __init__(self, party: ClientParty, state: Seeded, vector: FieldVector) -> None:
        seeds = b"".join(seed.expose() for seed in state.removable)
        # The hash covers a secret, but only goes into derivations under another.
        self._bound = (
            party.context.hash,
            encode_index(party.index),
            digest(Usage.UPLOAD_SECRETS, vector.elements.tobytes(), seeds),
        )
        self._root = state.root

    def derived(self, label: bytes, length: int) -> bytes:
        """The bytes that a label stands for."""
        return derive(self._root.expose(), Usage.UPLOAD_SECRETS, length, label, *self._bound)


HANDLERS: dict[tuple[ClientPhase, Local], Callable[[ClientParty, Any, Any], Step]] = {
    (ClientPhase.FRESH, Local.SEEDS): draw_seeds,
    (ClientPhase.SEEDED, Local.INPUT): upload,
    (ClientPhase.UPLOADED, Local.RESEND): resend,
}


class OneShotClient(SingleUseSession[ClientParty, ClientState, AnyMessage]):
    """One upload in one round: ask for the seeds, add the noise, submit the vector, send the bytes.

    Args:
        rand: source of secrets; leave it alone except in test vectors.
    """

    HANDLERS = HANDLERS
    MOVES = CLIENT_MOVES
    FINAL = (ClientAborted,)
    ABORTED = ClientAborted
    STORED_AS = CLIENT_CODEC

    def __init__(
        self,
        context: CommitteeContext,
        index: int,
        identity: Identity,
        proof: bytes,
        rand: Rand = os_random,
        returns: bool = False,
    ) -> None:
        require_int("index", index, 0, context.size - 1)
        if not context.is_invited(index, identity.public, proof):
            raise ParameterError("proof", "of another entry", "the path of our own in the cohort")
        if returns and index < context.invited:
            raise ParameterError("returns", returns, "False for a client")
        super().__init__(ClientParty(context, index, identity, rand, returns), Fresh())

    @property
    def phase(self) -> ClientPhase:
        """The phase that the session is in."""
        return self._state.phase

    @classmethod
    def from_state(cls, party: ClientParty, state: ClientState) -> Self:
        """A session that goes on from a state that was handed over.

        The path to our entry is not looked at again: it was when the first session began.
        """
        session = cls.__new__(cls)
        SingleUseSession.__init__(session, party, state)
        return session

    def seeds(self, rounded: bytes) -> tuple[SecretSeed, ...]:
        """Our noise seeds, for the rounded integers to which the noise will be added.

        Args:
            rounded: their bytes, or anything that differs if they differ.
        """
        self._step(Local.SEEDS, rounded)
        state = self._state
        if not isinstance(state, Seeded):
            raise LocalProtocolError(f"no removable seeds when {state.phase.value!r}")
        return (state.own, *state.removable)

    def submit(self, vector: FieldVector) -> Any:
        """Hand over the noised input: returns the `Upload`, the only message of this client."""
        return self._step(Local.INPUT, vector)

    def submit_bytes(self, vector: FieldVector) -> bytes:
        """The upload of `submit`, encoded."""
        return encode_message(self.submit(vector))

    def resend_bytes(self) -> bytes:
        """The upload once more, the same bytes."""
        self._step(Local.RESEND, None)
        return self._uploaded().upload

    @property
    def header_digest(self) -> bytes:
        """What names our upload, for the member that we may be as well."""
        return self._uploaded().header_digest

    def _uploaded(self) -> Uploaded:
        state = self._state
        if isinstance(state, ClientAborted):
            raise SessionAbortedError(f"this session is over: {state.phase.value}")
        if not isinstance(state, Uploaded):
            raise LocalProtocolError(f"nothing is uploaded when {state.phase.value!r}")
        return state
