"""The most frequent items of clients who have several each: votes for candidates.

`Items` counts, over clients, who has each of the candidates; a client has at most so many votes.
`private.top` asks it once or twice, or first finds candidates of an open domain letter by letter.

Source: docs/statistics.md; the prefix tree follows Zhu et al. 2020 (arXiv 1902.08534) without its
sampling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import scipy

from protocol.statistics.answers import Answer, Estimate
from protocol.statistics.codebooks import Codebook, Uniform, Word
from protocol.statistics.questions import (
    MOST_CELLS,
    Question,
    Record,
    Summed,
    check_categories,
    plain,
    take_tuples,
)
from secagg import ParameterError
from secagg.checks import require_int

MOST_CANDIDATES: Final = 400_000
"""In one round of a search."""
DISCOVERY: Final = 0.5
"""Share of a beam that may be filled by prefixes that nobody has, on average. The last round of a
search, which ranks items, leaves out what came of them; a higher threshold loses real ones."""


class Votes(Codebook):
    """A one at each of at most so many places."""

    missing = ()

    def __init__(self, candidates: int, votes: int) -> None:
        self.length = candidates
        # Two disjoint sets; of few candidates, one and the rest.
        self.square, self.largest = min(2 * votes, candidates), 1

    def words(self) -> Iterator[Word]:
        """As `Codebook.words` says: none, and each alone."""
        yield ()
        yield from (((each, 1),) for each in range(self.length))


@dataclass(frozen=True, kw_only=True)
class Items(Question):
    """How many clients have each candidate.

    Args:
        candidates: all that are counted.
        votes: of a client; one that has more candidates votes for so many of them, at random.
        prefix: count the first so many letters of an item in place of the whole; 0 for the whole.
    """

    KIND: ClassVar[str] = "items"

    name: str
    candidates: Sequence[str | int | bool]
    votes: int
    prefix: int = 0
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "candidates")
        check_categories("candidates", self.candidates)
        require_int("votes", self.votes, 1, MOST_CELLS)
        require_int("prefix", self.prefix, 0, 1 << 10)
        if not len(self.candidates) <= MOST_CELLS:
            raise ParameterError("candidates", len(self.candidates), f"at most {MOST_CELLS}")

    def book(self, tokens: int) -> Votes:
        """As `Question.book` says."""
        return Votes(len(self.candidates), self.votes)

    @property
    def numbers(self) -> int:
        """One for each candidate."""
        return len(self.candidates)

    @cached_property
    def places(self) -> Mapping[Any, int]:
        """Of the candidates."""
        return {candidate: at for at, candidate in enumerate(self.candidates)}

    def place(self, record: Record) -> int | None:
        """As `Question.place` says: that of the candidate, or of what counts of the item."""
        value = plain(record[0])
        if self.prefix and isinstance(value, str):
            value = value[: self.prefix]
        return self.places.get(value)

    def word(self, book: Votes, place: Any, uniform: Uniform) -> Word:
        """As `Question.word` says; votes are a client's, so see `words_of`."""
        raise NotImplementedError

    def words_of(self, places: Iterable[int | None], uniform: Uniform) -> Word:
        """A client's votes, from the places of its items."""
        voted = sorted({place for place in places if place is not None})
        while len(voted) > self.votes:
            voted.pop(int(uniform() * len(voted)))
        return [(place, 1) for place in voted]

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says: the count of each candidate, in their order."""
        return Answer(
            name=self.name,
            kind=self.KIND,
            labels=tuple(map(str, self.candidates)),
            estimate=Estimate(summed.values.copy(), np.full(summed.values.size, summed.deviation)),
        )


def discovered(answer: Answer, beam: int) -> list[int]:
    """The places that are worth another round: above the threshold, the largest first.

    Args:
        beam: most of them.
    """
    values = np.asarray(answer.value)
    threshold = scipy.stats.norm.isf(min(DISCOVERY * beam / values.size, 0.5))
    above = np.flatnonzero(values > threshold * np.asarray(answer.standard_error))
    return [int(each) for each in above[np.argsort(-values[above], kind="stable")][:beam]]


def largest(answer: Answer, keep: int) -> list[int]:
    """The places of the largest counts, the largest first."""
    order = np.argsort(-np.asarray(answer.value), kind="stable")
    return [int(each) for each in order[:keep]]


def ends_of_prefixes(longest: int, alphabet: int, beam: int) -> list[int]:
    """After how many letters each round counts: as many more as candidates allow.

    Args:
        longest: letters of an item at most.
        alphabet: letters.
        beam: prefixes that one round hands to the next.
    """
    ends: list[int] = []
    while not ends or ends[-1] < longest:
        start, found = (ends[-1], beam) if ends else (0, 1)
        step = max(1, int(math.log(MOST_CANDIDATES / found) / math.log(max(alphabet, 2))))
        ends.append(min(start + step, longest))
    return ends


def extended(found: Sequence[str], alphabet: Sequence[str], letters: int) -> list[str]:
    """Candidates with up to so many letters more; an item that ends earlier stays one."""
    grown, layer = set(found), list(found)
    for _ in range(letters):
        layer = [each + letter for each in layer for letter in alphabet]
        grown.update(layer)
    return sorted(grown - {""})
