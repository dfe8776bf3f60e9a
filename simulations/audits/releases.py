"""Mechanisms of this system, in the form in which two worlds are audited."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from dp import BinomialRelease, Event
from dp.coins import sample_binomial
from dp.mechanisms import MechanismName
from protocol import PrivacyGoal
from simulations.audits.base import ALPHA, Audit, Claim, Figures, Floats, noise_seed
from simulations.audits.paths import FAR_BEYOND, Mistake, PathSettings, WholePath
from simulations.audits.two_worlds import two_worlds_figures
from sketch import Rotation, SketchSpec


@dataclass(frozen=True, slots=True)
class CoinRelease:
    """One integer with the noise of fair coins, by the sampler of the product.

    Every coordinate of one long draw is a run of its own, which is what makes 10^5 of them quick.
    """

    coins: int  # that are really drawn
    shift: int  # by which world 1 differs from world 0, integer units

    def release(self, world: int, count: int, seed: int) -> Floats:
        """Draw releases, float64[count]; see ``AuditedRelease``."""
        drawn = sample_binomial(noise_seed(seed, "coins"), self.coins, count)
        return np.asarray(drawn - self.coins / 2.0 + world * self.shift, np.float64)

    def event(self) -> Event:
        """What an accountant is told about one run."""
        return BinomialRelease(self.coins, float(self.shift), self.shift, 1)


@dataclass(frozen=True, slots=True)
class PathRelease:
    """The opened sum of a whole round: clipped, rotated, rounded, noised, summed.

    In world 1 client 0 sends far more than the clip, in world 0 the zero vector. All others send
    zero: the adversary knows their inputs and has subtracted them. The update is flat after the
    rotation and coordinates are independent, so each is a run of its own, of a round that is
    calibrated for one coordinate: a round of 20,000 takes as long as one of four.
    """

    mechanism: MechanismName = "binomial"  # name of the noise
    mistake: Mistake = Mistake.NONE  # of the twin
    path_seed: int = 0  # fixes parameters and public seed, which are the same in all runs

    def _settings(self, length: int) -> PathSettings:
        return PathSettings(
            SketchSpec.identity(length),
            PrivacyGoal(_GOAL, _DELTA, 1),
            cohort=SMALL_COHORT,
            tolerated_dropouts=0,
            tolerated_colluders=0,
            # Rounding is counted at its worst, which a given update is not: integers are large.
            error_share=_ERROR_SHARE,
            mechanism=self.mechanism,
            alone=True,
        )

    def release(self, world: int, count: int, seed: int) -> Floats:
        """See ``AuditedRelease``: float64[count], in integer units."""
        length = min(count, _PATH_LENGTH)
        settings = self._settings(length)
        path = WholePath(settings, self.path_seed, self.mistake, noise_seed_of=seed)
        rotation = Rotation(length, path.claimed.parameters.public_seed)
        table = np.zeros((settings.cohort, length))
        table[0] = rotation.inverse(np.full(length, world * FAR_BEYOND * settings.clip_l2))
        rounds = range(-(-count // length))
        return np.concatenate([path.released(number, table)[0] for number in rounds])[:count]

    def event(self) -> Event:
        """What the round of one coordinate is accounted with, if nobody vanishes."""
        path = WholePath(self._settings(1), self.path_seed)
        return path.claimed.events(SMALL_COHORT).server


SMALL_COHORT: Final = 4
"""Clients of a round that is run very often."""

_PATH_LENGTH: Final = 20_000
_GOAL: Final = 4.4
_ERROR_SHARE: Final = 0.02
_DELTA: Final = 1e-5
_COINS: Final = 10_000
_SHIFT: Final = 50


def release_figures(
    release: CoinRelease | PathRelease, claimed: Event, runs: int, seed: int, alpha: float
) -> Figures:
    """Hold a release against what an accountant says of an event."""
    return two_worlds_figures(release, runs, seed, Claim.of_event(claimed, _DELTA), alpha)


def audit_coins(runs: int, seed: int, alpha: float = ALPHA) -> Audit:
    """Coins with mu = 1, true epsilon 4.38: two worlds certify no more, unless some are missing."""
    honest = CoinRelease(_COINS, _SHIFT)

    def figures(coins: int) -> Figures:
        return release_figures(replace(honest, coins=coins), honest.event(), runs, seed, alpha)

    return Audit(
        "privacy-two-worlds-coins",
        "Two worlds of binomial noise: no bound above the accounted epsilon",
        partial(figures, _COINS),
        {
            "a third of the coins is missing": partial(figures, 2 * _COINS // 3),
            "half the coins": partial(figures, _COINS // 2),
        },
    )


def audit_path(
    runs: int, seed: int, mechanism: MechanismName = "binomial", alpha: float = ALPHA
) -> Audit:
    """Whole rounds in two worlds, the client's update far beyond the clip."""
    honest = PathRelease(mechanism, path_seed=seed)

    def figures(mistake: Mistake) -> Figures:
        release = replace(honest, mistake=mistake)
        return release_figures(release, honest.event(), runs, seed, alpha)

    mistakes = (Mistake.THIRD_MISSING, Mistake.HALF_NOISE, Mistake.TENTH, Mistake.NO_CLIP)
    coins = mechanism == "binomial"
    return Audit(
        f"privacy-two-worlds-path{'' if coins else f'-{mechanism}'}",
        f"Two worlds of whole rounds{'' if coins else f' with {mechanism} noise'}: no bound above "
        "the accounted epsilon",
        partial(figures, Mistake.NONE),
        {mistake.value: partial(figures, mistake) for mistake in mistakes},
    )
