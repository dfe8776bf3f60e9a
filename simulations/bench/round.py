"""One whole round of secure aggregation with real cryptography, every party timed by itself."""

from __future__ import annotations

import os
import statistics

import numpy as np

from dp import BinomialMechanism
from protocol.exchange.in_memory import MemoryRound, Peer
from protocol.exchange.stages import SERVER_PARTY
from protocol.round.losses import Stage
from protocol.round.parameters import RoundParameters
from protocol.round.setup import RoundSetup
from protocol.schemes.graph import COMPLETE_UP_TO, GraphPlan, plan_graph
from secagg import ClientSession, Identity, Mode, PrimeField, ServerSession, SessionContext, centre
from simulations.bench.timing import Figures, PartyClock, peak_rss_bytes
from simulations.common.integer_peer import IntegerPeer
from sketch import PublicSeed, SketchSpec

CORRUPT = 0.05
"""Share of corrupt clients that sparse graphs are chosen for."""


def bench_round(clients: int, dim: int, dropout: float, bits: int, mode: Mode) -> Figures:
    """Run one round and check its sum against the plain sum.

    Small cohorts use the complete graph with the smallest safe threshold; larger ones a sparse
    graph for 5 % corrupt clients and the given dropout.

    The lost clients share their secrets and then never upload: the dearest moment for the server,
    which must rebuild their keys and take off every mask they left behind.

    `server_seconds` and `client_seconds_median` are each party's own work, one after the other in
    this process, and the `cpu` figures what of it this process spent computing; `bytes_per_client`
    is what a surviving client sends and receives, all messages and the announcement counted;
    `floor_bytes_per_client` is the packed vector alone, and the `bytes_...` figures the payload of
    each part. `peak_rss_bytes` is that of this process, with all clients in it.
    """
    warm_up = _run(4, 64, 0, bits, _graph(4, 0.0, 64, bits, mode), mode)[0]
    if not warm_up:
        raise RuntimeError("the sum of the warm-up round is wrong")
    lost = int(clients * dropout)
    graph = _graph(clients, dropout, dim, bits, mode)
    correct, clock, bytes_per_client, context = _run(clients, dim, lost, bits, graph, mode)
    floor = context.field.packed_bytes(dim)
    survivors = range(lost, clients)
    return {
        "clients": clients,
        "dim": dim,
        "bits": bits,
        "dropped": lost,
        "mode": mode.value,
        "degree": context.degree or clients - 1,
        "threshold": context.threshold,
        "server_seconds": clock.seconds[SERVER_PARTY],
        "client_seconds_median": statistics.median(clock.seconds[i] for i in survivors),
        "server_cpu_seconds": clock.cpu_seconds[SERVER_PARTY],
        "client_cpu_seconds_median": statistics.median(clock.cpu_seconds[i] for i in survivors),
        "bytes_per_client": bytes_per_client,
        "floor_bytes_per_client": floor,
        "bytes_ratio": bytes_per_client / floor,
        **{f"bytes_{part}": size for part, size in graph.bytes_each.items()},
        "peak_rss_bytes": peak_rss_bytes(),
        "correct": correct,
    }


def _graph(clients: int, dropout: float, dim: int, bits: int, mode: Mode) -> GraphPlan:
    sparse = clients > COMPLETE_UP_TO
    corrupt = CORRUPT if sparse else 0.0
    return plan_graph(clients, corrupt, dropout, mode, sparse=sparse, length=dim, bits=bits)


def _run(
    clients: int, dim: int, lost: int, bits: int, graph: GraphPlan, mode: Mode
) -> tuple[bool, PartyClock, float, SessionContext]:
    identities = [Identity.generate() for _ in range(clients)]
    largest = PrimeField(bits).largest_centred // clients
    cohort = [identity.public for identity in identities]
    setup = _setup(cohort, dim, largest, bits, graph, mode)
    context = setup.context
    generator = np.random.default_rng(0)
    # A few distinct inputs, reused: the inputs of a thousand clients would not fit in memory.
    inputs = generator.integers(-largest, largest + 1, (min(clients, 8), dim))
    peers: dict[int, Peer] = {
        i: IntegerPeer(ClientSession(context, i, identity), inputs[i % len(inputs)], context.field)
        for i, identity in enumerate(identities)
    }
    clock = PartyClock()
    dropouts = dict.fromkeys(range(lost), Stage.INPUT)
    outcome = MemoryRound(ServerSession(context), mode, peers, dropouts, clock).run()
    plain = np.zeros(dim, np.int64)
    for i in range(lost, clients):
        plain += inputs[i % len(inputs)]
    correct = bool(np.array_equal(centre(outcome.total.vector), plain))
    return correct, clock, outcome.bytes_per_survivor() + len(setup.announce()), context


def _setup(
    cohort: list[bytes], dim: int, largest: int, bits: int, graph: GraphPlan, mode: Mode
) -> RoundSetup:
    """A round that only adds integers up to `largest`: no clip, no sketch, no noise."""
    survivors = max(graph.minimum_survivors, graph.threshold)
    parameters = adding_parameters(dim, largest, len(cohort) - survivors)
    context = SessionContext(
        session_id=os.urandom(16),
        round_number=0,
        cohort=tuple(cohort),
        threshold=graph.threshold,
        minimum_survivors=survivors,
        mode=mode,
        tolerated_colluders=graph.colluders,
        degree=graph.degree,
        bits=bits,
        length=dim,
        application_digest=parameters.digest(),
    )
    return RoundSetup(context, parameters)


def adding_parameters(dim: int, largest: int, tolerated_dropouts: int) -> RoundParameters:
    """Parameters of a round that only adds integers up to `largest`."""
    return RoundParameters(
        model_digest=bytes(32),
        clip_l2=1.0,
        sketch=SketchSpec.identity(dim),
        sketch_clip_l2=1.0,
        public_seed=PublicSeed(bytes(32)),
        scale=1.0,
        linf_bound=largest,
        mechanism=BinomialMechanism(0),
        tolerated_dropouts=tolerated_dropouts,
    )
