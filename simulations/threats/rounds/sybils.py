"""A victim among clients of the server's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from protocol import ClientPolicy, Pipeline, PolicyError, RoundSetup
from protocol.adapters.memory import Peer
from secagg import Identity, centre
from simulations.audits.base import Floats, Integers, identities_of, noise_seed, public_keys
from simulations.audits.paths import PathSettings, WholePath
from simulations.threats.rounds.parties import (
    OwnClient,
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


@dataclass(frozen=True)
class SybilCohort:
    """A cohort of one victim and clients of the server's, and what the victim may put in.

    Attributes:
        setup: of the round, calibrated for honest clients all around.
        victim: its identity, at index 0.
        sybils: the others'.
        update: float64[d], what the victim puts in in world 1; zero in world 0.
    """

    setup: RoundSetup
    victim: Identity
    sybils: Sequence[Identity]
    update: Floats

    @classmethod
    def draw(cls, seed: int, sybils: int = SYBILS) -> SybilCohort:
        """A cohort with so many Sybils; the noise of a client is that of the full cohort."""
        path = WholePath(SYBIL_SETTINGS, seed)
        identities = identities_of(seed, sybils + 1, "sybil")
        parameters = path.claimed.parameters
        settings = replace(SYBIL_SETTINGS, cohort=sybils + 1)
        setup = settings.plan.setup(parameters, public_keys(identities), bytes(16), 0)
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
