"""What a deployment needs: the graph, its threshold, and the bytes on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.round.setup import announcement_bytes
from secagg import Mode, ParameterError, PrimeField, lowest_threshold
from secagg.pairwise.committee import choose_committee
from secagg.pairwise.context import fewest_survivors
from secagg.pairwise.graph_parameters import (
    SECURITY_BITS,
    Adversary,
    choose_graph,
    share_of,
    smallest_graph,
)
from secagg.pairwise.traffic import client_traffic

COMPLETE_UP_TO = 200
"""Smaller cohorts use the complete graph: its guarantee is plainer and its cost still low."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """A graph for secure aggregation and what it costs each client.

    Attributes:
        degree: k; 0 for the complete graph.
        threshold: t.
        colluders: clients that may work for the server.
        minimum_survivors: of a round.
        security_bits: of a sparse graph and its committee.
        bytes_each: by part, sent and received by a client that finishes a round.
    """

    degree: int
    threshold: int
    colluders: int
    minimum_survivors: int
    security_bits: int
    bytes_each: dict[str, int]


def plan_graph(
    clients: int,
    corrupt: float,
    dropout: float,
    mode: Mode,
    *,
    sparse: bool | None = None,
    length: int = 0,
    bits: int = 24,
    seeds: int = 0,
    security_bits: int = SECURITY_BITS,
) -> GraphPlan:
    """Choose a graph.

    Args:
        length: elements of a vector, for the bytes.
    """
    colluders, lost = share_of(clients, corrupt), share_of(clients, dropout)
    if sparse is None:
        sparse = clients > COMPLETE_UP_TO
    if sparse:
        graph = choose_graph(
            clients, corrupt, dropout, _adversary(mode), security_bits=security_bits
        )
        degree, threshold = graph.degree, graph.threshold
    else:
        degree, threshold = 0, lowest_threshold(clients, colluders, mode)
    fewest = fewest_survivors(threshold, colluders, degree)
    if clients - lost < fewest:
        raise ParameterError(
            "dropout",
            dropout,
            f"smaller, or corrupt = {corrupt:g} smaller: for {colluders} corrupt clients and "
            f"{lost} dropouts the threshold is {threshold}, and {fewest} of {clients} clients "
            f"must survive",
        )
    return price_graph(
        clients,
        colluders,
        lost,
        mode,
        degree,
        threshold,
        length=length,
        bits=bits,
        seeds=seeds,
        security_bits=security_bits,
    )


def price_graph(
    clients: int,
    colluders: int,
    lost: int,
    mode: Mode,
    degree: int,
    threshold: int,
    *,
    length: int,
    bits: int,
    seeds: int,
    security_bits: int = SECURITY_BITS,
) -> GraphPlan:
    """What a chosen graph costs each client; arguments as for `plan_graph`, in clients."""
    quorum = threshold
    if degree:
        quorum = choose_committee(clients, colluders, clients - lost, security_bits).quorum
    packed, peers = PrimeField(bits).packed_bytes(length), degree or clients - 1
    traffic = client_traffic(clients, peers, quorum, mode, packed, seeds, seeds)
    bytes_each = traffic.announced(announcement_bytes(clients)).each
    if not length:
        bytes_each["vector"] = 0
    return GraphPlan(
        degree=degree,
        threshold=threshold,
        colluders=colluders,
        minimum_survivors=clients - lost,
        security_bits=security_bits,
        bytes_each=bytes_each,
    )


def default_graph(
    size: int, colluders: int, lost: int, mode: Mode, security_bits: int = SECURITY_BITS
) -> tuple[int, int]:
    """Degree and threshold for a cohort: the complete graph, or a sparse one for a large cohort.

    Where no sparse graph is secure, large cohorts use the complete one too.
    """
    if size > COMPLETE_UP_TO:
        graph = smallest_graph(size, colluders, lost, _adversary(mode), security_bits=security_bits)
        if graph is not None:
            fewest = fewest_survivors(graph.threshold, colluders, graph.degree)
            if size - lost >= fewest:
                return graph.degree, graph.threshold
    return 0, lowest_threshold(size, colluders, mode)


def _adversary(mode: Mode) -> Adversary:
    """Whom a sparse graph has to withstand: as keys are drawn first, no more than semi-malice."""
    return Adversary.SEMI_MALICIOUS if mode is Mode.ACTIVE else Adversary.SEMI_HONEST
