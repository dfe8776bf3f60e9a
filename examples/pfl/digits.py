"""Private federated averaging in pfl on scikit-learn's digits, with and without `PrivateMean`.

Needs: veilsum[pfl], scikit-learn
Run with: python examples/pfl/digits.py
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor import Postprocessor
from sklearn.datasets import load_digits

from dp import Ledger
from protocol import PrivacyGoal, TrainingPlan
from protocol.adapters.pfl import PrivateMean
from sketch.controllers import AdaptNorm

USERS, COHORT, ROUNDS = 160, 60, 16
TRAINING = NNTrainHyperParams(local_batch_size=5, local_num_epochs=4, local_learning_rate=0.3)


class Network(torch.nn.Sequential):
    """64 pixels, hidden units, 10 digits: 75 parameters for each hidden unit, and 10."""

    def __init__(self, hidden: int = 32) -> None:
        layers = torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
        super().__init__(*layers)

    def loss(self, pixels, digits):
        return torch.nn.functional.cross_entropy(self(pixels), digits.long())

    @torch.no_grad()
    def metrics(self, pixels, digits):
        right = int((self(pixels).argmax(1) == digits).sum())
        return {"accuracy": Weighted(right, len(digits))}


@dataclass
class Digits:
    """A user has nine digits, or eight; every fifth digit is kept for the test."""

    train: FederatedDataset
    test: Dataset

    @classmethod
    def load(cls):
        pixels, digits = load_digits(return_X_y=True)
        pixels, digits = (pixels / 16).astype(np.float32), digits.astype(np.float32)
        held_out = np.arange(len(digits)) % 5 == 0
        owned = np.flatnonzero(~held_out)

        def user(number):
            mine = owned[number::USERS]
            return Dataset((pixels[mine], digits[mine]), user_id=str(number))

        sampler = get_user_sampler("minimize_reuse", list(range(USERS)))
        return cls(FederatedDataset(user, sampler), Dataset((pixels[held_out], digits[held_out])))


class Report(TrainingProcessCallback):
    """One line for every round."""

    def __init__(self, digits: Digits) -> None:
        self.digits = digits
        self.accuracy = 0.0

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        metrics = model.evaluate(self.digits.test)
        self.accuracy = metrics["accuracy"].overall_value
        line = f"round {central_iteration:2d}  accuracy {self.accuracy:.3f}"
        for name in (
            "survivors",
            "sketch size",
            "bits per parameter",
            "epsilon guaranteed against the server",
        ):
            if f"veilsum | {name}" in aggregate_metrics:
                line += f"  {name} {aggregate_metrics[f'veilsum | {name}']:.4g}"
        print(line)
        return False, Metrics()


def new_model(seed: int, rate: float, hidden: int = 32) -> PyTorchModel:
    """A fresh network; the mean update is applied with this learning rate."""
    torch.manual_seed(seed)
    network = Network(hidden)
    return PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=rate))


def train(model: PyTorchModel, postprocessors: list[Postprocessor], rounds: int = ROUNDS) -> float:
    """Federated averaging; the accuracy on digits that nobody trained on."""
    np.random.seed(1)  # pfl draws its users with it
    digits = Digits.load()
    report = Report(digits)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=COHORT,
            val_cohort_size=None,
        ),
        SimulatedBackend(digits.train, digits.train, postprocessors),
        model,
        TRAINING,
        callbacks=[report],
        send_metrics_to_platform=False,
    )
    return report.accuracy


def private_mean(
    dimension: int, ledger: Ledger, rounds: int = ROUNDS, **sources: Any
) -> PrivateMean:
    """64 users are invited to each round; four of them drop out, and the noise allows for eight."""
    plan = TrainingPlan(
        # This is the most often that a user takes part, because users take turns.
        goal=PrivacyGoal(epsilon=8.0, delta=1e-5, rounds=-(-rounds * COHORT // USERS)),
        cohort=64,
        tolerated_dropouts=8,
        tolerated_colluders=2,
        clip_l2=0.5,
    )
    return PrivateMean(plan, dimension, AdaptNorm(first_rate=4.0), ledger, **sources)


def main() -> None:
    """Both runs, one after the other."""
    torch.set_num_threads(1)  # users are small: threads would only wait for one another
    print("plain:")
    plain = train(new_model(seed=1, rate=1.0), [])
    print("private:")
    dimension = sum(parameter.numel() for parameter in Network().parameters())
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        private = train(new_model(seed=1, rate=2.0), [private_mean(dimension, ledger)])
    print(f"accuracy {plain:.3f} without privacy, {private:.3f} with it")


if __name__ == "__main__":
    main()
