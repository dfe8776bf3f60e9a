"""What a server makes of the members' answers: the sum, the surplus seeds, or names to look at.

Answers are shares of the sum of all keys. Wrong ones are corrected and named, up to half of what is
left over beyond T + l. If the sum does not open all the same, the masked combinations that came
with the answers say whose shares are on no polynomial. The round is lost; the names are leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from secagg.decoding import wrong_shares
from secagg.errors import OpeningFailedError, WrongAnswersError
from secagg.field import lift
from secagg.keys import os_random
from secagg.oneshot import packed_sharing
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.gaussian import CUT
from secagg.oneshot.header import seed_commitment
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.masking import open as open_masked
from secagg.server import FieldSum
from secagg.shamir import LIMBS, from_limbs

_FAILURE_BITS = 42
"""Honest errors are larger than the test on them allows with a probability of 2^-42."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """One member's answer, decoded.

    Attributes:
        sums: uint32[key_polynomials].
        seeds: uint32[survivors, surplus seeds * seed_polynomials].
        checks: uint32[survivors, CHALLENGES].
    """

    sums: NDArray[np.uint32] = field(repr=False)
    seeds: NDArray[np.uint32] = field(repr=False)
    checks: NDArray[np.uint32] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenedSum(FieldSum):
    """The result of a one-shot round.

    Attributes:
        wrong_members: members whose answers were wrong, and corrected.
    """

    wrong_members: tuple[int, ...] = ()


def open_sum(
    context: OneShotContext,
    total: Accumulator,
    commitments: Mapping[int, Sequence[bytes]],
    answers: Mapping[int, MemberAnswer],
) -> OpenedSum:
    """Open the sum of the keys, and with it that of the vectors."""
    members, survivors = sorted(answers), tuple(commitments)
    committee, layout = context.committee, context.layout
    try:
        secrets, wrong = packed_sharing.open(
            np.stack([answers[member].sums for member in members]),
            members,
            committee.randomness,
            committee.per_polynomial,
            layout.key_secrets,
            os_random,
        )
    except WrongAnswersError:
        raise _failure(context, survivors, answers, "too many of them are wrong") from None
    key_sum = layout.key_of(secrets)
    if int(np.abs(key_sum).max()) > CUT * len(survivors):
        raise _failure(context, survivors, answers, "no honest clients have the key they give")
    values, mean_square = open_masked(total, context.public_key, key_sum)
    if mean_square > largest_mean_square(context, len(survivors)):
        largest = context.packing.largest
        why = (
            "the recovered key does not match the sum: the key is wrong, or a client's vector or "
            f"the sum is out of range, -{largest} .. {largest}"
        )
        raise _failure(context, survivors, answers, why)
    seeds = _Seeds(context, commitments, answers, [m for m in members if m not in set(wrong)])
    return OpenedSum(
        vector=lift(values, context.field),
        survivors=tuple(each for each in survivors if each < context.invited),
        removed=seeds.removed,
        wrong_members=tuple(sorted({*wrong, *seeds.liars})),
        noisy=tuple(seeds.noisy),
    )


def largest_mean_square(context: OneShotContext, uploads: int) -> float:
    """Bound on the mean square of honest errors, by the tail of a chi-squared variable.

    A wrong key leaves errors that are uniform between -Delta / 2 and Delta / 2, with 27 times the
    mean square. That they are below the bound has a probability below 2^-80, because there are 64
    of them at least; with 7 it would be 2^-4.

    Source: Laurent and Massart 2000, Lemma 1.
    """
    count = context.packing.coefficients(context.length)
    x = _FAILURE_BITS * log(2) / count
    return uploads * context.packing.error_variance * (1 + 2 * sqrt(x) + 2 * x)


class _Seeds:
    """Surplus seeds, every one checked against its owner's commitment.

    Attributes:
        removed: by survivor, in the order of `removed_seeds`.
        noisy: survivors whose seeds do not open to what they committed to.
        liars: members whose shares of some seed were wrong.
    """

    def __init__(
        self,
        context: OneShotContext,
        commitments: Mapping[int, Sequence[bytes]],
        answers: Mapping[int, MemberAnswer],
        trusted: Sequence[int],
    ) -> None:
        self._context = context
        self._commitments = commitments
        self._which = context.removed_seeds(len(commitments))
        self.removed: dict[int, tuple[bytes, ...]] = {}
        self.noisy: list[int] = []
        self.liars: set[int] = set()
        if not self._which:
            return
        shares = np.stack([answers[member].seeds for member in trusted])
        needed = context.committee.threshold
        # Nearly always nobody lies: all seeds at once, from the first T + l answers.
        first = self._opened(shares[:needed], trusted[:needed])
        for place, survivor in enumerate(commitments):
            seeds = self._checked(survivor, first[place])
            if seeds is None:
                seeds = self._corrected(survivor, shares[:, place], trusted)
            if seeds is None:
                self.noisy.append(survivor)
            else:
                self.removed[survivor] = seeds

    def _opened(self, shares: NDArray[np.uint32], members: Sequence[int]) -> NDArray[np.uint32]:
        """Secrets uint32[owners, seeds, secrets] of shares uint32[T + l, owners, polynomials]."""
        per = self._context.committee.per_polynomial
        columns = shares.reshape(len(members), -1)
        secrets = packed_sharing.interpolate(columns, members, per)
        return secrets.reshape(shares.shape[1], len(self._which), -1)

    def _checked(self, owner: int, secrets: NDArray[np.uint32]) -> tuple[bytes, ...] | None:
        """The owner's seeds; None if one is not what it committed to."""
        seeds = []
        for which, limbs in zip(self._which, secrets.astype(np.uint64), strict=True):
            seed = from_limbs(limbs[:LIMBS])
            if seed is None:
                return None
            made = seed_commitment(self._context, owner, which, seed)
            if made != self._commitments[owner][which]:
                return None
            seeds.append(seed)
        return tuple(seeds)

    def _corrected(
        self, owner: int, shares: NDArray[np.uint32], trusted: Sequence[int]
    ) -> tuple[bytes, ...] | None:
        """The owner's seeds from the shares that lie on polynomials; None if too many do not."""
        needed = self._context.committee.threshold
        wrong = wrong_shares(shares, trusted, needed)
        if wrong is None or 2 * len(wrong) > len(trusted) - needed:
            return None
        right = [i for i, member in enumerate(trusted) if member not in set(wrong)][:needed]
        opened = self._opened(shares[right][:, np.newaxis], [trusted[i] for i in right])
        seeds = self._checked(owner, opened[0])
        if seeds is not None:
            self.liars.update(wrong)
        return seeds


def _failure(
    context: OneShotContext,
    survivors: Sequence[int],
    answers: Mapping[int, MemberAnswer],
    why: str,
) -> OpeningFailedError:
    """The error of a round that does not open, with what the masked combinations say."""
    members, committee = sorted(answers), context.committee
    needed, corrupt = committee.threshold, committee.corrupt
    dealers: list[int] = []
    liars: set[int] = set()
    # With fewer answers corrupt members could put a polynomial of their own through honest ones.
    if len(members) >= needed + 2 * corrupt:
        checks = np.stack([answers[member].checks for member in members])
        for place, survivor in enumerate(survivors):
            found = wrong_shares(checks[:, place], members, needed)
            if found is None or len(found) > corrupt:
                dealers.append(survivor)
            else:
                liars.update(found)
    return OpeningFailedError(why, len(members), needed, tuple(dealers), tuple(sorted(liars)))
