"""What a round of validated sums is about, and the conditions of the argument.

Source: docs/validated.md, "What it takes".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, isqrt

from secagg.errors import ParameterError
from secagg.validated.ring import MAX_BITS, MIN_BITS, PrimeRing

ROWS = 128
"""R: a vector that wrapped around passes all rows with probability 2^-128."""
SLACK = (87, 10)
"""An honest row is beyond 8.7 beta with probability 2^-108."""
SOUNDNESS_BITS = 128


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The numbers of a round; `ParameterError` if a condition of the argument does not hold.

    Args:
        ring: N and q.
        blocks: B; a vector has B N coordinates.
        members, corrupt, away: s, c, a.
        randomness, per_polynomial: T, l.
        bound: beta^2, of the squared norm of a vector; the largest if there are several.
        rows: R, at most 128.
    """

    ring: PrimeRing
    blocks: int
    members: int
    corrupt: int
    away: int
    randomness: int
    per_polynomial: int
    bound: int
    rows: int = ROWS

    def __post_init__(self) -> None:
        width = self.randomness + self.per_polynomial
        staying = self.members - self.away - 2 * self.corrupt
        for name, holds, valid in (
            ("blocks", self.blocks >= 1, "1 or more"),
            ("corrupt", self.corrupt >= 0, "0 or more"),
            ("away", self.away >= 0, "0 or more"),
            ("per_polynomial", self.per_polynomial >= 1, "1 or more"),
            ("rows", 0 <= self.rows <= ROWS, f"in 0 .. {ROWS}"),
            ("randomness", self.randomness >= max(self.corrupt, 1), "1 or more, c or more"),
            ("members", staying >= self.product_degree + 1, "2 (T + l) - 1 + 2 c + a or more"),
            ("members", 2 * staying > self.members + self.corrupt, "enough for a quorum"),
            ("per_polynomial", width > self.corrupt + self.away, "more than c + a - T"),
            ("bound", self.tau >= 4, "large enough for tau = 4"),
            ("bound", holds_bound(self.ring, self.bound), "less: q >= (5.5 tau)^2"),
        ):
            if not holds:
                raise ParameterError(name, getattr(self, name), valid)

    @property
    def product_degree(self) -> int:
        """The degree e of products of shares."""
        return 2 * self.share_degree

    @property
    def share_degree(self) -> int:
        """The degree of a polynomial of shares, T + l - 1."""
        return self.randomness + self.per_polynomial - 1

    @cached_property
    def tau(self) -> int:
        """The bound of a row."""
        return row_bound(self.bound)

    @cached_property
    def repetitions(self) -> int:
        """The fewest t with which C q^-t is at most 2^-128."""
        most, honest = self.corrupt + self.away, self.members - self.corrupt
        sets = sum(comb(honest, b) for b in range(most + 1))
        return next(t for t in range(1, 99) if self.ring.modulus**t >= sets << SOUNDNESS_BITS)

    @property
    def key_polynomials(self) -> int:
        """Polynomials that f has; f' has as many."""
        return -(-self.ring.degree // (2 * self.per_polynomial))

    @property
    def padding(self) -> int:
        """Slots of f that hold nothing; f' has as many."""
        return self.key_polynomials * self.per_polynomial - self.ring.degree // 2

    @property
    def bits(self) -> tuple[int, ...]:
        """The bits of each number that is shown to be in a range: the norm's, then each row's."""
        return (self.bound.bit_length(), *[self.tau.bit_length()] * self.rows)

    @property
    def bit_polynomials(self) -> int:
        """Polynomials that the bits have."""
        return -(-sum(self.bits) // self.per_polynomial)

    @property
    def fewest_agreeing(self) -> int:
        """The fewest members that must agree on an upload, however many are away."""
        return self.members - self.away - self.corrupt


def widest(members: int, corrupt: int, away: int) -> int:
    """The most coefficients of a polynomial of shares, T + l, whose products surely decode."""
    return (members - away - 2 * corrupt - 1) // 2 + 1


def row_bound(bound: int) -> int:
    """The smallest power of two from 8.7 beta on: tau, of beta^2."""
    above, below = SLACK
    return next(1 << k for k in range(64) if (below << k) ** 2 >= above**2 * bound)


def holds_bound(ring: PrimeRing, bound: int) -> bool:
    """Whether a vector of this bound, beta^2, is told from one that wraps around in the ring."""
    return 4 * ring.modulus >= (11 * row_bound(bound)) ** 2


def ring_for(degree: int, bound: int) -> PrimeRing:
    """The smallest ring that holds a bound; `ParameterError` says what is the largest that fits."""
    for bits in range(MIN_BITS, MAX_BITS + 1):
        ring = PrimeRing(degree, bits)
        if holds_bound(ring, bound):
            return ring
    above, below = SLACK
    # The largest tau with (5.5 tau)^2 <= q, and the largest bound with it.
    tau = 1 << (isqrt(4 * ring.modulus // 121)).bit_length() - 1
    largest = (below * tau) ** 2 // above**2
    raise ParameterError("bound", bound, f"at most {largest}: finer units need a larger ring")
