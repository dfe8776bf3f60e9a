"""Counts along a tree, made consistent: least squares in two passes, with the errors of prefixes.

Every node below the root of a complete tree has a noisy count of the answers under it, all with the
same variance, and the root has one of its own. The first pass, from the leaves up, joins what a
node says with what its children say; the second, from the root down, shares the difference out.
The result is the best linear unbiased estimate, because all nodes of a level are alike.

Source: Hay, Rastogi, Miklau and Suciu 2010 (arXiv 0904.0942), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BRANCHES: Final = 4


def nodes(levels: int) -> int:
    """Nodes below the root of a tree with so many levels below it."""
    return sum(BRANCHES**level for level in range(1, levels + 1))


def path(leaf: int, levels: int) -> list[int]:
    """The nodes on the way to a leaf, level by level, in the order of the counts."""
    found, start = [], 0
    for level in range(1, levels + 1):
        found.append(start + leaf // BRANCHES ** (levels - level))
        start += BRANCHES**level
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Counts of the answers before each leaf, and behind the last.

    An error is `share` times that of all answers, and one of its own with `variance`.

    Attributes:
        count: float64[leaves + 1], from 0 to all answers.
        share: float64[leaves + 1], from 0 to 1.
        variance: float64[leaves + 1].
        total_variance: of all answers.
    """

    count: Floats
    share: Floats
    variance: Floats
    total_variance: float

    def errors(self, quantile: float = 0.0) -> Floats:
        """Standard errors of the counts less a share of all answers: float64[leaves + 1]."""
        together = (self.share - quantile) ** 2 * self.total_variance + self.variance
        return np.asarray(np.sqrt(together), np.float64)


def prefixes(
    counts: Floats, levels: int, variance: float, total: float, total_variance: float
) -> Prefixes:
    """Estimate all prefixes.

    Args:
        counts: float64[nodes(levels)], level by level from the root's children on.
        variance: of each of them.
        total: a count of all answers besides, whose error is independent of the others'.
        total_variance: of it; infinite if there is none.
    """
    b = BRANCHES
    sizes = [b**level for level in range(1, levels + 1)]
    measured = np.split(counts, np.cumsum(sizes)[:-1])
    # Up: `joined[level]` has what nodes and all below say together, with variances `of_joined`.
    joined, of_joined = [measured[-1]], [variance]
    for level in range(levels - 2, -1, -1):
        below = joined[0].reshape(-1, b).sum(axis=1)
        weight = b * of_joined[0] / (variance + b * of_joined[0])
        joined.insert(0, weight * measured[level] + (1.0 - weight) * below)
        of_joined.insert(0, weight * variance)
    below = b * of_joined[0]
    weight = below / (total_variance + below) if np.isfinite(total_variance) else 0.0
    spoken = weight * total if weight else 0.0
    whole = np.array([spoken + (1.0 - weight) * joined[0].sum()])
    of_whole = (1.0 - weight) * below
    # Down: children share out what their parent has more than they.
    for own in joined:
        children = own.reshape(-1, b)
        more = (whole - children.sum(axis=1)) / b
        whole = (children + more[:, None]).ravel()
    share, spread = _spread(of_joined)
    count = np.concatenate([[0.0], np.cumsum(whole)])
    return Prefixes(count, share, spread, of_whole)


def _spread(of_joined: list[float]) -> tuple[Floats, Floats]:
    """How the error of a prefix hangs on that of all, and the variance of the rest.

    Behind t of b children and a share r of the next, the error is that of the parent times
    (t + r) / b, what the children's own errors are off their mean, and the rest of the next child.
    """
    b = BRANCHES
    share, rest = np.array([0.0, 1.0]), np.zeros(2)
    for variance in reversed(of_joined):
        inner, of_inner = share[:-1], rest[:-1]
        before = np.arange(b)[:, None]
        sums, squares = before + inner, before + inner**2
        own = variance * (squares - sums**2 / b) + of_inner
        share = np.append((sums / b).ravel(), 1.0)
        rest = np.append(own.ravel(), 0.0)
    return share, rest


def isotonic(counts: Floats) -> Floats:
    """The nearest counts that do not fall, in least squares; float64[n]."""
    return np.asarray(scipy.optimize.isotonic_regression(counts).x, np.float64)
