"""Whom to leave out when seals do not open.

Every complaint joins an upload and a member, and every true one has a corrupt end: an honest
client's seal opens for an honest member. Leaving out the ends of a vertex cover clears all of them.
The smallest one would do harm: two corrupt clients that each spoil the one seal for an honest
member make that member the smaller cover. So a member weighs w = ceil(n_C / c) clients, and the
cheapest cover is taken. It leaves out at most n_C / w <= c honest members and c w < n_C + c honest
clients (docs/one-shot-security.md has the proof). Where covers cost the same, a server may rather
lose members than uploads: then c w - 1 honest clients at most (docs/validated.md, S4).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy


def left_out(
    complaints: Mapping[int, frozenset[int]],
    corrupt_clients: int,
    corrupt_members: int,
    *,
    sparing_clients: bool = False,
) -> tuple[frozenset[int], frozenset[int]]:
    """Clients and members to leave out, so that no complaint joins two that stay.

    Args:
        sparing_clients: of covers that cost the same, to take the one with the fewest clients.
    """
    edges = sorted((client, member) for member, bad in complaints.items() for client in bad)
    if not edges:
        return frozenset(), frozenset()
    if corrupt_members == 0:
        return frozenset(client for client, _ in edges), frozenset()
    if corrupt_clients == 0:
        return frozenset(), frozenset(member for _, member in edges)
    weight = weight_of_member(corrupt_clients, corrupt_members)
    return _cheapest_cover(edges, weight, sparing_clients)


def weight_of_member(corrupt_clients: int, corrupt_members: int) -> int:
    """w: how many clients a member counts for, where there may be corrupt ones."""
    return max(-(-corrupt_clients // corrupt_members), 1)


def _cheapest_cover(
    edges: list[tuple[int, int]], weight: int, sparing_clients: bool
) -> tuple[frozenset[int], frozenset[int]]:
    """The cheapest cover of a bipartite graph, a client costing 1 and a member `weight`.

    It is a smallest cut: source to client at 1, client to member without limit, member to sink at
    `weight`. A client is cut off from the source, a member from the sink. Of all smallest cuts the
    one at the source has the most clients, the one at the sink the fewest.
    """
    clients = sorted({client for client, _ in edges})
    members = sorted({member for _, member in edges})
    row = {client: 1 + i for i, client in enumerate(clients)}
    column = {member: 1 + len(clients) + j for j, member in enumerate(members)}
    source, sink = 0, 1 + len(clients) + len(members)
    unlimited = 1 + len(clients)
    arcs = [(source, row[client], 1) for client in clients]
    arcs += [(row[client], column[member], unlimited) for client, member in edges]
    arcs += [(column[member], sink, weight) for member in members]
    start, end, capacity = (np.array(each, np.int32) for each in zip(*arcs, strict=True))
    network = scipy.sparse.csr_matrix((capacity, (start, end)), shape=(sink + 1, sink + 1))
    left = network - scipy.sparse.csgraph.maximum_flow(network, source, sink).flow
    left.eliminate_zeros()
    way, end_of_it = (left.T.tocsr(), sink) if sparing_clients else (left, source)
    found = scipy.sparse.csgraph.breadth_first_order(way, end_of_it, return_predecessors=False)
    reached = set(found.tolist())
    if sparing_clients:
        reached = set(range(sink + 1)) - reached
    return (
        frozenset(client for client in clients if row[client] not in reached),
        frozenset(member for member in members if column[member] in reached),
    )
