"""The modelled client: which lists it accepts at which stage, and which shares it gives up.

Client i is bit i of a set. The same expressions serve Python integers and integer arrays.

These few functions are all that the model knows of an honest client. A test compares each of them
with a real `secagg.ClientSession` that is fed validly signed messages for every choice of lists,
so that the model cannot drift from the product. Mutants change the fields of `ClientRules`, here
and nowhere else.

Source: the checks of `client.py` and `roster.py` in `secagg/pairwise` on the complete graph.

A mutant is a change of the modelled client, or of the numbers it accepts: the check must catch
every one. The product has no such switches.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from secagg import Mode, lowest_threshold


@dataclass(frozen=True, slots=True)
class Parameters:
    """What all clients of the modelled round agree on."""

    size: int  # n, clients in the cohort
    mode: Mode  # what the server may do
    colluders: int  # n_C, the clients that the round tolerates in the server's hands
    threshold: int  # t, shares that rebuild a secret; on the complete graph also the quorum
    minimum: int  # `minimum_survivors`, the fewest members of any set that a client accepts

    @property
    def everybody(self) -> int:
        """The whole cohort as a set."""
        return (1 << self.size) - 1

    @property
    def fewest(self) -> int:
        """The fewest honest clients that a released sum may be over, by docs/security.md."""
        return max(self.minimum - self.colluders, 1)

    def __str__(self) -> str:
        return (
            f"n = {self.size}, {self.mode.value}, n_C = {self.colluders}, t = {self.threshold}, "
            f"minimum_survivors = {self.minimum}"
        )


def all_parameters(size: int, mode: Mode, below: int = 0) -> Iterator[Parameters]:
    """Every choice of n_C, t and minimum_survivors that the product accepts for `size` clients.

    Largest minima first: a counterexample that survives a large minimum says more.
    """
    for colluders in range(size):
        lowest = lowest_threshold(size, colluders, mode)
        if below:
            thresholds = range(lowest - below, lowest - below + 1)
        else:
            thresholds = range(lowest, size + 1)
        for threshold in thresholds:
            if threshold < 1:
                continue
            for minimum in range(size, threshold - 1, -1):
                yield Parameters(size, mode, colluders, threshold, minimum)


def members(mask: int) -> tuple[int, ...]:
    """The clients of a set, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def subsets(mask: int) -> Iterator[int]:
    """All subsets of a set, the empty one and itself included, ascending."""
    part = 0
    while True:
        yield part
        if part == mask:
            return
        part = (part - mask) & mask


@dataclass(frozen=True, slots=True)
class ClientRules:
    """One version of the honest client; the defaults are the product's.

    Sets are bit masks. `kept_seeds` and `kept_keys` take integers or arrays of them.
    """

    self_mask: bool = True  # whether an upload carries a mask of the client's own
    # Whether shares wait for a quorum's signatures on the survivor set. The product's client skips
    # them in semi-honest mode only, where nobody splits views.
    consistency: bool = True
    # Whether a reply holds one kind of share for each neighbour. Otherwise it holds both for the
    # first other party.
    one_kind: bool = True
    # How often one session can be answered from its shares onwards, with the same masks.
    passes: int = 1

    def accepts_roster(self, p: Parameters, client: int, roster: int) -> bool:
        """Whether a client deals shares to the members of a roster, U1, that it is shown.

        All advertisements that it is shown are taken to be signed, and the proof of its own to be
        right: the server can arrange that for every set, and nothing else passes.
        """
        return bool(roster >> client & 1) and roster.bit_count() >= p.minimum

    def accepts_participants(
        self, p: Parameters, client: int, roster: int, sealed: int, participants: int
    ) -> bool:
        """Whether a client uploads its vector, masked with the members of U2."""
        inside = participants & ~(roster & (sealed | 1 << client)) == 0
        return inside and self._holds(p, client, participants)

    def accepts_survivors(
        self, p: Parameters, client: int, participants: int, survivors: int
    ) -> bool:
        """Whether a client signs U3 (active) or answers it with shares (semi-honest)."""
        return survivors & ~participants == 0 and self._holds(p, client, survivors)

    def accepts_confirmations(
        self, p: Parameters, roster: int, survivors: int, confirmers: int
    ) -> bool:
        """Whether a client releases shares when shown these signatures on its own U3."""
        inside = confirmers & ~(survivors & roster) == 0
        return inside and self.is_quorum(p, confirmers.bit_count())

    def is_quorum(self, p: Parameters, confirmers: Any) -> Any:
        """Whether so many signatures convince; a number or an array of numbers."""
        return confirmers >= p.threshold

    def kept_seeds(self, client: Any, participants: Any, survivors: Any) -> Any:
        """The parties for which a reply holds a share of the self-mask seed."""
        extra = 0 if self.one_kind else self._first_other(client, participants)
        return participants & survivors | extra

    def kept_keys(self, client: Any, participants: Any, survivors: Any) -> Any:
        """The parties for which a reply holds a share of the masking key."""
        extra = 0 if self.one_kind else self._first_other(client, participants)
        return participants & ~survivors | extra

    @staticmethod
    def _holds(p: Parameters, client: int, announced: int) -> bool:
        return bool(announced >> client & 1) and announced.bit_count() >= p.minimum

    @staticmethod
    def _first_other(client: Any, participants: Any) -> Any:
        others = participants & ~(1 << client)
        return others & -others


# -- clients with one defence missing, which the check must catch ----------------------------------


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
