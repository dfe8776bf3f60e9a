"""A1, A4, A9, A13: uploads that are read because too few clients, or masks, are in the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from secagg import ClientSession, Mode
from simulations.audits.base import Figures
from simulations.threats.attack import (
    Attack,
    Effort,
    Findings,
    both,
    either,
    exact_game,
    rate,
    twins,
)
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Integers, Members, random_inputs
from simulations.threats.game.games import Setting, all_games, exact
from simulations.threats.game.knowledge import Knowledge
from simulations.threats.game.victims import SessionMaker, Victims
from simulations.threats.game.weak_clients import NoSelfMask, low_threshold, no_minimum, unbound

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


_COLLUDERS = 3
_CURIOUS = Setting(size=8, colluders=_COLLUDERS, mode=Mode.SEMI_HONEST)


class PoolsShares(Adversary):
    """Follows the protocol; combines the shares of its colluders alone."""

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self.knowledge = Knowledge(self.context, threshold=_COLLUDERS)


class NamesOneSurvivor(Adversary):
    """Tells everybody that only the target and the colluders have survived."""

    def survivors_for(self, u: int) -> Members:
        """The smallest set that the target is in."""
        return tuple(sorted({self.target, *self.colluders}))


class NamesFewSharers(Adversary):
    """Tells the target alone that nobody but it and the colluders shared, so few masks go on.

    All others are told the truth, and open the target's self mask in good faith.
    """

    def participants_for(self, u: int) -> Members:
        """The smallest set for the target."""
        everybody = super().participants_for(u)
        return tuple(sorted({u, *self.colluders})) if u == self.target else everybody


def _small_sets(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(20, 500)
    # The lowest threshold of a curious server: the consistency round stops this on its own.
    setting = Setting(mode=Mode.SEMI_HONEST)

    def played(session: SessionMaker) -> tuple[Figures, Figures]:
        first, second = (
            exact(attack, setting, trials, seed, session).figures()
            for attack in (NamesOneSurvivor, NamesFewSharers)
        )
        return first, {f"few_sharers_{name}": value for name, value in second.items()}

    (real, real_sharers), (twin, twin_sharers) = played(ClientSession), played(no_minimum)
    name = "few_sharers_succeeded"
    return Findings(
        either(real, bool(real_sharers[name]), **real_sharers),
        both(twin, bool(twin_sharers[name]), **twin_sharers),
    )


ATTACKS: Final = (
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
    Attack(
        id="A1",
        promise="P1",
        name="honest-but-curious server with colluders",
        title="A curious server with as many colluders as tolerated learns no single input",
        says="combines everything that it and fewer than t colluders see",
        stopped_by="masks, a threshold above the colluders, a connected graph",
        run=twins(
            partial(all_games, PoolsShares, _CURIOUS), 20, 300, session=low_threshold(_COLLUDERS)
        ),
    ),
    Attack(
        id="A13",
        promise="P1",
        name="tiny survivor set",
        title="No sum is opened over fewer clients than agreed",
        says="announces that almost everybody was lost, or never shared",
        stopped_by="each client's own minimum for every announced set",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        run=_small_sets,
    ),
)
