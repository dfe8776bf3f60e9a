"""From schedules to systems of equations, and from systems to what the server learns.

The unknowns of honest clients: the self mask of each, the mask of each pair in a cell, and the
input of each in each pass. The equations are those of docs/span.md, "The game".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import Mode
from simulations.threats.span.algebra import reduce_rows
from simulations.threats.span.schedules import Batch, Flags, Space

NOT_A_SUM = -1
"""The outcome of a system that yields more than one sum for each pass, or no plain sum."""
_SYSTEMS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Views:
    """What the server holds at the end of each schedule of a batch."""

    valid: Flags  # bool[batch], whether all clients go along
    released: Flags  # bool[honest, passes, batch]
    # known_seeds, known_keys: bool[honest, batch].
    known_seeds: Flags
    known_keys: Flags


def views(space: Space, batch: Batch) -> Views:
    """Let the clients answer, and count shares."""
    honest, passes, count = batch.participants.shape
    convinced = np.ones((honest, passes, count), np.bool_)
    if space.rules.consistency and space.parameters.mode is Mode.ACTIVE:
        for i, j in product(range(honest), range(passes)):
            convinced[i, j] = _is_confirmed(space, batch, i, j)
    released = batch.wanted & convinced
    valid = np.ones(count, np.bool_)
    if not space.eager:
        valid &= ~(batch.wanted & ~convinced).any(axis=(0, 1))
    return Views(
        valid,
        released,
        _rebuilt(space, batch, released, space.rules.kept_seeds),
        _rebuilt(space, batch, released, space.rules.kept_keys),
    )


def _is_confirmed(space: Space, batch: Batch, i: int, j: int) -> Flags:
    """Whether the server can show client i a quorum's signatures on the U3 it was shown."""
    shown = batch.survivors[i, j]
    corrupt = shown & (space.colluders & space.rosters[i])
    signatures = np.bitwise_count(corrupt).astype(np.int16)
    for other, cell in enumerate(space.cells):
        if cell == space.cells[i]:
            signatures += (batch.survivors[other] == shown).any(axis=0)
    confirmed: Flags = space.rules.is_quorum(space.parameters, signatures) & (shown != 0)
    return confirmed


def _rebuilt(space: Space, batch: Batch, released: Flags, kept: Any) -> Flags:
    """Of which honest clients the server has t distinct shares of one kind."""
    honest, passes, count = released.shape
    enough = np.zeros((honest, count), np.bool_)
    given = [
        [
            np.where(released[i, j], kept(h, batch.participants[i, j], batch.survivors[i, j]), 0)
            for j in range(passes)
        ]
        for i, h in enumerate(space.honest)
    ]
    for owner, h in enumerate(space.honest):
        if space.cells[owner] < 0:
            continue
        shares = np.full(count, (space.colluders & space.rosters[owner]).bit_count(), np.int16)
        for holder, cell in enumerate(space.cells):
            if cell == space.cells[owner]:
                shares += np.bitwise_or.reduce(given[holder]) >> h & 1
        enough[owner] = shares >= space.parameters.threshold
    return enough


