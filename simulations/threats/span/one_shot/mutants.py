"""Parties with one rule missing: the check must catch every one of them."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from simulations.threats.span.one_shot.parameters import OneShotParameters, all_parameters
from simulations.threats.span.one_shot.rules import OneShotRules


class OneShotMutant(enum.Enum):
    """A rule that is taken away."""

    TWO_SETS = "member signs two sets"
    LOW_QUORUM = "quorum too small"
    NO_MINIMUM = "no minimum"
    BARE_NAMES = "names instead of headers, and one client uploads twice"
    LOST_HISTORY = "one client uploads in both contexts"
    LOW_RANDOMNESS = "fewer random coefficients than corrupt members"

    @property
    def smallest(self) -> tuple[int, int]:
        """The fewest clients and members for which a schedule is broken."""
        return _SMALLEST[self]


_RULES = {
    OneShotMutant.TWO_SETS: OneShotRules(sets=2),
    OneShotMutant.NO_MINIMUM: OneShotRules(minimum=False),
    OneShotMutant.BARE_NAMES: OneShotRules(headers=False, again=True),
    OneShotMutant.LOST_HISTORY: OneShotRules(elsewhere=True),
}

_SMALLEST = {
    OneShotMutant.TWO_SETS: (3, 2),
    OneShotMutant.LOW_QUORUM: (3, 3),
    OneShotMutant.NO_MINIMUM: (2, 2),
    OneShotMutant.BARE_NAMES: (2, 3),
    OneShotMutant.LOST_HISTORY: (3, 2),
    OneShotMutant.LOW_RANDOMNESS: (2, 2),
}


def rules_of(mutant: OneShotMutant | None) -> OneShotRules:
    """The modelled parties: the product's, or mutants."""
    return OneShotRules() if mutant is None else _RULES.get(mutant, OneShotRules())


def parameters_of(
    clients: int, members: int, mutant: OneShotMutant | None
) -> Iterator[OneShotParameters]:
    """The rounds to go through: the product's, or with one number out of its range."""
    return all_parameters(
        clients,
        members,
        low_quorum=mutant is OneShotMutant.LOW_QUORUM,
        low_randomness=mutant is OneShotMutant.LOW_RANDOMNESS,
    )
