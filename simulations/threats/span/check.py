"""The exhaustive check: no schedule yields more than the one sum that was promised.

docs/span.md says when a schedule is broken. A mutant has to be caught without a look at which sum
clients were told.

Source: Bonawitz et al. 2017 (ia.cr/2017/281), Theorem 6.5, states what is checked here for every n;
the check is of the clients that are implemented, for small n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg import Mode
from simulations.threats.span.clients import Mutant, Parameters, members, parameters_of, rules_of
from simulations.threats.span.equations import NOT_A_SUM, Layout, Views, views
from simulations.threats.span.schedules import Batch, Flags, Reduction, Space, spaces
from simulations.threats.span.search import Report, Search, combination

LARGEST_SIZE = 5
"""A system's number has 60 bits for five clients and two passes."""

Progress = Callable[[Parameters, int], None]
"""Called after each choice of parameters, with the number of schedules explored so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReport(Report["Counterexample | None"]):
    """What was explored of rounds of `size` clients, without what `reduction` leaves out."""

    size: int
    mode: Mode
    reduction: Reduction


def span_check(
    n: int,
    mode: Mode,
    mutant: Mutant | None = None,
    progress: Progress | None = None,
    reduction: Reduction = Reduction.SYMMETRIC,
) -> SpanReport:
    """Go through all schedules of a round of `n` clients on the complete graph.

    Every n_C, every t from the lowest that the product accepts, every minimum_survivors and every
    set of at most n_C colluders. A mutant's check stops where it should: at the first broken
    schedule.
    """
    if not 2 <= n <= LARGEST_SIZE:
        raise ValueError(f"n: {n} is not in 2 .. {LARGEST_SIZE}")
    if mutant is not None and not mutant.applies(mode):
        raise ValueError(f"mutant: {mutant.value!r} says nothing about mode {mode.value!r}")
    search, rules = _Search(mutant is None, reduction), rules_of(mutant)
    found = search.walk(
        parameters_of(n, mode, mutant), lambda p: spaces(p, rules, reduction), progress
    )
    return SpanReport(size=n, mode=mode, mutant=mutant, reduction=reduction, **found)


class _Search(Search[Parameters, Space, "Counterexample | None"]):
    """Knows which systems are solved already."""

    def __init__(self, strict: bool, reduction: Reduction) -> None:
        super().__init__(strict, None)
        self._simplify = reduction is not Reduction.NONE
        self._solved: dict[Layout, dict[int, int]] = {}

    def look(self, space: Space, start: int, stop: int) -> None:
        """Different systems are solved once."""
        batch = space.batch(start, stop)
        held = views(space, batch)
        self.schedules += int(np.count_nonzero(held.valid))
        outcome = self._outcomes(space, batch, held)
        self.opened += int(np.count_nonzero((outcome != 0) & held.valid))
        broken = held.valid & _is_too_much(space, outcome)
        if self.strict:
            broken |= held.valid & _is_unexpected(space, batch, held, outcome)
        if broken.any():
            self.broken = Counterexample.of(space, batch, held, int(broken.argmax()))

    def _outcomes(self, space: Space, batch: Batch, held: Views) -> NDArray[np.int64]:
        layout = Layout(len(space.honest), space.rules.passes, space.rules.self_mask)
        numbers = layout.numbers(space, batch, held)
        if self._simplify:
            numbers = layout.simplified(numbers)
        known = self._solved.setdefault(layout, {})
        different, where = np.unique(numbers, return_inverse=True)
        new = np.array([x for x in different.tolist() if x not in known], np.int64)
        known.update(zip(new.tolist(), layout.outcomes(new).tolist(), strict=True))
        self.systems += len(new)
        return np.array([known[x] for x in different.tolist()], np.int64)[where]


def _is_too_much(space: Space, outcome: NDArray[np.int64]) -> Flags:
    """Whether more is learned than one sum in each pass, or a sum over too few."""
    broken: Flags = outcome == NOT_A_SUM
    for opened in _opened(space, outcome):
        broken |= (opened != 0) & (np.bitwise_count(opened) < space.parameters.fewest)
    return broken


def _is_unexpected(space: Space, batch: Batch, held: Views, outcome: NDArray[np.int64]) -> Flags:
    """Whether a sum is not over the set that every client which answered was told."""
    broken = np.zeros(len(outcome), np.bool_)
    for j, opened in enumerate(_opened(space, outcome)):
        told = np.zeros((len(space.honest), len(outcome)), np.int64)
        for position, client in enumerate(space.honest):
            told |= (batch.survivors[:, j].astype(np.int64) >> client & 1) << position
        answered = held.released[:, j]
        wrong = (answered & (told != opened)).any(axis=0) | ~answered.any(axis=0)
        broken |= (opened != 0) & wrong
    return broken


def _opened(space: Space, outcome: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """For each pass, the honest clients in the sum that is learned, by position; 0 for none."""
    honest = len(space.honest)
    for j in range(space.rules.passes):
        yield outcome >> j * honest & (1 << honest) - 1


@dataclass(frozen=True, slots=True)
class Counterexample:
    """What the server did, and what it learned."""

    parameters: Parameters
    colluders: tuple[int, ...]
    # What happened to each honest client, and what was rebuilt, a sentence each.
    steps: tuple[str, ...]
    # A basis of the combinations of inputs that the server can compute, as text.
    learned: tuple[str, ...]

    @classmethod
    def of(cls, space: Space, batch: Batch, held: Views, index: int) -> Counterexample:
        """Schedule number `index` of a batch."""
        steps = [
            sentence
            for i in range(len(space.honest))
            for sentence in _client(space, batch, held, i, index)
        ]
        for name, known in (("self mask", held.known_seeds), ("masking key", held.known_keys)):
            if name == "self mask" and not space.rules.self_mask:
                continue
            owners = [h for h, yes in zip(space.honest, known[:, index], strict=True) if yes]
            if owners:
                steps.append(f"the server has t shares of the {name} of {_names(owners)}")
        return cls(
            space.parameters,
            members(space.colluders),
            tuple(steps),
            _learned(space, batch, held, index),
        )

    def __str__(self) -> str:
        lines = [f"round: {self.parameters}"]
        lines.append(f"colluding clients: {_names(self.colluders)}")
        lines += self.steps
        lines.append("the server computes " + "; ".join(self.learned))
        return "\n".join(lines)


def _client(space: Space, batch: Batch, held: Views, i: int, index: int) -> list[str]:
    who = f"client {space.honest[i]}"
    if space.cells[i] < 0:
        return [f"{who} is shown no roster"]
    letter = "ABCDE"[space.cells[i]]
    sentences = [f"{who} is shown roster {letter} of {_names(members(space.rosters[i]))}"]
    for j in range(space.rules.passes):
        again = "" if j == 0 else "again, "
        participants = int(batch.participants[i, j, index])
        survivors = int(batch.survivors[i, j, index])
        if not participants:
            sentences.append(f"{who}: {again}uploads nothing")
            continue
        text = f"{who}: {again}told U2 = {_names(members(participants))}, uploads"
        if survivors:
            text += f", told U3 = {_names(members(survivors))}"
        if held.released[i, j, index]:
            seeds = space.rules.kept_seeds(space.honest[i], participants, survivors)
            keys = space.rules.kept_keys(space.honest[i], participants, survivors)
            text += f", gives shares of the self masks of {_names(members(seeds))}"
            text += f" and of the masking keys of {_names(members(keys))}"
        sentences.append(text)
    return sentences


def _learned(space: Space, batch: Batch, held: Views, index: int) -> tuple[str, ...]:
    layout = Layout(len(space.honest), space.rules.passes, space.rules.self_mask)
    one = slice(index, index + 1)
    alone = Batch(batch.participants[..., one], batch.survivors[..., one], batch.wanted[..., one])
    seen = Views(
        held.valid[one],
        held.released[..., one],
        held.known_seeds[..., one],
        held.known_keys[..., one],
    )
    basis, first = layout.learned(layout.numbers(space, alone, seen))
    rows = basis[0, int(first[0]) :]
    return tuple(_combination(space, row.tolist()) for row in rows[np.any(rows != 0, axis=1)])


def _combination(space: Space, row: list[int]) -> str:
    terms = []
    for column, element in enumerate(row):
        if element:
            j, i = divmod(column, len(space.honest))
            terms.append((element, f"x_{space.honest[i]}" + "'" * j))
    return combination(terms)


def _names(clients: tuple[int, ...] | list[int]) -> str:
    return "{" + ", ".join(map(str, clients)) + "}" if clients else "nobody"
