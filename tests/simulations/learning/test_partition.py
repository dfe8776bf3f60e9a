"""Partitions: disjoint covers, minima, shards, natural clients, Dirichlet shares, refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulations.learning.partition import (
    Partition,
    check_partition,
    partition_dirichlet,
    partition_iid,
    partition_natural,
    partition_shards,
)


def rng(seed: int = 0) -> np.random.Generator:
    """Return a fresh generator."""
    return np.random.default_rng(seed)


def digits(count: int = 1400) -> NDArray[np.int64]:
    """Return labels 0..9 in turn."""
    return np.arange(count, dtype=np.int64) % 10


def assert_covers(partition: Partition, count: int) -> None:
    """Assert that every index below count belongs to exactly one part."""
    together = np.concatenate(partition)
    assert together.dtype == np.int64
    assert np.array_equal(np.sort(together), np.arange(count))


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 300),
    clients=st.integers(1, 40),
    minimum=st.integers(0, 5),
    alpha=st.sampled_from([0.01, 0.3, 1.0, 100.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_feasible_request_is_a_disjoint_cover_with_the_minimum(
    count: int, clients: int, minimum: int, alpha: float, seed: int
) -> None:
    labels = rng(seed).integers(0, 4, size=count)
    if clients * minimum > count:
        with pytest.raises(ValueError, match="examples"):
            partition_dirichlet(labels, clients, alpha, rng(seed), minimum=minimum)
        return
    for partition in (
        partition_dirichlet(labels, clients, alpha, rng(seed), minimum=minimum),
        partition_iid(count, clients, rng(seed), minimum=minimum),
    ):
        assert len(partition) == clients
        assert min(map(len, partition)) >= minimum
        assert_covers(partition, count)


def test_iid_sizes_differ_by_at_most_one() -> None:
    sizes = {len(part) for part in partition_iid(103, 10, rng())}
    assert sizes == {10, 11}


def test_iid_is_shuffled() -> None:
    first = partition_iid(100, 4, rng())[0]
    assert not np.array_equal(first, np.arange(25))


def test_tight_minimum_is_met_exactly() -> None:
    partition = partition_dirichlet(digits(60), 20, 0.05, rng(), minimum=3)
    assert {len(part) for part in partition} == {3}


def test_one_client_takes_everything() -> None:
    (part,) = partition_dirichlet(digits(30), 1, 0.5, rng())
    assert np.array_equal(part, np.arange(30))


def test_missing_labels_are_no_trouble() -> None:
    labels = np.full(50, 7, dtype=np.int64)
    assert_covers(partition_dirichlet(labels, 5, 1.0, rng()), 50)


def label_counts(partition: Partition, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the examples of every label at every client: int64[clients, 10]."""
    return np.stack([np.bincount(labels[part], minlength=10) for part in partition])


def largest_label_share(alpha: float) -> float:
    """Return the mean, over clients, of the share of a client's most frequent label."""
    labels = digits(4000)
    counts = label_counts(partition_dirichlet(labels, 20, alpha, rng(5)), labels)
    shares: NDArray[np.float64] = counts.max(axis=1) / counts.sum(axis=1)
    return float(shares.mean())


def test_small_alpha_concentrates_labels_and_large_alpha_does_not() -> None:
    assert largest_label_share(0.05) > 0.5
    assert largest_label_share(0.5) > 0.25
    assert largest_label_share(1000.0) < 0.13


