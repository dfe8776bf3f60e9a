"""Clients with one defence missing: the check must catch every one of them.

Each is a change of the modelled client or of the numbers it accepts. The product has no such
switches.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from secagg import Mode
from simulations.threats.span.clients import ClientRules
from simulations.threats.span.parameters import Parameters, all_parameters


class Mutant(enum.Enum):
    """A defence that is taken away."""

    NO_SELF_MASK = "no self mask"
    NO_CONSISTENCY = "no consistency round"
    ONLY_CONSISTENCY = "no consistency round, but the thresholds of active mode"
    BOTH_SHARES = "both shares allowed"
    LOW_THRESHOLD = "threshold too low"
    REUSABLE_SESSION = "session reusable"

    def applies(self, mode: Mode) -> bool:
        """Whether the defence exists in a mode: a curious server has no consistency round."""
        return mode is Mode.ACTIVE or self not in (Mutant.NO_CONSISTENCY, Mutant.ONLY_CONSISTENCY)

    @property
    def smallest_size(self) -> int:
        """The smallest n from 3 on for which a schedule is broken.

        With the thresholds of active mode nobody gets both secrets of a client, signatures or not;
        it takes five clients to be told sets that leave one of them alone.
        """
        return 5 if self is Mutant.ONLY_CONSISTENCY else 3


_RULES = {
    Mutant.NO_SELF_MASK: ClientRules(self_mask=False),
    Mutant.NO_CONSISTENCY: ClientRules(consistency=False),
    Mutant.ONLY_CONSISTENCY: ClientRules(consistency=False),
    Mutant.BOTH_SHARES: ClientRules(one_kind=False),
    Mutant.LOW_THRESHOLD: ClientRules(),
    Mutant.REUSABLE_SESSION: ClientRules(passes=2),
}


def rules_of(mutant: Mutant | None) -> ClientRules:
    """The modelled client: the product's, or a mutant."""
    return ClientRules() if mutant is None else _RULES[mutant]


def parameters_of(size: int, mode: Mode, mutant: Mutant | None) -> Iterator[Parameters]:
    """The rounds to go through: the product's, or with t one below the lowest it accepts.

    A client without the consistency round is a semi-honest one, with the thresholds of that mode,
    and a server that is not. `ONLY_CONSISTENCY` keeps those of active mode.
    """
    if mutant is Mutant.NO_CONSISTENCY:
        for p in all_parameters(size, Mode.SEMI_HONEST):
            yield Parameters(p.size, mode, p.colluders, p.threshold, p.minimum)
    else:
        yield from all_parameters(size, mode, below=int(mutant is Mutant.LOW_THRESHOLD))
