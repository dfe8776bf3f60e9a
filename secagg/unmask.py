"""The server's last step: take the masks off the sum.

Work splits by coordinate range, because masks are seekable: any `concurrent.futures.Executor`
may do it, in processes on one machine or on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise

from secagg import _kernels
from secagg.errors import ParameterError
from secagg.field import FieldVector, PrimeField, Words
from secagg.keys import AgreementKey, SecretSeed
from secagg.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.prg import accumulate_masks
from secagg.roster import RoundRoster

MIN_RANGE = 1 << 16
"""Coordinates below which a range is not worth a task of its own."""


@dataclass(frozen=True, slots=True)
class MaskRemoval:
    """Keys of the masks still in the sum, and whether taking one off subtracts it."""

    keys: tuple[bytes, ...]
    subtract: tuple[bool, ...]

    def __repr__(self) -> str:
        return f"MaskRemoval({len(self.keys)} masks)"


def plan_removal(
    roster: RoundRoster, survivors: Sequence[int], secrets: Mapping[int, bytes]
) -> MaskRemoval:
    """List the masks to take off a sum.

    Args:
        survivors: U3; every other participant's masking key is among the secrets.
        secrets: checked: self-mask seed of each survivor, masking key of each other participant.
    """
    keys: list[bytes] = []
    subtract: list[bool] = []
    alive = set(survivors)
    for owner, raw in secrets.items():
        if owner in alive:
            keys.append(self_key(SecretSeed(raw), roster.hash, owner))
            subtract.append(True)
            continue
        private = AgreementKey(raw)
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
