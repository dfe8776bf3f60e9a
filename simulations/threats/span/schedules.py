"""Everything that a server may do with honest clients, as a product of independent choices.

docs/span.md, "What a schedule is", has the list. Clients with the same roster hash form a *cell*:
shares open and masks cancel inside a cell only, whatever else the lists say.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from secagg import Mode
from simulations.threats.span.clients import ClientRules, Parameters, members, subsets

Masks = NDArray[np.int16]
Flags = NDArray[np.bool_]


class Reduction(enum.Enum):
    """Which schedules may be left out because another one tells the server at least as much.

    The arguments are in docs/span.md; for n <= 4 the tests compare all three.
    """

    NONE = "none"
    DOMINATED = "dominated"
    SYMMETRIC = "symmetric"


@dataclass(frozen=True, slots=True)
class Batch:
    """Some schedules: what honest client number i was shown in pass number j, in schedule k."""

    participants: Masks  # int16[honest, passes, batch], U2; 0 for a client that uploads nothing
    survivors: Masks  # int16[honest, passes, batch], U3; 0 for a client that was shown none
    wanted: Flags  # bool[honest, passes, batch], whether the server asks for shares


@dataclass(frozen=True, slots=True)
class Axis:
    """One independent choice: option k sets the views `places`, pairs (honest client, pass)."""

    places: tuple[tuple[int, int], ...]
    # participants, survivors: int16[places, options].
    participants: Masks
    survivors: Masks
    wanted: Flags  # bool[places, options]


@dataclass(frozen=True, slots=True)
class Space:
    """All schedules with the same colluders, cells and rosters."""

    parameters: Parameters
    rules: ClientRules
    colluders: int
    honest: tuple[int, ...]
    cells: tuple[int, ...]
    rosters: tuple[int, ...]
    eager: bool
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of combinations; not all are schedules unless `eager`."""
        return prod(axis.participants.shape[1] for axis in self.axes)

    def batch(self, start: int, stop: int) -> Batch:
        """Combinations number start .. stop - 1, in mixed radix, the last axis fastest."""
        shape = (len(self.honest), self.rules.passes, stop - start)
        participants, survivors = np.zeros(shape, np.int16), np.zeros(shape, np.int16)
        wanted = np.zeros(shape, np.bool_)
        rest = np.arange(start, stop)
        for axis in reversed(self.axes):
            rest, option = np.divmod(rest, axis.participants.shape[1])
            for k, place in enumerate(axis.places):
                participants[place] = axis.participants[k, option]
                survivors[place] = axis.survivors[k, option]
                wanted[place] = axis.wanted[k, option]
        return Batch(participants, survivors, wanted)


def spaces(p: Parameters, rules: ClientRules, reduction: Reduction) -> Iterator[Space]:
    """All schedules of a round, cut into spaces."""
    for colluders in _colluder_sets(p, reduction):
        honest = members(p.everybody & ~colluders)
        if p.mode is Mode.ACTIVE:
            yield from _active(p, rules, reduction, colluders, honest)
        else:
            yield from _curious(p, rules, colluders, honest)


def _colluder_sets(p: Parameters, reduction: Reduction) -> Iterator[int]:
    for colluders in subsets(p.everybody):
        count = colluders.bit_count()
        last = p.everybody & ~((1 << p.size - count) - 1)
        if count <= p.colluders and (reduction is not Reduction.SYMMETRIC or colluders == last):
            yield colluders


# -- a server that deviates ---------------------------------------------------------------------


def _active(
    p: Parameters, rules: ClientRules, reduction: Reduction, colluders: int, honest: tuple[int, ...]
) -> Iterator[Space]:
    raw = reduction is Reduction.NONE
    for cells in _cells(len(honest), raw):
        groups = [
            [honest[i] for i, cell in enumerate(cells) if cell == c] for c in range(max(cells) + 1)
        ]
        for rosters in product(*(_rosters(p, rules, group, raw) for group in groups)):
            seen = tuple(rosters[cell] if cell >= 0 else 0 for cell in cells)
            alike = reduction is Reduction.SYMMETRIC and len(groups) == 1
            axes: list[Axis] = []
            for i, pass_ in product(range(len(honest)), range(rules.passes)):
                mates = sum(1 << h for h in groups[cells[i]]) if cells[i] >= 0 else 0
                options = _views(p, rules, honest[i], seen[i], mates | colluders, colluders, raw)
                if alike and not axes:
                    options = _one_of_a_kind(options, colluders)
                axes.append(_axis([(i, pass_)], [[option] for option in options]))
            yield Space(p, rules, colluders, honest, cells, seen, not raw, tuple(axes))


