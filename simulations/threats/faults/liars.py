"""A client that lies, with a valid identity and valid signatures.

A liar is a client session whose messages are edited, and signed again, before they are sent: it
knows its own secrets and follows the protocol wherever its lie does not say otherwise. What the
lies are is listed in `lies`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from secagg import FieldVector, SessionContext
from secagg.field import unpack
from secagg.framing import encode_message
from secagg.pairwise.messages import (
    Advertisement,
    AnyMessage,
    Confirmation,
    MaskedInput,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    decode_from_client,
    decode_from_server,
)
from secagg.pairwise.roster import RoundRoster, advertisement_parts, masked_input_parts
from secagg.shamir import LIMBS, PRIME
from secagg.tags import Usage, encode_index
from simulations.threats.faults.behaviours import Lie, Sent
from simulations.threats.game.contexts import counter_rand, identity_of, new_session

Integers = NDArray[Any]
Shares = NDArray[np.uint32]


class Liar:
    """A client that lies in one way.

    Args:
        vector: `field.dtype`[length], the input that it masks before it lies.

    Attributes:
        keeps_commitment: whether the seed of its self mask is the one that it committed to.
    """

    def __init__(
        self,
        context: SessionContext,
        index: int,
        lie: Lie,
        vector: Integers,
        salt: bytes,
        rng: np.random.Generator,
    ) -> None:
        self.context = context
        self.index = self.number = index
        self.identity = identity_of(index)
        self.rng = rng
        self.salt = salt
        self.dealt_badly: set[int] = set()
        self.keeps_commitment = True
        self.survivors = b""
        self.missing = b""
        self.held: dict[int, bytes] = {}
        self.offset = np.zeros(context.length, object)
        self.victim = int(rng.choice([u for u in range(context.size) if u != index]))
        self._lie = lie
        self._vector = vector
        self._rand = counter_rand(salt + b"|lies of %d" % index)
        self._session = new_session(context, index, salt)
        self._masks = np.zeros(context.length, object)
        self._roster: RoundRoster | None = None
        self._gone = False
        self._meant: dict[bytes, Integers] = {}

    @property
    def cheated(self) -> frozenset[int]:
        """Clients that it dealt wrong shares to."""
        return frozenset(self.dealt_badly)

    def uploaded(self, data: bytes) -> Integers | None:
        """The input that a masked vector of its own stands for; None if it is none."""
        return self._meant.get(data)

    def open(self) -> Sent:
        """The advertisement, or what the lie makes of it."""
        return self._send(self._session.begin_bytes())

    def receive(self, data: bytes) -> Sent:
        """The answer of the session, or what the lie makes of it."""
        answer = self._session.receive_bytes(data)
        self._listen(data)
        if answer is None:
            self.held = self.state().held
            vector = FieldVector(self.context.field, self._vector.copy())
            answer = self._session.submit_bytes(vector)
            self._note_masks(decode_from_client(answer, self.index, len(answer)))
        return self._send(answer)

    # -- what lies use ------------------------------------------------------------------------

    def state(self) -> Any:
        """What the session knows, while it is not over; it goes on as if nobody had looked."""
        return self.change()

    def change(self, **changes: Any) -> Any:
        """Replace parts of the session's state; returns the new one."""
        party, state = self._session.hand_over()
        state = replace(state, **changes) if changes else state
        self._session = type(self._session).from_state(party, state)
        return state

    @property
    def roster(self) -> RoundRoster:
        """The roster that the session accepted."""
        if self._roster is None:
            raise LookupError("no roster has been accepted yet")
        return self._roster

    def spoiled(self, share: Shares) -> Shares:
        """The share with one limb of every secret changed: uint32[secrets, LIMBS].

        A secret with one wrong limb is still 32 bytes every other time, so that only its
        commitment tells that it is wrong. The last limb has few bits, and is left alone.
        """
        wrong = share.astype(np.uint64)
        limb = int(self.rng.integers(LIMBS - 1))
        wrong[:, limb] = (
            wrong[:, limb] + self.rng.integers(1, PRIME, len(wrong), np.uint64)
        ) % PRIME
        return wrong.astype(np.uint32)

    def rand(self, count: int) -> bytes:
        """Repeatable random bytes."""
        return self._rand(count)

    def signed(self, message: AnyMessage) -> AnyMessage:
        """The message with the signature that its content needs."""
        usage, parts = self._signed_parts(message)
        return msgspec.structs.replace(message, signature=self.identity.sign(usage, *parts))

    # -- inside -------------------------------------------------------------------------------

    def _listen(self, data: bytes) -> None:
        """Remember, of an accepted message, the sets that later signatures cover."""
        message = decode_from_server(data, self.index, len(data))
        if isinstance(message, Roster):
            self._roster = self.state().roster
        if isinstance(message, SurvivorSet):
            self.survivors = message.survivors
        if isinstance(message, SeedRequest):
            self.missing = message.missing

    def _note_masks(self, message: AnyMessage) -> None:
        assert isinstance(message, MaskedInput)  # noqa: S101 - the session just made it
        field_ = self.context.field
        masked = unpack(message.vector, self.context.length, field_).elements.astype(object)
        self._masks = masked - self._vector.astype(object) - self.offset

    def _send(self, data: bytes) -> Sent:
        message = decode_from_client(data, self.index, len(data))
        self._gone = self._gone or type(message) is self._lie.leaves_before
        if self._gone:
            return []
        edit = self._lie.edits.get(type(message))
        edited = [(self.index, message)] if edit is None else list(edit(self, message))
        return [(sender, self._encoded(each)) for sender, each in edited]

    def _encoded(self, message: AnyMessage) -> bytes:
        data = encode_message(message)
        if isinstance(message, MaskedInput) and message.sender == self.index:
            meant = self._meaning(message.vector)
            if meant is not None:
                self._meant[data] = meant
        return data

    def _meaning(self, packed: bytes) -> Integers | None:
        """The input for which the masks that are taken off later make these bytes."""
        field_ = self.context.field
        try:
            masked = unpack(packed, self.context.length, field_).elements.astype(object)
        except ValueError:
            return None
        return np.asarray((masked - self._masks) % field_.modulus)

    def _signed_parts(self, message: AnyMessage) -> tuple[Usage, tuple[bytes, ...]]:
        if isinstance(message, Advertisement):
            keys = (message.sealing_key, message.masking_key, message.nonce)
            parts = advertisement_parts(self.context, message.sender, *keys)
            return Usage.ADVERTISE, parts
        if isinstance(message, Confirmation):
            return Usage.CONFIRM, (self.roster.hash, self.survivors)
        bound, index = self.roster.hash, encode_index(self.index)
        if isinstance(message, ShareBundle):
            return Usage.SHARE, (bound, index, message.commitments, message.sealed)
        if isinstance(message, MaskedInput):
            return Usage.INPUT, masked_input_parts(bound, message.sender, message.vector)
        if isinstance(message, UnmaskShares):
            return Usage.UNMASK, (bound, index, self.survivors, message.shares, message.seeds)
        assert isinstance(message, SeedShares)  # noqa: S101 - all others are above
        return Usage.RECOVER, (bound, index, self.missing, message.shares)
