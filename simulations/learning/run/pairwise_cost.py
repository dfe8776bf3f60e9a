"""What the real pairwise protocol takes of whoever plays all of it, from two small rounds."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from dp import Ledger
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes.pairwise import pairwise_of
from protocol.training.local import local_aggregator
from protocol.training.private import PrivateTraining
from secagg import Identity
from sketch.controllers import FixedRate

SAMPLES: Final = (8, 16)
"""Clients of the two rounds that are played."""


def pairwise_seconds(plan: TrainingPlan, length: int) -> float:
    """Seconds of one processor for a round of vectors this long, encoding included.

    A client costs something for itself and something for each neighbour: keys, shares and masks.
    Two complete graphs of a few clients tell these apart.
    """
    few, more = (_seconds_of_a_client(plan, clients, length) for clients in SAMPLES)
    neighbour = max(0.0, (more - few) / (SAMPLES[1] - SAMPLES[0]))
    alone = max(0.0, few - (SAMPLES[0] - 1) * neighbour)
    degree, _ = pairwise_of(plan).graph(plan)
    return plan.cohort * (alone + (degree or plan.cohort - 1) * neighbour)


def _seconds_of_a_client(plan: TrainingPlan, clients: int, length: int) -> float:
    """Of a round on the complete graph, all parties together, over the clients."""
    small = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 2),
        cohort=clients,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        clip_l2=plan.clip_l2,
        scheme=replace(pairwise_of(plan), degree=None, threshold=None),
    )
    people = [Identity.generate() for _ in range(clients)]
    keys, nothing = [each.public for each in people], np.zeros(length)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        aggregator = local_aggregator(small, people, length)
        training = PrivateTraining(small, length, FixedRate(1.0), aggregator, ledger)
        for _ in range(2):  # the first compiles
            start = time.perf_counter()
            training.run_round(keys, bytes(32), lambda _: nothing)
            seconds = time.perf_counter() - start
    return seconds / clients
