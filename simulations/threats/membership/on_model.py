"""Did this client take part in training? By an adversary that sees the trained model alone.

docs/attacks-on-updates.md, "How A24 works": score = -loss, and an audit in one run.

Source: Yeom et al. 2018 (arXiv 1709.01604), section 3.2, for thresholds on the loss; Steinke, Nasr
and Jagielski 2023 (arXiv 2305.08846) for the bound.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from dp import Ledger
from protocol import IdealAggregator, PrivacyGoal, PrivateTraining, TrainingPlan
from simulations.audits.base import (
    Claim,
    Figures,
    Floats,
    derived_seed,
    identities_of,
    noise_seed,
    public_keys,
)
from simulations.audits.intervals import lower_bound, upper_bound
from simulations.audits.one_run import one_run
from simulations.audits.paths import repeatable
from simulations.learning.data import Dataset, Split
from simulations.learning.federated import model_digest
from simulations.learning.models import DataShape, Task, Vector, build_task
from simulations.learning.training import LocalTraining, local_updates
from simulations.threats.game.rates import CONFIDENCE
from simulations.threats.inversion.views import CLIP_L2, ERROR_SHARE
from sketch.controllers import FixedRate

Members: TypeAlias = list[NDArray[np.int64]]
Updates: TypeAlias = NDArray[np.float32]

LOCAL: Final = LocalTraining.fed_avg(0.5, epochs=3)
"""What a client does in a round."""

GUESSED: Final = 2 / 3
"""Share of the clients that is guessed at; the others' scores are too close to call."""


@dataclass(frozen=True)
class ModelGame:
    """A federation to attack."""

    data: Dataset
    clients: int
    examples: int
    goal: PrivacyGoal
    rate: float
    random_labels: bool
    seed: int

    @property
    def task(self) -> Task:
        """A perceptron with one hidden layer."""
        return build_task("mlp", DataShape.of(self.data))

    @cached_property
    def split(self) -> Split:
        """What clients train on, with their own labels or with labels drawn at random."""
        train = self.data.train
        if not self.random_labels:
            return train
        rng = np.random.default_rng(derived_seed(self.seed, "labels"))
        return Split(train.inputs, rng.integers(0, self.data.classes, len(train)))

    @property
    def members(self) -> Members:
        """The examples of each client, all distinct."""
        rng = np.random.default_rng(derived_seed(self.seed, "members"))
        held = rng.permutation(len(self.split))[: self.clients * self.examples]
        return list(held.reshape(self.clients, self.examples))

    def included(self) -> NDArray[np.bool_]:
        """Who takes part: a fair coin for each client."""
        return np.random.default_rng(derived_seed(self.seed, "coins")).random(self.clients) < 0.5

    def losses(self, model: Vector, members: Members) -> Floats:
        """Mean loss of each client's examples: float64[m]."""
        task = self.task
        return np.array(
            [
                task.evaluate(model, Split(self.split.inputs[held], self.split.labels[held])).loss
                for held in members
            ]
        )


Mean: TypeAlias = Callable[[Updates, Vector], Floats]
"""From all updates float32[m, d] and the model they started from to their mean."""


def train(game: ModelGame, members: Members, included: NDArray[np.bool_], mean: Mean) -> Vector:
    """Run all rounds; who is not included sends zeros. Returns the model float32[d]."""
    task = game.task
    generator = torch.Generator().manual_seed(derived_seed(game.seed, "model") % 2**63)
    model = task.initial(generator)
    rng = np.random.default_rng(derived_seed(game.seed, "batches"))
    for _ in range(game.goal.rounds):
        chunks = local_updates(task, model, game.split, members, LOCAL, rng)
        updates = np.concatenate(list(chunks)) * included[:, None]
        model = (model + game.rate * mean(updates, model)).astype(np.float32)
    return model


def plain_mean(updates: Updates, model: Vector) -> Floats:
    """The mean without clip and without noise."""
    del model
    return np.asarray(updates.mean(axis=0, dtype=np.float64))


class AccountedMean:
    """The mean as the product releases it, round by round, and what that is accounted with."""

    def __init__(self, game: ModelGame, ledger: Ledger) -> None:
        plan = TrainingPlan(
            goal=game.goal,
            cohort=game.clients,
            tolerated_dropouts=0,
            tolerated_colluders=0,
            clip_l2=CLIP_L2,
            error_share=ERROR_SHARE,
        )
        self._keys = public_keys(identities_of(game.seed, game.clients))
        self._seed, self._round = game.seed, 0
        self._training = PrivateTraining(
            plan,
            game.task.dimension,
            FixedRate(1.0),
            IdealAggregator(noise=lambda i: noise_seed(self._seed, "noise", self._round, i)),
            ledger,
            rand=repeatable(game.seed, "public"),
        )
        self.epsilon = 0.0

    def __call__(self, updates: Updates, model: Vector) -> Floats:
        """Run a round and return the released mean update."""
        self._round += 1
        result = self._training.run_round(self._keys, model_digest(model), updates.__getitem__)
        self.epsilon = result.epsilons.server
        return result.release.update


@dataclass(frozen=True, slots=True)
class Played:
    """One training and its attack."""

    included: NDArray[np.bool_]  # who took part, bool[m]
    scores: Floats  # larger for those who probably did, float64[m]
    accuracy: float
    epsilon: float


def play(game: ModelGame, private: bool) -> Played:
    """Train with or without the product's privacy, and score every client."""
    members, included = game.members, game.included()
    if private:
        with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "led") as ledger:
            mean = AccountedMean(game, ledger)
            model, epsilon = train(game, members, included, mean), mean.epsilon
    else:
        model, epsilon = train(game, members, included, plain_mean), 0.0
    scores = -game.losses(model, members)
    return Played(included, scores, game.task.evaluate(model, game.data.test).accuracy, epsilon)


def model_figures(played: Played, claim: Claim) -> Figures:
    """What the attack on one trained model came to."""
    guesses = round(GUESSED * len(played.scores))
    bound = one_run(played.included, played.scores, guesses, claim.delta, CONFIDENCE)
    member, other = played.scores[played.included], played.scores[~played.included]
    middle = float(np.median(played.scores))
    true, false = int((member > middle).sum()), int((other > middle).sum())
    alpha = 1.0 - CONFIDENCE
    return {
        "clients": len(played.scores),
        "auc": float((member[:, None] > other).mean()),
        "advantage": true / len(member) - false / len(other),
        "advantage_lower": float(
            lower_bound(true, len(member), alpha) - upper_bound(false, len(other), alpha)
        ),
        "advantage_upper": float(
            upper_bound(true, len(member), alpha) - lower_bound(false, len(other), alpha)
        ),
        "guesses": guesses,
        "right": bound.right,
        "accounted_epsilon": claim.epsilon,
        "audited_epsilon": bound.epsilon,
        "audited_epsilon_ceiling": bound.ceiling,
        "delta": claim.delta,
        "test_accuracy": played.accuracy,
        "succeeded": bound.epsilon > claim.epsilon,
    }
