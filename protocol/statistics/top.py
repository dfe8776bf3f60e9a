"""The most frequent items: from a list in two rounds, or of an open domain, prefix by prefix.

Two rounds: the second counts only what the first found, so that clients whose votes were spent on
rare items spend them on these. Of an open domain each round counts prefixes of items, longer each
time, and keeps the largest; the last counts what was found, and names what is hardly chance.

Counts are of bounded votes: a client votes for so many of its items.

Source: docs/statistics.md; prefix trees as in Zhu et al. 2020 (arXiv 1902.08534), without sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from protocol.statistics.answers import Answer, Estimate
from protocol.statistics.items import Items, discovered, ends_of_prefixes, extended, largest
from protocol.statistics.survey import Survey
from secagg import ParameterError
from secagg.checks import require_int

Asker = Callable[[Survey, float], list[Answer]]
"""Asks a survey for a share of the budget: squared shifts of all rounds add up to 1."""

KEPT: Final = 4
"""Candidates of the second round, for each item that is asked for."""
BEAM: Final = 50
"""Prefixes that one round hands to the next, at least."""
SEARCH: Final = 0.8
"""Share of the budget: what a search loses is gone, and the ranking has few candidates."""
CHANCE: Final = 0.05
"""Of naming an item that nobody has, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The items that were found, the most frequent first.

    Attributes:
        items: as the candidates are; of an open domain perhaps fewer than were asked for.
        counts: of clients who voted for them in the last round.
        rounds: sums that were asked for.
    """

    items: tuple[str | int | bool, ...]
    counts: Estimate
    rounds: int


def _ranked(answer: Answer, question: Items, k: int, rounds: int, errors: float = 0.0) -> Top:
    """The largest counts that are more than so many standard errors.

    Args:
        errors: any count will do if 0.
    """
    noise = np.asarray(answer.standard_error)
    least = errors * noise if errors else np.full(noise.size, -math.inf)
    found = [at for at in largest(answer, k) if answer.value[at] > least[at]]
    counts = Estimate(np.asarray(answer.value)[found], noise[found])
    return Top(tuple(question.candidates[at] for at in found), counts, rounds)


def listed(
    ask: Asker,
    candidates: Sequence[str | int | bool],
    k: int,
    *,
    votes: int,
    column: str,
) -> Top:
    """The most frequent of a list.

    Args:
        k: items to find.
        votes: of a client.
    """
    require_int("k", k, 1, len(candidates))
    question = Items(name=column, candidates=tuple(candidates), votes=votes)
    if len(candidates) <= KEPT * k:
        return _ranked(ask(Survey(questions=(question,)), 1.0)[0], question, k, 1)
    first = ask(Survey(questions=(question,)), 0.5)[0]
    kept = tuple(question.candidates[at] for at in sorted(largest(first, KEPT * k)))
    again = Items(name=column, candidates=kept, votes=min(votes, len(kept)))
    return _ranked(ask(Survey(questions=(again,)), 0.5)[0], again, k, 2)


def open_rounds(longest: int, alphabet: int, k: int) -> list[int]:
    """After how many letters each round of an open search counts; one more ranks what was found."""
    return ends_of_prefixes(longest, alphabet, max(BEAM, 2 * k))


def opened(ask: Asker, k: int, *, votes: int, column: str, alphabet: str, longest: int) -> Top:
    """The most frequent of an open domain: texts over an alphabet.

    Rounds of the search have `SEARCH` of the budget together, the ranking has the rest.

    Args:
        alphabet: letters; an item with another one is never found.
        longest: letters of an item; of longer ones the beginning is found.
    """
    require_int("k", k, 1)
    require_int("longest", longest, 1)
    letters = sorted(set(alphabet))
    if not letters:
        raise ParameterError("alphabet", alphabet, "the letters that items have")
    ends = open_rounds(longest, len(letters), k)
    found: list[str] = [""]
    before = 0
    for end in ends:
        candidates = tuple(extended(found, letters, end - before))
        question = Items(name=column, candidates=candidates, votes=votes, prefix=end)
        answer = ask(Survey(questions=(question,)), SEARCH / len(ends))[0]
        found = [candidates[at] for at in discovered(answer, max(BEAM, 2 * k))]
        before = end
        if not found:
            return Top((), Estimate(np.zeros(0), np.zeros(0)), ends.index(end) + 1)
    last = Items(name=column, candidates=tuple(sorted(found)), votes=votes, prefix=longest)
    # Of so many that nobody has, none is named but by this chance.
    errors = float(scipy.stats.norm.isf(CHANCE / len(found)))
    answer = ask(Survey(questions=(last,)), 1.0 - SEARCH)[0]
    return _ranked(answer, last, k, len(ends) + 1, errors)
