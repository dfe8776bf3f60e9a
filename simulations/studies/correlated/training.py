"""One run: the accuracy of its last model and of its last models' mean, and the noise in the model.

Learning rates are chosen on a part of the training data, which is then not trained on: nothing is
chosen by test data.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dp.clipping import clip_l2
from simulations.campaigns.federated import data_of
from simulations.common.failures import DivergedError
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.federated import CohortUpdates, Federation, Invitation, Updates
from simulations.learning.noise_schedule import noise_weights
from simulations.learning.run.assembly import source_of
from simulations.learning.run.folder import RunFolder
from simulations.learning.sources import RecordedSource
from simulations.learning.training import training_pool


def run(config: RunConfig, validation: float = 0.0) -> dict[str, Any]:
    """Run a configuration; test on a share of the training examples, then not trained on."""
    data = data_of(config, validation)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        opened = stack.enter_context(RunFolder(Path(folder) / "run", config))
        # Cells of a campaign share the cores of a machine: one each.
        torch.set_num_threads(1)
        executor = stack.enter_context(training_pool(config.engine.threads))
        federation = Federation(config, data, executor)
        source = source_of(config, federation.task.layout, opened, None, stack, executor)
        return _trained(config, data, federation, source)


def _trained(
    config: RunConfig, data: Dataset, federation: Federation, source: RecordedSource
) -> dict[str, Any]:
    private = config.engine.aggregator != "plain"
    meter = NoiseMeter(source, config.privacy.clip_l2) if private else None
    found: dict[str, Any] = {"accuracy": 0.0, "averaged": 0.0, "diverged": True}
    try:
        *_, last = federation.run(meter or source)
    except DivergedError:
        return found
    facts = source.facts(last.invitation)
    tested = federation.task.evaluate(last.state.model, data.test)
    found = {
        "accuracy": tested.accuracy,
        "averaged": last.tested.accuracy,
        "diverged": False,
        "parameters": federation.task.dimension,
        "bits": facts["bits"],
        "epsilons": facts["epsilons"],
    }
    if meter is not None:
        found["noise"] = meter.in_the_model(config)
    return found


class NoiseMeter:
    """A source of means, and what it adds to the mean of clipped updates: noise, rounding."""

    def __init__(self, source: RecordedSource, clip_l2: float) -> None:
        self._source = source
        self._clip = clip_l2
        self._noise: list[NDArray[np.float32]] = []

    def mean(self, invitation: Invitation) -> NDArray[np.float64]:
        """The source's mean."""
        counted = _Counted(invitation.updates, self._clip)
        mean = self._source.mean(replace(invitation, updates=counted))
        self._noise.append((mean - counted.total / len(invitation.clients)).astype(np.float32))
        return mean

    def rate(self, server: Any, number: int, rounds: int) -> float:
        """The source's rate."""
        return self._source.rate(server, number, rounds)

    def in_the_model(self, config: RunConfig) -> list[float]:
        """Root mean square, per coordinate, of the noise in the model after every round."""
        weights = noise_weights(config.server, config.rounds)
        stacked = np.stack(self._noise)
        # Rows of the product one at a time: all of it would be as large as the run is long.
        return [float(np.sqrt(np.mean((row @ stacked) ** 2))) for row in weights]


class _Counted(CohortUpdates):
    """Updates of a cohort, clipped and added up as they are asked for."""

    def __init__(self, updates: Updates, clip_l2: float) -> None:
        super().__init__(iter(()))
        self._updates = updates
        self._clip = clip_l2
        self._last = -1
        self.total: NDArray[np.float64] | float = 0.0

    def __call__(self, index: int) -> NDArray[np.float32]:
        update = self._updates(index)
        if index > self._last:
            # Somebody may ask for the same update again.
            self._last = index
            self.total = self.total + clip_l2(update, self._clip).values
        return update
