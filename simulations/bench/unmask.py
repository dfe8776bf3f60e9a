"""The server's last step, from shares to the plain sum, beside the bare keystream of its masks."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, cast

import numpy as np

from secagg import FieldVector, Mode, ParameterError, PrimeField, lowest_threshold
from secagg.field import Words
from secagg.keys import AgreementKey, SecretSeed
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.pairwise.prg import accumulate_masks, expand_mask
from secagg.pairwise.rebuild import Rebuilt, Share, rebuild
from secagg.pairwise.unmask import MaskRemoval, plan_removal, remove_masks
from secagg.shamir import LIMBS, random_elements, split
from simulations.bench.flower_peer import open_peer
from simulations.bench.limits import bare_keystream
from simulations.bench.timing import Figures, interleaved_seconds, peak_rss_bytes
from simulations.common.peers import Peer, Unmasking

if TYPE_CHECKING:
    from secagg.pairwise.roster import RoundRoster

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Advertised:
    masking_key: bytes


@dataclass(frozen=True, slots=True)
class _Complete:
    """The complete graph, as the removal of masks asks for it."""

    size: int

    def neighbours(self, owner: int) -> list[int]:
        return [peer for peer in range(self.size) if peer != owner]


@dataclass(frozen=True, slots=True)
class _PublicRecord:
    """What the removal of masks reads of a roster."""

    hash: bytes
    graph: _Complete
    advertisements: Mapping[int, _Advertised]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerState:
    """All that the server holds when the last share has arrived.

    Only the uploads are not made one by one: `masked` is the survivors' sum with every mask that
    does not cancel in it, put on as the clients would.
    """

    field: PrimeField
    threshold: int
    survivors: Sequence[int]
    roster: RoundRoster
    digests: Mapping[int, bytes]
    shares: Mapping[int, Mapping[int, Share]]
    masked: Words
    plain: Words

    def rebuilt(self) -> Rebuilt:
        """Every client's secret from its first shares, checked; liars, and who they are."""
        everyone = range(len(self.digests))
        holders_of = dict.fromkeys(everyone, everyone)
        return rebuild(holders_of, self.shares, self.threshold, self._is_right, corrupt=0)

    def removal(
        self, secrets: Mapping[int, bytes], executor: Executor | None = None
    ) -> MaskRemoval:
        """The masks to take off."""
        return plan_removal(self.roster, self.survivors, secrets, executor)

    def _is_right(self, owner: int, secret: bytes) -> bool:
        if owner in self.survivors:
            return hashlib.sha256(secret).digest() == self.digests[owner]
        return AgreementKey(secret).public == self.roster.advertisements[owner].masking_key


def bench_unmask(
    clients: int,
    dim: int,
    dropped: int,
    bits: int,
    workers: int,
    repeats: int,
    peer: Peer | None = None,
    report: Callable[[str], None] = lambda _: None,  # told what a peer is at: that may take minutes
    *,
    liars: int = 0,  # survivors that answer with wrong shares
) -> Figures:
    """Rebuild all secrets, check them, derive the mask keys, take off all masks.

    The graph is complete, every survivor answers, and the last clients are the ones lost: after
    sharing their secrets, so that every mask between them and a survivor is still in the sum. The
    limit is the AES-CTR keystream of exactly the masks removed, by one process. A peer does its own
    step for a round of the same size and losses, once, in the same run.

    Liars lie in the dearest way: each begins some owners after the one before, and goes on to the
    last, so that none is found together with another and each costs a decoding of its own.

    `seconds` is the whole step and `rebuild_seconds` its part up to the checked secrets;
    `limit_seconds` and `ratio_to_limit` are about the whole step. With more than one worker
    `seconds_one_process` and `speedup` are measured in the same run. `peak_rss_bytes` is this
    process's own. `ratio_to_peer` is the quotient of the peer's whole step and ours. `named` counts
    the liars that were named; `correct` says that they all were, and nobody else.
    """
    threshold = lowest_threshold(clients, 0, Mode.ACTIVE)
    if clients - dropped < threshold:
        raise ParameterError("dropped", dropped, f"at most {clients - threshold}")
    most = (clients - dropped - threshold) // 2
    if not 0 <= liars <= most:
        raise ParameterError("liars", liars, f"in 0 .. {most}, half of the shares to spare")
    system = None if peer is None else open_peer(peer)
    figures = _our_figures(clients, dim, dropped, bits, workers, repeats, threshold, liars)
    if system is not None:
        report("the peer: its clients share their secrets and mask (not counted)")
        theirs = system.unmasking(clients, dim, dropped, threshold)
        figures |= _peer_figures(theirs, float(figures["seconds"]), report)
    return figures


