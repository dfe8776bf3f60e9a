"""How the training examples are shared out among clients.

Four ways: evenly and at random (IID); label by label with Dirichlet shares, the usual model of
clients that hold few labels and unequal amounts; in shards of one or two labels each; or as the
data itself says who wrote what. A partition is a tuple with one index array per client. No
example belongs to two clients; only natural clients may leave some examples out.

May use numpy only; must not know torch or the protocol.

Source: shards, McMahan et al. 2017 (arXiv 1602.05629), section 3; Dirichlet shares, Yurochkin et
al. 2019 (arXiv 1905.12022), section 4, and Li et al. 2021 (arXiv 2102.02079), section 4.1. The
last two resample until every client has enough examples, which need not end with many clients;
here surplus examples of the largest client go to the smallest one instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
"""Positions in the training split that one client holds: int64[m], sorted, m >= minimum."""

Partition = tuple[Indices, ...]
"""One index array per client."""


def partition_iid(
    count: int, clients: int, rng: np.random.Generator, *, minimum: int = 1
) -> Partition:
    """Deal ``count`` shuffled examples to the clients, as evenly as possible.

    Post: sizes differ by at most one; the arrays are disjoint and cover ``range(count)``.
    """
    _check_feasible(count, clients, minimum)
    return _freeze(np.array_split(rng.permutation(count), clients))


def partition_dirichlet(
    labels: NDArray[np.int64],  # int64[m], label of each example
    clients: int,  # number of parts
    alpha: float,  # concentration; near 0 a label sits at one client, at infinity all clients agree
    rng: np.random.Generator,  # source of all randomness
    *,
    minimum: int = 1,  # each client ends with at least this many examples
) -> Partition:
    """Split every label's examples over the clients by shares drawn from Dirichlet(alpha).

    Post: the arrays are disjoint and cover ``range(len(labels))``.
    """
    _check_feasible(len(labels), clients, minimum)
    if not (math.isfinite(alpha) and alpha > 0.0):
        raise ValueError(f"alpha must be positive and finite, got {alpha}")
    owners = _dirichlet_owners(labels, clients, alpha, rng)
    _top_up(owners, clients, minimum, rng)
    return _freeze(np.flatnonzero(owners == client) for client in range(clients))


def partition_shards(
    labels: NDArray[np.int64], clients: int, shards_each: int, rng: np.random.Generator
) -> Partition:
    """Sort the examples by label, cut them into equal shards and deal each client a few.

    Args:
        labels: int64[m], label of each example.

    Post: sizes differ by at most ``shards_each``; the arrays are disjoint and cover
    ``range(len(labels))``.
    """
    if shards_each < 1:
        raise ValueError(f"shards_each must be at least 1, got {shards_each}")
    _check_feasible(len(labels), clients, minimum=0)
    if clients * shards_each > len(labels):
        raise ValueError(
            f"shards_each = {shards_each} for {clients} clients needs {clients * shards_each} "
            f"examples, but there are {len(labels)}"
        )
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    shards = np.array_split(by_label, clients * shards_each)
    hands = rng.permutation(len(shards)).reshape(clients, shards_each)
    return _freeze(np.concatenate([shards[shard] for shard in hand]) for hand in hands)


def partition_natural(owners: NDArray[np.int64] | None, *, minimum: int = 1) -> Partition:
    """Give every example to the client that the data says it belongs to.

    Args:
        owners: int64[m], equal for examples of one client; None, as a data set without natural
            clients has it, is refused.

    Post: the arrays are disjoint, in the order of the owners' numbers.
    """
    if owners is None:
        raise ValueError("owners is None: this data set has no natural clients")
    if minimum < 1:
        raise ValueError(f"minimum must be at least 1, got {minimum}")
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order])) + 1
    parts = [part for part in np.split(order, starts) if len(part) >= minimum]
    if not parts:
        raise ValueError(f"minimum = {minimum}: no client has as many examples")
    return _freeze(parts)


def check_partition(partition: Partition, *, cohort: int) -> None:
    """See that a run can draw its cohorts from these clients."""
    if not 1 <= cohort <= len(partition):
        raise ValueError(
            f"cohort must lie between 1 and the population of {len(partition)}, got {cohort}"
        )
    empty = [client for client, part in enumerate(partition) if len(part) == 0]
    if empty:
        raise ValueError(
            f"partition: {len(empty)} of {len(partition)} clients have no examples, "
            f"the first is client {empty[0]}"
        )


def _check_feasible(count: int, clients: int, minimum: int) -> None:
    """Refuse requests that no partition can satisfy."""
    if clients < 1:
        raise ValueError(f"clients must be at least 1, got {clients}")
    if minimum < 0:
        raise ValueError(f"minimum must not be negative, got {minimum}")
    if clients * minimum > count:
        raise ValueError(
            f"{clients} clients with at least {minimum} examples each need "
            f"{clients * minimum} examples, but there are {count}"
        )


def _dirichlet_owners(
    labels: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the client of every example: int64[m]."""
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        examples = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares) * len(examples))
        # The last cut is the number of examples whatever the rounding of the sum.
        cuts[-1] = len(examples)
        owners[examples] = np.searchsorted(cuts, np.arange(len(examples)), side="right")
    return owners


def _top_up(
    owners: NDArray[np.int64], clients: int, minimum: int, rng: np.random.Generator
) -> None:
    """Move random examples from the largest to the smallest client until all have enough.

    It ends: while one client is below the minimum, the mean is not, so the largest client is
    above it, and each move shrinks the total shortfall by one.
    """
    sizes = np.bincount(owners, minlength=clients)
    while sizes.min() < minimum:
        rich, poor = int(sizes.argmax()), int(sizes.argmin())
        owners[rng.choice(np.flatnonzero(owners == rich))] = poor
        sizes[rich] -= 1
        sizes[poor] += 1


def _freeze(parts: Iterable[NDArray[np.int64]]) -> Partition:
    """Sort each part and forbid writing to it."""
    frozen = tuple(np.sort(part).astype(np.int64) for part in parts)
    for part in frozen:
        part.setflags(write=False)
    return frozen
