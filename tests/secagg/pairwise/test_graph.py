"""The two graphs, the order of the ring, and that nobody's secrets are held too widely."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pairwise_rounds as kit
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy.stats import chisquare

from secagg import Mode, ParameterError, lowest_threshold
from secagg.pairwise.graph import CompleteGraph, HararyGraph, build_graph, random_order
from secagg.tags import Usage, derive

SEED = bytes(range(32))
MEMBERS = {
    "all": tuple(range(11)),
    "some": (0, 2, 3, 5, 7, 11, 13, 64, 65, 200, 1_000),
    "large": tuple(range(0, 300, 3)),
}


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
@pytest.mark.parametrize("degree", [0, 2, 4, 8, 10, 12, 98, 400])
def test_graphs_are_symmetric_and_regular(members: tuple[int, ...], degree: int) -> None:
    graph = build_graph(members, degree, SEED)
    sparse = 0 < degree < len(members) - 1
    assert graph.members == members
    for u in members:
        neighbours = graph.neighbours(u)
        assert len(neighbours) == (degree if sparse else len(members) - 1)
        assert neighbours == tuple(sorted(set(neighbours)))
        assert u not in neighbours
        assert set(neighbours) <= set(members)
        assert all(u in graph.neighbours(v) for v in neighbours)
        assert all(u in graph.holders(v) for v in graph.holders(u))
        # On the complete graph of the original protocol everybody holds a share of its own, too.
        assert set(graph.holders(u)) == {*neighbours, *([] if degree else [u])}


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
@pytest.mark.parametrize("degree", [2, 4, 8])
def test_neighbours_are_those_next_on_the_ring(members: tuple[int, ...], degree: int) -> None:
    graph = HararyGraph(members, degree, SEED)
    ring = random_order(members, SEED, Usage.GRAPH)
    doubled = ring * 3
    for place, u in enumerate(ring):
        middle = place + len(ring)
        around = doubled[middle - degree // 2 : middle + degree // 2 + 1]
        assert set(graph.neighbours(u)) == set(around) - {u}


@pytest.mark.parametrize("count", range(1, 13))
def test_complete_as_long_as_the_ring_would_meet_itself(count: int) -> None:
    members = tuple(range(count))
    for degree in range(2, 13, 2):
        kind = HararyGraph if count > degree + 1 else CompleteGraph
        assert isinstance(build_graph(members, degree, SEED), kind)


def test_order_of_the_ring_vector() -> None:
    assert random_order(range(12), SEED, Usage.GRAPH) == (2, 0, 9, 4, 10, 7, 11, 1, 8, 5, 6, 3)


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
@pytest.mark.parametrize("seed", [SEED, bytes(32)])
def test_order_of_the_ring_by_hand(members: tuple[int, ...], seed: bytes) -> None:
    """AES in counter mode is AES of the counter; a member's key does not depend on the others."""
    block = Cipher(AES(derive(seed, Usage.GRAPH, 32)), ECB())  # noqa: S305 - one block at a time

    def key(u: int) -> int:
        return int.from_bytes(block.encryptor().update(u.to_bytes(16, "big"))[:8], "little")

    assert random_order(members, seed, Usage.GRAPH) == tuple(
        sorted(members, key=lambda u: (key(u), u))
    )


def looks_uniform(counts: Counter[object], outcomes: int, alpha: float) -> bool:
    """Pearson's test: whether all outcomes are equally likely."""
    never = [0] * (outcomes - len(counts))
    return bool(chisquare([*counts.values(), *never]).pvalue >= alpha)


@pytest.mark.statistical
def test_every_order_is_equally_likely() -> None:
    orders = list(permutations((3, 4, 8, 9, 20)))
    seeds = [b"order %d" % i for i in range(100 * len(orders))]
    drawn = Counter(random_order((3, 4, 8, 9, 20), seed, Usage.GRAPH) for seed in seeds)
    assert looks_uniform(drawn, len(orders), kit.ALPHA)
    # Two bits of each key would leave ties, which go to the lower index.
    keys = [derive(seed, Usage.GRAPH, 5) for seed in seeds]
    broken = Counter(tuple(sorted(range(5), key=lambda u, k=k: (k[u] % 4, u))) for k in keys)  # type: ignore[misc]
    assert not looks_uniform(broken, len(orders), kit.ALPHA)


@pytest.mark.statistical
def test_distance_on_a_large_ring_is_uniform() -> None:
    """How far apart two given members stand decides whether they are neighbours."""
    size, drawn, broken = 41, Counter[object](), Counter[object]()
    for i in range(200 * (size - 1)):
        ring = random_order(range(size), b"distance %d" % i, Usage.GRAPH)
        drawn[(ring.index(7) - ring.index(30)) % size] += 1
        # One cut of the pack instead of a shuffle.
        cut = ring[0]
        broken[(7 + cut - 30 - cut) % size] += 1
    assert looks_uniform(drawn, size - 1, kit.ALPHA)
    assert not looks_uniform(broken, size - 1, kit.ALPHA)


@pytest.mark.parametrize("n", range(4, 15))
def test_no_two_groups_of_holders_reach_the_threshold(n: int) -> None:
    """The rule that keeps an active server from getting both secrets of one client.

    Honest holders belong to one group, corrupt ones to both; whatever the size of the roster. Few
    members are a case of their own: the graph is complete, but the threshold is a sparse one.
    """
    tried = 0
    for degree in range(0, n - 1, 2):
        for colluders in range(n - 1):
            t = lowest_threshold(n, colluders, Mode.ACTIVE, degree)
            for minimum in range(t, n + 1):
                try:
                    context = kit.context(
                        n,
                        degree=degree,
                        tolerated_colluders=colluders,
                        threshold=t,
                        minimum_survivors=minimum,
                    )
                except ParameterError:
                    continue
                for size in range(minimum, n + 1):
                    graph = build_graph(tuple(range(size)), degree, context.hash)
                    holders = graph.holders(0)
                    corrupt = min(colluders, len(set(holders) - {0}))
                    assert 2 * t > len(holders) + corrupt, (degree, colluders, minimum, size)
                    assert len(holders) >= t, (degree, colluders, minimum, size)
                    tried += 1
    assert tried > n
