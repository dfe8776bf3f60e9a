"""Tune, then evaluate: figures of a way are chosen by trials with seeds that count for nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulations.campaigns.seeds import rng_of, tried
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study

if TYPE_CHECKING:
    from simulations.learning.data import Dataset, Split

C = TypeVar("C", bound=Hashable)
K = TypeVar("K", bound=Hashable)

# Yields what is to be tried next, and is told how good everything tried so far is
Search = Generator[Iterable[C], dict[C, float], None]


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


def largest_best(tried: dict[float, float]) -> float:
    """Return the best; of equals the largest."""
    return max(tried, key=lambda candidate: (tried[candidate], candidate))


def smallest_best(tried: dict[int, float]) -> int:
    """Return the best; of equals the smallest, so that the order of trials decides nothing."""
    return max(sorted(tried), key=lambda candidate: tried[candidate])


@dataclass(frozen=True, slots=True)
class Way(Generic[C]):
    """Something with figures that have to be chosen."""

    search: Search[C]  # what is tried
    # Of a candidate's trials, whose mean accuracy counts, or of the chosen one's runs that are
    # evaluated; seeds of trials are others
    cells: Callable[[C, bool], Sequence[Cell]]
    choose: Callable[[dict[C, float]], C] = first_best  # from the means of all candidates


@dataclass(frozen=True, slots=True)
class Outcome(Generic[C]):
    """What a way came to."""

    tried: dict[C, float]  # mean accuracy of every candidate
    chosen: C  # the best
    trials: dict[C, list[Any]]  # results of its trials, by candidate
    runs: list[Any]  # results of the chosen one


def tune_then_evaluate(
    study: Study[Any], ways: Mapping[K, Way[C]], score: Callable[[Any], float] | None = None
) -> dict[K, Outcome[C]]:
    """Search for all ways side by side, so that a pool is busy; then evaluate what was chosen."""
    measure = score or (lambda result: float(result["accuracy"]))
    trials: dict[K, dict[C, list[Any]]] = {key: {} for key in ways}
    means: dict[K, dict[C, float]] = {key: {} for key in ways}
    asked = {key: list(next(way.search)) for key, way in ways.items()}
    while asked:
        wanted = [(key, each) for key, candidates in asked.items() for each in candidates]
        results = grouped(study, [ways[key].cells(each, True) for key, each in wanted])
        for (key, each), found in zip(wanted, results, strict=True):
            trials[key][each], means[key][each] = found, fmean(map(measure, found))
        for key in list(asked):
            try:
                asked[key] = list(ways[key].search.send(means[key]))
            except StopIteration:
                del asked[key]
    chosen = {key: way.choose(means[key]) for key, way in ways.items()}
    runs = grouped(study, [way.cells(chosen[key], False) for key, way in ways.items()])
    return {
        key: Outcome(means[key], chosen[key], trials[key], found)
        for key, found in zip(ways, runs, strict=True)
    }


def grouped(study: Study[Any], groups: Sequence[Sequence[Cell]]) -> list[list[Any]]:
    """Run the cells of all groups at once; return the results group by group."""
    results = iter(study.results(cell for group in groups for cell in group))
    return [[next(results) for _ in group] for group in groups]


def by_steps(
    study: Study[Any],
    starts: Mapping[K, int],
    cell: Callable[[K, int, int, bool], Cell],
    search: Callable[[int], Search[int]],
    *,
    trials: int = 1,
    choose: Callable[[dict[int, float]], int] = smallest_best,
    score: Callable[[Any], float] | None = None,
) -> dict[K, Outcome[int]]:
    """Seek the exponent of a rate for all ways, each from its start; then run them at the best.

    A cell is made of a way, an exponent, a seed, and whether it is a trial: on data for validation.
    """

    def way(key: K, start: int) -> Way[int]:
        def cells(exponent: int, trial: bool) -> list[Cell]:
            seeds = tried(study.seed, trials) if trial else study.seeds
            return [cell(key, exponent, seed, trial) for seed in seeds]

        return Way(search(start), cells, choose)

    return tune_then_evaluate(study, {key: way(key, start) for key, start in starts.items()}, score)


@dataclass(frozen=True, slots=True)
class Rated:
    """What a way came to at a learning rate of its own."""

    rate: float
    tried: list[list[float]]  # pairs of a rate and its mean accuracy
    runs: list[Any]  # results at the rate, one for each seed


def at_own_rates(
    study: Study[Any],
    firsts: Mapping[K, float],
    cell: Callable[[K, float, int, bool], Cell],
    *,
    factor: float,
    search: Callable[[int], Search[int]],
    trials: int = 1,
) -> dict[K, Rated]:
    """Seek a rate for all ways, in steps of a factor from the first one; see `by_steps`."""

    def rate(key: K, exponent: int) -> float:
        return float(f"{firsts[key] * factor**exponent:.3g}")

    def at(key: K, exponent: int, seed: int, trial: bool) -> Cell:
        return cell(key, rate(key, exponent), seed, trial)

    starts = dict.fromkeys(firsts, 0)
    found = by_steps(study, starts, at, search, trials=trials, choose=first_best)
    return {
        key: Rated(
            rate(key, each.chosen), [[rate(key, e), a] for e, a in each.tried.items()], each.runs
        )
        for key, each in found.items()
    }


def held_out(data: Dataset, share: float) -> Dataset:
    """Return the data with a part of the training examples in place of the test examples."""
    tested, trained = split_off(data.train, share)
    return replace(data, train=trained, test=tested)


def split_off(split: Split, share: float) -> tuple[Split, Split]:
    """Return a share of the examples, the same in every run, and the rest."""
    count, order = round(share * len(split)), rng_of(0, "validation").permutation(len(split))
    return _part(split, order[:count]), _part(split, order[count:])


def _part(split: Split, chosen: NDArray[np.int64]) -> Split:
    chosen = np.sort(chosen)
    owners = None if split.owners is None else split.owners[chosen]
    return replace(split, inputs=split.inputs[chosen], labels=split.labels[chosen], owners=owners)