def _our_figures(
    clients: int,
    dim: int,
    dropped: int,
    bits: int,
    workers: int,
    repeats: int,
    threshold: int,
    liars: int,
) -> Figures:
    state = _build(clients, dim, dropped, PrimeField(bits), threshold)
    lying = _lie(state, liars)
    rebuild_seconds: list[float] = []

    def unmask(executor: Executor | None) -> FieldVector:
        start = time.perf_counter()
        secrets = state.rebuilt().secrets
        rebuild_seconds.append(time.perf_counter() - start)
        removal = state.removal(secrets, executor)
        return remove_masks(state.masked.copy(), state.field, removal, executor)

    rebuilt = state.rebuilt()
    masks = state.removal(rebuilt.secrets).keys
    named = set().union(*rebuilt.culprits.values())
    mask_bytes = dim * state.field.dtype.itemsize
    with _pool(workers) as executor:
        correct = np.array_equal(unmask(executor).elements, state.plain) and named == lying
        candidates = {
            "unmask": lambda: unmask(executor),
            "limit": lambda: bare_keystream(masks, mask_bytes),
        }
        if executor is not None:
            candidates["one_process"] = lambda: unmask(None)
        taken = interleaved_seconds(candidates, repeats)
    figures: Figures = {
        "clients": clients,
        "dim": dim,
        "dropped": dropped,
        "bits": bits,
        "threshold": threshold,
        "workers": workers,
        "masks_removed": len(masks),
        "liars": liars,
        "named": len(named),
        "seconds": taken["unmask"],
        "rebuild_seconds": statistics.median(rebuild_seconds),
        "limit_seconds": taken["limit"],
        "ratio_to_limit": taken["unmask"] / taken["limit"],
    }
    if executor is not None:
        figures["seconds_one_process"] = taken["one_process"]
        figures["speedup"] = taken["one_process"] / taken["unmask"]
    return figures | {"peak_rss_bytes": peak_rss_bytes(), "correct": correct}


def _peer_figures(theirs: Unmasking, ours_seconds: float, report: Callable[[str], None]) -> Figures:
    report("the peer: unmasking, once; this may take minutes")
    start = time.perf_counter()
    secrets = theirs.rebuild()
    rebuilt = time.perf_counter()
    unmasked = theirs.remove(secrets)
    end = time.perf_counter()
    return {
        "peer": theirs.peer.value,
        "peer_seconds": end - start,
        "peer_shares_seconds": rebuilt - start,
        "peer_masks_seconds": end - rebuilt,
        "peer_masks_removed": theirs.masks,
        "ratio_to_peer": (end - start) / ours_seconds,
        "peer_correct": all(map(np.array_equal, unmasked, theirs.plain)),
        "note": theirs.note,
    }


def _build(clients: int, dim: int, dropped: int, field: PrimeField, threshold: int) -> _ServerState:
    survivors = range(clients - dropped)
    keys = {u: AgreementKey(os.urandom(_SEED_BYTES)) for u in range(clients)}
    seeds = {u: SecretSeed(os.urandom(_SEED_BYTES)) for u in survivors}
    advertised = {u: _Advertised(key.public) for u, key in keys.items()}
    record = _PublicRecord(os.urandom(32), _Complete(clients), advertised)
    secrets = [(seeds[u] if u in survivors else keys[u]).expose() for u in range(clients)]
    shares = split(secrets, range(clients), threshold, os.urandom)
    plain = expand_mask(field, os.urandom(16), dim)
    masked = plain.copy()
    for u in survivors:
        _mask(masked, field, record, u, keys[u], seeds[u], range(len(survivors), clients))
    return _ServerState(
        field=field,
        threshold=threshold,
        survivors=survivors,
        # A stand-in: a real one would need every client's signed messages.
        roster=cast("RoundRoster", record),
        digests={u: hashlib.sha256(secret).digest() for u, secret in enumerate(secrets)},
        shares={u: dict(enumerate(shares[u])) for u in survivors},
        masked=masked,
        plain=plain,
    )


def _lie(state: _ServerState, count: int) -> set[int]:
    """Spoil the shares of so many of the holders that would be asked first."""
    liars = [state.threshold * place // count for place in range(count)]
    owners = len(state.digests)
    for place, liar in enumerate(liars):
        for owner in range(owners * place // count, owners):
            state.shares[liar][owner][:] = random_elements(LIMBS, os.urandom)
    return set(liars)


def _mask(
    masked: Words,
    field: PrimeField,
    record: _PublicRecord,
    u: int,
    key: AgreementKey,
    seed: SecretSeed,
    lost: Sequence[int],
) -> None:
    """Put on survivor u's masks that do not cancel, from its own side of each agreement."""
    pairs = [
        pairwise_key(key, record.advertisements[v].masking_key, record.hash, u, v) for v in lost
    ]
    subtract = [pairwise_is_subtracted(u, v) for v in lost]
    own = self_key(seed, record.hash, u)
    accumulate_masks(masked, field, [own, *pairs], [False, *subtract])


def _pool(workers: int) -> ProcessPoolExecutor | nullcontext[None]:
    """Fresh processes that have loaded everything, or none for one worker."""
    if workers == 1:
        return nullcontext()
    executor = ProcessPoolExecutor(workers, get_context("spawn"))
    warm: set[int] = set()
    # A worker that is up would take every task before the others are.
    while len(warm) < workers:
        warm |= set(executor.map(_warm_up, range(workers)))
    return executor


def _warm_up(_: int) -> int:
    for bits in (16, 32, 62):
        expand_mask(PrimeField(bits), bytes(16), 1000)
    time.sleep(0.05)
    return os.getpid()
