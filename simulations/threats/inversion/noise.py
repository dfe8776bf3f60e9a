"""How much noise it takes: one client's picture with everything in the attacker's favour.

The model has one hidden unit that every picture activates, so nearly the whole length of a client's
update lies in one row: (x, 1), scaled. What all others sent is known and subtracted. The scale is
read off the row's last entry, or estimated by the mean row of pictures that are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dp.clipping import clip_l2
from simulations.audits.base import Floats
from simulations.learning.data import Split
from simulations.learning.models import ReluMlpTask
from simulations.threats.inversion.analytic import to_pixels
from simulations.threats.inversion.experiments import InversionSetting
from simulations.threats.inversion.imprint import imprint_model, imprint_task
from simulations.threats.inversion.pictures import distinct, flat, psnr
from simulations.threats.inversion.views import CLIP_L2, GradientRound, ServerView, named

GUESSES: Final = 2
"""Guesses at each picture."""


@dataclass(frozen=True, slots=True)
class Noised:
    """One round."""

    epsilon: float
    psnr: Floats  # of every client's picture, each attacked on its own, float64[n], dB

    def recovered(self, threshold: float) -> int:
        """How many pictures are beyond a threshold in dB."""
        return int((self.psnr > threshold).sum())


def pictures_by_epsilon(setting: InversionSetting, epsilons: Sequence[float]) -> list[Noised]:
    """Attack the pictures of one round behind different noise; one picture for each client.

    The delta is that of the setting's goal.
    """
    task = imprint_task(setting.shape, 1)
    public, private = setting.gallery.public, setting.gallery.private
    model = imprint_model(task, public, setting.own("one unit"))
    rng = np.random.default_rng(setting.own("one each"))
    held = distinct(private, setting.clients, rng)
    played = GradientRound.of(task, model, private, list(held.reshape(-1, 1)))
    own = -np.stack([clip_l2(update, CLIP_L2).values for update in played.updates])
    originals, found = flat(private, held), []
    for epsilon in epsilons:
        noise = setting.clients * _mean(setting, played, epsilon) - own.sum(axis=0)
        guesses = [_pictures(task, each + noise, public) for each in own]
        reached = [
            psnr(each[None], guess)[0] for each, guess in zip(originals, guesses, strict=True)
        ]
        found.append(Noised(epsilon, np.array(reached)))
    return found


def _mean(setting: InversionSetting, played: GradientRound, epsilon: float) -> Floats:
    """The mean gradient as released, with noise for an epsilon or none."""
    seed = setting.own("by epsilon", epsilon)
    if math.isinf(epsilon):
        return played.gradient(ServerView.SUM, setting.goal, seed)
    return played.gradient(ServerView.NOISED, replace(setting.goal, epsilon=epsilon), seed)


def _pictures(task: ReluMlpTask, seen: Floats, public: Split) -> Floats:
    """Read a row whose scale is unknown in two ways: float64[2, pixels]."""
    parameters = named(task, seen)
    row = np.append(parameters["layer0.weight"].numpy()[0], parameters["layer0.bias"].numpy())
    usual = np.append((2.0 * flat(public) - 1.0).mean(axis=0), 1.0)
    scales = np.array([row[-1], (row @ usual) / (usual @ usual)])
    return to_pixels(row[:-1] / scales[:, None])
