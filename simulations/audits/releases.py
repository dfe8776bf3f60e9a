"""Mechanisms of this system, in the form in which two worlds are audited."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dp import BinomialRelease, Event
from dp.coins import sample_binomial
from dp.mechanisms import MechanismName
from protocol import PrivacyGoal
from simulations.audits.base import ALPHA, Check, Claim, Floats, noise_seed
from simulations.audits.paths import FAR_BEYOND, Mistake, PathSettings, WholePath
from simulations.audits.two_worlds import two_worlds_figures
from sketch import SketchSpec


@dataclass(frozen=True, slots=True)
class CoinRelease:
    """One integer with the noise of fair coins, by the sampler of the product.

    Every coordinate of one long draw is a run of its own, which is what makes 10^5 of them quick.

    Attributes:
        coins: that are really drawn.
        shift: by which world 1 differs from world 0, integer units.
    """

    coins: int
    shift: int

    def release(self, world: int, count: int, seed: int) -> Floats:
        """Draw releases, float64[count]; see ``AuditedRelease``."""
        drawn = sample_binomial(noise_seed(seed, "coins"), self.coins, count)
        return np.asarray(drawn - self.coins / 2.0 + world * self.shift, np.float64)

    def event(self) -> Event:
        """What an accountant is told about one run."""
        return BinomialRelease(self.coins, float(self.shift), self.shift, 1)


@dataclass(frozen=True, slots=True)
class PathRelease:
    """The opened sum of a whole round: clipped, sketched, rotated, rounded, noised, summed.

    In world 1 client 0 sends ``update``, in world 0 the zero vector. All others send zero: the
    adversary knows their inputs and has subtracted them.

    Attributes:
        settings: of the round.
        update: of client 0, float64[d]; as long as the clip, or longer.
        mistake: of the twin.
        path_seed: fixes parameters and public seed, which are the same in all runs.
    """

    settings: PathSettings
    update: Floats
    mistake: Mistake = Mistake.NONE
    path_seed: int = 0

    def release(self, world: int, count: int, seed: int) -> Floats:
        """See ``AuditedRelease``: float64[count, L], in integer units."""
        path = WholePath(self.settings, self.path_seed, self.mistake, noise_seed_of=seed)
        table = np.zeros((self.settings.cohort, self.settings.sketch.dimension))
        table[0] = world * self.update
        return np.stack([path.released(number, table)[0] for number in range(count)])

    def event(self) -> Event:
        """What the round is accounted with, if nobody vanishes."""
        path = WholePath(self.settings, self.path_seed)
        return path.claimed.events(self.settings.cohort).server


SMALL_COHORT: Final = 4
"""Clients of a round that is run thousands of times."""

_PATH_LENGTH: Final = 4
_DELTA: Final = 1e-5
_COINS: Final = 10_000
_SHIFT: Final = 50


def check_coins(runs: int, seed: int, alpha: float = ALPHA) -> Check:
    """Coins with mu = 1, true epsilon 4.38: two worlds certify no more; with half of them, more."""
    claim = Claim.of_event(CoinRelease(_COINS, _SHIFT).event(), _DELTA)
    real, twin = (CoinRelease(coins, _SHIFT) for coins in (_COINS, _COINS // 2))
    return Check.of(
        "privacy-two-worlds-coins",
        "Two worlds of binomial noise: no bound above the accounted epsilon (twin: half the coins)",
        two_worlds_figures(real, runs, seed, claim, alpha),
        two_worlds_figures(twin, runs, seed, claim, alpha),
    )


def check_path(
    runs: int,
    seed: int,
    mistake: Mistake,
    alpha: float = ALPHA,
    mechanism: MechanismName = "binomial",
) -> Check:
    """Whole rounds in two worlds, the client's update far beyond the clip."""
    settings = PathSettings(
        SketchSpec.identity(_PATH_LENGTH),
        PrivacyGoal(4.4, _DELTA, 1),
        cohort=SMALL_COHORT,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        mechanism=mechanism,
    )
    update = np.zeros(_PATH_LENGTH)
    update[0] = FAR_BEYOND * settings.clip_l2
    real = PathRelease(settings, update, path_seed=seed)
    claim = Claim.of_event(real.event(), _DELTA)
    twin = replace(real, mistake=mistake)
    name, of_what = mistake.name.lower().replace("_", "-"), "whole rounds"
    if mechanism != "binomial":
        name, of_what = f"{name}-{mechanism}", f"{of_what} with {mechanism} noise"
    return Check.of(
        f"privacy-two-worlds-path-{name}",
        f"Two worlds of {of_what}: no bound above the accounted epsilon (twin: {mistake.value})",
        two_worlds_figures(real, runs, seed, claim, alpha),
        two_worlds_figures(twin, runs, seed, claim, alpha),
    )
