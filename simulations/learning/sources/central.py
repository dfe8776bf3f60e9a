"""A trusted server: the baseline of papers that have one.

It sees every clipped sketch, adds them up and adds Gaussian noise to the sum: independent in every
round, or such that it partly cancels over rounds (`simulations.learning.sources.server_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import Adjacency, PrivacyError
from dp.accounting import gaussian_epsilon
from dp.clipping import clip_l2
from protocol.exchange.parallel import in_order
from protocol.exchange.ranks import ALONE, Ranks
from protocol.training.private import TrainingState
from simulations.common.order_free import OrderFreeSum
from simulations.learning.configuration import RunConfig
from simulations.learning.federated import Invitation, Purpose
from simulations.learning.noise_schedule import allocation_of
from simulations.learning.records import Epsilons, Facts
from simulations.learning.sources.base import (
    NOTHING,
    Arrays,
    Floats,
    PrivateRate,
    lost_clients,
    own_uploaders,
    squared,
    uploaders,
)
from simulations.learning.sources.error_budget import ErrorMeter, Measured, sketched_parts
from simulations.learning.sources.server_noise import server_noise
from sketch import LinearSketch, PublicSeed
from sketch.controllers import Controller, Decision, Prior
from sketch.controllers.release import released_stats
from sketch.hashing import SEED_BYTES

GROUP = 8
"""Clients whose updates are sketched together, so that hashes are expanded once for all of them."""

GROUPS_AHEAD = 4
"""Groups in an executor's hands at once."""


