"""Private pictures, how alike two pictures are, and how well somebody does who never looked.

docs/attacks-on-updates.md says when a picture counts as recovered, and why.
May use numpy only; must not know torch, models or the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from secagg import ParameterError
from secagg.checks import require_int
from simulations.audits.base import Floats, Integers
from simulations.audits.intervals import upper_bound
from simulations.learning.data import DataError, Dataset, Split, load_dataset
from simulations.threats.game.rates import CONFIDENCE

PSNR_CEILING: Final = 120.0
"""dB; an error of 1e-6, about what float32 keeps of a gradient."""

MARGIN: Final = 1.0
"""dB between the threshold and the best that a blind attacker reached."""

MOST_PUBLIC: Final = 2_000
"""Public pictures that are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Gallery:
    """Pictures that clients hold, and others that everybody knows."""

    data: Dataset
    private: Split
    public: Split

    @classmethod
    def of(cls, data: Dataset) -> Gallery:
        """Take the two parts of a data set of pictures."""
        first = slice(0, MOST_PUBLIC)
        return cls(data, data.test, Split(data.train.inputs[first], data.train.labels[first]))


def galleries(names: tuple[str, ...]) -> list[Gallery]:
    """Return those of the named data sets that are here; digits always are."""
    found = []
    for name in names:
        try:
            found.append(Gallery.of(load_dataset(name)))
        except DataError:
            continue
    return found


def flat(split: Split, chosen: Integers | None = None) -> Floats:
    """Return pictures as float64[m, pixels] in [0, 1]."""
    inputs = split.inputs if chosen is None else split.inputs[chosen]
    return np.asarray(inputs, np.float64).reshape(len(inputs), -1)


def drawn(split: Split, count: int, rng: np.random.Generator) -> Integers:
    """Draw positions int64[count] of pictures, every label as likely as any other."""
    labels = rng.integers(0, int(split.labels.max()) + 1, count)
    return np.array([rng.choice(np.flatnonzero(split.labels == label)) for label in labels])


def distinct(split: Split, count: int, rng: np.random.Generator) -> Integers:
    """Draw positions of distinct pictures, whatever their labels: int64[count]."""
    return np.asarray(rng.choice(len(split), count, replace=False), np.int64)


def psnr(pictures: Floats, guesses: Floats) -> Floats:
    """Peak signal-to-noise ratio of each picture float64[m, pixels] against its best guess, in dB.

        PSNR = -10 log10(mean of squared errors),  for pixels in [0, 1]

    Guesses float64[k, pixels] are cut to [0, 1] first. At most `PSNR_CEILING`; 0 without any guess.
    """
    if not len(guesses):
        return np.zeros(len(pictures))
    errors = _errors(pictures, guesses).min(axis=1)
    ratio: Floats = np.minimum(-10.0 * np.log10(np.maximum(errors, 1e-300)), PSNR_CEILING)
    return ratio


def best_guesses(pictures: Floats, guesses: Floats) -> Floats:
    """Return for each picture the guess that is most like it; grey without any guess."""
    if not len(guesses):
        return np.full_like(pictures, 0.5)
    best: Floats = np.clip(guesses, 0.0, 1.0)[_errors(pictures, guesses).argmin(axis=1)]
    return best


def _errors(pictures: Floats, guesses: Floats) -> Floats:
    """Mean squared error of every pair: float64[m, k]."""
    inside = np.clip(guesses, 0.0, 1.0)
    return np.stack([np.square(inside - picture).mean(axis=1) for picture in pictures])


@dataclass(frozen=True, slots=True)
class Recognition:
    """When a picture counts as recovered."""

    threshold: float  # PSNR beyond which it does, dB
    chance: float

    @classmethod
    def of(cls, public: Split, guesses: int, seed: int) -> Recognition:
        """Measure blind attackers who may make so many guesses.

        Half of the public pictures are the attackers' knowledge. Of the others, half set the
        threshold and half measure the chance.
        """
        require_int("guesses", guesses, 1)
        if len(public) < 40:
            raise ParameterError("public", f"{len(public)} pictures", "at least 40")
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(public))
        known, sets, measures = np.split(order, [len(order) // 2, 3 * len(order) // 4])
        threshold = float(_blind(public, known, sets, guesses, rng).max()) + MARGIN
        passed = int((_blind(public, known, measures, guesses, rng) > threshold).sum())
        return cls(threshold, float(upper_bound(passed, len(measures), 1.0 - CONFIDENCE)))


def _blind(
    public: Split, known: Integers, victims: Integers, guesses: int, rng: np.random.Generator
) -> Floats:
    """The best that blind attackers reach on each victim: float64[len(victims)]."""
    pictures, reached = flat(public), []
    for victim in victims:
        same = known[public.labels[known] == public.labels[victim]]
        others = rng.choice(known, min(guesses, len(known)), replace=False)
        said = [pictures[others]]
        if len(same):
            said += [pictures[same].mean(axis=0)[None], pictures[rng.choice(same)][None]]
        reached.append(psnr(pictures[victim][None], np.concatenate(said))[0])
    return np.array(reached)
