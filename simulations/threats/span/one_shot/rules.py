"""The modelled parties: which sets a member signs and answers, how often a client uploads.

These few functions are all that the model knows of honest members. A test compares each of them
with a real `secagg.oneshot.member.OneShotMember` that is shown every set. Mutants change the fields
of `OneShotRules`, and nothing else.

Source: the checks of `secagg/oneshot/member.py`, and the histories that docs/one-shot-security.md
asks of members and clients.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from simulations.threats.span.one_shot.parameters import OneShotParameters, all_parameters


@dataclass(frozen=True, slots=True)
class OneShotRules:
    """One version of the honest parties; the defaults are the product's."""

    minimum: bool = True  # whether a member looks at the size of the set that it signs
    sets: int = 1  # how many sets one member signs, and answers, in one round
    headers: bool = True  # whether a signed set names uploads; otherwise it names clients
    # Whether one client uploads a second time in the context of its first upload.
    again: bool = False
    elsewhere: bool = False  # whether one client uploads a second time in the round's other context

    def checked(self, uploaded: int, bad: int) -> int:
        """The uploads that a member keeps; it complains about the others."""
        return uploaded & ~bad

    def accepts_proposal(self, p: OneShotParameters, checked: int, proposal: int) -> bool:
        """Whether a member signs a set of clients' uploads."""
        enough = not self.minimum or proposal.bit_count() >= p.minimum
        return enough and proposal & ~checked == 0

    def accepts_quorum(self, p: OneShotParameters, signers: int) -> bool:
        """Whether a member answers when shown valid signatures of these members on its set."""
        return signers.bit_count() >= p.quorum

    def summed(self, proposal: int) -> int:
        """The uploads whose shares are in the sums of an answer."""
        return proposal


# -- parties with one rule missing, which the check must catch -------------------------------------


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