class CentralMean(PrivateRate):
    """A trusted server: clipped sketches, their exact sum, and Gaussian noise on it.

    It protects nobody from the server, which sees everything, and is here to be compared with. Its
    noise comes from the run's seed, and its insecure seed if there is one, as everything in it may
    be known.

    Args:
        config: of the run.
        controller: chooses the sketch from released values.
        dimension: d, length of an update.
        state: to go on from.
        executor: threads, to encode several clients at once.
        ranks: which share the cohorts.
        arrays: what an interrupted run remembered of its noise; empty to begin.

    Source: the form in which arXiv 2307.10999 states its algorithms; McMahan et al. 2018
    (arXiv 1710.06963).
    """

    def __init__(
        self,
        config: RunConfig,
        controller: Controller,
        dimension: int,
        state: TrainingState | None = None,
        executor: Executor | None = None,
        ranks: Ranks = ALONE,
        arrays: Arrays = NOTHING,
    ) -> None:
        self._config = config
        self._noise = server_noise(config, arrays)
        self._allocation = allocation_of(config)
        self._ranks = ranks
        self._controller = controller
        self._executor = executor
        self._z = config.privacy.goal(config.participations).noise_multiplier
        self._state = state or TrainingState(
            b"", 0, 0, controller.initial(dimension, self._prior(config))
        )
        self._facts: Facts | None = None

    def _prior(self, config: RunConfig) -> Prior:
        """What clip and noise say before the first round."""
        clip = config.privacy.clip_l2
        variance = (self._z * clip / config.cohort.size) ** 2 * self._noise.variance(0)
        return Prior(norm_squared=clip**2, noise_variance=variance)

    @property
    def state(self) -> TrainingState:
        """Rounds and the controller's decision; there is no session."""
        return self._state

    @property
    def arrays(self) -> Arrays:
        """What the noise of later rounds depends on."""
        return self._noise.arrays

    def mean(self, invitation: Invitation) -> Floats:
        """The decoded noisy mean.

        Raises:
            PrivacyError: no client's update could be used.
        """
        state, decision = self._state, self._state.decision
        rng = self._rng(state.number)
        own_hashes, first_hashes = rng.bytes(SEED_BYTES), self._rng(0).bytes(SEED_BYTES)
        # In a sketch of other hashes the noise of an earlier round would not cancel.
        seed = PublicSeed(first_hashes if self._noise.fixed else own_hashes)
        spec = decision.spec
        sketch, clip = spec.build(seed), self._config.privacy.clip_l2
        kept, meter = own_uploaders(invitation), ErrorMeter(invitation.updates, clip, self._ranks)
        groups = (kept[first : first + GROUP] for first in range(0, len(kept), GROUP))
        encoded = in_order(
            (partial(_add_group, list(map(meter, g)), sketch, clip) for g in groups),
            self._executor,
            GROUPS_AHEAD,
        )
        total, count = OrderFreeSum(sketch.size), 0
        for result in encoded:
            part, here = result()
            total.merge(part)
            count += here
        used = sum(self._ranks.gather(count))
        hidden = self._allocation is not None
        if not used and not hidden:
            raise PrivacyError("no client sent an update of finite numbers")
        (total.pieces,) = self._ranks.add(total.pieces)
        # Divided by those who were there, noise would come back longer or shorter than it was, or
        # tell how many they were.
        divisor = self._config.cohort.size if self._noise.fixed or hidden else used
        deviation = self._z * clip / divisor
        noise = self._noise.draw(state.number, rng, sketch.size, deviation)
        mean_sent = total.total / divisor + noise
        deviation *= math.sqrt(self._noise.variance(state.number))
        update = sketch.decode(mean_sent)
        stats = released_stats(
            spec,
            seed,
            mean_sent,
            update,
            previous=state.previous,
            round_number=state.number,
            noise_variance=deviation**2,
            survivors=divisor if hidden else used,
        )
        after = self._controller.step(decision.state, stats)
        number = state.number + 1
        self._state = TrainingState(b"", number, number, after, update)
        measured = meter.measure(update, used)
        length = squared(mean_sent)
        self._facts = self._recorded(decision, invitation, used, deviation, length, measured)
        return update

    def _rng(self, number: int) -> np.random.Generator:
        """What is random in a round."""
        insecure = self._config.engine.insecure_seed
        # One more number marks it: with 0 alone at the end the stream would be that without it.
        other = () if insecure is None else (1, insecure)
        return np.random.default_rng([self._config.seed, Purpose.CENTRAL, number, *other])

    def epsilons(self, number: int) -> Epsilons:
        """What a client has spent after so many rounds: nothing is promised against the server."""
        config, goal = self._config, self._config.privacy.goal(self._config.participations)
        rounds = math.ceil(number * config.cohort.size / config.task.population)
        told: Epsilons = {"server": "inf"}
        if self._allocation is not None:
            told["hidden_cohorts"] = self._allocation.epsilon(goal, number, integers=False)
        return {
            **told,
            "outsider": gaussian_epsilon(self._noise.mu(rounds, self._z), goal.delta),
            "guaranteed": goal.epsilon,
            "guaranteed_against": "whoever sees only the released models, not the seed",
            "delta": goal.delta,
            "adjacency": str(Adjacency.ZERO_OUT),
        }

    def facts(self, invitation: Invitation) -> Facts:
        """Sizes and noise of the last round; an outsider's epsilon, as the server's is infinite."""
        del invitation
        if self._facts is None:
            raise RuntimeError("no round was run")
        return self._facts

    def _recorded(
        self,
        sent: Decision,
        invitation: Invitation,
        used: int,
        deviation: float,
        length: float,
        measured: Measured,
    ) -> Facts:
        kept = uploaders(invitation)
        dimension, variance = invitation.model.size, deviation**2
        lost, lost_later = lost_clients(invitation, kept)
        return {
            "error": measured.parts(**sketched_parts(sent.spec, measured, dimension, variance)),
            "survivors": used,
            "sketch_size": sent.spec.size,
            "dimension": sent.spec.dimension,
            "compression": sent.spec.rate,
            "bits": 32,
            "bytes_per_client": 4.0 * sent.spec.size,
            "noise_variance": variance,
            "released_norm_squared": length,
            "epsilons": self.epsilons(self._state.number),
            "rationale": sent.rationale.words,
            "figures": dict(sent.rationale.numbers),
            "lost": lost,
            "lost_later": lost_later,
            "refused": len(kept) - used,
        }


def _add_group(
    updates: Sequence[NDArray[Any]], sketch: LinearSketch, clip: float
) -> tuple[OrderFreeSum, int]:
    """Clip, sketch, clip and add up: what a trusted server does; also how many were finite."""
    clipped = []
    for update in updates:
        with suppress(PrivacyError):
            clipped.append(clip_l2(update, clip).values)
    total = OrderFreeSum(sketch.size)
    if clipped:
        for row in sketch.encode_many(clipped):
            total.add(clip_l2(row, clip).values)
    return total, len(clipped)
