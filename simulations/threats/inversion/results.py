"""What an attack on pictures or labels came to, for each of the three views.

May use numpy only; must not know how the guesses come about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulations.audits.base import Figures, Floats
from simulations.threats.game.rates import rate
from simulations.threats.inversion.pictures import Recognition, psnr
from simulations.threats.inversion.views import ServerView


@dataclass(frozen=True)
class Reconstructions:
    """Pictures that one attack was after, and what it came up with."""

    attack: str
    title: str
    data: str
    side: tuple[int, int]
    recognition: Recognition
    originals: Mapping[ServerView, Floats]  # float64[m, pixels] for each view; m may differ
    guesses: Mapping[ServerView, Floats]

    @property
    def name(self) -> str:
        """Data set and attack: unique among results."""
        return f"{self.data.replace('-', '_')}_{self.attack}"

    @cached_property
    def psnr(self) -> dict[ServerView, Floats]:
        """PSNR of each picture, dB."""
        pairs = {v: zip(self.originals[v], self.guesses[v], strict=True) for v in self.originals}
        return {v: np.array([psnr(a[None], b[None])[0] for a, b in pairs[v]]) for v in pairs}

    def counts(self, view: ServerView) -> tuple[int, int]:
        """How many pictures were recovered, and of how many."""
        reached = self.psnr[view]
        return int((reached > self.recognition.threshold).sum()), len(reached)

    def rate(self, view: ServerView) -> Figures:
        """The share of recovered pictures, against that of a blind attacker."""
        return rate(*self.counts(view), self.recognition.chance)

    def figures(self, view: ServerView) -> Figures:
        """PSNR and rate, each under the name of the result."""
        reached, share = self.psnr[view], self.rate(view)
        found: Figures = {
            "mean_psnr_db": float(reached.mean()),
            "best_psnr_db": float(reached.max()),
            "threshold_db": self.recognition.threshold,
            "recovered": share["successes"],
            "pictures": share["trials"],
            "lower": share["lower"],
            "upper": share["upper"],
            "chance": share["chance"],
        }
        return {f"{self.name}_{key}": value for key, value in found.items()}


@dataclass(frozen=True, slots=True)
class Labels:
    """Guesses at the label of one client's one example."""

    data: str
    right: Mapping[ServerView, int]
    trials: int
    classes: int
    allowed: float

    def rate(self, view: ServerView) -> Figures:
        """The share of right guesses; a success is more than (epsilon, delta) permits."""
        share = rate(self.right[view], self.trials, self.allowed)
        return {**share, "chance": 1.0 / self.classes}

    def figures(self, view: ServerView) -> Figures:
        """Accuracy, its interval, chance, and what is permitted."""
        share = self.rate(view)
        found: Figures = {
            "accuracy": self.right[view] / self.trials,
            "guesses": self.trials,
            "lower": share["lower"],
            "upper": share["upper"],
            "chance": share["chance"],
            "allowed": self.allowed,
        }
        return {f"{self.data.replace('-', '_')}_label_{key}": value for key, value in found.items()}
