"""Means that withstand some malicious clients: by a trusted server, or by sums of groups.

Source: Yin et al. 2018 (arXiv 1803.01498), median and trimmed mean; Blanchard et al. 2017 (arXiv
1703.02757), Krum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dp.clipping import clip_l2
from simulations.learning.configuration import Robust, Server
from simulations.learning.federated import Invitation, Updates
from simulations.learning.records import Facts
from simulations.learning.sources.base import Floats, PrivateRate, uploaders
from simulations.learning.sources.plain import PlainMean
from simulations.learning.sources.private import PrivateMean

Matrix = NDArray[np.float64]


def krum(updates: Matrix, corrupt: int) -> Floats:
    """The update that is nearest to its n - corrupt - 2 nearest ones: float64[d]."""
    squares = (updates**2).sum(axis=1)
    apart = squares[:, np.newaxis] + squares - 2.0 * updates @ updates.T
    np.fill_diagonal(apart, np.inf)
    nearest = np.sort(apart, axis=1)[:, : max(len(updates) - corrupt - 2, 1)]
    found: Floats = updates[int(nearest.sum(axis=1).argmin())]
    return found


def trimmed_mean(updates: Matrix, corrupt: int) -> Floats:
    """The mean of each coordinate without its largest and smallest values, so many each."""
    share = corrupt / len(updates)
    found: Floats = scipy.stats.trim_mean(updates, share, axis=0)
    return found


def median(updates: Matrix, corrupt: int) -> Floats:
    """The median of each coordinate."""
    del corrupt
    found: Floats = np.median(updates, axis=0)
    return found


RULES: Final[Mapping[str, Callable[[Matrix, int], Floats]]] = {
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
}


class RobustMean(PlainMean):
    """A trusted server that sees every clipped update, and adds no noise."""

    def __init__(self, robust: Robust, clip: float) -> None:
        super().__init__()
        self._robust, self._clip = robust, clip

    def mean(self, invitation: Invitation) -> Floats:
        """What the rule makes of the clipped updates."""
        updates = [
            clip_l2(invitation.updates(index), self._clip).values for index in uploaders(invitation)
        ]
        return RULES[self._robust.rule](np.stack(updates), self._robust.corrupt)

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """As for private means: updates are clipped."""
        return server.private_rate(number, rounds)


class GroupMedian(PrivateRate):
    """The median of the means of 2 f + 1 disjoint groups of a cohort, each a secure sum.

    A client is in one group, so a round costs it what one sum costs; the noise of a mean is that of
    a smaller cohort.

    Args:
        sums: of one group each.
        groups: 2 f + 1.
    """

    def __init__(self, sums: PrivateMean, groups: int) -> None:
        self._sums, self._groups = sums, groups
        self._facts: Facts | None = None

    @property
    def state(self) -> Any:
        """That of the sums."""
        return self._sums.state

    @property
    def arrays(self) -> Any:
        """Those of the sums."""
        return self._sums.arrays

    def mean(self, invitation: Invitation) -> Floats:
        """The median of each coordinate over the groups' means."""
        size = len(invitation.clients) // self._groups
        means, facts = [], []
        for first in range(0, size * self._groups, size):
            group = _part(invitation, first, size)
            means.append(self._sums.mean(group))
            facts.append(self._sums.facts(group))
        self._facts = facts[-1]
        self._facts["survivors"] = sum(each["survivors"] for each in facts)
        return np.asarray(np.median(means, axis=0), np.float64)

    def facts(self, invitation: Invitation) -> Facts:
        """Those of the last group, and how many clients were in all of them."""
        del invitation
        if self._facts is None:
            raise RuntimeError("no round was run")
        return self._facts


def _part(invitation: Invitation, first: int, size: int) -> Invitation:
    """Some consecutive clients of a cohort as a cohort of their own."""
    return replace(
        invitation,
        clients=invitation.clients[first : first + size],
        dropouts={
            index - first: stage
            for index, stage in invitation.dropouts.items()
            if first <= index < first + size
        },
        updates=_Shifted(invitation.updates, first),
        chunks=(range(size),),
    )


class _Shifted:
    """Updates of a group by their place in it."""

    def __init__(self, updates: Updates, first: int) -> None:
        self._updates, self._first = updates, first

    @property
    def seconds(self) -> float:
        """As of the updates themselves."""
        return self._updates.seconds

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of client `index` of the group."""
        return self._updates(self._first + index)
