"""What a server computes from shares of a sum of keys, and whose input is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError
from secagg.keys import AgreementKey
from secagg.oneshot import packed_sharing
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.masking import open as open_masked
from secagg.oneshot.messages import Upload
from secagg.oneshot.opening import largest_mean_square
from secagg.shamir import PRIME
from simulations.threats.game.contexts import Integers
from simulations.threats.one_shot.parties import opened_seal

Shares = Mapping[int, NDArray[np.uint32]]
"""By member, its share of a sum of keys: uint32[key_polynomials]."""


def key_sum(context: OneShotContext, shares: Shares) -> NDArray[np.int64] | None:
    """The sum of keys, from T + l shares; None if there are fewer."""
    needed = context.committee.threshold
    members = sorted(shares)[:needed]
    if len(members) < needed:
        return None
    secrets = packed_sharing.interpolate(
        np.stack([shares[j] for j in members]), members, context.committee.per_polynomial
    )
    return context.layout.key_of(secrets.reshape(-1)[: context.layout.key_secrets])


def added(context: OneShotContext, shares: Iterable[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """The share of a sum of keys of a member who holds a share of each: uint32[key_polynomials]."""
    return context.layout.sum_keys(np.stack(list(shares)))


def summed(context: OneShotContext, uploads: Iterable[Upload]) -> Accumulator:
    """The sum of some uploads' ciphertexts."""
    total = Accumulator(context.packing, context.length)
    for upload in uploads:
        total.add(upload.ciphertext)
    return total


def vector_sum(
    context: OneShotContext, uploads: Iterable[Upload], key: NDArray[np.int64] | None
) -> Integers | None:
    """The sum of some uploads' vectors, centred; None if this is not the sum of their keys."""
    if key is None:
        return None
    total = summed(context, uploads)
    try:
        values, mean_square = open_masked(total, context.public_key, key)
    except ParameterError:
        return None
    return values if mean_square <= largest_mean_square(context, total.count) else None


def read_alone(
    context: OneShotContext, upload: Upload, keys: Mapping[int, AgreementKey]
) -> Integers | None:
    """What one upload says to whoever has the sealing keys of these places of its committee."""
    shares = {j: added(context, [opened_seal(context, upload, j, key)]) for j, key in keys.items()}
    return vector_sum(context, [upload], key_sum(context, shares))


def difference(context: OneShotContext, first: Upload, second: Upload) -> Integers:
    """One ciphertext minus the other, decoded as if their keys were the same."""
    total = summed(context, [first])
    total.subtract(second.ciphertext)
    values, _ = open_masked(total, context.public_key, np.zeros(context.degree, np.int64))
    return values


def two_keys(
    combination: NDArray[np.int64], first: int, second: int, largest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Two small keys from `combination`, int64[N]: first * k + second * k' modulo 2^31 - 1.

    None if some entry has no solution, or two.
    """
    entries = np.arange(-largest, largest + 1)
    pairs = np.add.outer(first * entries % PRIME, second * entries % PRIME).reshape(-1) % PRIME
    order = np.argsort(pairs)
    low = np.searchsorted(pairs[order], combination, "left")
    high = np.searchsorted(pairs[order], combination, "right")
    if (high - low != 1).any():
        return None
    which, other = np.divmod(order[low], len(entries))
    return entries[which], entries[other]
