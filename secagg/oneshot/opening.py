"""What a server makes of the members' answers: the sum, the surplus seeds, or names to look at.

Answers are shares of the sum of all keys. Wrong ones are corrected and named, up to half of what is
left over beyond T + l. If the sum does not open all the same, the masked combinations that came with
the answers say whose shares are on no polynomial. The round is lost; the names are leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from secagg.decoding import wrong_shares
from secagg.errors import OpeningFailedError, WrongAnswersError
from secagg.field import FieldVector, lift
from secagg.keys import os_random
from secagg.oneshot import packed_sharing
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.gaussian import CUT
from secagg.oneshot.masking import Accumulator
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
        noisy: survivors whose surplus seeds did not open: their noise stays on the sum.
    """

    wrong_members: tuple[int, ...] = ()
    noisy: tuple[int, ...] = ()


def open_sum(
    context: OneShotContext,
    total: Accumulator,
    survivors: Sequence[int],
    signed: bytes,
    answers: Mapping[int, MemberAnswer],
) -> OpenedSum:
    """Open the sum of the keys, and with it that of the vectors.

    Args:
        total: the survivors' ciphertexts, added up.
        signed: what the members signed; their combinations were challenged by it.
        answers: by member.

    Raises:
        TooFewSurvivorsError: fewer than T + l answers.
        OpeningFailedError: they do not open the sum; names leads.
    """
    members = sorted(answers)
    committee, layout = context.committee, context.layout
    sums = np.stack([answers[member].sums for member in members])
    try:
        secrets, wrong = packed_sharing.open(
            sums,
            members,
            committee.randomness,
            committee.per_polynomial,
            layout.key_secrets,
            os_random,
        )
    except WrongAnswersError:
        raise _failure(context, survivors, answers, "too many of them are wrong") from None
    key_sum = layout.key_of(secrets)
    if int(np.abs(key_sum).max()) > CUT * context.size:
        raise _failure(context, survivors, answers, "they give a key that no honest clients have")
    values, spread = total.open(key_sum)
    if spread > _largest_spread(context, len(survivors)):
        raise _failure(context, survivors, answers, "they give a key that does not fit the sum")
    removed, liars, noisy = _open_seeds(context, survivors, answers, wrong)
    return OpenedSum(
        vector=FieldVector(context.field, lift(values, context.field).elements),
        survivors=tuple(survivors),
        removed=removed,
        wrong_members=tuple(sorted({*wrong, *liars})),
        noisy=noisy,
    )


def _largest_spread(context: OneShotContext, uploads: int) -> float:
    """Bound on the mean square of honest errors, by the tail of a chi-squared variable.

    Source: Laurent and Massart 2000, Lemma 1. A wrong key leaves errors that are uniform below the
    rounding step, 27 times as much: with a dozen coefficients it is told apart.
    """
    count = context.packing.coefficients(context.length)
    x = _FAILURE_BITS * log(2) / count
    return uploads * context.packing.error_variance * (1 + 2 * sqrt(x) + 2 * x)


def _open_seeds(
    context: OneShotContext,
    survivors: Sequence[int],
    answers: Mapping[int, MemberAnswer],
    wrong: Sequence[int],
) -> tuple[dict[int, tuple[bytes, ...]], tuple[int, ...], tuple[int, ...]]:
    """Surplus seeds by survivor, members that lied about them, survivors whose do not open."""
    count = len(context.removed_seeds(len(survivors)))
    if not count:
        return {}, (), ()
    committee, layout = context.committee, context.layout
    trusted = [member for member in sorted(answers) if member not in set(wrong)]
    shares = np.stack([answers[member].seeds for member in trusted])
    needed = committee.threshold
    liars: set[int] = set()
    bad: set[int] = set()
    # Nearly always nobody lies: one look at all columns together, then at each survivor's.
    columns = shares.reshape(len(trusted), -1)
    consistent = packed_sharing.consistent_columns(columns, trusted, needed)
    per_survivor = consistent.reshape(len(survivors), -1).all(axis=1)
    for place in np.flatnonzero(~per_survivor).tolist():
        found = wrong_shares(shares[:, place], trusted, needed)
        if found is None or 2 * len(found) > len(trusted) - needed:
            bad.add(place)
        else:
            liars.update(found)
    right = [i for i, member in enumerate(trusted) if member not in liars]
    if len(right) < needed:
        return {}, tuple(sorted(liars)), tuple(survivors)
    if liars:
        columns = columns[right]
        consistent = packed_sharing.consistent_columns(
            columns, [trusted[i] for i in right], needed
        )
        per_survivor = consistent.reshape(len(survivors), -1).all(axis=1)
    bad = set(np.flatnonzero(~per_survivor).tolist())
    values = packed_sharing.interpolate(
        columns[:needed],
        [trusted[i] for i in right][:needed],
        committee.per_polynomial,
    )
    limbs = values.reshape(len(survivors), count, -1)[:, :, :LIMBS]
    removed: dict[int, tuple[bytes, ...]] = {}
    noisy = []
    for place, survivor in enumerate(survivors):
        seeds = [from_limbs(each) for each in limbs[place].astype(np.uint64)]
        if place in bad or any(seed is None for seed in seeds):
            noisy.append(survivor)
        else:
            removed[survivor] = tuple(seed for seed in seeds if seed is not None)
    return removed, tuple(sorted(liars)), tuple(noisy)


def _failure(
    context: OneShotContext,
    survivors: Sequence[int],
    answers: Mapping[int, MemberAnswer],
    why: str,
) -> OpeningFailedError:
    """The error of a round that does not open, with what the masked combinations say."""
    members = sorted(answers)
    committee = context.committee
    needed = committee.threshold
    if len(members) < needed + 2 * committee.corrupt:
        return OpeningFailedError(why, len(members), needed, (), ())
    dealers, liars = [], set()
    checks = np.stack([answers[member].checks for member in members])
    for place, survivor in enumerate(survivors):
        found = wrong_shares(checks[:, place], members, needed)
        if found is None or len(found) > committee.corrupt:
            dealers.append(survivor)
        else:
            liars.update(found)
    return OpeningFailedError(why, len(members), needed, tuple(dealers), tuple(sorted(liars)))
