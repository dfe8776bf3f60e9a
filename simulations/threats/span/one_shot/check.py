"""The exhaustive check of small one-shot rounds: one sum is opened, and no part of it.

A schedule is broken if the server can solve for more than the l sums of one set of honest uploads,
for anything that is no plain sum, or for a sum over fewer than minimum_survivors - n_C of them. For
the product's parties it is broken, too, if that set is not the one that every answering member was
shown; a mutant has to be caught without that.

The unknowns are the polynomials of honest uploads. Colluding clients' polynomials are known, and
left out. The equations are the shares that corrupt members hold, and the sums in the answers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from simulations.threats.span.equations import signed
from simulations.threats.span.one_shot.rules import (
    OneShotMutant,
    OneShotRules,
    parameters_of,
    rules_of,
)
from simulations.threats.span.one_shot.schedules import CONTEXTS, NOTHING, Space, spaces
from simulations.threats.span.shares import Integers, Sharing, is_one_sum, learned, support

_SCHEDULES_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class OneShotReport:
    """What was explored, and the first broken schedule.

    Attributes:
        clients, members: n and s.
        mutant: the rule that was taken away; None for the product's parties.
        parameters: choices of the other numbers gone through.
        schedules: schedules explored.
        systems: systems of equations solved.
        opened: systems that yield a sum.
        broken: the first broken schedule in words, with which the check stops; empty if none is.
        seconds: wall time.
    """

    clients: int
    members: int
    mutant: OneShotMutant | None
    parameters: int
    schedules: int
    systems: int
    opened: int
    broken: tuple[str, ...]
    seconds: float

    @property
    def held(self) -> bool:
        """Whether no schedule is broken."""
        return not self.broken


def one_shot_span(
    clients: int,
    members: int,
    mutant: OneShotMutant | None = None,
    every: bool = False,
    rules: OneShotRules | None = None,
) -> OneShotReport:
    """Go through all schedules of a round of so many clients and committees of so many members."""
    started = time.perf_counter()
    own = rules_of(mutant) if rules is None else rules
    search = _Search(strict=mutant is None and rules is None)
    explored = 0
    for p in parameters_of(clients, members, mutant):
        explored += 1
        for space in spaces(p, own, every):
            search.walk(space)
            if search.broken:
                break
        if search.broken:
            break
    return OneShotReport(
        clients,
        members,
        mutant,
        explored,
        search.schedules,
        search.systems,
        search.opened,
        search.broken,
        time.perf_counter() - started,
    )


class _Search:
    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.schedules = self.systems = self.opened = 0
        self.broken: tuple[str, ...] = ()

    def walk(self, space: Space) -> None:
        """All schedules of a space, until one is broken."""
        for start in range(0, space.size, _SCHEDULES_AT_ONCE):
            chosen = space.batch(start, min(start + _SCHEDULES_AT_ONCE, space.size))
            self.schedules += len(chosen)
            answers = np.unique(answered(space, chosen), axis=0)
            basis, ranks = solved(space, answers)
            self.systems += len(answers)
            self.opened += int(np.count_nonzero(ranks))
            broken = self._is_broken(space, answers, basis, ranks)
            if broken.any():
                which = int(broken.argmax())
                self.broken = _in_words(space, answers[which], basis[which])
                return

    def _is_broken(
        self, space: Space, answers: Integers, basis: Integers, ranks: Integers
    ) -> np.ndarray:
        secrets = space.parameters.secrets
        summed = support(basis, secrets)
        too_few = (ranks > 0) & (summed.sum(axis=1) < space.parameters.fewest)
        broken = ~is_one_sum(basis, secrets) | too_few
        if self.strict:
            for place in range(answers.shape[1]):
                shown = _shown(space)[answers[:, place]]
                other = (shown != summed).any(axis=1)
                broken |= (ranks > 0) & (answers[:, place] != NOTHING) & other
        return np.asarray(broken)


def answered(space: Space, chosen: Integers) -> Integers:
    """The options that are answered, a quorum having signed them; `NOTHING` in the other places."""
    names = np.array([option.name for option in space.options] + [NOTHING])[chosen]
    contexts = [option.context for option in space.options]
    own = np.array([_corrupt_in(space, k) for k in contexts] + [0])[chosen]
    result = np.full_like(chosen, NOTHING)
    convincing = np.array(
        [space.rules.accepts_quorum(space.parameters, (1 << k) - 1) for k in range(65)]
    )
    for place in range(chosen.shape[1]):
        signatures = own[:, place].copy()
        for member in dict.fromkeys(space.places):
            mine = [k for k, each in enumerate(space.places) if each == member]
            signatures += (names[:, mine] == names[:, place, None]).any(axis=1)
        yes = convincing[signatures] & (chosen[:, place] != NOTHING)
        result[yes, place] = chosen[yes, place]
    return result


def solved(space: Space, answers: Integers) -> tuple[Integers, Integers]:
    """What follows from the answers, and from what corrupt members hold; see `learned`."""
    points: list[int] = []
    held: list[Integers] = []
    for member in sorted(space.corrupt):
        for number, upload in enumerate(space.uploads):
            if space.points[member][upload.context]:
                points.append(space.points[member][upload.context])
                held.append(np.eye(len(space.uploads), dtype=np.int64)[number])
    own = np.array(held, np.int64).reshape(len(held), len(space.uploads))
    rows = [np.broadcast_to(own, (len(answers), *own.shape))]
    contexts = np.array([option.context for option in space.options] + [NOTHING])
    for place, member in enumerate(space.places):
        for context in range(CONTEXTS):
            if space.points[member][context]:
                points.append(space.points[member][context])
                here = contexts[answers[:, place]] == context
                rows.append((_shown(space)[answers[:, place]] & here[:, None])[:, None])
    factors = np.concatenate(rows, axis=1).astype(np.int64)
    p = space.parameters
    return learned(Sharing(p.randomness, p.secrets), points, factors)


def _shown(space: Space) -> np.ndarray:
    """The honest uploads whose shares an answer adds up: bool[options + 1, uploads]."""
    table = np.zeros((len(space.options) + 1, len(space.uploads)), np.bool_)
    for number, option in enumerate(space.options):
        table[number, list(option.uploads)] = True
    return table


def _corrupt_in(space: Space, context: int) -> int:
    return sum(space.points[member][context] > 0 for member in space.corrupt)


def _in_words(space: Space, answers: Integers, basis: Integers) -> tuple[str, ...]:
    def name(number: int) -> str:
        upload = space.uploads[number]
        return f"x_{upload.client}" + "'" * (upload.context + upload.copy)

    lines = [f"round: {space.parameters}"]
    lines.append(f"corrupt members: {sorted(space.corrupt)}")
    for place, member in enumerate(space.places):
        if answers[place] != NOTHING:
            option = space.options[int(answers[place])]
            names = ", ".join(map(name, option.uploads))
            lines.append(f"member {member} answers in context {option.context} on {{{names}}}")
    width = space.parameters.secrets
    sums = []
    for row in basis[(basis != 0).any(axis=1)]:
        terms = [
            (int(factor), name(column // width) + (f"[{column % width}]" if width > 1 else ""))
            for column, factor in enumerate(row)
            if factor
        ]
        sums.append(" ".join(_term(factor, what) for factor, what in terms).removeprefix("+ "))
    return (*lines, "the server computes " + "; ".join(sums))


def _term(factor: int, what: str) -> str:
    number = signed(factor)
    sign = "-" if number < 0 else "+"
    return f"{sign} {'' if abs(number) == 1 else f'{abs(number)} '}{what}"
