"""Which rings may be used, and how hard the lattice problem behind each is.

Bits are core-SVP, 0.292 times the block size of the primal attack on ring-LWE with secret and
errors of width 3.2 (half of what is drawn: docs/one-shot-security.md says why), for any number of
samples. A test computes them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from secagg.errors import ParameterError


@dataclass(frozen=True, slots=True)
class AllowedRing:
    """A ring of the security table.

    Attributes:
        degree: N.
        limbs: primes of 27 bits; fewer are as good or better.
        core_svp: bits, cut to an integer, with so many limbs.
        weak: used only if asked for by name.
    """

    degree: int
    limbs: int
    core_svp: int
    weak: bool = False


SECURITY_TABLE = (
    AllowedRing(1024, 1, 112),
    AllowedRing(2048, 2, 103),
    AllowedRing(4096, 3, 150),
    AllowedRing(8192, 7, 118),
    AllowedRing(4096, 4, 99, weak=True),
)


def allowed_rings(*, allow_weak: bool = False) -> tuple[AllowedRing, ...]:
    """The table's rows that may be used."""
    return tuple(row for row in SECURITY_TABLE if allow_weak or not row.weak)


def require_allowed(degree: int, limbs: int, *, allow_weak: bool = False) -> None:
    """Refuse a ring beyond the table.

    Raises:
        ParameterError: the degree is not in the table, or it allows fewer limbs.
    """
    most = {row.degree: 0 for row in SECURITY_TABLE}
    for row in allowed_rings(allow_weak=allow_weak):
        most[row.degree] = max(most[row.degree], row.limbs)
    if degree not in most:
        raise ParameterError("degree", degree, f"one of {', '.join(map(str, sorted(most)))}")
    if not 1 <= limbs <= most[degree]:
        valid = f"in 1 .. {most[degree]} at degree {degree}, by the security table"
        raise ParameterError("limbs", limbs, valid)
