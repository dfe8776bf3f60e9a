"""Rebuilding shared secrets, and finding out who lied about a share.

Every secret can be checked once it is rebuilt: a seed against its commitment, a private key against
its public half. So a wrong share can never become a wrong sum. When the first t shares of a secret
fail the check and there are more, other choices of t shares are tried. One that passes gives the
secret, and the round goes on. It also fixes the polynomials; if at least (m + t)/2 of the m answers
lie on them, no other polynomials can have as many (two that share t points are one), so whoever is
off them gave a wrong share and is named. It lied, or the owner dealt it that share: the two cannot
be told apart, so an owner that lies can get a holder named. With more liars than that, t of them
could pass the check with polynomials of their own making, and nobody is named. When no choice
passes, the owner is blamed: it dealt bad shares, or so many holders lie that nothing distinguishes
the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from secagg.errors import Reason, RemoteProtocolError, TooFewSurvivorsError
from secagg.shamir import combine, interpolate

Share = NDArray[np.uint32]
"""One holder's share of one secret: uint32[LIMBS]."""

Check = Callable[[int, bytes], bool]
"""Whether a rebuilt secret is the one that its owner committed to."""

MAX_CHOICES = 500
"""Choices of t shares to try for one secret. With m answers, the first m choices leave out every
single liar and every run of m - t neighbours; with more liars the search may give up."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Checked secrets by owner, and the holders whose shares were wrong, by owner."""

    secrets: dict[int, bytes]
    culprits: dict[int, tuple[int, ...]]

    def __repr__(self) -> str:
        return f"Rebuilt({len(self.secrets)} secrets, culprits={self.culprits})"


def rebuild(
    holders_of: Mapping[int, Sequence[int]],
    shares: Mapping[int, Mapping[int, Share]],
    threshold: int,
    check: Check,
) -> Rebuilt:
    """Rebuild one secret for each owner and check it.

    Args:
        holders_of: for each owner whose secret is wanted, who holds its shares, ascending.
        shares: shares[holder][owner], for the holders that answered.
        threshold: t.
        check: the owner's commitment.

    Raises:
        TooFewSurvivorsError: too few holders answered for an owner.
        RemoteProtocolError: no choice of shares rebuilds an owner's secret; names the owner.
    """
    answered = {
        owner: tuple(holder for holder in holders if holder in shares)
        for owner, holders in holders_of.items()
    }
    fewest = min(map(len, answered.values()), default=threshold)
    if fewest < threshold:
        raise TooFewSurvivorsError("unmask", fewest, threshold)
    secrets: dict[int, bytes] = {}
    culprits: dict[int, tuple[int, ...]] = {}
    for owner, secret in _first_choice(answered, shares, threshold):
        if secret is None or not check(owner, secret):
            secret, liars = _search(owner, answered[owner], shares, threshold, check)
            culprits[owner] = liars
        secrets[owner] = secret
    return Rebuilt(secrets, culprits)


def _first_choice(
    answered: Mapping[int, tuple[int, ...]],
    shares: Mapping[int, Mapping[int, Share]],
    threshold: int,
) -> Iterator[tuple[int, bytes | None]]:
    """Combine the first t shares of every owner; owners with the same holders all at once."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for owner, holders in answered.items():
        groups[holders[:threshold]].append(owner)
    for holders, owners in groups.items():
        stacked = np.array([[shares[holder][owner] for owner in owners] for holder in holders])
        yield from zip(owners, combine(stacked, holders), strict=True)


def _search(
    owner: int,
    holders: tuple[int, ...],
    shares: Mapping[int, Mapping[int, Share]],
    threshold: int,
    check: Check,
) -> tuple[bytes, tuple[int, ...]]:
    """Find t shares that rebuild the owner's secret, and the holders that must have lied."""
    own = {holder: shares[holder][owner] for holder in holders}
    found: bytes | None = None
    for chosen in islice(_choices(holders, threshold), MAX_CHOICES):
        stacked = np.array([[own[holder]] for holder in chosen])
        (secret,) = combine(stacked, chosen)
        if secret is None or not check(owner, secret):
            continue
        found = secret
        expected = interpolate(stacked[:, 0], chosen, holders)
        off = tuple(
            holder
            for holder, right in zip(holders, expected, strict=True)
            if not np.array_equal(own[holder], right)
        )
        if 2 * (len(holders) - len(off)) >= len(holders) + threshold:
            return secret, off
    if found is None:
        raise RemoteProtocolError(owner, Reason.WRONG_REBUILT)
    return found, ()


def _choices(holders: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Choices of t holders: first those that leave out a run of neighbours, then all of them.

    Sliding over the circle of holders leaves out every single holder after a few steps, which
    finds one liar, and every run of m - t neighbouring ones.
    """
    circle = holders + holders
    for start in range(len(holders)):
        yield tuple(sorted(circle[start : start + threshold]))
    yield from combinations(holders, threshold)
