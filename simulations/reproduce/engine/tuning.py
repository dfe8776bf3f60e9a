"""Tune, then evaluate: figures of a way are chosen by trials with seeds that count for nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Generic, TypeVar

from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study

C = TypeVar("C", bound=Hashable)

Search = Generator[Iterable[C], dict[C, float], None]
"""Yields what is to be tried next, and is told how good everything tried so far is."""


def grid(candidates: Iterable[C]) -> Search[C]:
    """Try all candidates at once."""
    yield candidates


def climb(start: int, most: int) -> Search[int]:
    """Try a start and its neighbours, up to so many steps away, as long as it gets higher."""
    found = yield [start]
    for direction in (1, -1):
        for place in range(start + direction, start + direction * (most + 1), direction):
            found = yield [place]
            if found[place] <= found[place - direction]:
                break
        if found[start] < max(found.values()):
            break  # The top is on this side.


def first_best(tried: dict[C, float]) -> C:
    """Return the best; of equals the one that was tried first."""
    return max(tried, key=lambda candidate: tried[candidate])


@dataclass(frozen=True, slots=True)
class Way(Generic[C]):
    """Something with figures that have to be chosen."""

    search: Search[C]  # what is tried
    # Cells of a candidate with the seeds of trials; their mean accuracy counts
    trials: Callable[[C], Sequence[Cell]]
    # Cells of the chosen candidate with the seeds that are evaluated
    runs: Callable[[C], Sequence[Cell]]
    choose: Callable[[dict[C, float]], C] = first_best  # from the means of all candidates


@dataclass(frozen=True, slots=True)
class Outcome(Generic[C]):
    """What a way came to."""

    tried: dict[C, float]  # mean accuracy of every candidate
    chosen: C  # the best
    trials: dict[C, list[Any]]  # results of its trials, by candidate
    runs: list[Any]  # results of the chosen one


def tune_then_evaluate(
    study: Study[Any], ways: Sequence[Way[C]], score: Callable[[Any], float] | None = None
) -> list[Outcome[C]]:
    """Search for all ways side by side, so that a pool is busy; then evaluate what was chosen."""
    measure = score or (lambda result: float(result["accuracy"]))
    trials: list[dict[C, list[Any]]] = [{} for _ in ways]
    means: list[dict[C, float]] = [{} for _ in ways]
    asked = {place: list(next(way.search)) for place, way in enumerate(ways)}
    while asked:
        wanted = [(place, each) for place, candidates in asked.items() for each in candidates]
        results = _grouped(study, [ways[place].trials(each) for place, each in wanted])
        for (place, each), found in zip(wanted, results, strict=True):
            trials[place][each], means[place][each] = found, fmean(map(measure, found))
        for place in list(asked):
            try:
                asked[place] = list(ways[place].search.send(means[place]))
            except StopIteration:
                del asked[place]
    chosen = [way.choose(found) for way, found in zip(ways, means, strict=True)]
    runs = _grouped(study, [way.runs(best) for way, best in zip(ways, chosen, strict=True)])
    return [Outcome(*each) for each in zip(means, chosen, trials, runs, strict=True)]


def _grouped(study: Study[Any], groups: Sequence[Sequence[Cell]]) -> list[list[Any]]:
    """Run the cells of all groups at once; return the results group by group."""
    results = iter(study.results(cell for group in groups for cell in group))
    return [[next(results) for _ in group] for group in groups]
