"""What tests of many rounds share: a plan, keys, secrets that repeat, and a process that dies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from dp import NoiseSeed
from protocol import ClientPolicy, RoundSetup
from protocol.exchange.aggregators import (
    Aggregator,
    IdealAggregator,
    RealAggregator,
    UpdateSource,
)
from protocol.exchange.stages import ReleaseHook, RoundOutcome
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import Dropouts
from secagg import Identity
from tests.doubles.plans import plan_of_words

N = 12
MODEL = bytes(32)
COHORT = [Identity.from_private_bytes(hashlib.sha256(b"t%d" % i).digest()) for i in range(N)]
KEYS = [person.public for person in COHORT]


def keys(people: list[Identity]) -> list[bytes]:
    return [person.public for person in people]


def plan_of(sums: int, epsilon: float = 8.0, **overrides: Any) -> TrainingPlan:
    """A plan for `COHORT`."""
    values = {
        "goal": PrivacyGoal(epsilon, 1e-5, sums),
        "cohort": N,
        "tolerated_dropouts": 3,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
    }
    return plan_of_words({**values, **overrides})


class Secrets:
    """All secrets of a sum from its number, as a simulator derives them from a stored key."""

    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt

    def begin(self, attempt: int) -> None:
        self.attempt = attempt

    def _bytes(self, label: str, count: int) -> bytes:
        return hashlib.shake_256(f"{self.attempt} {label}".encode()).digest(count)

    def noise(self, index: int) -> NoiseSeed:
        return NoiseSeed(self._bytes(f"noise {index}", 32))

    def removable(self, index: int, count: int) -> list[NoiseSeed]:
        return [NoiseSeed(self._bytes(f"removable {index} {i}", 32)) for i in range(count)]

    def rand_of(self, index: int) -> Callable[..., Any]:
        used = iter(range(10**6))
        return lambda count: self._bytes(f"client {index} {next(used)}", count)

    def public(self, count: int) -> bytes:
        return self._bytes("public", count)

    def aggregator(
        self,
        kind: str = "ideal",
        people: Sequence[Identity] = (),
        policy: ClientPolicy | None = None,
    ) -> IdealAggregator | RealAggregator:
        if kind == "ideal":
            return IdealAggregator(self.removable, self.noise)
        return RealAggregator(people, policy, noise=self.noise, rand_of=self.rand_of)


class Killed9Error(Exception):
    """The process was killed."""


class KilledIn:
    """An aggregator whose process dies once sum number `last` is charged."""

    def __init__(self, inner: Aggregator, last: int = 1) -> None:
        self.inner, self.left = inner, last

    def run(
        self,
        setup: RoundSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
        before_release: ReleaseHook,
    ) -> RoundOutcome:
        outcome = self.inner.run(setup, updates, dropouts, before_release=before_release)
        self.left -= 1
        if not self.left:
            raise Killed9Error
        return outcome
