"""One-shot rounds on hostile wires whose clients encode real updates, and whose sum is decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.round.field_size import bits_for
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.setup import announced_removal
from secagg import FieldVector
from secagg.oneshot.client import OneShotClient
from simulations.threats.faults.behaviours import Tally, Verdict
from simulations.threats.faults.encoded import EncodingClient, decoded, random_parameters
from simulations.threats.faults.one_shot.contexts import random_context
from simulations.threats.faults.one_shot.parties import HonestClient, Input
from simulations.threats.faults.one_shot.rounds import Round
from simulations.threats.faults.one_shot.staged import honest_members, hostile_wires
from simulations.threats.game.contexts import until_it_fits


def play_encoded(rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
    """Honest clients with real updates on hostile wires."""
    setup = until_it_fits(_random_setup, rng, number)
    context = setup.context
    clients = [EncodingClient(setup, u, rng) for u in range(context.size)]
    # On the wire nothing is hidden from the checks, so a vector is known once it is made.
    inputs: dict[int, NDArray[Any]] = {}

    def input_of(u: int) -> Input:
        def make(session: OneShotClient) -> tuple[FieldVector, tuple[bytes, ...]]:
            removable: list[bytes] = []

            def seeds(rounded: bytes) -> list[NoiseSeed]:
                drawn = [seed.expose() for seed in session.seeds(rounded)]
                removable.extend(drawn[1:])
                return [NoiseSeed(seed) for seed in drawn]

            vector = clients[u].encode(seeds)
            inputs[u] = vector.elements
            return vector, tuple(removable)

        return make

    parties = {
        u: HonestClient(context, u, input_of(u), b"encoded %d" % number)
        for u in range(context.size)
    }
    wires = hostile_wires(rng, rate, tally)
    round_ = Round(context, parties, honest_members(context, rng), inputs, wires, tally)
    return decoded(round_.verdict(), round_.total, setup, clients)


def _random_setup(rng: np.random.Generator, number: int) -> OneShotSetup:
    """A round with or without compression, removable noise and colluders."""
    context = random_context(rng, number)
    parameters = random_parameters(rng, context.size - context.minimum_survivors)
    removal = announced_removal(
        parameters.mechanism,
        context.size,
        context.minimum_survivors,
        context.tolerated_colluders,
        removable=bool(rng.random() < 0.7),
    )
    fitting = replace(
        context,
        removal=removal,
        bits=bits_for(parameters, context.size, max(removal, default=0).bit_length()),
        length=parameters.length,
        application_digest=parameters.digest(),
    )
    return OneShotSetup(fitting, parameters)
