"""The server's last step: rebuild secrets from shares and take the masks off the sum.

Work splits by coordinate range, because masks are seekable: any `concurrent.futures.Executor`
may do it, in processes on one machine or on a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from secagg import _kernels
from secagg.errors import ParameterError, Reason, RemoteProtocolError, TooFewSurvivorsError
from secagg.field import FieldVector, PrimeField, Words
from secagg.keys import AgreementKey, SecretSeed
from secagg.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.prg import accumulate_masks
from secagg.roster import RoundRoster, commitment
from secagg.shamir import combine

MIN_RANGE = 1 << 16
"""Coordinates below which a range is not worth a task of its own."""


@dataclass(frozen=True, slots=True)
class MaskRemoval:
    """Keys of the masks still in the sum, and whether taking one off subtracts it."""

    keys: tuple[bytes, ...]
    subtract: tuple[bool, ...]

    def __repr__(self) -> str:
        return f"MaskRemoval({len(self.keys)} masks)"


def rebuild_secrets(
    roster: RoundRoster,
    owners: Sequence[int],
    shares: Mapping[int, Mapping[int, NDArray[np.uint32]]],
) -> dict[int, bytes]:
    """Rebuild one secret for each owner from the first `threshold` shares at hand.

    Args:
        owners: parties whose secret is wanted.
        shares: shares[holder][owner] is uint32[LIMBS].

    Raises:
        TooFewSurvivorsError: too few holders answered for an owner.
        RemoteProtocolError: shares rebuild nothing; names the owner.
    """
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for owner in owners:
        answered = [h for h in roster.graph.holders(owner) if h in shares]
        if len(answered) < roster.threshold:
            raise TooFewSurvivorsError("unmask", len(answered), roster.threshold)
        groups[tuple(answered[: roster.threshold])].append(owner)
    rebuilt: dict[int, bytes] = {}
    for holders, group in groups.items():
        stacked = np.stack([np.stack([shares[h][owner] for owner in group]) for h in holders])
        try:
            rebuilt.update(zip(group, combine(stacked, holders), strict=True))
        except ValueError:
            raise RemoteProtocolError(
                _first_bad(stacked, holders, group), Reason.WRONG_REBUILT, "no valid secret"
            ) from None
    return rebuilt


def _first_bad(stacked: NDArray[np.uint32], holders: Sequence[int], group: Sequence[int]) -> int:
    """The first owner of a group whose shares rebuild no secret, when one of them does not."""
    for position, owner in enumerate(group[:-1]):
        try:
            combine(stacked[:, position : position + 1], holders)
        except ValueError:
            return owner
    return group[-1]


def plan_removal(
    roster: RoundRoster,
    commitments: Mapping[int, bytes],
    survivors: Sequence[int],
    secrets: Mapping[int, bytes],
) -> MaskRemoval:
    """Check every rebuilt secret and list the masks to take off.

    Args:
        commitments: of the self-mask seeds, for every participant (U2).
        survivors: U3; every other participant's masking key is among the secrets.
        secrets: self-mask seed of each survivor, masking private key of each dropped participant.

    Raises:
        RemoteProtocolError: a secret is not the one committed to or advertised.
    """
    keys: list[bytes] = []
    subtract: list[bool] = []
    alive = set(survivors)
    for owner, raw in secrets.items():
        if owner in alive:
            seed = SecretSeed(raw)
            if commitment(roster.hash, owner, seed) != commitments[owner]:
                raise RemoteProtocolError(owner, Reason.WRONG_REBUILT, "self-mask seed")
            keys.append(self_key(seed, roster.hash, owner))
            subtract.append(True)
            continue
        private = AgreementKey(raw)
        if private.public != roster.advertisements[owner].masking_key:
            raise RemoteProtocolError(owner, Reason.WRONG_REBUILT, "masking key")
        for peer in roster.graph.neighbours(owner):
            if peer in alive:
                public = roster.advertisements[peer].masking_key
                keys.append(pairwise_key(private, public, roster.hash, owner, peer))
                # The survivor added or subtracted it; we do the opposite.
                subtract.append(not pairwise_is_subtracted(peer, owner))
    return MaskRemoval(tuple(keys), tuple(subtract))


def remove_masks(
    masked_sum: Words, field: PrimeField, removal: MaskRemoval, executor: Executor | None = None
) -> FieldVector:
    """Take the masks off a sum; by coordinate range on the executor if there is one.

    Args:
        masked_sum: `field.dtype`[length]; taken over, and changed in place.
        executor: any executor whose tasks may be pickled.

    Raises:
        Whatever the executor raises; nothing partial is returned.
    """
    if executor is None:
        accumulate_masks(masked_sum, field, removal.keys, removal.subtract)
        return FieldVector(field, masked_sum)
    ranges = split_range(masked_sum.size, executor_width(executor))
    jobs = [
        executor.submit(_partial_masks, field.bits, removal.keys, removal.subtract, low, high - low)
        for low, high in ranges
    ]
    parts = [job.result() for job in jobs]
    for (low, high), part in zip(ranges, parts, strict=True):
        _kernels.add_vectors(masked_sum[low:high], part, field.modulus)
    return FieldVector(field, masked_sum)


def split_range(length: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0 .. length into at most `parts` ranges of nearly equal size, none below `MIN_RANGE`."""
    if length < 1 or parts < 1:
        raise ParameterError("length, parts", (length, parts), "at least 1")
    parts = max(1, min(parts, length // MIN_RANGE))
    borders = [length * i // parts for i in range(parts + 1)]
    return list(pairwise(borders))


def executor_width(executor: Executor) -> int:
    """How many tasks an executor runs at once, as far as it tells."""
    return int(getattr(executor, "_max_workers", 0)) or 8


def _partial_masks(
    bits: int, keys: tuple[bytes, ...], subtract: tuple[bool, ...], start: int, length: int
) -> Words:
    field = PrimeField(bits)
    partial = field.zeros(length)
    accumulate_masks(partial, field, keys, subtract, start)
    return partial
