"""A25: what a client sends must not depend on its input."""

from __future__ import annotations

import numpy as np

from secagg import ClientSession
from simulations.threats.adversary import Adversary
from simulations.threats.catalogue.base import Attack, Effort, Findings, rate
from simulations.threats.contexts import random_inputs
from simulations.threats.games import Setting
from simulations.threats.victims import SessionMaker, Victims
from simulations.threats.weak_clients import AbortsOnZero

_SETTING = Setting()


class CountsMessages(Adversary):
    """Follows the protocol, and writes down who sent how many bytes."""

    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of shares, uploads and signatures by client."""
        signed = {u for signers in self.signatures.values() for u in signers}
        return (
            tuple(len(self.bundles[u].sealed) for u in sorted(self.bundles)),
            tuple(len(self.uploads[u].vector) for u in sorted(self.uploads)),
            tuple(sorted(signed)),
        )


Shape = tuple[tuple[int, ...], ...]


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


def _selective_aborts(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(20, 500)
    return Findings(
        rate(_guess(ClientSession, trials, seed), trials, 0.5),
        rate(_guess(AbortsOnZero, trials, seed), trials, 0.5),
    )


ATTACKS = (
    Attack(
        id="A25",
        title="Who sends how much does not depend on inputs",
        stopped_by="control flow and sizes that no input decides; noise is drawn before the upload",
        run=_selective_aborts,
    ),
)
