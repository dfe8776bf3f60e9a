"""Whom to leave out when seals do not open.

Every complaint joins an upload and a member, and every true one has a corrupt end: an honest client's
seal opens for an honest member. So whoever has more complaints against it than there can be corrupt
parties on the other side is corrupt. What is left is cleared by leaving out as few as possible: a
smallest vertex cover of a bipartite graph, by König's theorem from a largest matching.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching


def left_out(
    complaints: Mapping[int, frozenset[int]], corrupt_clients: int, corrupt_members: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Clients and members to leave out, so that no complaint joins two that stay.

    Args:
        complaints: by member, the clients whose seals it could not open.
        corrupt_clients: n_C.
        corrupt_members: c.

    Returns:
        Clients, members.
    """
    members = {m for m, bad in complaints.items() if len(bad) > corrupt_clients}
    counts: dict[int, int] = {}
    for member, bad in complaints.items():
        if member not in members:
            for client in bad:
                counts[client] = counts.get(client, 0) + 1
    clients = {client for client, count in counts.items() if count > corrupt_members}
    edges = sorted(
        (client, member)
        for member, bad in complaints.items()
        if member not in members
        for client in bad - clients
    )
    more_clients, more_members = _smallest_cover(edges)
    return frozenset(clients | more_clients), frozenset(members | more_members)


def _smallest_cover(edges: list[tuple[int, int]]) -> tuple[set[int], set[int]]:
    """A smallest set of ends that touches every edge.

    König: from the unmatched clients, walk along any edge to members and back along matched edges;
    the members reached and the clients not reached are a smallest cover.
    """
    clients = sorted({client for client, _ in edges})
    members = sorted({member for _, member in edges})
    if not edges:
        return set(), set()
    row = {client: i for i, client in enumerate(clients)}
    column = {member: j for j, member in enumerate(members)}
    rows = [row[client] for client, _ in edges]
    columns = [column[member] for _, member in edges]
    graph = csr_matrix(
        (np.ones(len(edges), np.int8), (rows, columns)), (len(clients), len(members))
    )
    matched = maximum_bipartite_matching(graph, perm_type="column")
    owner = {int(j): i for i, j in enumerate(matched) if j >= 0}
    reached = {i for i, j in enumerate(matched) if j < 0}
    seen: set[int] = set()
    todo = list(reached)
    while todo:
        i = todo.pop()
        for j in graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist():
            if j not in seen:
                seen.add(j)
                partner = owner[j]
                if partner not in reached:
                    reached.add(partner)
                    todo.append(partner)
    return {clients[i] for i in range(len(clients)) if i not in reached}, {members[j] for j in seen}
