"""What all parties of a round of validated sums agree on, and its hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np

from secagg.errors import ParameterError
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.packing import scale_for
from secagg.tags import Usage, digest
from secagg.validated.parameters import Parameters
from secagg.validated.ring import PrimeRing, Residues

DEGREE = 2048
"""N: with 42, 46 and 50 bits the lattice problem has 150, 131 and 116 bits by core-SVP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedContext(CommitteeContext):
    """The public parameters of one round.

    Args:
        away: a, honest members that may be away.
        ring_bits: of the prime q.
        bound: beta^2, of the squared norm of what a client adds: numbers times `scale`, and errors.
        nonce: another one where some value of the public elements' squares is 0.

    Source: docs/validated.md.
    """

    NUMBERS = (
        "round_number",
        "size",
        "minimum_survivors",
        "tolerated_colluders",
        "bits",
        "length",
        "opened_at",
        "lifetime_seconds",
        "away",
        "ring_bits",
        "bound",
        "nonce",
    )

    away: int
    ring_bits: int
    bound: int
    nonce: int = 0
    parameters: Parameters = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_round()
        if self.removal or self.member_uploads is not None:
            raise ParameterError("removal", "not empty", "empty: no noise is taken off")
        committee, ring = self.committee, PrimeRing(DEGREE, self.ring_bits)
        parameters = Parameters(
            ring=ring,
            blocks=-(-self.length // DEGREE),
            members=committee.size,
            corrupt=committee.corrupt,
            away=self.away,
            randomness=committee.randomness,
            per_polynomial=committee.per_polynomial,
            bound=self.bound,
        )
        # A sum of 2^20 bounds is below q / 2: q is above 2290 beta^2, and above 2^41.
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "hash", digest(Usage.ONE_SHOT, b"validated", self.encode()))

    @property
    def longest(self) -> int:
        """The smallest integer that no accepted vector is longer than."""
        return isqrt(self.bound - 1) + 1

    @property
    def scale(self) -> int:
        """Delta, by which numbers are multiplied: errors of all clients are below half of it."""
        return scale_for(self.size, 0)

    def encode(self) -> bytes:
        """Canonical, injective encoding of every parameter."""
        return self.encoded()

    def elements(self, first: int = 0, count: int | None = None) -> Residues:
        """Transforms of the public elements: uint64[count, N]."""
        p = self.parameters
        return p.ring.elements(self.public_key, first, p.blocks if count is None else count)

    def squares(self) -> Residues:
        """The transform of sum_b a_b* a_b: uint64[N]; `ParameterError` if some value is 0."""
        found = self.parameters.ring.square(self.elements())
        if not np.all(found):
            raise ParameterError("nonce", self.nonce, "another one: the squares have a zero")
        return found
