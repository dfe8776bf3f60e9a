"""Attacks on the noise: clients add none (A15) or tell theirs (A16); lone coordinates (A22)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from protocol import Pipeline
from simulations.audits.base import Figures, derived_seed
from simulations.audits.paths import Mistake, WholePath
from simulations.threats.attack import Attack, Effort, Findings
from simulations.threats.rounds.reduced_noise import (
    COLLUDERS,
    EARLY,
    against_goal,
    cheated_figures,
    cheated_setup,
    noise_left_figures,
    noise_settings,
    without_margin,
)
from simulations.threats.rounds.released import LENGTH, SMALL, BareRounds, play


def _both_find(figures: Figures) -> Figures:
    """A twin is caught only if guesses and the law both find its noise too small."""
    caught = float(figures["lower"]) > float(figures["chance"]) and bool(figures["law_rejected"])
    return {**figures, "succeeded": caught}


def missing_noise(effort: Effort, seed: int) -> Findings:
    """A15: clients of the server's add no noise."""
    settings = noise_settings(effort.choose(20_000, 400_000), exact_noise=True)
    claimed = cheated_setup(settings.parameters(seed), settings, seed)
    plain = replace(settings, exact_noise=False)
    hopeful = cheated_setup(without_margin(plain, seed), plain, seed)
    return Findings(
        cheated_figures(claimed, claimed, seed),
        _both_find(cheated_figures(hopeful, claimed, seed)),
    )


def known_noise(effort: Effort, seed: int) -> Findings:
    """A16: clients of the server's tell it their noise."""
    settings = noise_settings(effort.choose(20_000, 400_000), exact_noise=False)
    real = WholePath(settings, seed, real=True)
    twin = replace(real, mistake=Mistake.NO_MARGIN)
    return Findings(_less_colluders(real, seed), _both_find(_less_colluders(twin, seed)))


def _less_colluders(path: WholePath, seed: int) -> Figures:
    """Subtract the noise of all colluders, and look at what is left."""
    noise, survivors = path.noise_of(0, EARLY, COLLUDERS)
    claimed = path.claimed_release(survivors, colluders=True)
    figures = noise_left_figures(noise, claimed, derived_seed(seed, "worlds"))
    return against_goal(figures, path.claimed.events(survivors).server)


# -- A22 --------------------------------------------------------------------------------------

_TARGET: Final = 0
_COORDINATE: Final = 3


def _alone(path: WholePath, seed: int) -> Callable[[int, int], float]:
    """Rounds in which the target alone may touch one coordinate, as with the row of a rare word.

    What is made of a round in a world is that coordinate of the released mean: others' updates are
    zero there, and as long as the clip; the target moves it as far as the clip allows.
    """
    rng = np.random.default_rng(derived_seed(seed, "others"))
    others = rng.normal(size=(path.settings.cohort, LENGTH))
    others[:, _COORDINATE] = 0.0
    others *= path.settings.clip_l2 / np.linalg.norm(others, axis=1, keepdims=True)
    others[_TARGET] = 0.0

    def score(number: int, world: int) -> float:
        table = others.copy()
        table[_TARGET, _COORDINATE] = world * path.settings.clip_l2
        total = path.total(number, table, {})
        return float(Pipeline(path.setup(number)).decode(total).update[_COORDINATE])

    return score


def lone_coordinate(effort: Effort, seed: int) -> Findings:
    """A22: read one client's part from a coordinate that it alone may touch."""
    rounds = effort.choose(300, 10_000)
    middle = SMALL.clip_l2 / SMALL.cohort / 2.0

    def play_on(path: WholePath) -> Figures:
        return play(path, _alone(path, seed), middle, rounds, derived_seed(seed, "worlds"))

    return Findings(play_on(WholePath(SMALL, seed)), play_on(BareRounds(SMALL, seed)))


ATTACKS: Final = (
    Attack(
        id="A15",
        promise="P4",
        name="missing noise",
        title="Clients that add no noise, and clients that vanish, leave the noise as accounted",
        says="its clients add none, and others drop out",
        stopped_by="noise planned for the smallest number of honest survivors, exact batches",
        see=("privacy-noise-*",),
        run=missing_noise,
    ),
    Attack(
        id="A16",
        promise="P4",
        name="colluders' own noise removed",
        title="Less the noise of its colluders, the server's sum is as noisy as accounted",
        says="subtracts what its colluders added",
        stopped_by="a margin for tolerated colluders in every client's noise",
        see=("privacy-noise-colluders",),
        run=known_noise,
    ),
    Attack(
        id="A22",
        promise="P6",
        name="coordinate of one client",
        title="Whether a client touches a coordinate that nobody else does stays in doubt",
        says="reads a coordinate that no other client changes",
        stopped_by="noise in every coordinate",
        run=lone_coordinate,
    ),
)
