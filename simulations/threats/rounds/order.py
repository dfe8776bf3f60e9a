"""Arrays in another order: one model by its names, another to a training function.

A model of three arrays, read by position: weights, biases, slopes. The server announces one whose
biases are far below zero, so that every unit is dead, and no gradient comes through. For the target
alone it puts two arrays of one shape in each other's place, each under its own name: slopes become
biases, the units live, and the sum is the target's update.

Source: as `suppression`, Pasquini et al. 2022; the order is this project's own finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from protocol.adapters.named_arrays import model_digest
from simulations.audits.base import Floats, derived_seed, identities_of
from simulations.threats.rounds.announced import COHORT, TARGET, announced_round
from simulations.threats.rounds.suppression import Suppression

INPUTS: Final = 6
UNITS: Final = 8
"""With a bias and a slope each, as many parameters as the announced round has coordinates."""

_DEAD: Final = -1e6
"""A bias that no input within a million comes up to."""


@dataclass(frozen=True, slots=True)
class ListModel:
    """One hidden layer of rectified units, added up with a slope each.

    Attributes:
        arrays: float64[`UNITS`, `INPUTS`], float64[`UNITS`] twice, in the order in which training
            gets them. Names are carried along and read by nobody.
    """

    arrays: Mapping[str, Floats]

    def digest(self) -> bytes:
        """32-byte hash of the model, as adapters compute it from what they received."""
        return model_digest(self.arrays)

    def digest_by_name(self) -> bytes:
        """What victims hash: arrays in the order of their names."""
        return model_digest({name: self.arrays[name] for name in sorted(self.arrays)})

    def update(self, inputs: Floats, target: float) -> Floats:
        """float64[`DIMENSION`]: a step against the gradient of half the squared error.

        Args:
            inputs: float64[`INPUTS`], a client's example.
        """
        weights, biases, slopes = self.arrays.values()
        alive = np.maximum(weights @ inputs + biases, 0.0)
        error = float(slopes @ alive) - target
        through = error * slopes * (alive > 0.0)
        return -np.concatenate([np.outer(through, inputs).ravel(), through, error * alive])

    def swapped(self) -> ListModel:
        """The same arrays under the same names, the last two in each other's place."""
        first, second, third = self.arrays
        return ListModel({name: self.arrays[name] for name in (first, third, second)})


def dead_model(rng: np.random.Generator) -> ListModel:
    """A model without a live unit; with biases and slopes exchanged, most units live."""
    weights = rng.normal(size=(UNITS, INPUTS))
    return ListModel({"0": weights, "1": np.full(UNITS, _DEAD), "2": np.full(UNITS, 0.5)})


def permuted_round(seed: int, number: int) -> Suppression[ListModel]:
    """Data and models of one round in which the target alone gets another order."""
    rng = np.random.default_rng([derived_seed(seed, "order"), number])
    identities, model = identities_of(seed, COHORT), dead_model(rng)
    models = [model.swapped() if i == TARGET else model for i in range(COHORT)]
    updates = [each.update(rng.normal(size=INPUTS), rng.normal()) for each in models]
    setup = announced_round(identities, model.digest(), 0, seed, number)
    return Suppression(identities, models, updates, setup, seed)
