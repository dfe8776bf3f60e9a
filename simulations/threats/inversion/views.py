"""What an attacker sees of a round: one plain update, the secure sum, or the noised sum.

Both sums come out of the product, with the ideal aggregator. The sum without noise is a round with
no coins and fine integers. Nobody vanishes and nobody colludes, so there is no more noise than the
goal asks for.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from dp import BinomialMechanism
from protocol import IdealAggregator, Pipeline, PrivacyGoal, RoundParameters, RoundSetup
from protocol.schemes.pairwise import pairwise_setup
from simulations.audits.base import Floats, derived_bytes, identities_of, noise_seed, public_keys
from simulations.audits.paths import PathSettings
from simulations.learning.data import Split
from simulations.learning.models import Task, Vector
from simulations.learning.training import LocalTraining, local_updates
from sketch import SketchSpec

CLIP_L2: Final = 1.0
"""Clip of every round here."""

EXACT_UNITS: Final = 1 << 22
"""Integer units of the clip in a round without noise: rounding is off by less than 2^-22."""

ERROR_SHARE: Final = 0.2
"""Variance beyond that of a Gaussian. Less would need more coins than there are, for a million
parameters and a dozen clients."""


class ServerView(enum.Enum):
    """What the attack gets to see."""

    PLAIN = "plain update"
    SUM = "secure sum"
    NOISED = "noised sum"


@dataclass(frozen=True, slots=True)
class GradientRound:
    """One round of clients who each make one gradient step."""

    task: Task
    model: Vector  # float32[d], as the server sent it
    updates: NDArray[np.float32]  # float32[n, d]: minus the gradient of each client

    @classmethod
    def of(
        cls, task: Task, model: Vector, split: Split, members: list[NDArray[np.int64]]
    ) -> GradientRound:
        """Let every member make its step on all its examples."""
        rng = np.random.default_rng(0)  # with all examples in one batch there is nothing to draw
        chunks = local_updates(task, model, split, members, LocalTraining.fed_sgd(), rng)
        return cls(task, model, np.concatenate(list(chunks)))

    def gradient(self, view: ServerView, goal: PrivacyGoal, seed: int) -> Floats:
        """What the attacker takes for the gradient: float64[d]."""
        if view is ServerView.PLAIN:
            return np.asarray(-self.updates[0], np.float64)
        setup = announced(
            len(self.updates), self.task.dimension, goal, seed, view is ServerView.NOISED
        )
        return -released_mean(setup, self.updates, seed)


def released_mean(setup: RoundSetup, updates: NDArray[np.float32], seed: int) -> Floats:
    """Run one round in which nobody vanishes; return the mean update float64[d]."""
    aggregator = IdealAggregator(noise=lambda index: noise_seed(seed, "noise", index))
    outcome = aggregator.run(setup, updates.__getitem__, {})
    return Pipeline(setup).decode(outcome.total, outcome.surplus).update


def announced(
    clients: int, dimension: int, goal: PrivacyGoal, seed: int, noised: bool
) -> RoundSetup:
    """Announce a round in which all have to stay, with noise for the goal or with none."""
    settings = PathSettings(
        SketchSpec.identity(dimension),
        goal,
        cohort=clients,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        error_share=ERROR_SHARE,
        clip_l2=CLIP_L2,
    )
    parameters = settings.parameters(seed)
    if not noised:
        parameters = _without_noise(parameters)
    keys = public_keys(identities_of(0, clients))
    return pairwise_setup(settings.plan, parameters, keys, derived_bytes(seed, "session")[:16], 0)


def _without_noise(parameters: RoundParameters) -> RoundParameters:
    """The same round without noise, in integers so fine that rounding does not matter."""
    none, scale = BinomialMechanism(0), EXACT_UNITS / CLIP_L2
    return replace(parameters, mechanism=none, scale=scale, linf_bound=EXACT_UNITS + 1)


def named(task: Task, gradient: Floats) -> dict[str, torch.Tensor]:
    """Cut a gradient float64[d] into the parameters' shapes."""
    return task.layout.unflatten(torch.tensor(gradient))
