"""A victim among clients of the server's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dp import NoiseSeed
from dp.dropouts import removed_noise
from protocol import ClientPolicy, Dropouts, Pipeline, PolicyError, RoundSetup, Stage
from protocol.exchange.in_memory import Peer
from protocol.schemes.pairwise import pairwise_setup
from secagg import Identity, centre
from simulations.audits.base import Floats, Integers, identities_of, noise_seed, public_keys
from simulations.audits.paths import PathSettings, WholePath, repeatable
from simulations.threats.game.knowledge import FIRST_SEED, Knowledge
from simulations.threats.rounds.parties import (
    OwnClient,
    TellingClient,
    opened_sum,
    real_client,
    trusting_participant,
)
from simulations.threats.rounds.released import GOAL, LENGTH, long_vector, on_grid
from sketch import SketchSpec

SYBILS: Final = 9
SYBIL_SETTINGS: Final = PathSettings(
    SketchSpec.identity(LENGTH),
    GOAL,
    cohort=SYBILS + 1,
    tolerated_dropouts=0,
    tolerated_colluders=0,
    exact_noise=False,
)

LOST: Final[Dropouts] = {2: Stage.INPUT, 5: Stage.INPUT, 7: Stage.INPUT}
"""Sybils that vanish, so that noise which could be taken off has to stay."""


@dataclass(frozen=True)
class SybilCohort:
    """A cohort of one victim and clients of the server's, and what the victim may put in."""

    setup: RoundSetup
    victim: Identity
    sybils: Sequence[Identity]
    update: Floats  # float64[d], what the victim puts in in world 1; zero in world 0

    @classmethod
    def draw(cls, seed: int, sybils: int = SYBILS) -> SybilCohort:
        """A cohort with so many Sybils; the noise of a client is that of the full cohort."""
        path = WholePath(SYBIL_SETTINGS, seed)
        identities = identities_of(seed, sybils + 1, "sybil")
        parameters = path.claimed.parameters
        settings = replace(SYBIL_SETTINGS, cohort=sybils + 1)
        setup = pairwise_setup(settings.plan, parameters, public_keys(identities), bytes(16), 0)
        update = on_grid(parameters, long_vector(parameters.sketch_clip_l2 * parameters.scale))
        return cls(setup, identities[0], identities[1:], update)

    def refuses(self, registry: Collection[bytes], policy: ClientPolicy) -> PolicyError | None:
        """Why the victim does not join; None if it does."""
        digest = self.setup.parameters.model_digest
        try:
            real_client(self.victim, registry, policy).join(self.setup.announce(), digest)
        except PolicyError as error:
            return error
        return None

    def recovered(self, seed: int) -> bool:
        """Run the round with real cryptography; whether the sum is the victim's upload."""
        setup, zeros = self.setup, np.zeros(LENGTH, np.int64)
        victim = trusting_participant(setup, self.victim, self.update, noise_seed(seed, "victim"))
        peers: dict[int, Peer] = {0: victim}
        for index, sybil in enumerate(self.sybils, start=1):
            peers[index] = OwnClient(setup, sybil, zeros)
        total = opened_sum(setup.context, peers)
        return bool(np.array_equal(centre(total.vector), victim.sent()))


def opened_round(length: int, seed: int) -> RoundSetup:
    """A round with exact noise over vectors of this length, made for the Sybils that vanish."""
    sketch = SketchSpec.identity(length)
    settings = replace(
        SYBIL_SETTINGS, sketch=sketch, tolerated_dropouts=len(LOST), exact_noise=True
    )
    cohort = public_keys(identities_of(seed, SYBILS + 1, "opened"))
    return pairwise_setup(settings.plan, settings.parameters(seed), cohort, bytes(16), 0)


def unopened_noise(setup: RoundSetup, seed: int) -> tuple[Floats, int]:
    """What hides a victim that puts in zeros, as float64[L], and the survivors.

    Its peers all tell what they hold. Every batch is taken off whose seed their shares open, those
    that stay in the sum included.
    """
    zeros = np.zeros(setup.context.length, np.int64)
    knowledge = Knowledge(setup.context)
    victim, *others = identities_of(seed, SYBILS + 1, "opened")
    update, own = zeros.astype(np.float64), noise_seed(seed, "opened")
    told = [
        TellingClient(setup, other, zeros, knowledge, repeatable(seed, "opened", index))
        for index, other in enumerate(others, start=1)
    ]
    rand = repeatable(seed, "opened", 0)
    peers: dict[int, Peer] = dict(enumerate(told, start=1))
    peers[0] = trusting_participant(setup, victim, update, own, rand)
    total = opened_sum(setup.context, peers, LOST)
    schedule, left, roster = setup.schedule, centre(total.vector), told[0].roster
    if schedule is None or roster is None:
        raise RuntimeError("the round has no exact noise, or its Sybils saw no shares")
    seeds = {}
    # Batch 0 has no shared seed, so batch i is seed i - 1.
    for number in range(setup.context.seeds):
        secret = knowledge.secret(roster, 0, FIRST_SEED + number)
        if secret is None:
            raise RuntimeError(f"the Sybils' shares do not open seed {number}")
        seeds[number + 1] = NoiseSeed(secret)
    left = left - removed_noise(seeds, schedule, 0, left.size)
    hidden = np.asarray(left - schedule.residual_offset(0), np.float64)
    return hidden, len(total.survivors)


def scores_of_victim(crowd: SybilCohort, worlds: Integers, seed: int) -> tuple[Floats, float]:
    """Inner products of the victim's upload, which the server has recovered, and its update."""
    pipeline, zero = Pipeline(crowd.setup), np.zeros(LENGTH)
    integers = long_vector(crowd.setup.parameters.sketch_clip_l2 * crowd.setup.parameters.scale)
    uploads = (
        pipeline.encode(crowd.update if world else zero, noise_seed(seed, "own", number))
        for number, world in enumerate(worlds)
    )
    scores = np.array([float(integers @ centre(upload)) for upload in uploads])
    return scores, float(integers @ integers) / 2.0
