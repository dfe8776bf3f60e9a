"""The noise of released sums against the law that they are accounted with.

Updates of zero go through the whole path: clip, sketch, rotation, rounding, noise, field, masks,
opening, removal of surplus batches, decoding. What comes out is noise alone. Its law is known
exactly: that of the round's event, for whoever looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from dp.mechanisms import MechanismName
from protocol import Dropouts, PrivacyGoal
from simulations.audits.base import ALPHA, Audit, Figures, Floats
from simulations.audits.distribution import independence_test, noise_test
from simulations.audits.paths import LOST_EARLY_AND_LATE, Mistake, PathSettings, WholePath
from sketch import SketchSpec

GOAL: Final = PrivacyGoal(4.4, 1e-5, 1)
NOBODY: Final[Dropouts] = {}
COLLUDER: Final = (0,)
OTHERS: Final[Mapping[MechanismName, str]] = {"skellam": "skellam", "discrete-gaussian": "gaussian"}
"""Mechanisms beside the binomial one, with the labels of their seeds."""


def noise_settings(
    length: int, exact_noise: bool | None = None, mechanism: MechanismName = "binomial"
) -> PathSettings:
    """Return rounds of eight clients, two tolerated dropouts and one tolerated colluder."""
    sketch = SketchSpec.identity(length)
    return PathSettings(sketch, GOAL, exact_noise=exact_noise, mechanism=mechanism)


def noise_figures(
    path: WholePath,  # with or without a mistake
    rounds: int,  # how many; the coordinates of all of them are the samples
    dropouts: Dropouts,  # who vanishes, and when
    colluders: Sequence[int] = (),
    alpha: float = ALPHA,  # level
) -> Figures:
    """Run rounds and hold their noise against the law that the announced round accounts for."""
    noise: list[Floats] = []
    survivors = path.settings.cohort
    for number in range(rounds):
        one, survivors = path.noise_of(number, dropouts, colluders)
        noise.append(one)
    claimed = path.claimed_release(survivors, bool(colluders))
    return noise_test(np.concatenate(noise), claimed, alpha).figures()


@dataclass(frozen=True, slots=True)
class Law:
    """A test of the law of released noise, which finds reduced noise and what else may be wrong."""

    name: str  # of the audit
    label: str  # of its seed
    promise: str
    real: bool = False  # whether rounds run with real cryptography, which opens removed seeds
    dropouts: Dropouts = field(default_factory=lambda: LOST_EARLY_AND_LATE)
    colluders: Sequence[int] = ()
    also: Sequence[Mistake] = ()
    mechanism: MechanismName = "binomial"
    exact_noise: bool | None = None

    def audit(self, length: int, rounds: int, seed: int) -> Audit:
        """The audit, by so many rounds of so many coordinates."""
        settings = noise_settings(length, self.exact_noise, self.mechanism)
        path = WholePath(settings, seed, real=self.real)

        def figures(path: WholePath) -> Figures:
            return noise_figures(path, rounds, self.dropouts, self.colluders)

        mutants = path.mutants(figures, *self.also, *LESS_NOISE)
        return Audit(f"privacy-noise-{self.name}", self.promise, partial(figures, path), mutants)


LESS_NOISE: Final = (Mistake.THIRD_MISSING, Mistake.HALF_NOISE)
REAL: Final = "With real cryptography and dropouts the sum has the"
LAWS: Final = (
    Law("law", "law", "After dropouts the sum has the noise accounted for"),
    Law("law-real", "real", f"{REAL} noise accounted for", real=True),
    *(
        Law(f"{each}-real", label, f"{REAL} {each} noise accounted for", True, mechanism=each)
        for each, label in OTHERS.items()
    ),
    Law(
        "removal",
        "removal",
        "Without dropouts all surplus noise is removed",
        real=True,
        dropouts=NOBODY,
        also=[Mistake.BATCH_STAYS],
    ),
    Law(
        "colluders",
        "colluders",
        "Less the noise of colluders, after dropouts, the noise is that of the server's event",
        colluders=COLLUDER,
        also=[Mistake.NO_MARGIN],
    ),
    Law(
        "colluders-real",
        "colluders, real",
        "With real cryptography, less the noise of colluders, the noise is as accounted",
        real=True,
        colluders=COLLUDER,
        also=[Mistake.NO_MARGIN],
        exact_noise=False,
    ),
    Law(
        "clients",
        "clients",
        "The noise of clients is independent",
        dropouts=NOBODY,
        also=[Mistake.SHARED_SEED],
    ),
)


def round_figures(path: WholePath, alpha: float = ALPHA) -> Figures:
    """Correlate the noise of two rounds."""
    first, second = (path.noise_of(number)[0] for number in (0, 1))
    return independence_test(first, second, alpha)


def audit_rounds(length: int, seed: int) -> Audit:
    """Rounds draw independent noise."""
    path = WholePath(noise_settings(length), seed)
    mutants = path.mutants(round_figures, Mistake.SEED_AGAIN)
    promise = "The noise of two rounds is independent"
    return Audit("privacy-noise-rounds", promise, partial(round_figures, path), mutants)
