"""A broken schedule, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulations.threats.span.equations import Layout, Views
from simulations.threats.span.parameters import Parameters, members
from simulations.threats.span.schedules import Batch, Space
from simulations.threats.span.search import combination


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
