"""PowerSGD by secure sums: the two factors of the mean update, each a private sum of its own.

In the first sum of a round clients send M Q, for the public bases Q that the round before ended
with; the bases P_hat of the released mean are sent to them, and in the second sum they send
M^T P_hat. Both maps are linear, and neither makes a vector longer, so the clip of an update bounds
both; but each sum is a release, and the goal of the plan counts two of them for each round that a
client takes part in. Bases are functions of released sums, and cost nothing.

Clients bind the bases that they were given into the round, beside the model: a client that was
given others contributes noise only.

Source: PowerSGD, Vogels, Karimireddy and Jaggi 2019 (arXiv 1905.13727); docs/compression.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp import FourEpsilons, Ledger
from dp.clipping import clip_l2
from protocol.exchange.aggregators import Aggregator, UpdateSource
from protocol.exchange.stages import RoundOutcome
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import NOBODY, Dropouts, Stage
from protocol.round.pipeline import MeanRelease, Pipeline
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding
from protocol.training.charged_sums import ChargedSums
from protocol.training.records import Notes
from secagg import ParameterError
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.terms import SESSION_ID_BYTES
from sketch import LinearSketch, PublicSeed, SketchSpec
from sketch.factors import Factors, FactorShapes
from sketch.hashing import SEED_BYTES
from sketch.power_factors import LeftFactorMap, RightFactorMap

SUMS: Final = 2
"""Secure sums in one round."""

_LABEL: Final = b"veilsum/power/1"


@dataclass(frozen=True, slots=True)
class PowerState:
    """Where a run stands between two rounds: public.

    Attributes:
        session_id: of every sum.
        number: rounds finished.
        attempts: sums announced.
        right: Q, the bases that the next round begins with.
    """

    session_id: bytes
    number: int
    attempts: int
    right: Factors = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FactorRelease:
    """One of the two sums: its public setup, its decoded mean, survivors and bytes."""

    setup: RoundEncoding
    release: MeanRelease
    outcome: RoundOutcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerResult:
    """One finished round.

    Attributes:
        number: of finished rounds before it.
        update: float64[d], the mean update as far as both sums tell.
        first: means of M Q and of the layers that are sent whole.
        second: means of M^T P_hat.
        epsilons: spent so far by the client that spent most, against four adversaries.
    """

    number: int
    update: NDArray[np.float64]
    first: FactorRelease
    second: FactorRelease
    epsilons: FourEpsilons

    def bytes_per_survivor(self) -> float:
        """Of both sums, all messages in both directions; the bases are not counted."""
        return sum(part.outcome.bytes_per_survivor() for part in (self.first, self.second))


class PowerTraining:
    """Runs rounds of two sums until the caller stops or the budget is spent.

    Args:
        before_sum: told the number of sums announced before each. Where the secrets of a run
            follow from a stored key, it makes those of the two sums different.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        shapes: FactorShapes,
        aggregator: Aggregator,
        ledger: Ledger,
        state: PowerState | None = None,
        rand: Rand = os_random,
        before_sum: Callable[[int], None] = lambda _: None,
        clock: UnixClock | None = None,
    ) -> None:
        if plan.goal.rounds % SUMS:
            raise ParameterError("goal.rounds", plan.goal.rounds, "even: two sums for each round")
        self._clip = plan.clip_l2
        self._shapes = shapes
        self._before_sum = before_sum
        if state is None:
            right = shapes.initial_right(PublicSeed(rand(SEED_BYTES)))
            state = PowerState(rand(SESSION_ID_BYTES), 0, 0, right)
        self._sums = ChargedSums(
            plan,
            aggregator,
            ledger,
            state.session_id,
            state.attempts,
            rand,
            together=SUMS,
            clock=clock,
        )
        self._number = state.number
        self._right = state.right

    @property
    def state(self) -> PowerState:
        """Everything that the next round depends on."""
        return PowerState(self._sums.session_id, self._number, self._sums.attempts, self._right)

    def run_round(
        self,
        cohort: Sequence[bytes],
        model_digest: bytes,
        updates: UpdateSource,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> PowerResult:
        """One round, from the first calibration to the second release.

        Args:
            model_digest: 32-byte hash of the model that was sent to the cohort.
            updates: gives a party's update, float32|float64[d]; asked for once in each sum.
            dropouts: who gets lost in the first sum, and when; whoever was is not in the second.

        Raises:
            BudgetExceededError, ParameterError, TooFewSurvivorsError, LedgerError: see
                `PrivateTraining.run_round`. If only the second sum fails, the first is paid for
                and of no use.
        """

        def released(mapping: LinearSketch, bases: Factors, lost: Dropouts) -> FactorRelease:
            digest = bases_digest(model_digest, bases)
            self._before_sum(self._sums.attempts)
            setup = self._sums.setup(SketchSpec.identity(mapping.size), cohort, digest)
            outcome = self._sums.run(
                setup,
                self._number,
                lambda index: factors_of(updates(index), mapping, self._clip),
                lost,
                notes,
            )
            release = Pipeline(setup).decode(outcome.total, outcome.surplus)
            return FactorRelease(setup=setup, release=release, outcome=outcome)

        first_map = LeftFactorMap(self._shapes, self._right)
        first = released(first_map, self._right, dropouts)
        left = first_map.left(first.release.update)
        second_map = RightFactorMap(self._shapes, left)
        second = released(second_map, left, dict.fromkeys(dropouts, Stage.ADVERTISE))
        update = second_map.reconstruct(first.release.update, second.release.update)
        self._right = second_map.right(second.release.update)
        self._number += 1
        return PowerResult(
            number=self._number - 1,
            update=update,
            first=first,
            second=second,
            epsilons=self._sums.epsilons(),
        )


def factors_of(update: NDArray[Any], mapping: LinearSketch, clip: float) -> NDArray[np.float64]:
    """What a client contributes to a sum: the factors of its clipped update, float64[size].

    The pipeline clips once more, so privacy does not rest on this clip: it keeps an update in one
    piece, where clipping its factors apart would change its direction.
    """
    return mapping.encode(clip_l2(update, clip).values)


def bases_digest(model_digest: bytes, bases: Factors) -> bytes:
    """SHA-256 of a model's digest and the bases of a sum: what clients bind into it.

    Shapes follow from the model, and both sides know them; bases are written as little-endian
    doubles, row by row.
    """
    digest = hashlib.sha256(_LABEL + len(model_digest).to_bytes(8, "little") + model_digest)
    for basis in bases.bases:
        digest.update(np.ascontiguousarray(basis, "<f8").tobytes())
    return digest.digest()
