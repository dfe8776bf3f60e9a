"""Degree and threshold of sparse graphs: published values, and the conditions by exact counting."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb, floor

import pairwise_rounds as kit
import pytest

from secagg import Mode, ParameterError
from secagg.pairwise.graph_parameters import (
    Adversary,
    GraphParameters,
    choose_graph,
    most_corrupt_neighbours,
    semi_malicious_bound,
    stays_connected,
)

HONEST, MALICIOUS = Adversary.SEMI_HONEST, Adversary.SEMI_MALICIOUS
CORRECT = Fraction(1, 2**20)

PUBLISHED = [
    (1_000, 0.33, 0.33, HONEST, 286, 150),
    (10_000, 0.33, 0.33, HONEST, 422, 221),
    (1_000, 0.05, 0.33, HONEST, 72, 24),
    (1_000, 0.05, 0.33, MALICIOUS, 398, 223),
    (1_000, 0.05, 0.05, HONEST, 30, 17),
    (1_000, 0.05, 0.05, MALICIOUS, 52, 37),
    (100, 0.05, 0.05, HONEST, 12, 6),
]


@pytest.mark.parametrize(
    ("n", "gamma", "delta", "adversary", "k", "t"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[4] > 300 else []) for case in PUBLISHED],
)
def test_published_values(
    n: int, gamma: float, delta: float, adversary: Adversary, k: int, t: int
) -> None:
    """Those of the authors' implementation."""
    assert choose_graph(n, gamma, delta, adversary, security_bits=40) == GraphParameters(k, t)


