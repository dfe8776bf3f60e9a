"""What tests of many rounds share: a plan, keys, secrets that repeat, and a process that dies."""

from __future__ import annotations

import hashlib

from dp import NoiseSeed
from protocol.exchange.aggregators import IdealAggregator, RealAggregator
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan

N = 12
MODEL = bytes(32)


def keys(people):
    return [person.public for person in people]


def plan_of(sums, epsilon=8.0, **overrides):
    """A plan for the fixture `cohort`."""
    values = {
        "goal": PrivacyGoal(epsilon, 1e-5, sums),
        "cohort": N,
        "tolerated_dropouts": 3,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
    }
    return TrainingPlan(**{**values, **overrides})


class Secrets:
    """All secrets of a sum from its number, as a simulator derives them from a stored key."""

    def __init__(self, attempt=0):
        self.attempt = attempt

    def begin(self, attempt):
        self.attempt = attempt

    def _bytes(self, label, count):
        return hashlib.shake_256(f"{self.attempt} {label}".encode()).digest(count)

    def noise(self, index):
        return NoiseSeed(self._bytes(f"noise {index}", 32))

    def removable(self, index, count):
        return [NoiseSeed(self._bytes(f"removable {index} {i}", 32)) for i in range(count)]

    def rand_of(self, index):
        used = iter(range(10**6))
        return lambda count: self._bytes(f"client {index} {next(used)}", count)

    def public(self, count):
        return self._bytes("public", count)

    def aggregator(self, kind="ideal", people=(), policy=None):
        if kind == "ideal":
            return IdealAggregator(self.removable, self.noise)
        return RealAggregator(people, policy, noise=self.noise, rand_of=self.rand_of)


class Killed9Error(Exception):
    """The process was killed."""


class KilledIn:
    """An aggregator whose process dies once sum number `last` is charged."""

    def __init__(self, inner, last=1):
        self.inner, self.left = inner, last

    def run(self, setup, updates, dropouts, before_release):
        outcome = self.inner.run(setup, updates, dropouts, before_release=before_release)
        self.left -= 1
        if not self.left:
            raise Killed9Error
        return outcome
