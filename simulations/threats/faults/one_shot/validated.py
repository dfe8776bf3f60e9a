"""Schedules of validated rounds: hostile wires, parties that leave, clients and members that lie.

Every vector is within the bound but that of a client that sends too much. With no more liars and
absent members than are tolerated, a round must end in the exact sum of what is short enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import msgspec
import numpy as np

from protocol.schemes.validated import validated_numbers
from secagg.framing import decode_message, encode_message, encode_set
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import Cohort
from secagg.oneshot.messages import MEMBER, Answer, Confirmation
from secagg.shamir import Rand
from secagg.tags import Usage, encode_index
from secagg.validated.bounds import announced_bound
from secagg.validated.client import ValidatedClient
from secagg.validated.context import DEGREE, ValidatedContext, bits_of_sum, exact_unit, longest_of
from secagg.validated.member import ValidatedMember
from secagg.validated.messages import (
    Trees,
    Upload,
    Verdicts,
    decode_from_member,
    decode_upload,
    encoded,
    part_bytes,
    unpack,
    values,
)
from secagg.validated.parameters import ring_for
from secagg.validated.server import ValidatedCollection, ValidatedServer
from simulations.threats.faults.behaviours import Change, Lie, Sent, instead
from simulations.threats.faults.one_shot import staged
from simulations.threats.faults.one_shot.liars import LyingClient, LyingMember
from simulations.threats.faults.one_shot.parties import (
    HonestClient,
    HonestMember,
    plain_input,
    random_sizes,
)
from simulations.threats.faults.one_shot.rounds import Round
from simulations.threats.game.contexts import (
    Integers,
    Wanted,
    cohort_keys,
    identity_of,
    until_it_fits,
)
from simulations.threats.one_shot.parties import SESSION, committee_of
from simulations.threats.one_shot.too_long import upload_of_any_length

_ERRORS = 6.4
_MOST_MEMBERS = 10


class _Client(HonestClient):
    def _begun(self, context: Any, proof: bytes, rand: Rand) -> OneShotClient:
        self.terms, self.proof = context, proof
        least = context.bound_of(self.index)
        return ValidatedClient(context, self.index, identity_of(self.index), proof, least, rand)

    def _read(self, data: bytes) -> Any:
        return decode_message(decode_upload, data, self.index, len(data))


class _Member(HonestMember):
    SESSION = ValidatedMember

    def _read(self, data: bytes) -> Any:
        return decode_message(decode_from_member, data, self.index, len(data), MEMBER)


class _Cheat(LyingClient, _Client):  # type: ignore[misc]
    """A client that sends something else than its upload."""

    def __init__(
        self,
        context: Any,
        index: int,
        lie: Lie,
        vector: Integers,
        salt: bytes,
        rng: np.random.Generator,
    ) -> None:
        del salt
        _Client.__init__(self, context, index, plain_input(context, vector), rng.bytes(4))
        self.rng, self.dealt_badly, self._vector, self._lie = rng, set(), vector, lie
        self.too_long = False

    def open(self, heard: dict[int, Any]) -> Sent:
        """What the lie makes of the upload."""
        tells = self._lie.edits[Upload]
        return [sent for _, data in _Client.open(self, heard) for sent in tells(self, data)]

    def uploaded(self, data: bytes) -> Integers | None:
        """Its vector; None if that is too long to be in a sum."""
        del data
        return None if self.too_long else self._vector


class _LyingMember(LyingMember, _Member):
    """A member whose answers are changed, and signed again."""

    def sent(self, message: Any, data: bytes) -> Sent:
        """What the lie makes of an answer."""
        self.signed_digest = getattr(self.session._state, "signed", self.signed_digest)
        return super().sent(message, data)

    def _signed_parts(self, message: Any) -> tuple[Usage, tuple[bytes, ...]]:
        if isinstance(message, Verdicts):
            parts = (self.context.hash, encode_index(self.index), message.bad, message.answers)
            return Usage.COMPLAIN, parts
        return super()._signed_parts(message)


class _Round(Round):
    SERVER, UPLOAD, COMPLAINTS = ValidatedServer, Upload, Verdicts


def _too_long(liar: _Cheat, data: bytes) -> bytes:
    """A vector beyond the bound, by a twentieth or more, that claims to be at it."""
    del data
    context, liar.too_long = liar.terms, True
    spike = np.zeros(context.length, np.int64)
    factor = liar.rng.uniform(1.05, 1.0 + context.size / 2)
    spike[0] = ceil(factor * longest_of(context.bound) / context.unit)
    who = identity_of(liar.index)
    return upload_of_any_length(context, liar.index, who, liar.proof, spike, liar.rng.bytes)


def _spoilt(liar: _Cheat, data: bytes) -> bytes:
    """Seals that do not open for some members, in an upload that is right for the server."""
    context, message = liar.terms, liar._read(data)
    p = context.parameters
    which = int(liar.rng.integers(2))
    name, size = ("first", "second")[which], part_bytes(p)[which]
    part = bytearray(getattr(message, name))
    for member in liar.rng.choice(p.members, liar.rng.integers(1, p.members + 1), replace=False):
        part[member * size] ^= 1
    message = msgspec.structs.replace(message, **{name: bytes(part)})
    collection = ValidatedCollection(context, Cohort(cohort_keys(context.size)))
    ciphertext = unpack(p.ring, message.ciphertext, p.blocks * DEGREE).reshape(p.blocks, -1)
    found = collection._functional(_header(context, message), ciphertext)
    return _signed(liar, msgspec.structs.replace(message, functional=encoded(context, found)))


def _header(context: ValidatedContext, message: Upload) -> Any:
    return Trees.of(context, message, values(context, message.functional)).header(message)


def _signed(liar: _Cheat, message: Upload) -> bytes:
    parts = _header(liar.terms, message).signed_parts(liar.terms)
    signature = identity_of(liar.index).sign(Usage.UPLOAD, *parts)
    return encode_message(msgspec.structs.replace(message, signature=signature))


def _wrong_verdicts(liar: _LyingMember, message: Any) -> Any:
    """Another V1 of some uploads, or of all."""
    uploads = len(getattr(liar.session._state, "headers", ()))
    if not uploads:
        return message
    answers, share = bytearray(message.answers), liar.rng.choice([0.3, 1.0])
    for place in range(0, len(answers), len(answers) // uploads):
        answers[place] ^= int(liar.rng.random() < share)
    return msgspec.structs.replace(message, answers=bytes(answers))


def _complains(liar: _LyingMember, message: Any) -> Any:
    """No answer on any upload."""
    headers = getattr(liar.session._state, "headers", ())
    bad = encode_set([header.sender for header in headers], liar.context.size)
    return msgspec.structs.replace(message, bad=bad, answers=b"")


def _wrong_sums(liar: _LyingMember, message: Any) -> Any:
    """Other shares of the sum of the keys."""
    return msgspec.structs.replace(message, sums=bytes([message.sums[0] ^ 1]) + message.sums[1:])


def _client(change: Callable[[_Cheat, bytes], bytes]) -> Lie:
    def edit(liar: _Cheat, data: bytes) -> list[tuple[int, bytes]]:
        return [(liar.index, change(liar, data))]

    return Lie(edits={Upload: edit}, wanted=Wanted(colluders=1, spare=1, corrupt=1), bearable=True)


def _member(kind: type, change: Change) -> Lie:
    return Lie(edits={kind: instead(change)}, wanted=Wanted(corrupt=1, spare=1), bearable=True)


CLIENT_LIES: Mapping[str, Lie] = {
    "sends a vector beyond the bound": _client(_too_long),
    "spoils seals": _client(_spoilt),
}
MEMBER_LIES: Mapping[str, Lie] = {
    "answers wrongly on uploads": _member(Verdicts, _wrong_verdicts),
    "complains about all uploads": _member(Verdicts, _complains),
    "answers wrongly at the opening": _member(Answer, _wrong_sums),
}


class Cast(staged.Cast):
    """The parties of a validated round."""

    CLIENT, MEMBER, CHEAT, LIAR, ROUND = _Client, _Member, _Cheat, _LyingMember, _Round
    STAGES = (Verdicts, Confirmation, Answer)

    def drawn(self, rng: np.random.Generator, number: int, wanted: Wanted) -> tuple[Any, Integers]:
        """A context, and vectors within its bound."""
        context, most = until_it_fits(_random_context, rng, number, wanted)
        drawn = rng.integers(-most, most + 1, (context.size, context.length))
        return context, np.mod(drawn, context.field.modulus).astype(context.field.dtype)

    def most_away(self) -> int:
        """Members that may leave."""
        return int(self.context.parameters.away)

    def old(self) -> Sequence[bytes]:
        """The wires know no other round."""
        return ()


def _random_context(
    rng: np.random.Generator, number: int, wanted: Wanted
) -> tuple[ValidatedContext, int]:
    """A round, and how large the numbers of its vectors may be."""
    sizes = random_sizes(rng, wanted)
    size, members = sizes["size"], int(rng.integers(4, _MOST_MEMBERS + 1))
    corrupt, away = max(wanted.corrupt, int(rng.integers(2))), int(rng.integers(2))
    numbers = validated_numbers(members, corrupt, away)
    length, most, unit = int(rng.integers(1, 30)), int(rng.integers(1, 100)), exact_unit(size)
    bound = announced_bound(unit * most * sqrt(length), [(DEGREE, _ERRORS)])
    context = ValidatedContext(
        session_id=SESSION,
        round_number=number,
        **sizes,
        cohort_root=Cohort(cohort_keys(size)).root,
        committee=committee_of(
            members,
            corrupt,
            randomness=numbers.randomness,
            per_polynomial=numbers.per_polynomial,
        ),
        bits=bits_of_sum(longest_of(bound, size), unit),
        length=length,
        application_digest=bytes(32),
        away=away,
        ring_bits=ring_for(DEGREE, bound).bits,
        unit=unit,
        bound=bound,
    )
    return context, most
