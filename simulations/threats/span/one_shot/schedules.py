"""Everything that a server may do with the honest parties of a one-shot round.

The model is in docs/span.md. A schedule is a row of numbers: the option chosen for each place. A
place is one honest member, or one of its two signatures for a mutant that gives two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np

from simulations.threats.span.clients import subsets
from simulations.threats.span.one_shot.rules import OneShotParameters, OneShotRules
from simulations.threats.span.shares import Integers

NOTHING = -1
"""The option of a member that is shown no set."""
CONTEXTS = 2


@dataclass(frozen=True, slots=True)
class Upload:
    """One honest upload: `copy` tells those of one client in one context apart."""

    client: int
    context: int
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Option:
    """A set that some member may be asked to sign."""

    context: int
    uploads: tuple[int, ...]  # honest uploads in it, by their place in `Space.uploads`
    colluders: int  # the server's own clients in it, a bit mask
    name: int  # number of what is signed; options with the same number count for one another


@dataclass(frozen=True, slots=True)
class Space:
    """All schedules with the same uploads, committees and corrupt members."""

    parameters: OneShotParameters
    rules: OneShotRules
    uploads: tuple[Upload, ...]
    points: tuple[tuple[int, int], ...]
    corrupt: frozenset[int]
    options: tuple[Option, ...]
    places: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of schedules."""
        return prod(map(len, self.choices))

    def batch(self, start: int, stop: int) -> Integers:
        """Schedules number start .. stop - 1, the last place fastest: int64[schedules, places]."""
        rest = np.arange(start, stop)
        chosen = np.empty((len(rest), len(self.choices)), np.int64)
        for place in reversed(range(len(self.choices))):
            options = np.array(self.choices[place])
            rest, index = np.divmod(rest, len(options))
            chosen[:, place] = options[index]
        return chosen


def spaces(p: OneShotParameters, rules: OneShotRules, every: bool = False) -> Iterator[Space]:
    """All schedules of a round, cut into spaces."""
    for overlap in range(p.members + 1):
        points = _points(p.members, overlap)
        for corrupt in _corrupt_sets(points, p.corrupt, every):
            for uploads in filter(None, _uploads(p, rules, every)):
                yield _space(p, rules, points, corrupt, uploads, every)


def _points(members: int, overlap: int) -> tuple[tuple[int, int], ...]:
    """The first committee's last `overlap` members are the second one's first."""
    count = 2 * members - overlap
    first = [j + 1 if j < members else 0 for j in range(count)]
    second = [max(j - (members - overlap) + 1, 0) for j in range(count)]
    return tuple(zip(first, second, strict=True))


def _corrupt_sets(
    points: tuple[tuple[int, int], ...], most: int, every: bool
) -> Iterator[frozenset[int]]:
    """Sets with at most c members of each committee, or only those with exactly c of each."""
    for count in range(2 * most + 1):
        for chosen in combinations(range(len(points)), count):
            inside = [sum(points[j][k] > 0 for j in chosen) for k in range(CONTEXTS)]
            if max(inside) <= most and (every or min(inside) == most):
                yield frozenset(chosen)


def _uploads(
    p: OneShotParameters, rules: OneShotRules, every: bool
) -> Iterator[tuple[Upload, ...]]:
    """Where each honest client uploads; at most one of them uploads twice."""
    kinds: list[tuple[tuple[int, int], ...]] = [((k, 0),) for k in range(CONTEXTS)]
    if rules.again:
        kinds += [((k, 0), (k, 1)) for k in range(CONTEXTS)]
    if rules.elsewhere:
        kinds.append(((0, 0), (1, 0)))
    if every:
        kinds.append(())
    seen = set()
    for chosen in product(range(len(kinds)), repeat=p.honest):
        alike = chosen if every else tuple(sorted(chosen))
        if alike not in seen and sum(len(kinds[kind]) == 2 for kind in alike) <= 1:
            seen.add(alike)
            yield tuple(
                Upload(client, context, copy)
                for client, kind in enumerate(alike)
                for context, copy in kinds[kind]
            )


def _space(
    p: OneShotParameters,
    rules: OneShotRules,
    points: tuple[tuple[int, int], ...],
    corrupt: frozenset[int],
    uploads: tuple[Upload, ...],
    every: bool,
) -> Space:
    options = _options(p, rules, uploads, every)
    places, choices = [], []
    for member, member_points in enumerate(points):
        if member in corrupt:
            continue
        own = [number for number, each in enumerate(options) if member_points[each.context]]
        if every or not own:
            own.insert(0, NOTHING)
        for _ in range(rules.sets):
            places.append(member)
            choices.append(tuple(own))
    return Space(p, rules, uploads, points, corrupt, tuple(options), tuple(places), tuple(choices))


def _options(
    p: OneShotParameters, rules: OneShotRules, uploads: tuple[Upload, ...], every: bool
) -> list[Option]:
    """The sets that a member accepts: at most one upload of each client."""
    own = ((1 << p.colluders) - 1) << p.honest
    options: list[Option] = []
    names: dict[tuple[object, ...], int] = {}
    for context in range(CONTEXTS):
        here = [i for i, upload in enumerate(uploads) if upload.context == context]
        delivered = sum({1 << uploads[i].client for i in here}) | own
        for count in range(0 if every else 1, len(here) + 1):
            for chosen in combinations(here, count):
                clients = [uploads[i].client for i in chosen]
                if len(set(clients)) < count:
                    continue
                for colluders in reversed(list(subsets(own))) if every else [own]:
                    proposal = sum(1 << client for client in clients) | colluders
                    if not rules.accepts_proposal(p, delivered, proposal):
                        continue
                    what = chosen if rules.headers else tuple(clients)
                    name = names.setdefault((context, what, colluders), len(names))
                    options.append(Option(context, chosen, colluders, name))
    return options
