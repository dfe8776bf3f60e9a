"""The untrusted server: attacks, games, and checks of what the protocol promises.

Nothing here is part of the product: victims without a defence are for showing what the defence is
for, and what they hide is not safe.
"""

from simulations.threats.game.adversary import Adversary
from simulations.threats.game.games import Outcome, Setting, exact, ind_sum, play, span_game
from simulations.threats.game.knowledge import Knowledge, OpenedSum
from simulations.threats.game.victims import Victims

__all__ = [
    "Adversary",
    "Knowledge",
    "OpenedSum",
    "Outcome",
    "Setting",
    "Victims",
    "exact",
    "ind_sum",
    "play",
    "span_game",
]
