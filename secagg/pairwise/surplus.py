"""The server's record of removable seeds: given up by survivors, or rebuilt from shares.

Which seeds are surplus follows from how many clients were lost. A survivor gives up its own with
its unmask shares; for one that went away before, the holders of its shares are asked, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from secagg.errors import Reason, RemoteProtocolError
from secagg.keys import SecretSeed
from secagg.pairwise.context import SessionContext
from secagg.pairwise.rebuild import rebuild
from secagg.pairwise.roster import RoundRoster, commitment


class SurplusSeeds:
    """Seeds of one round, every one checked against its owner's commitment."""

    def __init__(
        self,
        context: SessionContext,
        roster: RoundRoster,
        commitments: Mapping[int, Sequence[bytes]],
        survivors: tuple[int, ...],
    ) -> None:
        self._roster = roster
        self.corrupt = context.corrupt_holders(len(roster.members))
        self._commitments = commitments
        self._survivors = survivors
        self.which = context.removed_seeds(len(survivors))
        self.given: dict[int, tuple[bytes, ...]] = {}
        self.shares: dict[int, dict[int, NDArray[np.uint32]]] = {}
        self.culprits: set[int] = set()
        self.suspects: frozenset[int] = frozenset()

    @property
    def missing(self) -> tuple[int, ...]:
        """Survivors whose seeds are to be given up and are not here, ascending."""
        if not self.which:
            return ()
        return tuple(survivor for survivor in self._survivors if survivor not in self.given)

    def give(self, owner: int, seeds: Sequence[bytes]) -> None:
        """Take the seeds that a survivor gives up, in the order of `which`."""
        for which, seed in zip(self.which, seeds, strict=True):
            if not self._is_committed(which, owner, seed):
                raise RemoteProtocolError(owner, Reason.WRONG_SEED)
        if seeds:
            self.given[owner] = tuple(seeds)

    def add_shares(self, holder: int, owners: Sequence[int], shares: NDArray[np.uint32]) -> None:
        """Take a holder's shares: uint32[owners * seeds, LIMBS], one owner after the other."""
        count = len(self.which)
        self.shares[holder] = {
            owner: shares[i * count : (i + 1) * count] for i, owner in enumerate(owners)
        }

    def rebuild_missing(self) -> None:
        """Rebuild what is missing; liars go to `culprits` if they are named, and to `suspects`."""
        holders_of = {owner: self._roster.graph.holders(owner) for owner in self.missing}
        found: dict[int, list[bytes]] = {owner: [] for owner in holders_of}
        for place, which in enumerate(self.which if holders_of else ()):
            shares = {
                holder: {owner: block[place] for owner, block in held.items()}
                for holder, held in self.shares.items()
            }
            check = partial(self._is_committed, which)
            rebuilt = rebuild(
                holders_of,
                shares,
                self._roster.threshold,
                check,
                corrupt=self.corrupt,
                suspects=self.suspects,
            )
            self.suspects = rebuilt.suspects
            self.culprits.update(*rebuilt.culprits.values())
            for owner, secret in rebuilt.secrets.items():
                found[owner].append(secret)
        self.given.update({owner: tuple(seeds) for owner, seeds in found.items()})

    def _is_committed(self, which: int, owner: int, seed: bytes) -> bool:
        number = 1 + which
        made = commitment(self._roster.hash, owner, number, SecretSeed(seed))
        return made == self._commitments[owner][number]
