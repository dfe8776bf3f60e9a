"""How many neighbours a client needs, and how many shares rebuild a secret.

For a random k-regular graph over n clients of which a share gamma may be corrupt and a share delta
may drop out, the smallest even k for which, except with probability 2^-sigma, honest survivors stay
connected and no t neighbours are corrupt, and, except with probability 2^-eta, every secret can be
rebuilt. Published values have sigma = 40. That is too little where a server can try many graphs, so
sigma is 80 here unless told otherwise; see `secagg.grinding`.

Source: Bell et al. 2020 (ia.cr/2020/704), Theorem 3.10 and section 4 (semi-malicious: a server that
may show different clients different survivors); the search is that of Google's open C++
implementation, whose published values a test reproduces.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from secagg.checks import require_int, whole
from secagg.errors import ParameterError

SECURITY_BITS = 80
"""sigma of a graph and of its committee, unless told otherwise."""
LARGEST_SECURITY_BITS = 160
"""Enough for a delta of 1e-16 over a thousand rounds. The orders of ring and committee follow from
keys of 256 bits; a key of 128 could be hit on purpose, so it would keep no promise beyond that."""
SECURITY = whole(1, LARGEST_SECURITY_BITS)
"""Every sigma that a graph can have."""
CORRECTNESS_BITS = 20

MAX_CORRUPT_AND_DROPPED = 0.9
"""Beyond this share of lost and corrupt clients together no useful graph exists."""

_FLOOR_SLACK = 1e-14
"""0.29 * 100 is 28.999999999999996 in doubles: a share that means 29 clients must give 29."""


class Adversary(enum.Enum):
    """What the server may do once keys are exchanged honestly."""

    SEMI_HONEST = "semi_honest"
    SEMI_MALICIOUS = "semi_malicious"


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """Degree k and threshold t of a sparse graph."""

    degree: int
    threshold: int


def choose_graph(
    clients: int,
    corrupt: float,
    dropout: float,
    adversary: Adversary,
    *,
    security_bits: int = SECURITY_BITS,
) -> GraphParameters:
    """The smallest even degree, and its threshold."""
    _check(clients, corrupt, dropout, adversary)
    SECURITY.require("security_bits", security_bits)
    corrupt_count, dropped_count = share_of(clients, corrupt), share_of(clients, dropout)
    alive_count = math.ceil((1.0 - dropout) * clients)
    graph = smallest_graph(
        clients, corrupt_count, dropped_count, adversary, alive_count, security_bits=security_bits
    )
    if graph is None:
        raise ParameterError(
            "clients, corrupt, dropout",
            (clients, corrupt, dropout),
            "more clients, or smaller shares: no sparse graph is secure; use the complete graph",
        )
    return graph


def share_of(clients: int, share: float) -> int:
    """How many clients a share of them is, rounded down."""
    return math.floor(share * clients + _FLOOR_SLACK)


def smallest_graph(
    clients: int,
    corrupt_count: int,
    dropped_count: int,
    adversary: Adversary,
    alive_count: int | None = None,
    *,
    security_bits: int = SECURITY_BITS,
) -> GraphParameters | None:
    """`choose_graph` for numbers of clients; None if no degree below n - 1 does it."""
    if alive_count is None:
        alive_count = clients - dropped_count
    for degree in range(2, clients - 1, 2):
        if not stays_connected(clients, corrupt_count + dropped_count, degree, security_bits):
            continue
        lowest = most_corrupt_neighbours(clients, corrupt_count, degree, security_bits)
        if adversary is Adversary.SEMI_MALICIOUS:
            lowest = semi_malicious_bound(lowest, degree)
        if _fewest_alive_neighbours(clients, alive_count, degree) > lowest:
            return GraphParameters(degree, max(lowest + 1, 2))
    return None


def semi_malicious_bound(corrupt: int, degree: int) -> int:
    """The t to exceed so that of two groups of neighbours only one can reach it.

    Both groups have the corrupt neighbours; an honest one belongs to one group only. See
    docs/security.md.
    """
    return math.ceil((corrupt + degree - 1.25) / 2.0)


@lru_cache(maxsize=1024)
def stays_connected(clients: int, lost: int, degree: int, security_bits: int) -> bool:
    """Whether honest survivors are connected except with probability 2^-(sigma + 1)."""
    if degree > lost:
        # Fewer are lost than any client has neighbours: nobody can be cut off.
        return True
    if degree >= clients - 1:
        return True
    from scipy.special import gammaln  # slow to load; only sparse graphs need it

    log_probability = (
        math.log(clients)
        + math.log(clients - degree - 1)
        - math.log(2.0)
        + gammaln(lost + 1)
        + gammaln(clients - degree + 1)
        - gammaln(clients + 1)
        - gammaln(lost - degree + 1)
    )
    return bool(log_probability < -(security_bits + 1) * math.log(2.0))


@lru_cache(maxsize=1024)
def most_corrupt_neighbours(
    clients: int, corrupt_count: int, degree: int, security_bits: int
) -> int:
    """Smallest c such that anybody has more than c corrupt neighbours with 2^-(sigma + 1)."""
    from scipy.stats import hypergeom  # takes half a second to load; only sparse graphs need it

    limit = 2.0 ** -(security_bits + 1) / clients
    # By halving: a hostile context may ask for a million neighbours.
    most = min(corrupt_count, degree)
    return bisect_left(
        range(most),
        True,
        key=lambda count: bool(hypergeom.sf(count, clients, corrupt_count, degree) <= limit),
    )


def _fewest_alive_neighbours(clients: int, alive_count: int, degree: int) -> int:
    """Largest t such that anybody has fewer than t surviving neighbours with prob. <= 2^-20."""
    from scipy.stats import hypergeom  # as above

    limit = 2.0**-CORRECTNESS_BITS / clients
    count = degree
    while hypergeom.cdf(count - 1, clients, alive_count, degree) > limit:
        count -= 1
    return count


def _check(clients: int, corrupt: float, dropout: float, adversary: Adversary) -> None:
    require_int("clients", clients, 3)
    for name, share in (("corrupt", corrupt), ("dropout", dropout)):
        if not 0.0 <= share < 1.0:
            raise ParameterError(name, share, "in 0 .. 1")
    weight = 2.0 if adversary is Adversary.SEMI_MALICIOUS else 1.0
    total = corrupt + weight * dropout
    if total > MAX_CORRUPT_AND_DROPPED:
        raise ParameterError(
            "corrupt, dropout",
            (corrupt, dropout),
            f"corrupt + {weight:g} x dropout at most {MAX_CORRUPT_AND_DROPPED} "
            f"({adversary.value}); they give {total:g}",
        )
