"""Our clients where Flower's were: the same round, a server that reads along, real sessions.

Four clients. One is lost after it shared its secrets, one works for the server, and two are honest
survivors: the victim and its only honest neighbour.
"""

from __future__ import annotations

import numpy as np

from secagg import ProtocolError
from secagg.framing import encode_set
from secagg.pairwise.messages import SurvivorSet
from simulations.audits.base import Integers
from simulations.threats.flower.masks import LARGEST
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import Victims

VICTIM, HONEST, COLLUDER, LOST = range(4)
CLIENTS = 4
BITS = 32


class OurRound(Adversary):
    """An honest server of four real clients.

    Attributes:
        inputs: int64[4, length] in 0 .. 2^22, the range of Flower's quantiser.
    """

    def __init__(self, length: int, rng: np.random.Generator) -> None:
        setting = Setting(size=CLIENTS, lost=1, bits=BITS, length=length)
        context = setting.context(1)
        self.inputs: Integers = rng.integers(0, LARGEST + 1, (CLIENTS, length))
        self.refusals: list[ProtocolError] = []
        dealt = self.inputs.astype(context.field.dtype)
        told = self.refusals.append
        super().__init__(Victims(context, dealt, [COLLUDER], rng.bytes(8), refused=told), rng)

    def until_shared(self) -> None:
        """Everybody has shared its secrets."""
        self.advertise()
        self.collect_bundles()

    def deliver(self) -> None:
        """All but the lost client upload."""
        for u in (VICTIM, HONEST, COLLUDER):
            self.deliver_to(u)

    def until_confirmed(self) -> None:
        """Survivors have signed who is in the sum."""
        self.until_shared()
        self.deliver()
        self.announce()

    def told_out_of_turn(self, u: int, survivors: tuple[int, ...]) -> ProtocolError | None:
        """Tell a client who survived: the error that it refused with, if it did."""
        message = SurvivorSet(self.tag, encode_set(survivors, self.context.size))
        return None if self.victims.ask(u, message).accepted else self.refusals.pop()


def ask_for_both_secrets(length: int, rng: np.random.Generator) -> list[ProtocolError | None]:
    """The server asks clients for shares of both secrets of the victim, which is in the sum.

    There is no message that names a client on two lists: clients are told one set of survivors and
    derive from it what to give up. So the server can only ask again: for another set before the
    first is answered, and after it.
    """
    refusals = []
    for answered in (False, True):
        round_ = OurRound(length, rng)
        round_.until_confirmed()
        if answered:
            round_.convince()
        refusals += [round_.told_out_of_turn(u, (HONEST, COLLUDER)) for u in (HONEST, COLLUDER)]
    return refusals
