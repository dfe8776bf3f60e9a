"""Schedules of validated rounds: hostile wires, parties that leave, clients and members that lie.

Every vector is within the bound but that of a client that sends too much. With no more liars and
absent members than are tolerated, a round must end in the exact sum of what is short enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, sqrt
from typing import Any

import msgspec
import numpy as np

from protocol.schemes.validated import validated_numbers
from secagg.framing import decode_message, encode_message, encode_set
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import Cohort
from secagg.oneshot.member import answer_parts
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
from simulations.threats.faults.behaviours import Sent, Tally, Verdict, must_end_well, on_half
from simulations.threats.faults.one_shot.liars import LyingClient, LyingMember
from simulations.threats.faults.one_shot.parties import (
    HonestClient,
    HonestMember,
    plain_input,
    random_sizes,
    signer_of,
)
from simulations.threats.faults.one_shot.rounds import Round
from simulations.threats.faults.one_shot.staged import hostile_wires
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
        self, context: Any, index: int, vector: Integers, lie: ClientLie, rng: np.random.Generator
    ) -> None:
        _Client.__init__(self, context, index, plain_input(context, vector), rng.bytes(4))
        self.rng, self.dealt_badly, self._vector, self._tells = rng, set(), vector, lie

    def open(self, heard: dict[int, Any]) -> Sent:
        """What the lie makes of the upload."""
        return [(self.index, self._tells(self, data)) for _, data in _Client.open(self, heard)]

    def uploaded(self, data: bytes) -> Integers | None:
        """Its vector; None if that is too long to be in a sum."""
        del data
        return None if self._tells is _too_long else self._vector


class _LyingMember(LyingMember, _Member):
    """A member whose answers are changed, and signed again."""

    def __init__(self, context: Any, index: int, lie: MemberLie, rng: np.random.Generator) -> None:
        HonestMember.__init__(self, context, index)
        self.rng, self.signed_digest, self._tells = rng, b"", lie

    def sent(self, message: Any, data: bytes) -> Sent:
        """What the lie makes of an answer."""
        self.signed_digest = getattr(self.session._state, "signed", self.signed_digest)
        changed = self._tells(self, message)
        if changed is not message:
            signed: tuple[bytes, ...]
            if isinstance(changed, Verdicts):
                signed = (self.context.hash, encode_index(self.index), changed.bad, changed.answers)
                usage = Usage.COMPLAIN
            else:
                told = (changed.sums, b"", b"")
                signed = answer_parts(self.context, self.index, self.signed_digest, *told)
                usage = Usage.ANSWER
            signature = signer_of(self.context, self.index).sign(usage, *signed)
            data = encode_message(msgspec.structs.replace(changed, signature=signature))
        return [(self.number, data)]


class _Round(Round):
    SERVER, UPLOAD, COMPLAINTS = ValidatedServer, Upload, Verdicts


ClientLie = Callable[[_Cheat, bytes], bytes]
MemberLie = Callable[[_LyingMember, Any], Any]


def _too_long(liar: _Cheat, data: bytes) -> bytes:
    """A vector beyond the bound, by a twentieth or more, that claims to be at it."""
    del data
    context = liar.terms
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
    if not isinstance(message, Verdicts) or not uploads:
        return message
    answers, share = bytearray(message.answers), liar.rng.choice([0.3, 1.0])
    for place in range(0, len(answers), len(answers) // uploads):
        answers[place] ^= int(liar.rng.random() < share)
    return msgspec.structs.replace(message, answers=bytes(answers))


def _complains(liar: _LyingMember, message: Any) -> Any:
    """No answer on any upload."""
    if not isinstance(message, Verdicts):
        return message
    headers = getattr(liar.session._state, "headers", ())
    bad = encode_set([header.sender for header in headers], liar.context.size)
    return msgspec.structs.replace(message, bad=bad, answers=b"")


def _wrong_sums(liar: _LyingMember, message: Any) -> Any:
    """Other shares of the sum of the keys."""
    if not isinstance(message, Answer):
        return message
    return msgspec.structs.replace(message, sums=bytes([message.sums[0] ^ 1]) + message.sums[1:])


CLIENT_LIES: Mapping[str, ClientLie] = {
    "sends a vector beyond the bound": _too_long,
    "spoils seals": _spoilt,
}
MEMBER_LIES: Mapping[str, MemberLie] = {
    "answers wrongly on uploads": _wrong_verdicts,
    "complains about all uploads": _complains,
    "answers wrongly at the opening": _wrong_sums,
}


class _Cast:
    """The parties of a round, all of them honest until somebody is made to leave or to lie."""

    def __init__(
        self, rng: np.random.Generator, number: int, tally: Tally, wanted: Wanted | None = None
    ) -> None:
        self.context, most = until_it_fits(_random_context, rng, number, wanted or Wanted())
        context, field = self.context, self.context.field
        drawn = rng.integers(-most, most + 1, (context.size, context.length))
        self.vectors = np.mod(drawn, field.modulus).astype(field.dtype)
        self.inputs: dict[int, Integers] = dict(enumerate(self.vectors))
        salt, any_context = rng.bytes(4), context
        self.clients: dict[int, Any] = {
            u: _Client(any_context, u, plain_input(context, each), salt)  # type: ignore[arg-type]
            for u, each in self.inputs.items()
        }
        self.members: dict[int, Any] = {
            j: _Member(any_context, j)  # type: ignore[arg-type]
            for j in range(context.committee.size)
        }
        restart = rng.random() < 0.5
        for member in self.members.values():
            member.restarts = restart
        self.spare = context.size - context.minimum_survivors
        self._rng, self._tally = rng, tally

    def some(self, parties: Mapping[int, Any], count: int) -> list[int]:
        """Some of them, by index."""
        return [int(i) for i in self._rng.permutation(len(parties))[:count]]

    def play(self, rate: float) -> Verdict:
        """The round on wires with this rate of faults."""
        wires = hostile_wires(self._rng, rate, self._tally)
        context: Any = self.context
        playing = _Round(context, self.clients, self.members, self.inputs, wires, self._tally)
        return playing.verdict()


def play_wire(rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
    """Honest parties on hostile wires."""
    return _Cast(rng, number, tally).play(rate)


def play_leavers(rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
    """Clients and members that vanish at every stage; with no more than are tolerated, a sum."""
    cast = _Cast(rng, number, tally)
    rate, most = on_half(rng, rate), cast.context.parameters.away
    lost, away = int(rng.integers(0, cast.spare + 2)), int(rng.integers(0, most + 2))
    for u in cast.some(cast.clients, lost):
        cast.clients[u].leaves = True
    for j in cast.some(cast.members, away):
        cast.members[j].leaves_before = (Verdicts, Confirmation, Answer)[rng.integers(3)]
    bearable = lost <= cast.spare and away <= most and not rate
    return must_end_well(cast.play(rate), bearable, f"{lost} clients and {away} members away")


def play_liar(
    lie: ClientLie, rng: np.random.Generator, number: int, rate: float, tally: Tally
) -> Verdict:
    """One or two lying clients; on half of the schedules the wires are hostile too."""
    cast = _Cast(rng, number, tally, Wanted(colluders=1, spare=1, corrupt=1))
    rate, count = on_half(rng, rate), int(rng.integers(1, 3))
    for u in cast.some(cast.clients, count):
        cast.clients[u] = _Cheat(cast.context, u, cast.inputs.pop(u), lie, rng)
    bearable = count <= min(cast.context.tolerated_colluders, cast.spare) and not rate
    return must_end_well(cast.play(rate), bearable, f"{count} lying clients")


def play_lying_member(
    lie: MemberLie, rng: np.random.Generator, number: int, rate: float, tally: Tally
) -> Verdict:
    """Lying members: mostly as many as the committee stands, sometimes up to all of them."""
    cast = _Cast(rng, number, tally, Wanted(corrupt=1, spare=1))
    rate, committee = on_half(rng, rate), cast.context.committee
    most = committee.corrupt if rng.random() < 0.7 else committee.size
    count = int(rng.integers(1, most + 1))
    for j in cast.some(cast.members, count):
        cast.members[j] = _LyingMember(cast.context, j, lie, rng)
    # As many honest clients may be left out for each member that lies.
    weight = max(-(-cast.context.tolerated_colluders // committee.corrupt), 1)
    bearable = count <= committee.corrupt and weight * count <= cast.spare and not rate
    return must_end_well(cast.play(rate), bearable, f"{count} lying members")


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
