"""The exhaustive check of small one-shot rounds: one sum is opened, and no part of it.

docs/span.md, "One-shot rounds", says what the unknowns are and when a schedule is broken. A mutant
has to be caught without a look at which set members were shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulations.threats.span.one_shot.rules import (
    OneShotMutant,
    OneShotParameters,
    OneShotRules,
    parameters_of,
    rules_of,
)
from simulations.threats.span.one_shot.schedules import CONTEXTS, NOTHING, Space, spaces
from simulations.threats.span.search import Report, Search, combination
from simulations.threats.span.shares import Integers, Sharing, is_one_sum, learned, support


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotReport(Report[tuple[str, ...]]):
    """What was explored of n clients and s members, and the first broken schedule in words."""

    clients: int
    members: int


def one_shot_span(
    clients: int,
    members: int,
    mutant: OneShotMutant | None = None,
    every: bool = False,
    rules: OneShotRules | None = None,
) -> OneShotReport:
    """Go through all schedules of a round of so many clients and committees of so many members."""
    own = rules_of(mutant) if rules is None else rules
    search = _Search(mutant is None and rules is None, ())
    parameters = parameters_of(clients, members, mutant)
    found = search.walk(parameters, lambda p: spaces(p, own, every))
    return OneShotReport(clients=clients, members=members, mutant=mutant, **found)


class _Search(Search[OneShotParameters, Space, tuple[str, ...]]):
    at_once = 1 << 16

    def look(self, space: Space, start: int, stop: int) -> None:
        """Equal systems of one batch are solved once."""
        chosen = space.batch(start, stop)
        self.schedules += len(chosen)
        answers = np.unique(answered(space, chosen), axis=0)
        basis, ranks = solved(space, answers)
        self.systems += len(answers)
        self.opened += int(np.count_nonzero(ranks))
        broken = self._is_broken(space, answers, basis, ranks)
        if broken.any():
            which = int(broken.argmax())
            self.broken = _in_words(space, answers[which], basis[which])

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
    corrupt = [sum(space.points[j][k] > 0 for j in space.corrupt) for k in contexts]
    own = np.array([*corrupt, 0])[chosen]
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
        sums.append(combination(terms, " "))
    return (*lines, "the server computes " + "; ".join(sums))
