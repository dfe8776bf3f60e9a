"""Canary clients: every client of one whole round is a canary with a direction of its own.

A canary that was drawn "in" sends a vector on the clip along its direction, one that was drawn
"out" sends zero. The adversary scores each by the inner product of the released mean with its
direction. Directions are single coordinates, so canaries do not meet in the update; in a
count-mean sketch of L columns and rows together they do, and each adds about C^2/L to the variance
of every other's score. That weakens the guesses and never the validity of the bound.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protocol import Pipeline, PrivacyGoal
from simulations.audits.base import ALPHA, Audit, Claim, Figures, Floats, derived_seed
from simulations.audits.one_run import one_run
from simulations.audits.paths import Mistake, PathSettings, WholePath
from sketch import SketchSpec, spec_for_size

CANARY_EPSILON: Final = 1.0
CANARY_DELTA: Final = 1e-9
"""The p-value has a term in 2 m delta: unless delta is far below alpha/m, even guesses that are all
right show nothing at the level alpha = 1e-6."""

_WIDTH: Final = 8
_ROWS: Final = 5


def canary_settings(canaries: int, sketched: bool = True) -> PathSettings:
    """Return a round of so many canaries; sketched, with L = 8 m of d = 24 m coordinates."""
    dimension = 3 * _WIDTH * canaries
    spec = spec_for_size(dimension, _WIDTH * canaries, _ROWS)
    return PathSettings(
        sketch=spec if sketched else SketchSpec.identity(dimension),
        goal=PrivacyGoal(CANARY_EPSILON, CANARY_DELTA, 1),
        cohort=canaries,
        tolerated_dropouts=0,
        tolerated_colluders=0,
    )


def canary_scores(path: WholePath, included: NDArray[np.bool_], seed: int) -> Floats:
    """Run one round with some canaries included, bool[m], and score its clients: float64[m].

    Scores are inner products of the released sum, by its size about 0 or the clip.
    """
    settings = path.settings
    generator = np.random.default_rng(derived_seed(seed, "directions"))
    places = generator.permutation(settings.sketch.dimension)[: settings.cohort]
    updates = np.zeros((settings.cohort, settings.sketch.dimension), np.float32)
    updates[np.arange(settings.cohort), places] = np.where(included, settings.clip_l2, 0.0)
    release = Pipeline(path.setup(0)).decode(path.total(0, updates, {}))
    return np.asarray(release.update[places] * release.survivors, np.float64)


def canary_figures(path: WholePath, seed: int, alpha: float = ALPHA) -> Figures:
    """Draw the coins of the canaries, run the round, and guess a quarter of them.

    Those whose scores lie farthest out: few guesses that are nearly all right show more than many
    that are often wrong.

    Args:
        path: whose cohort are the canaries; the epsilon of its round is what the bound at level
            ``alpha`` must not pass.
    """
    event = path.claimed.events(path.settings.cohort).server
    claim = Claim.of_event(event, CANARY_DELTA)
    generator = np.random.default_rng(derived_seed(seed, "included"))
    included = generator.integers(0, 2, path.settings.cohort).astype(np.bool_)
    scores = canary_scores(path, included, seed)
    guesses = path.settings.cohort // 4
    usual = one_run(included, scores, guesses, CANARY_DELTA)
    bound = one_run(included, scores, guesses, CANARY_DELTA, 1.0 - alpha)
    return {**bound.figures(claim.epsilon), "epsilon_at_least_95": usual.epsilon}


def audit_canaries(
    canaries: int, seed: int, sketched: bool = True, real: bool = False, alpha: float = ALPHA
) -> Audit:
    """Canaries cannot tell more than was accounted; with a tenth of the noise they can."""
    path = WholePath(canary_settings(canaries, sketched), seed, real=real)
    figures = partial(canary_figures, seed=seed, alpha=alpha)
    name = "real" if real else "sketch" if sketched else "identity"
    what = "a count-mean sketch" if sketched else "no compression"
    how = "real cryptography" if real else "the ideal functionality"
    return Audit(
        f"privacy-one-run-{name}",
        f"One round of canary clients, {what}, {how}: no bound above the accounted epsilon",
        partial(figures, path),
        path.mutants(figures, Mistake.TENTH),
    )