def more_than(count: int, n: int, marked: int, drawn: int) -> Fraction:
    """P[more than `count` marked ones among `drawn` of n], exactly."""
    ways = sum(
        comb(marked, i) * comb(n - marked, drawn - i)
        for i in range(count + 1, min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(n, drawn))


def cut_bound(n: int, lost: int, k: int) -> Fraction:
    """Union bound: two runs of k/2 on the ring, for each pair of places, all of them lost."""
    return Fraction(n * (n - k - 1), 2) * Fraction(comb(lost, k), comb(n, k))


def private(bits: int) -> Fraction:
    """Share of the failures for one of two conditions."""
    return Fraction(1, 2 ** (bits + 1))


def feasible(
    n: int, gamma: float, delta: float, adversary: Adversary, k: int, bits: int
) -> tuple[bool, int]:
    """Whether degree k will do, and the lowest safe threshold, by exact counting."""
    corrupt, dropped = floor(gamma * n + 1e-9), floor(delta * n + 1e-9)
    connected = cut_bound(n, corrupt + dropped, k) < private(bits)
    lowest = next(c for c in range(k + 1) if n * more_than(c, n, corrupt, k) <= private(bits))
    if adversary is MALICIOUS:
        lowest = ceil(Fraction(4 * (lowest + k) - 5, 8))
    # Fewer than lowest + 1 neighbours survive: more than k - lowest - 1 are dropped.
    dead = n - ceil((1 - delta) * n)
    correct = n * more_than(k - lowest - 1, n, dead, k) <= CORRECT
    return connected and correct, max(lowest + 1, 2)


EXACT = [case for case in PUBLISHED if case[0] <= 1_000 and case[4] < 100] + [
    (100, 0.1, 0.2, MALICIOUS, 0, 0),
    (40, 0.05, 0.1, HONEST, 0, 0),
    (300, 0.2, 0.1, HONEST, 0, 0),
]


@pytest.mark.parametrize("bits", [40, 80, 128, 160])
@pytest.mark.parametrize(("n", "gamma", "delta", "adversary"), [case[:4] for case in EXACT])
def test_the_conditions_hold_exactly_and_for_no_smaller_degree(
    n: int, gamma: float, delta: float, adversary: Adversary, bits: int
) -> None:
    try:
        chosen = choose_graph(n, gamma, delta, adversary, security_bits=bits)
    except ParameterError:
        assert (n, bits) == (40, 128)
        return
    assert feasible(n, gamma, delta, adversary, chosen.degree, bits) == (True, chosen.threshold)
    for smaller in range(2, chosen.degree, 2):
        assert not feasible(n, gamma, delta, adversary, smaller, bits)[0]


@pytest.mark.parametrize("bits", [1, 40, 80, 128, 160])
@pytest.mark.parametrize("n", [10, 100, 1_000])
def test_corrupt_neighbours_by_exact_counting(n: int, bits: int) -> None:
    for corrupt in (0, 1, n // 20, n // 3):
        for k in (2, n // 5 // 2 * 2, n // 2 // 2 * 2):
            c = most_corrupt_neighbours(n, corrupt, k, bits)
            assert n * more_than(c, n, corrupt, k) <= private(bits)
            assert c == 0 or n * more_than(c - 1, n, corrupt, k) > private(bits)
            assert c <= min(corrupt, k)


@pytest.mark.parametrize("bits", [1, 40, 80, 128, 160])
@pytest.mark.parametrize("n", [10, 100, 1_000])
def test_connected_by_exact_counting(n: int, bits: int) -> None:
    for lost in {0, 1, n // 20, n // 3, n // 2, n - 1}:
        for k in range(2, n, 2 if n <= 100 else 38):
            expected = k >= n - 1 or cut_bound(n, lost, k) < private(bits)
            assert stays_connected(n, lost, k, bits) == expected, (lost, k)


@pytest.mark.parametrize("k", range(2, 40, 2))
def test_only_one_of_two_groups_reaches_the_threshold(k: int) -> None:
    """With c corrupt neighbours in both, k - c honest ones in one: 2 t > k + c, and tightly."""
    for c in range(k + 1):
        t = semi_malicious_bound(c, k) + 1
        assert 2 * t > k + c >= 2 * (t - 1)


SHARES = [0.0, 0.01, 0.05, 0.1, 0.2, 0.3]


@pytest.mark.parametrize("adversary", list(Adversary))
@pytest.mark.parametrize("n", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_a_worse_world_needs_more_neighbours(n: int, adversary: Adversary) -> None:
    def degree(corrupt: float, dropout: float) -> float:
        try:
            return choose_graph(n, corrupt, dropout, adversary).degree
        except ParameterError:
            return float("inf")

    table = {(c, d): degree(c, d) for c in SHARES for d in SHARES}
    for low, high in pairwise(SHARES):
        for other in SHARES:
            assert table[low, other] <= table[high, other]
            assert table[other, low] <= table[other, high]
    assert len(set(table.values())) > 10


@pytest.mark.parametrize("shares", [(0.05, 0.05), (0.1, 0.2), (0.33, 0.1)])
def test_a_malicious_server_needs_more_than_a_curious_one(shares: tuple[float, float]) -> None:
    curious, malicious = (choose_graph(1_000, *shares, adversary) for adversary in Adversary)
    assert malicious.degree >= curious.degree
    assert malicious.threshold > curious.threshold


def test_the_degree_grows_with_the_logarithm_of_the_cohort() -> None:
    degrees = [choose_graph(n, 0.1, 0.1, HONEST).degree for n in (300, 1_000, 10_000, 100_000)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 2 * degrees[0]


@pytest.mark.parametrize("adversary", list(Adversary))
@pytest.mark.parametrize("n", [5, 8, 9, 10, 11, 21, 40, 100])
@pytest.mark.parametrize("shares", [(0.0, 0.1), (0.1, 0.1), (0.3, 0.3)])
def test_every_choice_makes_a_context(
    n: int, shares: tuple[float, float], adversary: Adversary
) -> None:
    try:
        chosen = choose_graph(n, *shares, adversary)
    except ParameterError:
        return
    corrupt, dropped = (floor(share * n + 1e-9) for share in shares)
    context = kit.context(
        n,
        Mode.ACTIVE if adversary is MALICIOUS else Mode.SEMI_HONEST,
        degree=chosen.degree,
        threshold=chosen.threshold,
        tolerated_colluders=corrupt,
        # A context wants t honest survivors; in small cohorts that is more than stay.
        minimum_survivors=max(n - dropped, min(n, chosen.threshold + max(corrupt, 1))),
    )
    assert context.degree == chosen.degree


@pytest.mark.parametrize("share", [0.29, 0.57, 0.58])
def test_a_share_that_means_whole_clients_gives_them(share: float) -> None:
    """0.29 x 100 is 28.999999999999996 in doubles."""
    exact = choose_graph(100, share, 0.0, HONEST)
    above = choose_graph(100, share + 1e-6, 0.0, HONEST)
    below = choose_graph(100, share - 1e-6, 0.0, HONEST)
    assert exact == above
    # One corrupt client less is another graph: so the comparison can tell them apart.
    assert exact != below


@pytest.mark.parametrize(
    ("request_", "argument", "advice"),
    [
        ((2, 0.1, 0.1, HONEST), "clients", "at least 3"),
        ((0, 0.1, 0.1, HONEST), "clients", "at least 3"),
        ((100, -0.1, 0.1, HONEST), "corrupt", "0 .. 1"),
        ((100, 1.0, 0.1, HONEST), "corrupt", "0 .. 1"),
        ((100, float("nan"), 0.1, HONEST), "corrupt", "0 .. 1"),
        ((100, 0.1, -0.1, HONEST), "dropout", "0 .. 1"),
        ((100, 0.1, 1.0, MALICIOUS), "dropout", "0 .. 1"),
        ((100, 0.5, 0.45, HONEST), "corrupt, dropout", "at most 0.9"),
        ((100, 0.1, 0.45, MALICIOUS), "corrupt, dropout", "2 x dropout at most 0.9"),
        ((10, 0.4, 0.4, HONEST), "clients, corrupt, dropout", "complete graph"),
        ((20, 0.3, 0.3, MALICIOUS), "clients, corrupt, dropout", "more clients"),
    ],
)
def test_infeasible_requests_say_what_to_change(
    request_: tuple[int, float, float, Adversary], argument: str, advice: str
) -> None:
    with pytest.raises(ParameterError, match=advice) as raised:
        choose_graph(*request_)
    assert raised.value.argument == argument


def test_what_only_sparse_graphs_need_is_loaded_for_them_only() -> None:
    """It takes longer than all the rest, and hosts start a process for every message."""
    code = "import sys, protocol; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "False\n"
