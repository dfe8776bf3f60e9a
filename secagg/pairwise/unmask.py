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
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.pairwise.prg import accumulate_masks
from secagg.pairwise.roster import RoundRoster

MIN_RANGE = 1 << 16
"""Coordinates below which a range is not worth a task of its own."""


@dataclass(frozen=True, slots=True)
class MaskRemoval:
    """Keys of the masks still in the sum, and whether taking one off subtracts it."""

    keys: tuple[bytes, ...]
    subtract: tuple[bool, ...]

    def __repr__(self) -> str:
        return f"MaskRemoval({len(self.keys)} masks)"


@dataclass(frozen=True, slots=True)
class _Lost:
    """A client whose masking key was rebuilt, and the survivors that it shares masks with."""

    owner: int
    secret: bytes
    peers: tuple[tuple[int, bytes], ...]

    def __repr__(self) -> str:
        return f"_Lost({self.owner}, {len(self.peers)} peers)"


def plan_removal(
    roster: RoundRoster,
    survivors: Sequence[int],
    secrets: Mapping[int, bytes],
    executor: Executor | None = None,
) -> MaskRemoval:
    """List the masks to take off a sum.

    Args:
        survivors: U3; every other participant's masking key is among the secrets.
    """
    alive = set(survivors)
    own = [
        self_key(SecretSeed(raw), roster.hash, owner)
        for owner, raw in secrets.items()
        if owner in alive
    ]
    lost = [
        _Lost(owner, raw, _surviving_peers(roster, owner, alive))
        for owner, raw in secrets.items()
        if owner not in alive
    ]
    pairs = _pair_masks_on(executor, roster.hash, lost)
    keys = (*own, *(key for key, _ in pairs))
    return MaskRemoval(keys, (True,) * len(own) + tuple(minus for _, minus in pairs))


def _surviving_peers(
    roster: RoundRoster, owner: int, alive: set[int]
) -> tuple[tuple[int, bytes], ...]:
    return tuple(
        (peer, roster.advertisements[peer].masking_key)
        for peer in roster.graph.neighbours(owner)
        if peer in alive
    )


def _pair_masks_on(
    executor: Executor | None, round_hash: bytes, lost: Sequence[_Lost]
) -> list[tuple[bytes, bool]]:
    """`_pair_masks` of all lost clients: here, or in one task for each worker."""
    if executor is None or len(lost) < 2:
        return _pair_masks(round_hash, lost)
    width = min(executor_width(executor), len(lost))
    jobs = [executor.submit(_pair_masks, round_hash, lost[i::width]) for i in range(width)]
    return [mask for job in jobs for mask in job.result()]


def _pair_masks(round_hash: bytes, lost: Sequence[_Lost]) -> list[tuple[bytes, bool]]:
    """Keys of the masks between lost clients and survivors, and whether to subtract them."""
    masks = []
    for each in lost:
        private = AgreementKey(each.secret)
        for peer, public in each.peers:
            key = pairwise_key(private, public, round_hash, each.owner, peer)
            # The survivor added or subtracted it; we do the opposite.
            masks.append((key, not pairwise_is_subtracted(peer, each.owner)))
    return masks


def remove_masks(
    masked_sum: Words, field: PrimeField, removal: MaskRemoval, executor: Executor | None = None
) -> FieldVector:
    """Take the masks off a sum; by coordinate range on the executor if there is one.

    Args:
        masked_sum: `field.dtype`[length]; taken over, and changed in place.
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
    """How many tasks an executor runs at once, as far as it tells; 8 if it does not."""
    width = getattr(executor, "_max_workers", None)
    return width if type(width) is int and width > 0 else 8


def _partial_masks(
    bits: int, keys: tuple[bytes, ...], subtract: tuple[bool, ...], start: int, length: int
) -> Words:
    field = PrimeField(bits)
    partial = field.zeros(length)
    accumulate_masks(partial, field, keys, subtract, start)
    return partial
