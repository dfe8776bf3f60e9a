"""A4 and A9: masked vectors that are read although nobody opened them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulations.audits.base import Figures
from simulations.threats.attack import Attack, exact_game, rate, twins
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Integers, Members, random_inputs
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import Victims
from simulations.threats.game.weak_clients import NoSelfMask, unbound

_SETTING = Setting()


class LateUpload(Adversary):
    """Says that the target is lost, and reads its upload when it arrives after all."""

    def survivors_for(self, u: int) -> Members:
        """Everybody but the target."""
        return self.without(self.target)

    def claims(self) -> dict[int, Integers]:
        """The target's upload without its pairwise masks."""
        left = self.knowledge.peeled(self.target)
        return {} if left is None else {self.target: left}


def _mask_reuse(trials: int, seed: int, bound: bool = True) -> Figures:
    """Two rounds of clients whose source of randomness repeats, as after a restored snapshot."""
    opened = sum(_difference_is_open(seed, number, bound=bound) for number in range(trials))
    return rate(opened, trials)


def _difference_is_open(seed: int, number: int, *, bound: bool) -> bool:
    """Whether two uploads of a client differ by what its two inputs differ by.

    As they came, or without the masks that both rounds opened.
    """
    rng = np.random.default_rng([seed, number])
    inputs, uploads, peeled = [], [], []
    salt = rng.bytes(8)
    for round_number in (2 * number, 2 * number + 1):
        context = _SETTING.context(round_number)
        context = context if bound else unbound(context)
        inputs.append(random_inputs(rng, context))
        adversary = Adversary(Victims(context, inputs[-1], [], salt), rng)
        adversary.run()
        uploads.append({each.sender: each.vector for each in adversary.knowledge.uploads}[0])
        peeled.append(adversary.knowledge.peeled(0))
    modulus = context.field.modulus

    def difference(vectors: Sequence[Integers | None]) -> Integers:
        before, after = (np.asarray(each).astype(object) for each in vectors)
        return np.asarray((after - before) % modulus)

    own = difference([each[0] for each in inputs])
    return any(np.array_equal(difference(each), own) for each in (uploads, peeled))


ATTACKS = (
    Attack(
        id="A4",
        promise="P1",
        name="upload after being declared lost",
        title="A late upload of a client that was declared lost stays masked",
        says="has u's pairwise masks rebuilt, then reads u's late upload",
        stopped_by="the self mask",
        run=twins(exact_game(LateUpload, _SETTING), 20, 500, session=NoSelfMask),
    ),
    Attack(
        id="A9",
        promise="P1",
        name="masks reused in two rounds",
        title="Two rounds never use the same masks, even if a client's randomness repeats",
        says="subtracts two uploads of one client",
        stopped_by="session, round and context in the derivation of every mask",
        run=twins(_mask_reuse, 10, 250, bound=False),
    ),
)
