"""Whose signatures on a survivor set convince a client.

On the complete graph any t clients do. On a sparse one everybody's signatures would make each
client verify n / 2 of them, n^2 in all; so those of a random committee count. Two quorums q of a
committee of s members, c of them corrupt, have an honest member in common if 2 q > s + c, and an
honest client signs one set; so no two clients act on different sets. docs/security.md has the
argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, repeat
from math import comb, log

import numpy as np
from numpy.typing import NDArray

from secagg.pairwise.graph_parameters import CORRECTNESS_BITS, SECURITY_BITS

SMALLEST_COMMITTEE = 64
"""Below this the signatures of all members cost little."""
LARGEST_COMMITTEE = 4096
"""A hostile context must not make a client search for long. Parameters that need a larger committee
have hardly more survivors than a quorum of everybody, and get that."""
_STEP = 8
_MARGIN = 1e-3
"""Logarithms in doubles are off by less than 1e-6, even for 2^20 members."""


@dataclass(frozen=True, slots=True)
class CommitteeParameters:
    """How many members may confirm, and how many of them must.

    Attributes:
        size: s, members of the committee; of the roster if there is no smaller one.
        quorum: q, signatures that convince.
    """

    size: int
    quorum: int


@lru_cache(maxsize=1024)
def choose_committee(
    members: int, corrupt: int, alive: int, security_bits: int = SECURITY_BITS
) -> CommitteeParameters:
    """The smallest committee, in steps of 8, that is safe and does not get stuck.

    Safe: except with probability 2^-sigma at most c of its members are corrupt, and q exceeds
    (s + c) / 2. Not stuck: except with probability 2^-20 at least q of its members survive. If no
    committee below the whole roster, of at most 4096, is both, everybody is in it, and c is
    `corrupt`.

    Decided in integers, because two parties must never differ by a rounding error; doubles only
    pass over sizes that are stuck by more than any rounding error.
    """
    corrupt_members = min(corrupt, members)
    for size in range(SMALLEST_COMMITTEE, min(members, LARGEST_COMMITTEE + 1), _STEP):
        if _is_plainly_stuck(members, corrupt_members, alive, size, security_bits):
            continue
        drawn = _most_drawn(members, corrupt_members, size, security_bits)
        quorum = (size + drawn) // 2 + 1
        stuck = sum(islice(_ways(members, members - alive, size), size - quorum + 1, None))
        if stuck << CORRECTNESS_BITS <= comb(members, size):
            return CommitteeParameters(size, quorum)
    return CommitteeParameters(members, full_quorum(members, corrupt))


def full_quorum(members: int, corrupt: int) -> int:
    """The quorum if everybody is in the committee; no smaller committee's is larger."""
    return (members + corrupt) // 2 + 1


def _is_plainly_stuck(
    members: int, corrupt: int, alive: int, size: int, security_bits: int
) -> bool:
    """Whether the integers would say stuck, and not for the sake of a few digits.

    Never wrongly: with the least quorum that a rounding error could give, fewer than it survive
    with a probability above 2^-20 by more than a rounding error.
    """
    logs = _log_chances(members, corrupt, size)
    limit = _MARGIN - security_bits * log(2)
    # Index i: that at least so many corrupt members are drawn.
    drawn = int(np.count_nonzero(_log_tails(logs) > limit)) - 1
    quorum = (size + drawn) // 2 + 1
    tails = _log_tails(_log_chances(members, members - alive, size))
    lost = size - quorum + 1
    return lost < len(tails) and bool(tails[lost] > _MARGIN - CORRECTNESS_BITS * log(2))


def _log_chances(population: int, marked: int, size: int) -> NDArray[np.float64]:
    """Logarithm of the probability that j marked ones are drawn, j = 0 .. min(marked, size)."""
    drawn = np.arange(min(marked, size) + 1)
    others = population - marked
    possible = drawn[size - drawn <= others]
    logs = np.full(len(drawn), -np.inf)
    logs[possible] = (
        _log_comb(marked, possible)
        + _log_comb(others, size - possible)
        - _log_comb(population, np.array(size))
    )
    return logs


def _log_tails(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the sums from each place on."""
    return np.logaddexp.accumulate(logs[::-1])[::-1]


def _log_comb(total: int, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    from scipy.special import gammaln  # slow to load; only large cohorts need it

    logs: NDArray[np.float64] = (
        gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    )
    return logs


def _most_drawn(population: int, marked: int, size: int, security_bits: int) -> int:
    """Smallest c such that more than c of the marked are drawn with probability <= 2^-sigma."""
    ways = list(_ways(population, marked, size))
    limit = comb(population, size) >> security_bits
    more = 0
    for count in range(len(ways) - 1, -1, -1):
        more += ways[count]
        if more > limit:
            return count
    return 0


def _ways(population: int, marked: int, size: int) -> Iterator[int]:
    """In how many of all draws of `size` there are j marked ones, j = 0 .. min(marked, size)."""
    others = population - marked
    fewest = max(0, size - others)
    yield from repeat(0, fewest)
    ways = comb(marked, fewest) * comb(others, size - fewest)
    for j in range(fewest, min(marked, size) + 1):
        yield ways
        ways = ways * (marked - j) * (size - j) // ((j + 1) * (others - size + j + 1))
