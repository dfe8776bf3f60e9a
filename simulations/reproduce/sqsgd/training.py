"""The cells of the campaign: one network trained, with one algorithm and seed.

Ten clients share the examples, all take part in every round with one batch each, and the server
takes a plain step with the mean of what they report. Runs of one seed share first parameters,
partition and batches, so that they can be compared run by run.

Source: sqSGD, Algorithm 2 and Section 4.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from dp.keystream import NoiseSeed
from simulations.campaigns.seeds import bytes_of, rng_of
from simulations.campaigns.study import dataset
from simulations.campaigns.tuning import held_out
from simulations.common.threads import one_thread
from simulations.learning.data import Dataset
from simulations.learning.local_dp import ClientMemory, LocalAlgorithm
from simulations.learning.training import LocalTraining, local_updates
from simulations.reproduce.sqsgd.plan import Setting
from sketch import PublicSeed

Floats = NDArray[np.float64]

# Parameters this much longer than the first ones are those of a run that diverged
LARGEST_GROWTH: Final = 10.0

VALIDATION: Final = 1 / 6  # share of the training examples on which rates are tried

# On a CPU half the time of larger ones: feature maps of the first layer fit the cache
EVALUATION_BATCH: Final = 32


@one_thread()
def trained(
    setting: Setting,
    algorithm: LocalAlgorithm | None,
    name: str,
    rate: float,
    seed: int,
    validating: bool,
) -> dict[str, Any]:
    """Train one network; return its accuracy after every epoch. Noise is derived from the name.

    Rates are chosen by runs that are `validating`: tested on training examples that are held out.
    """
    device = "cuda" if torch.cuda.is_available() and setting.model != "tiny" else "cpu"
    data = dataset(setting.data)
    data = held_out(data, VALIDATION) if validating else data
    return Training(setting, data, seed, device).train(algorithm, name, rate)


class Training:
    """One network, its examples and its clients, for one seed.

    The seed fixes first parameters, partition, batches and noise.
    """

    def __init__(self, setting: Setting, data: Dataset, seed: int, device: str = "cpu") -> None:
        if len(data.train) < setting.clients:
            raise ValueError(f"{len(data.train)} examples for {setting.clients} clients")
        self.setting, self.task = setting, setting.task
        self._data, self._seed, self._device = data, seed, device
        order = rng_of(seed, 0).permutation(len(data.train))
        self._members = np.array_split(order, setting.clients)

    def train(self, algorithm: LocalAlgorithm | None, name: str, rate: float) -> dict[str, Any]:
        """Train one network; return its accuracy after every epoch.

        A run that diverges ends there; what its parameters do then stands for the later epochs.
        """
        model = self.task.initial(torch.Generator().manual_seed(self._seed))
        limit = LARGEST_GROWTH * float(np.linalg.norm(model))
        memory, curve, rounds = ClientMemory(self.task.dimension), [], 0
        diverged = False
        for epoch in range(1, self.setting.epochs + 1):
            for _ in range(self.setting.rounds_of_epoch(len(self._data.train))):
                if diverged:
                    break
                mean = self.mean(algorithm, name, model, memory, rounds)
                moved = model + rate * mean
                rounds += 1
                # False for NaN, too.
                diverged = not float(np.linalg.norm(moved)) <= limit
                model = model if diverged else moved.astype(np.float32)
            test = self._data.test
            tested = self.task.evaluate(model, test, EVALUATION_BATCH, device=self._device)
            curve.append({"epoch": epoch, "accuracy": tested.accuracy, "loss": tested.loss})
        accuracy = curve[-1]["accuracy"]
        return {"curve": curve, "accuracy": accuracy, "rounds": rounds, "diverged": diverged}

    def mean(
        self,
        algorithm: LocalAlgorithm | None,
        name: str,
        model: NDArray[np.float32],
        memory: ClientMemory,
        number: int,
    ) -> Floats:
        """Return the mean of what the clients report in a round: float64[d], NaN if one cannot."""
        training, rng = LocalTraining.fed_sgd(self.setting.batch), rng_of(self._seed, 1, number)
        chunks = local_updates(
            self.task, model, self._data.train, self._members, training, rng, device=self._device
        )
        updates = np.concatenate(list(chunks)).astype(np.float64)
        if not np.isfinite(updates).all():
            return np.full(self.task.dimension, np.nan)
        if algorithm is None:
            return np.asarray(updates.mean(axis=0))
        return self.reported(algorithm, name, updates, memory, number) / len(updates)

    def reported(
        self,
        algorithm: LocalAlgorithm,
        name: str,
        updates: Floats,
        memory: ClientMemory,
        number: int,
    ) -> Floats:
        """Return the sum of the reports of all clients: float64[d]."""
        public = PublicSeed(bytes_of("sqsgd", self._seed, "round", number))
        # Reproducible, and so no secret: a simulation has nobody to protect.
        noise = NoiseSeed(bytes_of("sqsgd", self._seed, name, number))
        return algorithm.reports(range(len(updates)), updates, memory, public, noise).total()
