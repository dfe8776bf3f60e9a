"""A private mean from its parts, in one process: plan, identities, ledger, aggregator.

Needs: veilsum
"""

import secrets
import tempfile

import numpy as np

from veilsum import (
    FixedRate,
    Identity,
    Ledger,
    PrivacyGoal,
    PrivateTraining,
    RealAggregator,
    TrainingPlan,
    client_policy,
)

vectors = np.random.default_rng(0).normal(0.5, 0.1, size=(40, 100))
people = [Identity.generate() for _ in vectors]
plan = TrainingPlan(
    goal=PrivacyGoal(epsilon=8.0, delta=1e-6, rounds=1),
    cohort=40,
    tolerated_dropouts=5,
    tolerated_colluders=2,
    clip_l2=6.0,
)
with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.jsonl") as ledger:
    real = RealAggregator(people, client_policy(plan, dimension=100))
    training = PrivateTraining(plan, 100, FixedRate(1.0), real, ledger)
    cohort = [person.public for person in people]
    result = training.run_round(cohort, secrets.token_bytes(32), lambda i: vectors[i])
print(np.mean(result.release.update), "at epsilon", result.epsilons.guaranteed)
