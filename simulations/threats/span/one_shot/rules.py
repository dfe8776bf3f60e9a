"""The modelled parties of a small one-shot round, and its numbers.

Which sets a member signs and answers, how often a client uploads: these few functions are all that
the model knows of honest members. A test compares each of them with a real
`secagg.oneshot.member.OneShotMember` that is shown every set. Mutants change the fields of
`OneShotRules`, and nothing else. Clients and members are numbered from 0; sets are bit masks.

Source: the checks of `secagg/oneshot/member.py`, and the histories that docs/one-shot-security.md
asks of members and clients.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from secagg.oneshot.committee import lowest_quorum
from secagg.oneshot.context import fewest_survivors


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


MOST_SECRETS = 2
"""Secrets of one polynomial, l: one, and one of those with more."""


@dataclass(frozen=True, slots=True)
class OneShotParameters:
    """What all parties of the modelled round agree on."""

    clients: int  # n
    colluders: int  # n_C, clients in the server's hands
    minimum: int  # `minimum_survivors`
    members: int  # s, of the committee of each context
    corrupt: int  # c, members of each committee in the server's hands
    quorum: int  # signatures that convince a member
    randomness: int  # T
    secrets: int  # l, of one polynomial

    @property
    def honest(self) -> int:
        """Honest clients; they are the first ones."""
        return self.clients - self.colluders

    @property
    def fewest(self) -> int:
        """The fewest honest uploads that a sum may be over, by docs/one-shot-security.md."""
        return max(self.minimum - self.colluders, 1)

    def __str__(self) -> str:
        return (
            f"n = {self.clients}, n_C = {self.colluders}, minimum_survivors = {self.minimum}, "
            f"s = {self.members}, c = {self.corrupt}, quorum = {self.quorum}, "
            f"T = {self.randomness}, l = {self.secrets}"
        )


def all_parameters(
    clients: int, members: int, low_quorum: bool = False, low_randomness: bool = False
) -> Iterator[OneShotParameters]:
    """Every choice of the other numbers that the product accepts."""
    for colluders, corrupt in product(range(clients), range(members)):
        lowest = lowest_quorum(members, corrupt)
        quorums = range(lowest - 1, lowest) if low_quorum else range(lowest, members + 1)
        least = max(corrupt, 1)
        degrees = range(corrupt - 1, corrupt) if low_randomness else range(least, members)
        for minimum in range(clients, fewest_survivors(clients, colluders) - 1, -1):
            for quorum, randomness in product(quorums, degrees):
                if randomness < 0:
                    continue
                for secrets in range(1, min(MOST_SECRETS, members - randomness) + 1):
                    yield OneShotParameters(
                        clients,
                        colluders,
                        minimum,
                        members,
                        corrupt,
                        quorum,
                        randomness,
                        secrets,
                    )
