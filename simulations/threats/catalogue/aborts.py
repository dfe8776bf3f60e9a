"""A25: what a client sends must not depend on its input."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from protocol import ClientPolicy, RealAggregator
from secagg import ClientSession
from simulations.audits.base import identities_of
from simulations.threats.attack import Attack, Effort, Findings, rate
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import random_inputs
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import SessionMaker, Victims
from simulations.threats.game.weak_clients import AbortsOnZero
from simulations.threats.rounds.announced import (
    CLIP,
    COHORT,
    DIMENSION,
    TARGET,
    announced_round,
)

_SETTING = Setting()

Shape = tuple[tuple[int, ...], ...]


class CountsMessages(Adversary):
    """Follows the protocol, and writes down who sent how many bytes."""

    def shape(self) -> Shape:
        """Sizes of shares, uploads and signatures by client."""
        signed = {u for signers in self.signatures.values() for u in signers}
        return (
            tuple(len(self.bundles[u].sealed) for u in sorted(self.bundles)),
            tuple(len(self.uploads[u].vector) for u in sorted(self.uploads)),
            tuple(sorted(signed)),
        )


def _shape(session: SessionMaker, number: int, seed: int, *, nothing: bool) -> Shape:
    """The traffic of a round in which one client's input is zero, or random."""
    rng = np.random.default_rng([seed, number])
    context = _SETTING.context(number)
    inputs = random_inputs(rng, context)
    inputs[0] = 0 if nothing else inputs[0]
    server = CountsMessages(Victims(context, inputs, [], rng.bytes(8), session), rng)
    server.run()
    return server.shape()


def _guess(session: SessionMaker, trials: int, seed: int) -> int:
    """How often the shape of the traffic tells whether one client's input is zero."""
    # What the server finds out beforehand: how either input looks.
    of_something, of_nothing = (_shape(session, 0, seed, nothing=each) for each in (False, True))
    rng = np.random.default_rng(seed)
    right = 0
    for number in range(1, trials + 1):
        zero, coin = (bool(each) for each in rng.integers(2, size=2))
        seen = _shape(session, number, seed, nothing=zero)
        guess = seen == of_nothing if of_something != of_nothing else coin
        right += guess == zero
    return right


EDGES = {
    "zero": 0.0,
    "smallest number": 5e-324,
    "on the clip": CLIP / DIMENSION**0.5,
    "huge": 1e30,
    "largest number": np.finfo(np.float64).max,
}
"""Every coordinate of an update that is at an edge of what a client may hold."""


def edge_traffic(seed: int) -> set[tuple[int, ...]]:
    """Bytes that each client of a whole private round sends; one entry for each way to differ."""
    identities = identities_of(seed, COHORT)
    setup = announced_round(identities, bytes(32), coins=60, seed=seed)
    policy = ClientPolicy(minimum_noise_multiplier=0.0)
    found = set()
    for edge in EDGES.values():
        updates = partial(_update, edge)
        outcome = RealAggregator(identities, policy).run(setup, updates, {})
        found.add(tuple(outcome.bytes_up[u] for u in range(COHORT)))
    return found


def _update(edge: float, u: int) -> NDArray[np.float64]:
    return np.full(DIMENSION, edge if u == TARGET else 0.01)


def _selective_aborts(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(20, 500)
    real = rate(_guess(ClientSession, trials, seed), trials, 0.5)
    traffics = len(edge_traffic(seed))
    real.update(edges=len(EDGES), ways_that_traffic_differs=traffics - 1)
    real["succeeded"] = bool(real["succeeded"]) or traffics > 1
    return Findings(real, rate(_guess(AbortsOnZero, trials, seed), trials, 0.5))


ATTACKS = (
    Attack(
        id="A25",
        promise="P8",
        name="input-dependent aborts",
        title="Who sends how much does not depend on inputs",
        says="watches who sends what, and how much, for extreme inputs: zero, tiny, on the clip, "
        "huge",
        stopped_by="control flow and sizes that do not depend on the input; noise drawn before "
        "the upload",
        run=_selective_aborts,
    ),
)
