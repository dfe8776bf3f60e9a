"""Rebuilding shared secrets, and finding out who lied about a share.

Every secret can be checked once it is rebuilt: a seed against its commitment, a private key against
its public half. So a wrong share can never become a wrong sum. When the first t shares of a secret
fail the check, the wrong ones among all m are found by decoding them as a Reed-Solomon code, up to
(m - t) / 2 of them whatever they are, and the rest rebuild the secret. Holders that were found out
are asked last for the secrets that follow.

*Who is named.* What was found is right if the secret passes the check, but that alone does not show
that those d holders lied whose shares are off: m - t + 1 - d of the others, or more, can have moved
to polynomials of their own that keep the secret and t - 1 honest shares. Nobody can tell the two
apart, as either group could have said what it said. So the d are named if they are fewer, and if
more than all corrupt clients of a context would be needed to frame them:
d + max(c, d) <= m - t. A holder that the owner dealt a wrong share is named as well: the two cannot
be told apart either, so a client that lies about its own secret can get a holder named.

With more liars the check is all there is. Where there are few choices of t holders each is tried,
so in small cohorts any t right shares will do. When nothing passes the check, the owner dealt wrong
shares, or more than (m - t) / 2 holders lie. Again nobody can tell, and nobody is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from secagg.decoding import wrong_shares
from secagg.errors import TooFewSurvivorsError, WrongSharesError
from secagg.shamir import combine

Share = NDArray[np.uint32]
"""One holder's share of one secret: uint32[LIMBS]."""

Check = Callable[[int, bytes], bool]
"""Whether a rebuilt secret is the one that its owner committed to."""

MAX_CHOICES = 500
"""Choices of t shares to try for one secret when decoding fails; enough for any t of 11 answers."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Checked secrets, and what their shares say about the holders.

    Attributes:
        secrets: by owner.
        culprits: for each owner whose shares had to be decoded the holders that are named.
        suspects: all holders with a wrong share of any secret, named or not: better asked last.
    """

    secrets: dict[int, bytes]
    culprits: dict[int, tuple[int, ...]]
    suspects: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"Rebuilt({len(self.secrets)} secrets, culprits={self.culprits})"


def rebuild(
    holders_of: Mapping[int, Sequence[int]],
    shares: Mapping[int, Mapping[int, Share]],
    threshold: int,
    check: Check,
    *,
    corrupt: int,
    suspects: Collection[int] = frozenset(),
) -> Rebuilt:
    """Rebuild one secret for each owner and check it.

    Args:
        holders_of: for each owner whose secret is wanted, who holds its shares, ascending.
    """
    answered = {
        owner: tuple(holder for holder in holders if holder in shares)
        for owner, holders in holders_of.items()
    }
    fewest = min(map(len, answered.values()), default=threshold)
    if fewest < threshold:
        raise TooFewSurvivorsError("unmask", fewest, threshold)
    secrets: dict[int, bytes] = {}
    repair = _Repair(threshold, corrupt, check, suspects)
    wrong = []
    for owner, secret in _first_choice(answered, shares, threshold, repair.suspects):
        if secret is not None and check(owner, secret):
            secrets[owner] = secret
        else:
            wrong.append(owner)
    for owner in wrong:
        own = {holder: shares[holder][owner] for holder in answered[owner]}
        secrets[owner] = repair.secret(owner, own)
    return Rebuilt(secrets, repair.culprits, frozenset(repair.suspects))


def _first_choice(
    answered: Mapping[int, tuple[int, ...]],
    shares: Mapping[int, Mapping[int, Share]],
    threshold: int,
    suspects: Collection[int],
) -> Iterator[tuple[int, bytes | None]]:
    """Combine the first t shares of every owner; owners with the same holders all at once."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for owner, holders in answered.items():
        groups[_trusted_first(holders, suspects)[:threshold]].append(owner)
    for holders, owners in groups.items():
        stacked = np.array([[shares[holder][owner] for owner in owners] for holder in holders])
        yield from zip(owners, combine(stacked, holders), strict=True)


def _all_choices(holders: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Every choice of t holders, or none at all if they are too many to try."""
    if comb(len(holders), threshold) <= MAX_CHOICES:
        yield from combinations(holders, threshold)


def _trusted_first(holders: tuple[int, ...], suspects: Collection[int]) -> tuple[int, ...]:
    if not suspects:
        return holders
    return tuple(sorted(holders, key=lambda holder: holder in suspects))


class _Repair:
    """Secrets whose first shares do not rebuild them, one after the other.

    Attributes:
        suspects: holders with a wrong share so far.
        culprits: the named ones, by owner.
    """

    def __init__(
        self, threshold: int, corrupt: int, check: Check, suspects: Collection[int]
    ) -> None:
        self.suspects = set(suspects)
        self.culprits: dict[int, tuple[int, ...]] = {}
        self._threshold = threshold
        self._corrupt = corrupt
        self._check = check

    def secret(self, owner: int, own: Mapping[int, Share]) -> bytes:
        """Find an owner's secret in the shares of all holders that answered."""
        everybody = tuple(own)
        trusted = tuple(holder for holder in everybody if holder not in self.suspects)
        # Cheap, and mostly enough once the liars are known.
        first = _trusted_first(everybody, self.suspects)[: self._threshold]
        if (secret := self._combined(owner, own, first)) is not None:
            return secret
        # Without known liars as many new ones can be found; but a dealer may have framed them.
        for holders in dict.fromkeys((trusted, everybody)):
            if (secret := self._decoded(owner, own, holders)) is not None:
                return secret
        for chosen in _all_choices(everybody, self._threshold):
            if (secret := self._combined(owner, own, chosen)) is not None:
                self.culprits[owner] = ()
                # Whether they lied or were in the way of nobody: they are asked last from now on.
                self.suspects.update(set(everybody) - set(chosen))
                return secret
        raise WrongSharesError(owner, len(everybody), self._threshold)

    def _decoded(
        self, owner: int, own: Mapping[int, Share], holders: tuple[int, ...]
    ) -> bytes | None:
        spare = len(holders) - self._threshold
        if spare < 1:
            return None
        stacked = np.array([own[holder] for holder in holders])
        off = wrong_shares(stacked, holders, self._threshold)
        if off is None or len(off) > spare:
            return None
        right = tuple(holder for holder in holders if holder not in off)[: self._threshold]
        secret = self._combined(owner, own, right)
        if secret is not None:
            self.suspects.update(off)
            certain = len(off) + max(len(off), self._corrupt) <= spare
            self.culprits[owner] = off if certain else ()
        return secret

    def _combined(
        self, owner: int, own: Mapping[int, Share], holders: tuple[int, ...]
    ) -> bytes | None:
        """The secret that exactly t shares rebuild, if it is the owner's."""
        (secret,) = combine(np.array([[own[holder]] for holder in holders]), holders)
        return secret if secret is not None and self._check(owner, secret) else None
