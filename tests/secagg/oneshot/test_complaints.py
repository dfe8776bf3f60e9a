"""Whom complaints leave out: the cheapest cover, and what it can cost honest parties."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from secagg.oneshot.complaints import left_out

Complaints = dict[int, frozenset[int]]


def weight_of(corrupt_clients: int, corrupt_members: int) -> int:
    """What leaving out a member costs, in clients: ceil(n_C / c), and at least 1."""
    return max(-(-corrupt_clients // corrupt_members), 1)


def cost(clients: frozenset[int], members: frozenset[int], weight: int) -> int:
    return len(clients) + weight * len(members)


def covers(complaints: Complaints, clients: frozenset[int], members: frozenset[int]) -> bool:
    return all(
        member in members or client in clients
        for member, bad in complaints.items()
        for client in bad
    )


def cheapest(complaints: Complaints, weight: int) -> int:
    """By trying all sets of members: each leaves exactly the clients that the others name."""
    members = sorted(complaints)
    sets = chain.from_iterable(combinations(members, k) for k in range(len(members) + 1))
    return min(
        weight * len(out)
        + len(frozenset().union(*(complaints[m] for m in members if m not in out)))
        for out in sets
    )


graphs = st.dictionaries(st.integers(0, 7), st.frozensets(st.integers(0, 9)), max_size=8)


@settings(max_examples=300)
@given(complaints=graphs, corrupt_clients=st.integers(1, 9), corrupt_members=st.integers(1, 5))
def test_a_cheapest_cover_is_left_out(
    complaints: Complaints, corrupt_clients: int, corrupt_members: int
) -> None:
    clients, members = left_out(complaints, corrupt_clients, corrupt_members)
    weight = weight_of(corrupt_clients, corrupt_members)
    assert covers(complaints, clients, members)
    assert cost(clients, members, weight) == cheapest(complaints, weight)
    event(f"members left out: {len(members)}, clients: {len(clients)}")


@settings(max_examples=300)
@given(complaints=graphs, corrupt_clients=st.integers(1, 9), corrupt_members=st.integers(1, 5))
def test_of_cheapest_covers_the_one_with_the_fewest_clients(
    complaints: Complaints, corrupt_clients: int, corrupt_members: int
) -> None:
    weight = weight_of(corrupt_clients, corrupt_members)
    few = left_out(complaints, corrupt_clients, corrupt_members, sparing_clients=True)
    many = left_out(complaints, corrupt_clients, corrupt_members)
    assert covers(complaints, *few)
    assert cost(*few, weight) == cost(*many, weight) == cheapest(complaints, weight)
    members = [member for member, bad in complaints.items() if bad]
    counts = {
        len(clients)
        for k in range(len(members) + 1)
        for out in combinations(members, k)
        if cost(
            clients := frozenset().union(*(complaints[m] for m in members if m not in out)),
            frozenset(out),
            weight,
        )
        == cheapest(complaints, weight)
    }
    assert (len(few[0]), len(many[0])) == (min(counts), max(counts))


@settings(max_examples=100)
@given(complaints=graphs, corrupt_clients=st.integers(0, 9))
def test_if_no_member_is_corrupt_complaints_are_true(
    complaints: Complaints, corrupt_clients: int
) -> None:
    clients, members = left_out(complaints, corrupt_clients, 0)
    assert clients == frozenset().union(*complaints.values())
    assert members == frozenset()


@settings(max_examples=100)
@given(complaints=graphs, corrupt_members=st.integers(1, 5))
def test_if_no_client_is_corrupt_complaints_are_false(
    complaints: Complaints, corrupt_members: int
) -> None:
    clients, members = left_out(complaints, 0, corrupt_members)
    assert clients == frozenset()
    assert members == {member for member, bad in complaints.items() if bad}


@pytest.mark.parametrize("corrupt_members", [0, 2])
def test_nobody_is_left_out_without_complaints(corrupt_members: int) -> None:
    for complaints in ({}, {0: frozenset()}, {3: frozenset(), 5: frozenset()}):
        assert left_out(complaints, 3, corrupt_members) == (frozenset(), frozenset())


def test_large_numbers_of_parties() -> None:
    """Numbers of parties have nothing to do with positions in the graph."""
    complaints = {4000: frozenset({1 << 20, 7}), 9: frozenset({1 << 20})}
    clients, members = left_out(complaints, 1, 1)
    assert cost(clients, members, 1) == 2
    assert covers(complaints, clients, members)


# -- what honest parties can be made to pay -------------------------------------------------------


@st.composite
def adversaries(draw: st.DrawFn) -> tuple[Complaints, int, int, int, int]:
    """Complaints with a corrupt end each: honest seals open for honest members.

    Corrupt clients are 0 .. n_C - 1 and corrupt members 0 .. c - 1; whoever is honest follows.
    """
    corrupt_clients = draw(st.integers(0, 6))
    corrupt_members = draw(st.integers(0, 4))
    honest_clients = draw(st.integers(1, 8))
    honest_members = draw(st.integers(1, 6))
    bad_clients = st.just(frozenset[int]())
    if corrupt_clients:
        bad_clients = st.frozensets(st.integers(0, corrupt_clients - 1))
    complaints: Complaints = {}
    for member in range(corrupt_members):
        everybody = st.integers(0, corrupt_clients + honest_clients - 1)
        complaints[member] = draw(st.frozensets(everybody))
    for member in range(corrupt_members, corrupt_members + honest_members):
        complaints[member] = draw(bad_clients)
    return complaints, corrupt_clients, corrupt_members, honest_clients, honest_members


@settings(max_examples=300)
@given(case=adversaries())
def test_few_honest_parties_are_left_out(case: tuple[Complaints, int, int, int, int]) -> None:
    """At most n_C / w <= c honest members, and c w < n_C + c honest clients."""
    complaints, n_c, c, _, _ = case
    clients, members = left_out(complaints, n_c, c)
    lost_clients = [client for client in clients if client >= n_c]
    lost_members = [member for member in members if member >= c]
    event(f"honest members left out: {len(lost_members)}, clients: {len(lost_clients)}")
    if c == 0:
        assert (lost_clients, lost_members) == ([], [])
        return
    weight = weight_of(n_c, c)
    assert len(lost_members) * weight <= n_c
    assert len(lost_members) <= c
    assert len(lost_clients) <= c * weight
    assert len(lost_clients) < max(n_c + c, c + 1)


def spoiling(honest_members: int, spoilers: int, corrupt_members: int) -> Complaints:
    """Groups of corrupt clients that each spoil the one seal for one honest member."""
    complaints = {corrupt_members + m: frozenset(range(m * spoilers, (m + 1) * spoilers))
                  for m in range(honest_members)}  # fmt: skip
    return {**{m: frozenset() for m in range(corrupt_members)}, **complaints}


def test_a_hundred_clients_cannot_rid_a_committee_of_fifty() -> None:
    """Two for each honest member: the unweighted smallest cover, the twin, is the whole committee.

    Weighted by ceil(n_C / c) = 10 the clients go.
    """
    complaints = spoiling(50, 2, 10)
    clients, members = left_out(complaints, 100, 10)
    assert (clients, members) == (frozenset(range(100)), frozenset())
    # The same function with as many corrupt members as clients gives every member weight 1.
    clients, members = left_out(complaints, 100, 100)
    assert (clients, members) == (frozenset(), frozenset(range(10, 60)))


@pytest.mark.parametrize(("n_c", "c"), [(6, 2), (9, 3), (10, 3), (4, 1), (100, 10)])
def test_the_bound_on_members_is_reached_and_the_twin_breaks_it(n_c: int, c: int) -> None:
    """As many clients as a member weighs, and one more, for each honest member."""
    weight = weight_of(n_c, c)
    groups = n_c // (weight + 1)
    _, members = left_out(spoiling(groups, weight + 1, c), n_c, c)
    assert len(members) == groups <= c
    # Two for each: unweighted, half of the corrupt clients' number of honest members go.
    pairs = spoiling(n_c // 2, 2, c)
    assert len(left_out(pairs, n_c, n_c)[1]) == n_c // 2
    assert len(left_out(pairs, n_c, c)[1]) <= c
    assert n_c // 2 > c


def test_corrupt_members_cannot_evict_many_honest_clients() -> None:
    """Two corrupt members that complain about everybody are left out themselves."""
    everybody, corrupt = frozenset(range(4, 40)), frozenset(range(4))
    complaints = {0: everybody, 1: everybody, 2: corrupt, 3: corrupt, 4: corrupt}
    clients, members = left_out(complaints, 4, 2)
    assert (clients, members) == (frozenset(range(4)), frozenset({0, 1}))
    # Fewer than a member weighs are lost, and the members stay.
    complaints = {0: frozenset({4}), 1: frozenset({5})}
    clients, members = left_out(complaints, 4, 2)
    assert (clients, members) == (frozenset({4, 5}), frozenset())
