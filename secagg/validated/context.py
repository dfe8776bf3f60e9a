"""What all parties of a round of validated sums agree on, and its hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np

from secagg.checks import require_int
from secagg.errors import CapacityError, ParameterError
from secagg.field import required_bits
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.packing import scale_for
from secagg.tags import Usage, digest
from secagg.terms import INTEGERS
from secagg.validated.parameters import Parameters
from secagg.validated.ring import MAX_BITS, MIN_BITS, PrimeRing, Residues

MAX_UNIT = 1 << 24
DEGREE = 2048
"""N: with 42, 46 and 50 bits the lattice problem has 150, 131 and 116 bits by core-SVP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedContext(CommitteeContext):
    """The public parameters of one round.

    Args:
        away: a, honest members that may be away.
        ring_bits: of the prime q.
        unit: Delta, by which numbers are multiplied. With 1 the errors of the lattice stay in the
            sum, 6.4 for each client and coordinate: numbers are in finer units then, of which
            noise has far more. From `exact_unit` on they are rounded off.
        bound: beta^2, of the squared norm of what a client adds: numbers times the unit, errors.
        member_bound: the same of what a member adds; 0 where clients alone upload.
        nonce: another one where some value of the public elements' squares is 0.

    Source: docs/validated.md.
    """

    NUMBERS = (*INTEGERS, "size", "away", "ring_bits", "unit", "bound", "member_bound", "nonce")

    away: int
    ring_bits: int
    unit: int = 1
    bound: int
    member_bound: int = 0
    nonce: int = 0
    parameters: Parameters = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_round()
        if self.removal:
            raise ParameterError("removal", "not empty", "empty: no noise is taken off")
        if (self.member_bound > 0) is not (self.member_uploads is not None):
            valid = "a positive one where members upload, and 0 where they do not"
            raise ParameterError("member_bound", self.member_bound, valid)
        require_int("unit", self.unit, 1, MAX_UNIT)
        require_int("ring_bits", self.ring_bits, MIN_BITS, MAX_BITS)
        committee, ring = self.committee, PrimeRing(DEGREE, self.ring_bits)
        parameters = Parameters(
            ring=ring,
            blocks=-(-self.length // DEGREE),
            members=committee.size,
            corrupt=committee.corrupt,
            away=self.away,
            randomness=committee.randomness,
            per_polynomial=committee.per_polynomial,
            bound=max(self.bound, self.member_bound),
        )
        # A sum of 2^20 bounds is below q / 2: q is above 2290 beta^2, and above 2^41.
        object.__setattr__(self, "parameters", parameters)
        needed = bits_of_sum(self.longest(self.invited, self.size - self.invited), self.unit)
        if self.bits < needed:
            raise CapacityError(needed, self.bits)
        object.__setattr__(self, "hash", digest(Usage.ONE_SHOT, b"validated", self.encode()))

    def bound_of(self, sender: int) -> int:
        """The squared bound of one upload."""
        return self.bound if sender < self.invited else self.member_bound

    def longest(self, clients: int, members: int = 0) -> int:
        """An integer that no sum of so many accepted vectors is longer than."""
        return longest_of(self.bound, clients) + longest_of(self.member_bound, members)

    def encode(self) -> bytes:
        """Canonical, injective encoding of every parameter."""
        return self.encoded()

    def elements(self) -> Residues:
        """Transforms of the public elements: uint64[B, N]."""
        p = self.parameters
        return p.ring.elements(self.public_key, 0, p.blocks)

    @property
    def has_inverses(self) -> bool:
        """Whether all squares have one; if not, another nonce has to be tried."""
        return bool(np.all(self.parameters.ring.square(self.elements())))

    def squares(self, elements: Residues) -> Residues:
        """The transform of sum_b a_b* a_b: uint64[N]; `ParameterError` if some value is 0."""
        found = self.parameters.ring.square(elements)
        if not np.all(found):
            raise ParameterError("nonce", self.nonce, "another one: the squares have a zero")
        return found


def longest_of(bound: int, vectors: int = 1) -> int:
    """An integer that no sum of vectors with this squared bound is longer than; 0 of no vectors."""
    return vectors * (isqrt(bound - 1) + 1) if vectors else 0


def bits_of_sum(longest: int, unit: int = 1) -> int:
    """The smallest field with every sum of this length: all of it may be on one coordinate."""
    # A billionth more, as the server opens, and what rounding adds.
    return required_bits((longest + longest // 10**9) // unit + 2)


def exact_unit(clients: int) -> int:
    """The smallest unit with which the errors of so many clients are rounded off, but for 2^-42."""
    return scale_for(clients, 0)