@pytest.mark.statistical
@pytest.mark.slow
def test_dirichlet_shares_have_the_right_spread() -> None:
    """The share of a symmetric Dirichlet has variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    clients, alpha, repeats, count = 5, 2.0, 4000, 10_000
    labels, source = np.zeros(count, dtype=np.int64), rng(11)
    shares = np.array(
        [
            len(partition_dirichlet(labels, clients, alpha, source, minimum=0)[0]) / count
            for _ in range(repeats)
        ]
    )
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    # The share is Beta(2, 8): the standard error of the sample variance is
    # variance * sqrt((kurtosis - 1) / repeats) with kurtosis 3.08, and 4.89 standard errors
    # leave alpha = 1e-6.
    assert abs(shares.var() - expected) < 4.89 * expected * np.sqrt(2.08 / repeats)
    assert abs(shares.mean() - 1 / clients) < 4.89 * np.sqrt(expected / repeats)


def test_same_seed_same_partition() -> None:
    first = partition_dirichlet(digits(), 50, 0.5, rng(3), minimum=4)
    second = partition_dirichlet(digits(), 50, 0.5, rng(3), minimum=4)
    other = partition_dirichlet(digits(), 50, 0.5, rng(4), minimum=4)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_parts_are_sorted_and_read_only() -> None:
    part = partition_dirichlet(digits(), 10, 1.0, rng())[0]
    assert (np.diff(part) > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 0


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 300),
    clients=st.integers(1, 40),
    shards_each=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_shards_are_a_disjoint_cover_of_even_sizes(
    count: int, clients: int, shards_each: int, seed: int
) -> None:
    labels = rng(seed).integers(0, 4, size=count)
    if clients * shards_each > count:
        with pytest.raises(ValueError, match="shards_each"):
            partition_shards(labels, clients, shards_each, rng(seed))
        return
    partition = partition_shards(labels, clients, shards_each, rng(seed))
    sizes = [len(part) for part in partition]
    assert len(partition) == clients and max(sizes) - min(sizes) <= shards_each
    assert_covers(partition, count)


def test_two_shards_hold_two_labels_when_shards_fit_into_labels() -> None:
    labels = rng().permutation(digits(2000))
    counts = label_counts(partition_shards(labels, 50, 2, rng()), labels)
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert (counts.sum(axis=1) == 40).all()


def test_shards_are_dealt_at_random_and_repeat_with_the_seed() -> None:
    first, second = (partition_shards(digits(), 20, 2, rng(3)) for _ in range(2))
    other = partition_shards(digits(), 20, 2, rng(4))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=80))
def test_natural_clients_are_the_owners_in_order(numbers: list[int]) -> None:
    owners = np.array(numbers, dtype=np.int64)
    partition = partition_natural(owners)
    assert_covers(partition, len(owners))
    assert [owners[part[0]] for part in partition] == sorted(set(numbers))
    assert all(len(set(owners[part].tolist())) == 1 for part in partition)


def test_small_natural_clients_are_left_out() -> None:
    owners = np.array([5, 3, 5, 9, 5, 3], dtype=np.int64)
    assert [part.tolist() for part in partition_natural(owners, minimum=2)] == [[1, 5], [0, 2, 4]]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: partition_dirichlet(digits(), 10, 0.0, rng()), "alpha must be positive"),
        (lambda: partition_dirichlet(digits(), 10, -1.0, rng()), "alpha must be positive"),
        (lambda: partition_dirichlet(digits(), 10, np.inf, rng()), "alpha must be positive"),
        (lambda: partition_dirichlet(digits(), 10, np.nan, rng()), "alpha must be positive"),
        (lambda: partition_iid(10, 0, rng()), "clients must be at least 1, got 0"),
        (lambda: partition_iid(10, 2, rng(), minimum=-1), "minimum must not be negative, got -1"),
        (
            lambda: partition_iid(14, 5, rng(), minimum=3),
            "5 clients with at least 3 examples each need 15",
        ),
        (lambda: partition_shards(digits(), 10, 0, rng()), "shards_each must be at least 1, got 0"),
        (lambda: partition_shards(digits(), 0, 2, rng()), "clients must be at least 1, got 0"),
        (
            lambda: partition_shards(digits(11), 4, 3, rng()),
            "shards_each = 3 for 4 clients needs 12 examples",
        ),
        (lambda: partition_natural(None), "no natural clients"),
        (lambda: partition_natural(digits(), minimum=0), "minimum must be at least 1, got 0"),
        (lambda: partition_natural(digits(1400), minimum=141), "minimum = 141"),
    ],
)
def test_what_cannot_be_divided_is_refused(make: Callable[[], Partition], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_cohorts_need_enough_clients_and_every_client_examples() -> None:
    partition = partition_iid(5, 8, rng(), minimum=0)
    for cohort in (0, 9):
        with pytest.raises(ValueError, match=f"cohort .* population of 8, got {cohort}"):
            check_partition(partition, cohort=cohort)
    with pytest.raises(ValueError, match="3 of 8 clients have no examples, the first is client 5"):
        check_partition(partition, cohort=8)
    check_partition(partition[:5], cohort=5)
