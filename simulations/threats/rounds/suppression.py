"""Gradient suppression: a model for which a client's update is zero, whatever its data.

A layer whose biases are far below zero has only dead units, and no gradient comes through. A server
that sends such a model to all clients but one gets that one's update as the sum.

Source: Pasquini, Francati, Ateniese, CCS 2022 (arXiv 2111.07380), section 4.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from protocol import RoundSetup
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
    """One hidden layer of rectified units that are added up.

    Attributes:
        weights: float64[`UNITS`, `INPUTS`].
        biases: float64[`UNITS`].
    """

    weights: Floats
    biases: Floats

    def digest(self) -> bytes:
        """32-byte hash of the model, as a client computes it from what it received."""
        return hashlib.sha256(self.weights.tobytes() + self.biases.tobytes()).digest()

    def update(self, inputs: Floats, target: float) -> Floats:
        """float64[`DIMENSION`]: a step against the gradient of half the squared error.

        Args:
            inputs: float64[`INPUTS`], a client's example.
        """
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
