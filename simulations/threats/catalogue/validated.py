"""A74 and A75: vectors beyond a validated round's bound, and a bound at which silence tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from protocol.checks import of_kind
from protocol.round.validated_setup import ValidatedSetup
from protocol.schemes import Validated
from secagg.errors import TooLongError
from secagg.oneshot.committee import CommitteeKind
from secagg.validated import server as server_module
from secagg.validated.context import DEGREE
from simulations.threats.attack import Attack, tried, twins
from simulations.threats.one_shot.planned import (
    CLIENTS,
    DIMENSION,
    MEMBERS,
    planned_round,
)
from simulations.threats.one_shot.too_long import upload_of_any_length

_FACTOR = 1.5
"""By which a cheat exceeds the bound: the opened sum stays below that of all bounds together."""


def _beyond(seed: int) -> bool:
    """A client sends a vector beyond the bound, and claims it; is it in the sum?"""
    played = planned_round(CommitteeKind.NAMED, Validated)
    context = of_kind("setup", played.setup, ValidatedSetup).context
    rng = np.random.default_rng(seed)
    vector = np.zeros(DIMENSION, np.int64)
    vector[int(rng.integers(DIMENSION))] = int(_FACTOR * context.longest(1))
    proof = played.setup.known_cohort().proof(0)
    cheat = upload_of_any_length(context, 0, played.clients[0], proof, vector, rng.bytes)
    server = played.setup.server()
    for index in range(CLIENTS):
        server.receive_upload(index, played.upload(index, 0.1, seed) if index else cheat)
    members = [played.member(j) for j in range(MEMBERS)]
    for _ in range(3):
        for j, data in server.close_round_bytes():
            server.receive_from_member(j, members[j].receive(data))
    return 0 in server.open().survivors


def _silence(seed: int) -> bool:
    """A server announces a bound between a client's two vectors: does its silence tell which?

    One is zero and the other on the clip; the noise is the same.
    """
    played = planned_round(CommitteeKind.NAMED, Validated)
    setup = of_kind("setup", played.setup, ValidatedSetup)
    parameters, errors = setup.parameters, DEGREE * setup.error_variance
    between = parameters.length * parameters.mechanism.variance + 0.5 * parameters.l2_bound**2
    context = replace(setup.context, bound=int(between + errors))
    asked = replace(played, setup=replace(setup, context=context))

    def silent(update: float) -> bool:
        try:
            asked.upload(0, update, seed)
        except TooLongError:
            return True
        return False

    return silent(1.0) and not silent(0.0)


ATTACKS = (
    Attack(
        id="A74",
        promise="P15",
        name="a vector beyond the bound",
        title="A vector beyond the bound is in no validated sum",
        says="sends a vector half as long again as the bound of a validated round, and claims the "
        "bound",
        stopped_by="the committee's check of the norm, on shares of the key that masks the vector",
        see=("validated.md",),
        run=twins(
            lambda trials, seed: tried(lambda number: _beyond(seed + number), trials),
            5,
            50,
            (server_module, "decide", lambda _, answers: frozenset(answers)),
        ),
    ),
    Attack(
        id="A75",
        promise="P15",
        name="a bound at which silence tells",
        title="No client takes part at a bound at which its silence tells how long its vector is",
        says="announces a bound between the norms of a short and of a long vector with their noise",
        stopped_by="the bound that each client works out from its own clip and noise",
        refused_with="PolicyError bound",
        see=("validated.md",),
        run=twins(
            lambda trials, seed: tried(lambda number: _silence(seed + number), trials),
            20,
            200,
            (ValidatedSetup, "least_bound", 0),
        ),
    ),
)