@dataclass(frozen=True, slots=True)
class Layout:
    """Which bit of a system's number, and which unknown, stands for what."""

    honest: int
    passes: int
    self_mask: bool

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of honest clients, each with one mask."""
        return list(combinations(range(self.honest), 2))

    def numbers(self, space: Space, batch: Batch, held: Views) -> NDArray[np.int64]:
        """A number for each schedule that determines its system of equations."""
        bits = [*held.known_seeds, *held.known_keys]
        views_ = list(product(range(self.honest), range(self.passes)))
        bits += [batch.participants[i, j] != 0 for i, j in views_]
        bits += [
            (batch.participants[i, j] >> space.honest[k] & 1).astype(np.bool_)
            for i, j in views_
            for k in range(self.honest)
            if k != i
        ]
        return _pack(bits)

    def simplified(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of smaller systems with the same consequences for the inputs.

        An upload with an unknown self mask is the only equation with that unknown: it is dropped.
        A mask that is known is taken off. What is left: uploads with the unknown pair masks.
        """
        seeds, keys, uploads, masks = self._unpack(numbers)
        usable = uploads & seeds[:, None] if self.self_mask else uploads
        bits = [np.ones(len(numbers), np.bool_)] * self.honest
        bits += [np.zeros(len(numbers), np.bool_)] * self.honest
        views_ = list(product(range(self.honest), range(self.passes)))
        bits += [usable[i, j] for i, j in views_]
        bits += [
            masks[i, j, k] & usable[i, j] & ~(keys[i] | keys[k])
            for i, j in views_
            for k in range(self.honest)
            if k != i
        ]
        return _pack(bits)

    def matrices(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The systems: int64[batch, equations, unknowns], the masks' columns first."""
        seeds, keys, uploads, masks = self._unpack(numbers)
        h, pairs = self.honest, self.pairs
        rows, columns = h * self.passes + h + len(pairs), h + len(pairs) + h * self.passes
        a = np.zeros((len(numbers), rows, columns), np.int64)
        for i, j in product(range(h), range(self.passes)):
            row = a[:, j * h + i]
            row[:, h + len(pairs) + j * h + i] = uploads[i, j]
            if self.self_mask:
                row[:, i] = uploads[i, j]
            for column, (low, high) in enumerate(pairs, h):
                if i in (low, high):
                    sign, other = (1, high) if i == low else (-1, low)
                    row[:, column] = sign * (masks[i, j, other] & uploads[i, j])
        for i in range(h):
            a[:, h * self.passes + i, i] = seeds[i]
        for k, (low, high) in enumerate(pairs):
            a[:, h * self.passes + h + k, h + k] = keys[low] | keys[high]
        return a

    def learned(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The reduced basis of the combinations of inputs that the server can solve for.

        int64[batch, equations, honest * passes], zero rows included, and int64[batch]: the first
        row that counts.
        """
        masks = self.honest + len(self.pairs)
        reduced, first = reduce_rows(self.matrices(numbers), masks)
        return reduced[:, :, masks:], first

    def outcomes(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each system yields, as a set of bits.

        Bit j * honest + i is set for a sum with client i's input of pass j in it; 0 is nothing, and
        `NOT_A_SUM` anything but one plain sum for each pass.
        """
        parts = [
            self._outcomes(numbers[k : k + _SYSTEMS_AT_ONCE])
            for k in range(0, len(numbers), _SYSTEMS_AT_ONCE)
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _outcomes(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        basis, first = self.learned(numbers)
        basis[np.arange(basis.shape[1]) < first[:, None]] = 0
        by_pass = (basis.reshape(*basis.shape[:2], self.passes, self.honest) != 0).any(axis=3)
        plain = (basis <= 1).all(axis=(1, 2))
        plain &= (by_pass.sum(axis=2) <= 1).all(axis=1)  # no row mixes passes
        plain &= (by_pass.sum(axis=1) <= 1).all(axis=1)  # no pass has two rows
        support = (basis != 0).any(axis=1)
        return np.where(plain, support @ (1 << np.arange(support.shape[1])), NOT_A_SUM)

    def _unpack(self, numbers: NDArray[np.int64]) -> tuple[Flags, Flags, Flags, Flags]:
        h, passes = self.honest, self.passes
        count = 2 * h + h * passes + h * passes * (h - 1)
        bits = (numbers[None] >> np.arange(count)[:, None] & 1).astype(np.bool_)
        seeds, keys, rest = bits[:h], bits[h : 2 * h], bits[2 * h :]
        uploads = rest[: h * passes].reshape(h, passes, len(numbers))
        masks = np.zeros((h, passes, h, len(numbers)), np.bool_)
        others = rest[h * passes :].reshape(h, passes, h - 1, len(numbers))
        for i in range(h):
            masks[i][:, [k for k in range(h) if k != i]] = others[i]
        return seeds, keys, uploads, masks


def _pack(bits: list[Flags]) -> NDArray[np.int64]:
    numbers = np.zeros(len(bits[0]), np.int64)
    for k, bit in enumerate(bits):
        numbers |= bit.astype(np.int64) << k
    return numbers
