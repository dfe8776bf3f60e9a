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
from math import comb

from secagg.graph_parameters import CORRECTNESS_BITS

COMMITTEE_SECURITY_BITS = 80
"""Twice that of the graph: a server that tries 2^40 rosters, each with another committee, while the
clients wait still succeeds with 2^-40 only. It costs a few signatures more."""
SMALLEST_COMMITTEE = 64
"""Below this the signatures of all members cost little."""
_STEP = 8


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
def choose_committee(members: int, corrupt: int, alive: int) -> CommitteeParameters:
    """The smallest committee, in steps of 8, that is safe and does not get stuck.

    Safe: except with probability 2^-80 at most c of its members are corrupt, and q exceeds
    (s + c) / 2. Not stuck: except with probability 2^-20 at least q of its members survive. If no
    committee below the whole roster is both, everybody is in it, and c is `corrupt`.

    All in integers, because two parties must never differ by a rounding error.

    Args:
        members: of the roster; the committee is a uniformly random subset.
        corrupt: members that may work for the server.
        alive: fewest members that survive.
    """
    for size in range(SMALLEST_COMMITTEE, members, _STEP):
        drawn = _most_drawn(members, min(corrupt, members), size)
        quorum = (size + drawn) // 2 + 1
        stuck = sum(islice(_ways(members, members - alive, size), size - quorum + 1, None))
        if stuck << CORRECTNESS_BITS <= comb(members, size):
            return CommitteeParameters(size, quorum)
    return CommitteeParameters(members, full_quorum(members, corrupt))


def full_quorum(members: int, corrupt: int) -> int:
    """The quorum if everybody is in the committee; no smaller committee's is larger."""
    return (members + corrupt) // 2 + 1


def _most_drawn(population: int, marked: int, size: int) -> int:
    """Smallest c such that more than c of the marked are drawn with probability <= 2^-80."""
    ways = list(_ways(population, marked, size))
    limit = comb(population, size) >> COMMITTEE_SECURITY_BITS
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
