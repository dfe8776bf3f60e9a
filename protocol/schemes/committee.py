"""From a one-shot committee's members to its numbers, and from a round's size to its ring.

The committee's numbers follow from who may be corrupt or away: T is the least safe one, the quorum
too, and as many secrets go into a polynomial as the answers that are sure to come can open, with
every corrupt member's corrected. Of the rings that the security table allows, of the bits that need
not be sent, and of the key entries that fit one secret, the combination that costs a client the
fewest bytes is taken. docs/one-shot-security.md, "Who can stop a round", has the conditions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from protocol.checks import require
from protocol.round.lottery import DrawnMembers, Members
from protocol.round.one_shot_setup import announcement_bytes
from secagg import CapacityError, ParameterError, PrimeField
from secagg.oneshot.committee import Committee, CommitteeKind, lowest_quorum
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.draw_bound import BITS_WITHOUT_BEACON, corrupt_bound
from secagg.oneshot.key_entries import entries_for
from secagg.oneshot.layout import ShareLayout
from secagg.oneshot.packing import MAX_ROUNDING_BITS, Packing
from secagg.oneshot.parameters import ALLOWED_RINGS
from secagg.oneshot.sortition import CERTAIN
from secagg.oneshot.traffic import client_traffic, member_traffic
from secagg.oneshot.wire import wire_bytes


class CommitteePlan(ABC):
    """Who opens the sums of a run, as far as that is known before any round."""

    KIND: ClassVar[CommitteeKind]
    STANDS: ClassVar[bool] = False
    """Whether the members stay the same over a run."""

    @abstractmethod
    def seats(self, cohort: int, colluders: int, dropouts: int) -> tuple[int, int, int]:
        """s, c and a, members that may be away, in a round of so many clients."""

    def numbers(self, cohort: int, colluders: int, dropouts: int) -> CommitteeNumbers:
        """The numbers of a one-shot round's committee."""
        return committee_numbers(*self.seats(cohort, colluders, dropouts))


@dataclass(frozen=True, slots=True)
class Everyone(CommitteePlan):
    """Everyone who is invited is a member: corrupt and away as many as of the cohort."""

    KIND: ClassVar[CommitteeKind] = CommitteeKind.EVERYONE

    def seats(self, cohort: int, colluders: int, dropouts: int) -> tuple[int, int, int]:
        """As `CommitteePlan.seats` says."""
        return cohort, colluders, dropouts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seated(CommitteePlan):
    """Of so many seats: see `Named` and `Drawn`."""

    size: int
    corrupt: int
    away: int

    def __post_init__(self) -> None:
        require(self, "size", "corrupt", "away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(_Seated):
    """Members that are named, and stay the same.

    Args:
        size: s.
        corrupt: c, members that may work for the server.
        away: honest members that may be away.

    Raises:
        ParameterError: a number is out of range.
    """

    KIND: ClassVar[CommitteeKind] = CommitteeKind.NAMED
    STANDS: ClassVar[bool] = True

    def seats(self, cohort: int, colluders: int, dropouts: int) -> tuple[int, int, int]:
        """As `CommitteePlan.seats` says."""
        return self.size, self.corrupt, self.away


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(_Seated):
    """Members that are drawn by lot, from a registry, in every round.

    Args:
        size: s, members of each committee.
        corrupt: K, identities of the registry that may work for the server.
        away: honest members that may be away.
        odds: of each identity in the registry to be a candidate, in (0, 1). More should be drawn
            than are seated: not all are there, and draws vary.
        security_bits: of one draw: at least 128 unless rounds have a beacon.

    Raises:
        ParameterError: a number is out of range.
    """

    KIND: ClassVar[CommitteeKind] = CommitteeKind.DRAWN

    odds: float
    security_bits: int | None = None

    def __post_init__(self) -> None:
        _Seated.__post_init__(self)
        require(self, "odds")

    @property
    def whole_odds(self) -> int:
        """The odds in units of 2^-64."""
        return round(self.odds * CERTAIN)

    @property
    def draw_bits(self) -> int:
        """Security bits of one draw."""
        return BITS_WITHOUT_BEACON if self.security_bits is None else self.security_bits

    def seats(self, cohort: int, colluders: int, dropouts: int) -> tuple[int, int, int]:
        """As `CommitteePlan.seats` says."""
        return self.size, corrupt_bound(self.corrupt, self.whole_odds, self.draw_bits), self.away


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

    def committee(self, kind: CommitteeKind, members: Members) -> Committee:
        """The committee of these members."""
        drawn = members if isinstance(members, DrawnMembers) else None
        entries = members.members if isinstance(members, DrawnMembers) else tuple(members)
        if len(entries) != self.size:
            raise ParameterError("members", f"{len(entries)} members", f"{self.size}, as planned")
        return Committee(
            kind=kind,
            members=entries,
            corrupt=self.corrupt,
            randomness=self.randomness,
            per_polynomial=self.per_polynomial,
            quorum=self.quorum,
            draw=drawn.draw if drawn else None,
        )


def committee_numbers(size: int, corrupt: int, away: int) -> CommitteeNumbers:
    """The numbers of a committee that is safe, and finishes whatever its corrupt members do.

    That enough uploads are there is another matter: corrupt clients may send none, and corrupt
    members have up to n_C + c honest ones left out. Who wants to finish against both tolerates
    as many dropouts.
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
    """A ring, what is sent of its coefficients, and what a client's messages cost with it.

    Attributes:
        degree: N.
        limbs: L.
        rounding_bits: r.
        entries: of the key in one secret.
        bytes_each: by part, what a client sends and is sent.
    """

    degree: int
    limbs: int
    rounding_bits: int
    entries: int
    bytes_each: dict[str, int]


@lru_cache(maxsize=64)
def choose_ring(
    clients: int,
    length: int,
    bits: int,
    seeds: int,
    numbers: CommitteeNumbers,
    *,
    everyone: bool = False,
) -> RingChoice:
    """The allowed ring with which an upload has the fewest bytes.

    Args:
        everyone: whether every client is a member as well, whose messages are then its own.
    """
    best: tuple[int, RingChoice] | None = None
    largest = PrimeField(bits).largest_centred
    announced = announcement_bytes(clients, numbers.size)
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
        for rounding in range(MAX_ROUNDING_BITS + 1):
            try:
                packing = Packing(ring, largest, clients, rounding)
            except (CapacityError, ParameterError):
                break
            priced = client_traffic(layout, wire_bytes(packing, length))
            upload = priced.up["vector"] + priced.up["seals"]
            if best is not None and upload >= best[0]:
                continue
            if everyone:
                priced += member_traffic(layout, numbers.quorum, seeds, clients)
            each = priced.announced(announced).each
            best = upload, RingChoice(ring.degree, ring.limbs, rounding, layout.entries, each)
    if best is None:
        raise CapacityError(bits, max(ring.modulus.bit_length() for ring in rings))
    return best[1]


def require_one_shot(cohort: int, colluders: int, dropouts: int) -> None:
    """See that so many losses leave enough uploads for a one-shot sum."""
    fewest = fewest_survivors(cohort, colluders)
    if cohort - dropouts < fewest:
        raise ParameterError(
            "tolerated_dropouts",
            dropouts,
            f"at most {cohort - fewest}: of {cohort} clients, {colluders} of them colluders, "
            f"{fewest} must survive",
        )