def _cells(honest: int, absent: bool) -> Iterator[tuple[int, ...]]:
    """All partitions of the honest clients, as numbers in order of first use; -1 is no cell."""

    def extend(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == honest:
            yield prefix
            return
        for cell in range(-1 if absent else 0, max(prefix, default=-1) + 2):
            yield from extend((*prefix, cell))

    yield from extend(())


def _rosters(p: Parameters, rules: ClientRules, group: list[int], raw: bool) -> list[int]:
    """The U1 that all clients of a cell accept."""
    choices = subsets(p.everybody) if raw else iter([p.everybody])
    return [u1 for u1 in choices if all(rules.accepts_roster(p, client, u1) for client in group)]


View = tuple[int, int, bool]
"""U2, U3, and whether shares are asked for."""


def _views(
    p: Parameters,
    rules: ClientRules,
    client: int,
    roster: int,
    sealed: int,
    colluders: int,
    raw: bool,
) -> list[View]:
    """What the server may show a client after its roster, as far as the client goes along."""
    nothing: View = (0, 0, False)
    views = []
    for participants in subsets(roster):
        if not rules.accepts_participants(p, client, roster, sealed, participants):
            continue
        if raw:
            views.append((participants, 0, False))
        for survivors in subsets(participants):
            if not rules.accepts_survivors(p, client, participants, survivors):
                continue
            if raw:
                views.append((participants, survivors, False))
            if raw or colluders & ~survivors == 0:
                views.append((participants, survivors, True))
    return [nothing, *views] if raw or not views else views


def _one_of_a_kind(options: list[View], colluders: int) -> list[View]:
    """One view for each pair of sizes: the others come from it by renaming honest clients."""
    kinds: dict[tuple[int, int], View] = {}
    for option in options:
        sizes = ((option[0] & ~colluders).bit_count(), (option[1] & ~colluders).bit_count())
        kinds.setdefault(sizes, option)
    return list(kinds.values())


# -- a server that only looks -------------------------------------------------------------------


def _curious(
    p: Parameters, rules: ClientRules, colluders: int, honest: tuple[int, ...]
) -> Iterator[Space]:
    for roster in subsets(p.everybody):
        if roster.bit_count() < p.minimum:
            continue
        cells = tuple(0 if roster >> client & 1 else -1 for client in honest)
        seen = tuple(roster if cell == 0 else 0 for cell in cells)
        runs = list(_runs(p, rules, roster, honest))
        if runs:
            axes = tuple(
                _axis([(i, pass_) for i in range(len(honest))], runs)
                for pass_ in range(rules.passes)
            )
            yield Space(p, rules, colluders, honest, cells, seen, False, axes)


def _runs(
    p: Parameters, rules: ClientRules, roster: int, honest: tuple[int, ...]
) -> Iterator[list[View]]:
    """Who shared, who uploaded in time, late or never, and who answered: the views of all."""
    for participants in subsets(roster):
        for survivors in subsets(participants):
            if survivors.bit_count() < p.minimum:
                continue
            choices: list[list[View]] = []
            for client in honest:
                if survivors >> client & 1:
                    if not rules.accepts_survivors(p, client, participants, survivors):
                        break
                    choices.append([(participants, survivors, yes) for yes in (False, True)])
                elif participants >> client & 1:
                    choices.append([(0, 0, False), (participants, 0, False)])
                else:
                    choices.append([(0, 0, False)])
            else:
                yield from map(list, product(*choices))


def _axis(places: list[tuple[int, int]], options: list[list[View]]) -> Axis:
    table = np.array(options, np.int16).transpose(2, 1, 0)
    return Axis(tuple(places), table[0], table[1], table[2].astype(np.bool_))
