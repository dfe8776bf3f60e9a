"""Clients and members of one-shot rounds that lie, with valid keys and signatures.

A lying client makes its upload from its parts, of which its lie changes some. A lying member is a
session whose answers are edited, and signed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from secagg import FieldVector
from secagg.field import centre
from secagg.framing import encode_message
from secagg.keys import AgreementKey
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.gaussian import sample
from secagg.oneshot.header import Header, seed_commitment
from secagg.oneshot.layout import encode_rows
from secagg.oneshot.masking import mask
from secagg.oneshot.member import answer_parts
from secagg.oneshot.messages import (
    Answer,
    Complaints,
    Confirmation,
    Upload,
    context_tag,
    seal_bytes,
)
from secagg.oneshot.states import Checked, Confirmed
from secagg.sealing import seal
from secagg.tags import Usage, encode_index
from simulations.threats.faults.behaviours import Lie, Sent
from simulations.threats.faults.one_shot.parties import HonestMember, signer_of
from simulations.threats.game.contexts import Integers, counter_rand, identity_of

FromMember = Complaints | Confirmation | Answer


@dataclass(slots=True)
class Draft:
    """The parts of an upload."""

    vector: Integers  # `field.dtype`[length], the input
    key: NDArray[np.int8]  # int8[N], which masks it
    rows: NDArray[np.uint32]  # uint32[members, polynomials], the shares
    commitments: list[bytes]
    plain: dict[int, bytes]  # what is sealed to members in place of their shares
    sealed: dict[int, bytes]  # what is sent to members in place of their seals


class LyingClient:
    """A client that lies in one way."""

    def __init__(
        self,
        context: OneShotContext,
        index: int,
        lie: Lie,
        vector: Integers,
        salt: bytes,
        rng: np.random.Generator,
    ) -> None:
        self.context = context
        self.index = self.number = index
        self.rng = rng
        self.victim = int(rng.choice([u for u in range(context.size) if u != index]))
        self.heard: dict[int, Upload] = {}
        self.dealt_badly: set[int] = set()
        self.header_digest: bytes | None = None
        self.leaves = False
        self._lie = lie
        self._vector = vector
        self.rand = counter_rand(salt + b"|lies of %d" % index)
        self.seeds = [self.rand(32) for _ in range(context.seeds)]
        self._meant: dict[bytes, Integers] = {}

    def open(self, heard: dict[int, Upload]) -> Sent:
        """What the lie makes of the upload."""
        self.heard = heard
        if self.leaves:
            return []
        sent = []
        for sender, message in self._lie.edits[Upload](self, self.draft()):
            data = encode_message(message)
            if self.header_digest is None and message.sender == self.index:
                self.header_digest = Header.of(message).digest(self.context)
            sent.append((sender, data))
        return sent

    def uploaded(self, data: bytes) -> Integers | None:
        """The input that an upload of its own stands for; None if it is none."""
        message = msgspec.msgpack.decode(data[1:], type=Upload)
        return self._meant.get(message.ciphertext)

    # -- what lies use ------------------------------------------------------------------------

    def draft(self) -> Draft:
        """The parts of an honest upload."""
        context = self.context
        key = self.drawn_key()
        commitments = [
            seed_commitment(context, self.index, which, seed)
            for which, seed in enumerate(self.seeds)
        ]
        return Draft(self._vector, key, self.dealt(key), commitments, {}, {})

    def drawn_key(self) -> NDArray[np.int8]:
        """A key such as honest clients draw."""
        return sample(self.rand(16), self.context.degree)

    def dealt(self, key: NDArray[np.int8]) -> NDArray[np.uint32]:
        """Shares of a key and of the own seeds."""
        return self.context.layout.deal(key, self.seeds, self.rand)

    def upload(self, draft: Draft) -> Upload:
        """The upload that these parts make."""
        context = self.context
        vector = centre(FieldVector(context.field, draft.vector))
        ciphertext = mask(context.packing, context.public_key, draft.key, self.rand(16), vector)
        self._meant[ciphertext] = draft.vector
        ephemeral = AgreementKey(self.rand(32))
        seals = []
        for number, member in enumerate(context.committee.members):
            plain = draft.plain.get(number, encode_rows(draft.rows[number]))
            shared = ephemeral.agree(member.sealing_key)
            made = seal(shared, context.hash, self.index, number, plain)
            seals.append(draft.sealed.get(number, made))
        return self.signed(
            Upload(
                context=context_tag(context),
                sender=self.index,
                ephemeral_key=ephemeral.public,
                ciphertext=ciphertext,
                commitments=b"".join(draft.commitments),
                seals=b"".join(seals),
                returns=False,
                signature=bytes(64),
            )
        )

    def signed(self, message: Upload) -> Upload:
        """The message with its own signature, whatever name it bears."""
        parts = Header.of(message).signed_parts(self.context)
        signature = identity_of(self.index).sign(Usage.UPLOAD, *parts)
        return msgspec.structs.replace(message, signature=signature)

    def anothers(self) -> Upload:
        """What some honest client uploaded."""
        return self.heard[int(self.rng.choice(sorted(self.heard)))]

    def garbage(self) -> bytes:
        """As many bytes as a seal has."""
        return self.rand(seal_bytes(self.context))

    def some_members(self) -> list[int]:
        """Members chosen at random, at least one, and not all if there are several."""
        size = self.context.committee.size
        count = int(self.rng.integers(1, max(2, size)))
        return [int(j) for j in self.rng.choice(size, count, replace=False)]


class LyingMember(HonestMember):
    """A member that lies in one way."""

    def __init__(
        self, context: OneShotContext, index: int, lie: Lie, rng: np.random.Generator
    ) -> None:
        super().__init__(context, index)
        self.leaves_before = lie.leaves_before
        self.rng = rng
        self.signed_digest = b""
        self.uploaded: tuple[int, ...] = ()
        self._lie = lie

    def sent(self, message: Any, data: bytes) -> Sent:
        """What the lie makes of an answer."""
        state = self.session._state
        if isinstance(state, Checked):
            self.uploaded = tuple(header.sender for header in state.headers)
        if isinstance(state, Confirmed):
            self.signed_digest = state.signed
        edit = self._lie.edits.get(type(message))
        if edit is None:
            return [(self.number, data)]
        return [(sender, encode_message(each)) for sender, each in edit(self, message)]

    def agreed(self) -> np.random.Generator:
        """The same randomness for all members that lie."""
        return np.random.default_rng(list(self.context.hash))

    def signed(self, message: FromMember) -> FromMember:
        """The message with its own signature."""
        identity = signer_of(self.context, self.index)
        usage, parts = self._signed_parts(message)
        return msgspec.structs.replace(message, signature=identity.sign(usage, *parts))

    def _signed_parts(self, message: FromMember) -> tuple[Usage, tuple[bytes, ...]]:
        context = self.context
        if isinstance(message, Complaints):
            return Usage.COMPLAIN, (context.hash, encode_index(message.sender), message.bad)
        if isinstance(message, Confirmation):
            return Usage.SURVIVORS, (self.signed_digest,)
        content = (message.sums, message.seeds, message.checks)
        parts = answer_parts(context, message.sender, self.signed_digest, *content)
        return Usage.ANSWER, parts
