"""A1 and A13: too few clients between the server and an input."""

from __future__ import annotations

from functools import partial

import numpy as np

from secagg import ClientSession, Mode
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, both, either, twins
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Members
from simulations.threats.game.games import Setting, all_games, exact
from simulations.threats.game.knowledge import Knowledge
from simulations.threats.game.victims import SessionMaker, Victims
from simulations.threats.game.weak_clients import low_threshold, no_minimum

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


ATTACKS = (
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
