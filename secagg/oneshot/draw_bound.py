"""How many members of a drawn committee may be corrupt: the tail of all corrupt identities.

The server decides which candidates are members, and all of its own are. So the bound is on how many
corrupt identities are drawn at all, whatever the size of the committee. docs/one-shot-security.md,
"Drawn committees", has the argument.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from functools import lru_cache

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.grinding import MOST_TRIES
from secagg.oneshot.committee import MAX_MEMBERS
from secagg.oneshot.sortition import CERTAIN, MAX_REGISTRY

BITS_WITHOUT_BEACON = 128
"""Without a beacon a server tries as many draws as it has time for: `grinding.MOST_TRIES` of them
leave 2^-68."""
BITS_WITH_BEACON = 64
"""With one it tries as many as there are beacons: `MOST_BEACONS` of them leave 2^-40."""
MOST_BEACONS = 2.0**24
"""One every three seconds, for a year and a half."""

_UP = Context(prec=80, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Every result is rounded up, so that bounds are bounds. 80 digits hold odds exactly."""
_NEGLIGIBLE = Decimal(2) ** -64
"""Beside the bound: what is left is counted as if it were this large."""


def draw_failure(security_bits: int, *, beacon: bool) -> float:
    """Bound on the chance that any draw, in all rounds together, has more corrupt candidates."""
    return min(1.0, (MOST_BEACONS if beacon else MOST_TRIES) * 2.0**-security_bits)


@lru_cache(maxsize=256, typed=True)
def corrupt_bound(corrupt: int, odds: int, security_bits: int) -> int:
    """Smallest c with P[Bin(corrupt, odds / 2^64) > c] <= 2^-security_bits.

    Sums are rounded up: where the tail misses the bound by less than 2^-64 of it, c is one larger.
    """
    require_int("corrupt", corrupt, 0, MAX_REGISTRY)
    require_int("odds", odds, 1, CERTAIN - 1)
    require_int("security_bits", security_bits, 1, 1024)
    if corrupt * odds > MAX_MEMBERS * CERTAIN:
        valid = f"so few that at most {MAX_MEMBERS} are drawn on average"
        raise ParameterError("corrupt", corrupt, valid)
    most = _UP.divide(Decimal(1), Decimal(1 << security_bits))
    terms, tail = _terms(corrupt, odds, _UP.multiply(most, _NEGLIGIBLE))
    # Here `tail` is at least P[Bin > c].
    for c in range(len(terms) - 1, 0, -1):
        tail = _UP.add(tail, terms[c])
        if tail > most:
            return c
    return 0


def _terms(trials: int, odds: int, negligible: Decimal) -> tuple[list[Decimal], Decimal]:
    """P[Bin = k] for k = 0, 1, ..., and a bound on all that are left out, each rounded up."""
    missed = CERTAIN - odds
    term = _power(_UP.divide(Decimal(missed), Decimal(CERTAIN)), trials)
    terms = [term]
    for k in range(trials):
        numerator, denominator = (trials - k) * odds, (k + 1) * missed
        # From here on every term is at most half of the one before it: together no more than it.
        if 2 * numerator <= denominator and term <= negligible:
            return terms, term
        term = _UP.divide(_UP.multiply(term, Decimal(numerator)), Decimal(denominator))
        terms.append(term)
    return terms, Decimal(0)


def _power(base: Decimal, exponent: int) -> Decimal:
    """By squaring, since `Context.power` does not promise to round up."""
    result = Decimal(1)
    for bit in bin(exponent)[2:]:
        result = _UP.multiply(result, result)
        if bit == "1":
            result = _UP.multiply(result, base)
    return result
