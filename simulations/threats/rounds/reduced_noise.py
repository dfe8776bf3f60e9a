"""How much noise is left in a sum once clients that cheat, collude or vanish are counted out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from dp import Event, NoiseSeed
from dp.dropouts import removed_noise
from protocol import Dropouts, RoundParameters, RoundSetup, Stage
from protocol.exchange.in_memory import Peer
from protocol.schemes.pairwise import pairwise_setup
from secagg import FieldSum, centre
from simulations.audits.base import (
    Figures,
    Floats,
    derived_seed,
    identities_of,
    noise_seed,
    public_keys,
)
from simulations.audits.distribution import ClaimedRelease, claimed_figures, noise_test
from simulations.audits.paths import PathSettings, repeatable
from simulations.threats.rounds.parties import OwnClient, opened_sum, trusting_participant
from simulations.threats.rounds.released import GOAL, allowed_accuracy, epsilon_of, guessing_rate
from sketch import SketchSpec

COHORT: Final = 12
LOST: Final = 3
COLLUDERS: Final = (0, 1, 3)
"""Clients that work for the server, as many as the rounds tolerate."""

SHIFT: Final = 2.0
"""What the adversary tries to see in one coordinate, in deviations of the accounted noise: where a
less noise changes its accuracy most."""


def noise_settings(length: int, exact_noise: bool) -> PathSettings:
    """Rounds of twelve clients: three may vanish, and three may work for the server."""
    return PathSettings(
        SketchSpec.identity(length),
        GOAL,
        cohort=COHORT,
        tolerated_dropouts=LOST,
        tolerated_colluders=len(COLLUDERS),
        exact_noise=exact_noise,
    )


def noise_left_figures(noise: Floats, claimed: ClaimedRelease, seed: int) -> Figures:
    """Whether the noise that the server has not taken off hides as much as it is accounted with.

    Every coordinate of it, float64[N], centred, in integer units, is a game of its own: in world 1
    it is moved by `SHIFT` deviations. How often that may be noticed follows from the noise that is
    accounted for; and the law of what is left is held against its law.
    """
    shift = round(SHIFT * math.sqrt(claimed.noise_variance))
    worlds = np.random.default_rng(seed).integers(0, 2, noise.size)
    one = replace(claimed, l2_sensitivity=float(shift), linf_sensitivity=shift, dimension=1)
    allowed = allowed_accuracy(one)
    law = noise_test(noise, claimed)
    guessed = guessing_rate(noise + worlds * float(shift), worlds, shift / 2.0, allowed)
    return {
        **guessed,
        "shift": shift,
        **claimed_figures(claimed),
        "variance_ratio": law.variance_ratio,
        "variance_tolerance": law.tolerance,
        "chi_square_p_value": law.p_value,
        "law_rejected": law.rejected,
        "succeeded": bool(guessed["succeeded"]) or law.rejected,
    }


def against_goal(figures: Figures, event: Event) -> Figures:
    """Figures with what the round is accounted with: noise as accounted may still be too little."""
    epsilon = epsilon_of(event, GOAL.delta)
    return {
        **figures,
        "accounted_epsilon": epsilon,
        "promised_epsilon": GOAL.epsilon,
        "succeeded": bool(figures["succeeded"]) or epsilon > GOAL.epsilon,
    }


def cheated_noise(setup: RoundSetup, seed: int) -> tuple[Floats, int]:
    """What is left in the sum of a real round, surplus batches taken off, and the survivors.

    `COLLUDERS` submit zeros without noise, and `EARLY_AND_LATE` vanish. float64[L].
    """
    zeros = np.zeros(setup.context.length, np.int64)
    peers: dict[int, Peer] = {}
    for index, identity in enumerate(identities_of(seed, COHORT, "cheated")):
        rand = repeatable(seed, "cheated", index)
        if index in COLLUDERS:
            peers[index] = OwnClient(setup, identity, zeros, rand)
            continue
        update, noise = zeros.astype(np.float64), noise_seed(seed, "cheated", index)
        peers[index] = trusting_participant(setup, identity, update, noise, rand)
    total = opened_sum(setup.context, peers, EARLY_AND_LATE)
    honest = [index for index in total.survivors if index not in COLLUDERS]
    return _honest_noise(setup, total, honest), len(total.survivors)


def cheated_setup(parameters: RoundParameters, settings: PathSettings, seed: int) -> RoundSetup:
    """A round of these settings with these parameters."""
    cohort = public_keys(identities_of(seed, COHORT, "cheated"))
    return pairwise_setup(settings.plan, parameters, cohort, bytes(16), 0)


def without_margin(settings: PathSettings, seed: int) -> RoundParameters:
    """Parameters whose noise is right if nobody cheats and nobody vanishes."""
    hopeful = replace(settings, tolerated_dropouts=0, tolerated_colluders=0)
    return replace(hopeful.parameters(seed), tolerated_dropouts=settings.tolerated_dropouts)


def _honest_noise(setup: RoundSetup, total: FieldSum, honest: list[int]) -> Floats:
    """Take off what honest survivors gave up; cheaters never added what they gave up."""
    left, lost = centre(total.vector), setup.context.size - len(total.survivors)
    schedule = setup.schedule
    if schedule is None:
        offset = len(honest) * setup.parameters.mechanism.residual_offset
        return np.asarray(left - offset, np.float64)
    for survivor in honest:
        seeds = map(NoiseSeed, total.removed.get(survivor, ()))
        given = dict(zip(schedule.removed(lost), seeds, strict=True))
        left = left - removed_noise(given, schedule, lost, left.size)
    return np.asarray(left - len(honest) * schedule.residual_offset(lost), np.float64)


EARLY_AND_LATE: Final[Dropouts] = {2: Stage.INPUT, 5: Stage.INPUT, 7: Stage.UNMASK}
"""Two never send their update; a third sends it and vanishes before the sum is opened."""

EARLY: Final[Dropouts] = {2: Stage.INPUT, 5: Stage.INPUT, 7: Stage.INPUT}
"""As many as the rounds tolerate: with fewer, noise that is not removable is more than needed."""


def cheated_figures(setup: RoundSetup, claimed: RoundSetup, seed: int) -> Figures:
    """Run a round with cheaters and dropouts, and hold it against what is accounted."""
    noise, survivors = cheated_noise(setup, seed)
    event = claimed.events(survivors).server
    if not isinstance(event, ClaimedRelease):
        raise TypeError(f"a round without noise is accounted as {event}")
    figures = noise_left_figures(noise, event, derived_seed(seed, "worlds"))
    return against_goal(figures, event)
