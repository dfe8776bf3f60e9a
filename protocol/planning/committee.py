"""From a one-shot committee's members to its numbers, and from a round's size to its ring.

The committee's numbers follow from who may be corrupt or away: T is the least safe one, the quorum
too, and as many secrets go into a polynomial as the answers that are sure to come can open, with
every corrupt member's corrected. Of the rings that the security table allows, of the bits that need
not be sent, and of the key entries that fit one secret, the combination that costs a client the
fewest bytes is taken. docs/one-shot-security.md, "Who can stop a round", has the conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from secagg import CapacityError, ParameterError, PrimeField
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES
from secagg.oneshot.committee import Committee, CommitteeKind, Member, lowest_quorum
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.key_entries import entries_for
from secagg.oneshot.layout import ShareLayout
from secagg.oneshot.packing import MAX_ROUNDING_BITS, Packing
from secagg.oneshot.parameters import ALLOWED_RINGS
from secagg.oneshot.wire import wire_bytes
from secagg.sealing import SEAL_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteePlan:
    """Who opens the sums of a run, as far as that is known before any round.

    Args:
        kind: everyone who is invited, or members that are named.
        size: s, of a named committee; left out for everyone.
        corrupt: c, members that may work for the server; for everyone the tolerated colluders.
        away: honest members of a named committee that may be away; for everyone the dropouts.

    Raises:
        ParameterError: a number is missing, or left over.
    """

    kind: CommitteeKind = CommitteeKind.EVERYONE
    size: int | None = None
    corrupt: int | None = None
    away: int | None = None

    def __post_init__(self) -> None:
        named = self.kind is CommitteeKind.NAMED
        for name in ("size", "corrupt", "away"):
            value = getattr(self, name)
            if not named and value is not None:
                raise ParameterError(name, value, "left out: everyone who is invited is a member")
            lowest = 1 if name == "size" else 0
            if named and (type(value) is not int or value < lowest):
                raise ParameterError(name, value, f"an int from {lowest} on")

    def numbers(self, cohort: int, colluders: int, dropouts: int) -> CommitteeNumbers:
        """The committee's numbers in a round of so many clients.

        Raises:
            ParameterError: no numbers are safe and finish; says what to change.
        """
        if self.kind is CommitteeKind.EVERYONE:
            return committee_numbers(cohort, colluders, dropouts)
        return committee_numbers(self.size or 0, self.corrupt or 0, self.away or 0)


@dataclass(frozen=True, slots=True)
class CommitteeNumbers:
    """What `Committee` is made of besides its members.

    Attributes:
        size: s.
        corrupt: c.
        randomness: T.
        per_polynomial: l.
        quorum: signatures that convince.
    """

    size: int
    corrupt: int
    randomness: int
    per_polynomial: int
    quorum: int

    def committee(self, kind: CommitteeKind, members: Sequence[Member]) -> Committee:
        """The committee of these members.

        Raises:
            ParameterError: another number of members, or bad ones.
        """
        if len(members) != self.size:
            raise ParameterError("members", f"{len(members)} members", f"{self.size}, as planned")
        return Committee(
            kind=kind,
            members=tuple(members),
            corrupt=self.corrupt,
            randomness=self.randomness,
            per_polynomial=self.per_polynomial,
            quorum=self.quorum,
        )


def committee_numbers(size: int, corrupt: int, away: int) -> CommitteeNumbers:
    """The numbers of a committee that is safe, and finishes whatever its corrupt members do.

    That enough uploads are there is another matter: corrupt clients may send none, and corrupt
    members have up to n_C + c honest ones left out. Who wants to finish against both tolerates
    as many dropouts.

    Args:
        size: s.
        corrupt: c.
        away: honest members that may be away.

    Raises:
        ParameterError: too many are corrupt or away for so many members; says how many fit.
    """
    # Corrupt clients may have up to c honest members left out.
    surely = size - corrupt - away - corrupt
    quorum, randomness = lowest_quorum(size, corrupt), max(corrupt, 1)
    per_polynomial = surely - corrupt - randomness
    if surely < quorum or per_polynomial < 1:
        raise ParameterError(
            "committee",
            f"{size} members, {corrupt} of them corrupt and {away} away",
            f"larger, or with fewer away: {surely} answers are sure, and it takes "
            f"{max(quorum, randomness + corrupt + 1)}",
        )
    return CommitteeNumbers(size, corrupt, randomness, per_polynomial, quorum)


@dataclass(frozen=True, slots=True)
class RingChoice:
    """A ring, what is sent of its coefficients, and what a client's upload costs with it.

    Attributes:
        degree: N.
        limbs: L.
        rounding_bits: r.
        entries: of the key in one secret.
        bytes_each: by part, what a client sends.
    """

    degree: int
    limbs: int
    rounding_bits: int
    entries: int
    bytes_each: dict[str, int]


@lru_cache(maxsize=64)
def choose_ring(
    clients: int, length: int, bits: int, seeds: int, numbers: CommitteeNumbers
) -> RingChoice:
    """The allowed ring with which an upload has the fewest bytes.

    Args:
        clients: n.
        length: elements of a vector.
        bits: of the field that holds a summed element.
        seeds: removable seeds of each client.
        numbers: of the committee.

    Raises:
        CapacityError: no allowed ring holds even one element in a coefficient.
    """
    best: RingChoice | None = None
    largest = PrimeField(bits).largest_centred
    rings = [allowed.ring for allowed in ALLOWED_RINGS if not allowed.weak]
    for ring in rings:
        layout = ShareLayout(
            key_length=ring.degree,
            clients=clients,
            entries=entries_for(clients),
            seeds=seeds,
            randomness=numbers.randomness,
            per_polynomial=numbers.per_polynomial,
            members=numbers.size,
        )
        parts = {
            "seals": numbers.size * (layout.share_bytes + SEAL_OVERHEAD_BYTES),
            "seeds": seeds * HASH_BYTES,
            "header": KEY_BYTES + SIGNATURE_BYTES,
        }
        for rounding in range(MAX_ROUNDING_BITS + 1):
            try:
                packing = Packing(ring, largest, clients, rounding)
            except (CapacityError, ParameterError):
                break
            priced = {"vector": wire_bytes(packing, length), **parts}
            if best is None or sum(priced.values()) < sum(best.bytes_each.values()):
                best = RingChoice(ring.degree, ring.limbs, rounding, layout.entries, priced)
    if best is None:
        raise CapacityError(bits, max(ring.modulus.bit_length() for ring in rings))
    return best


def require_one_shot(cohort: int, colluders: int, dropouts: int) -> None:
    """See that so many losses leave enough uploads for a one-shot sum.

    Raises:
        ParameterError: they do not; says how many do.
    """
    fewest = fewest_survivors(cohort, colluders)
    if cohort - dropouts < fewest:
        raise ParameterError(
            "tolerated_dropouts",
            dropouts,
            f"at most {cohort - fewest}: of {cohort} clients, {colluders} of them colluders, "
            f"{fewest} must survive",
        )
