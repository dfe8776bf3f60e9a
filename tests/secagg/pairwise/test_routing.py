"""Every sealed share goes to its holder, and to nobody else."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.pairwise.graph import CompleteGraph, Graph, build_graph
from secagg.pairwise.routing import route

SEED = bytes(range(32))


def share(owner: int, holder: int) -> bytes:
    return bytes([owner, holder]) * 2 + b"."


def bundles(graph: Graph, owners: Collection[int]) -> dict[int, bytes]:
    """What each owner sends: a share for every other holder, in order."""
    return {
        owner: b"".join(share(owner, holder) for holder in graph.holders(owner) if holder != owner)
        for owner in owners
    }


def expected(graph: Graph, owners: Collection[int]) -> dict[int, bytes]:
    return {
        holder: b"".join(
            share(owner, holder)
            for owner in sorted(owners)
            if owner != holder and holder in graph.holders(owner)
        )
        for holder in owners
    }


@given(data=st.data())
def test_what_arrives_was_sealed_for_the_recipient(data: st.DataObject) -> None:
    members = tuple(sorted(data.draw(st.sets(st.integers(0, 250), min_size=2, max_size=40))))
    degree = data.draw(st.sampled_from([0, 2, 4, 6, 38]))
    graph = build_graph(members, degree, SEED)
    owners = data.draw(st.permutations(members))[: data.draw(st.integers(0, len(members)))]
    assert route(bundles(graph, owners), graph) == expected(graph, owners)


@pytest.mark.parametrize("own_shares", [True, False])
def test_shares_for_those_who_went_away_are_left_out(own_shares: bool) -> None:
    graph = CompleteGraph((2, 3, 5, 9), own_shares=own_shares)
    routed = route(bundles(graph, (9, 3)), graph)
    assert routed == {3: share(9, 3), 9: share(3, 9)}
    assert route(bundles(graph, (5,)), graph) == {5: b""}
    assert route({}, graph) == {}


def test_a_party_without_others_gets_nothing() -> None:
    assert route({4: b""}, CompleteGraph((4,))) == {4: b""}


def test_in_order_of_the_recipients() -> None:
    graph = build_graph(tuple(range(12)), 4, SEED)
    assert list(route(bundles(graph, range(12)[::-1]), graph)) == list(range(12))
