"""The committee of one-shot rounds that are measured or planned, if none is given."""

from __future__ import annotations

from protocol.schemes.committee import (
    CommitteeNumbers,
    CommitteePlan,
    Everyone,
    Named,
    committee_numbers,
)

POPULATION = 1000
"""Candidates that the members of the default committee are picked from, blindly."""
MEMBERS = 248
"""s of the default committee. More members cost a client more work and fewer bytes."""
CORRUPT_SHARE = 0.05
"""Share of corrupt candidates; the sparse graphs of pairwise rounds are chosen for the same."""
AWAY_SHARE = 0.05
"""Share of candidates that are away. Clients are lost more often; members are named for staying."""
EVERYONE_UP_TO = 128
"""In smaller cohorts the default committee of a plan is everyone who is invited."""
SAFE_BITS, STUCK_BITS = 40, 20
"""More corrupt members, or more away, than planned: in one of 2^40 picks, and of 2^20."""


def numbers_of(committee: tuple[int, int, int] | None) -> CommitteeNumbers:
    """The numbers of a named committee: members, corrupt and away ones; the default if None."""
    return committee_numbers(*(default_committee() if committee is None else committee))


def default_committee(corrupt: float = CORRUPT_SHARE) -> tuple[int, int, int]:
    """Members, corrupt and away ones of a committee picked where such a share is corrupt."""
    return MEMBERS, _most(corrupt, SAFE_BITS), _most(AWAY_SHARE, STUCK_BITS)


def committee_plan(
    committee: tuple[int, int, int] | None, clients: int, corrupt: float
) -> CommitteePlan:
    """The committee of a planned run: as given, or everyone, or the default of a large cohort."""
    if committee is None and clients <= EVERYONE_UP_TO:
        return Everyone()
    size, bad, away = default_committee(corrupt) if committee is None else committee
    return Named(size=size, corrupt=bad, away=away)


def committee_figures(numbers: CommitteeNumbers) -> dict[str, int]:
    """A committee's numbers by their names in full."""
    return {
        "members": numbers.size,
        "corrupt_members": numbers.corrupt,
        "randomness": numbers.randomness,
        "per_polynomial": numbers.per_polynomial,
        "quorum": numbers.quorum,
    }


def _most(share: float, bits: int) -> int:
    """Marked candidates that a pick of the committee has at most, except with chance 2^-bits."""
    from scipy.stats import hypergeom  # slow to load

    pick = hypergeom(POPULATION, round(share * POPULATION), MEMBERS)
    return next(count for count in range(MEMBERS) if pick.sf(count) <= 2.0**-bits)
