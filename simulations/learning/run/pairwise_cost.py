"""What the real pairwise protocol takes of whoever plays all of it, from one small round."""

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

SAMPLE: Final = 16
"""Clients of the round that is played: enough that pairs, not clients, take most of the time."""


def pairwise_seconds(plan: TrainingPlan, length: int) -> float:
    """Seconds of one processor for a round of vectors this long, encoding included.

    Keys, shares and masks are made for every pair of neighbours, so the time of a complete graph of
    a few clients is scaled to the pairs that the plan has.
    """
    scheme = pairwise_of(plan)
    clients = min(plan.cohort, SAMPLE)
    small = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 2),
        cohort=clients,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        clip_l2=plan.clip_l2,
        scheme=replace(scheme, degree=None, threshold=None),
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
    degree, _ = scheme.graph(plan)
    return seconds * plan.cohort * (degree or plan.cohort - 1) / (clients * (clients - 1))
