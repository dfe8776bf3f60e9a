"""From a table to features: standardised numbers and one indicator per category.

The encoder learns means, deviations and categories from the training table only. A deployment
would have to agree on them beforehand: here they count as public knowledge, like a vocabulary.

May use numpy; must not know files or the data sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data.tabular import BOUND, Categorical, Table


@dataclass(frozen=True, slots=True)
class TableEncoder:
    """What a training table says about how to encode any table of its schema."""

    # mean and standard deviation of each numeric column that is kept
    scales: dict[str, tuple[float, float]]
    # the names of each categorical column that is kept, sorted
    categories: dict[str, tuple[str, ...]]
    bound: float  # standardised numbers are cut off at plus and minus this

    @classmethod
    def fit(
        cls, train: Table, *, without: Iterable[str] = (), bound: float = BOUND
    ) -> TableEncoder:
        """Learn scales and categories from training rows."""
        left_out = train.schema.without(without)
        if not bound > 0.0:
            raise ValueError(f"bound must be positive, got {bound}")
        scales = {n: _scale(v) for n, v in train.numbers.items() if n not in left_out}
        categories = {n: _present(c) for n, c in train.categories.items() if n not in left_out}
        if not scales and not categories:
            raise ValueError("without must leave at least one column")
        return cls(scales, categories, bound)

    @property
    def features(self) -> tuple[str, ...]:
        """Return what each feature is: ``age``, ..., ``sex=Female``, ..."""
        indicators = (f"{n}={value}" for n, values in self.categories.items() for value in values)
        return (*self.scales, *indicators)

    def encode(self, table: Table) -> NDArray[np.float32]:
        """Return float32[m, features].

        A missing number is the mean, that is 0; so is every value of a column that is constant
        in training. A category that training does not know has no indicator: all are 0.
        """
        inputs = np.zeros((len(table), len(self.features)), dtype=np.float32)
        for place, (name, (mean, deviation)) in enumerate(self.scales.items()):
            if deviation > 0.0:
                standard = (table.numbers[name] - np.float32(mean)) / np.float32(deviation)
                inputs[:, place] = np.clip(np.nan_to_num(standard), -self.bound, self.bound)
        start = len(self.scales)
        for name, values in self.categories.items():
            _mark(inputs[:, start : start + len(values)], table.categories[name], values)
            start += len(values)
        return inputs


def _scale(numbers: NDArray[np.float32]) -> tuple[float, float]:
    """Return mean and standard deviation of the values there are; 0 and 0 if there are none."""
    known = numbers[~np.isnan(numbers)].astype(np.float64)
    if len(known) == 0:
        return 0.0, 0.0
    return float(known.mean()), float(known.std())


def _present(column: Categorical) -> tuple[str, ...]:
    """Return the names that occur in the rows: a table cut out of another knows more."""
    return tuple(sorted(column.values[code] for code in np.unique(column.codes)))


def _mark(block: NDArray[np.float32], column: Categorical, values: tuple[str, ...]) -> None:
    """Set each row's indicator to 1, in place."""
    place = {value: i for i, value in enumerate(values)}
    place_of_code = np.array([place.get(name, -1) for name in column.values], dtype=np.int64)
    places = place_of_code[column.codes]
    known = np.flatnonzero(places >= 0)
    block[known, places[known]] = 1.0
