"""Models for which a client's update is zero, whatever its data, but the target's.

A layer whose biases are far below zero has only dead units, and no gradient comes through. A server
that sends such a model to all clients but one gets that one's update as the sum.

Or it sends one model to all, in two orders. A model of three arrays is read by position: weights,
biases, slopes; its biases are far below zero. For the target alone two arrays of one shape are in
each other's place, each under its own name: slopes become biases, and the units live.

Source: Pasquini, Francati, Ateniese, CCS 2022 (arXiv 2111.07380), section 4.2; the order is this
project's own finding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from protocol import RoundSetup
from protocol.adapters.named_arrays import model_digest
from secagg import Identity
from simulations.audits.base import Floats, derived_seed, identities_of, noise_seed, public_keys
from simulations.threats.rounds.announced import COHORT, TARGET, announced_round
from simulations.threats.rounds.parties import Participant, real_client

INPUTS: Final = 7
UNITS: Final = 8
"""With a bias each, as many parameters as the announced round has coordinates."""

_DEAD: Final = -1e6
"""A bias that no input within a million comes up to."""


@dataclass(frozen=True, slots=True)
class ReluLayer:
    """One hidden layer of rectified units that are added up."""

    weights: Floats  # float64[`UNITS`, `INPUTS`]
    biases: Floats  # float64[`UNITS`]

    def digest(self) -> bytes:
        """32-byte hash of the model, as a client computes it from what it received."""
        return hashlib.sha256(self.weights.tobytes() + self.biases.tobytes()).digest()

    def update(self, inputs: Floats, target: float) -> Floats:
        """float64[`DIMENSION`]: a step against the gradient of half the squared error."""
        activations = self.weights @ inputs + self.biases
        error = float(np.maximum(activations, 0.0).sum()) - target
        slope = error * (activations > 0.0)
        return np.concatenate([-np.outer(slope, inputs).ravel(), -slope])

    def suppressed(self) -> ReluLayer:
        """The same model with every unit dead."""
        return ReluLayer(self.weights, np.full(UNITS, _DEAD))


def random_layer(rng: np.random.Generator) -> ReluLayer:
    """A model as training begins, biased so that most units are alive."""
    return ReluLayer(rng.normal(size=(UNITS, INPUTS)), np.full(UNITS, 0.5))


Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class Suppression(Generic[Model]):
    """One round in which all clients but the target received a model of dead units."""

    identities: Sequence[Identity]
    models: Sequence[Model]
    updates: Sequence[Floats]
    setup: RoundSetup
    seed: int

    def people(self, digest_of: Callable[[Model], bytes]) -> dict[int, Participant]:
        """Real clients, with a hash of the model that is theirs or a victim's."""
        registry = public_keys(self.identities)
        return {
            index: Participant(
                real_client(identity, registry),
                self.setup.announce(),
                digest_of(self.models[index]),
                self.updates[index],
                noise_seed(self.seed, "suppression", self.setup.context.round_number, index),
            )
            for index, identity in enumerate(self.identities)
        }


def suppressed_round(seed: int, number: int) -> Suppression[ReluLayer]:
    """Data and models of one round in which the target alone gets a model that lives."""
    rng = np.random.default_rng([derived_seed(seed, "suppression"), number])
    identities, model = identities_of(seed, COHORT), random_layer(rng)
    models = [model if i == TARGET else model.suppressed() for i in range(COHORT)]
    updates = [each.update(rng.normal(size=INPUTS), rng.normal()) for each in models]
    setup = announced_round(identities, model.digest(), 0, seed, number)
    return Suppression(identities, models, updates, setup, seed)


LIST_INPUTS: Final = 6
"""With a bias and a slope for each unit, as many parameters as the announced round has."""


@dataclass(frozen=True, slots=True)
class ListModel:
    """One hidden layer of rectified units, added up with a slope each."""

    # float64[`UNITS`, `LIST_INPUTS`], float64[`UNITS`] twice, in the order in which training gets
    # them. Names are carried along and read by nobody.
    arrays: Mapping[str, Floats]

    def digest(self) -> bytes:
        """32-byte hash of the model, as adapters compute it from what they received."""
        return model_digest(self.arrays)

    def digest_by_name(self) -> bytes:
        """What victims hash: arrays in the order of their names."""
        return model_digest({name: self.arrays[name] for name in sorted(self.arrays)})

    def update(self, inputs: Floats, target: float) -> Floats:
        """float64[`DIMENSION`]: a step against the gradient of half the squared error."""
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
    weights = rng.normal(size=(UNITS, LIST_INPUTS))
    return ListModel({"0": weights, "1": np.full(UNITS, _DEAD), "2": np.full(UNITS, 0.5)})


def permuted_round(seed: int, number: int) -> Suppression[ListModel]:
    """Data and models of one round in which the target alone gets another order."""
    rng = np.random.default_rng([derived_seed(seed, "order"), number])
    identities, model = identities_of(seed, COHORT), dead_model(rng)
    models = [model.swapped() if i == TARGET else model for i in range(COHORT)]
    updates = [each.update(rng.normal(size=LIST_INPUTS), rng.normal()) for each in models]
    setup = announced_round(identities, model.digest(), 0, seed, number)
    return Suppression(identities, models, updates, setup, seed)
