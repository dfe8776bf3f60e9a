"""The noise of released sums against the law that they are accounted with.

Updates of zero go through the whole path: clip, sketch, rotation, rounding, noise, field, masks,
opening, removal of surplus batches, decoding. What comes out is noise alone. Its law is known
exactly: that of the round's event, for whoever looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dp.mechanisms import MechanismName
from protocol import Dropouts, PrivacyGoal
from simulations.audits.base import ALPHA, Check, Figures, Floats
from simulations.audits.distribution import independence_test, noise_test
from simulations.audits.paths import LOST_EARLY_AND_LATE, Mistake, PathSettings, WholePath
from sketch import SketchSpec

GOAL: Final = PrivacyGoal(4.4, 1e-5, 1)
NOBODY: Final[Dropouts] = {}
COLLUDER: Final = (0,)


def noise_settings(
    length: int, exact_noise: bool | None = None, mechanism: MechanismName = "binomial"
) -> PathSettings:
    """Return rounds of eight clients, two tolerated dropouts and one tolerated colluder."""
    sketch = SketchSpec.identity(length)
    return PathSettings(sketch, GOAL, exact_noise=exact_noise, mechanism=mechanism)


def noise_figures(
    path: WholePath,
    rounds: int,
    dropouts: Dropouts,
    colluders: Sequence[int] = (),
    alpha: float = ALPHA,
) -> Figures:
    """Run rounds and hold their noise against the law that the announced round accounts for.

    Args:
        path: with or without a mistake.
        rounds: how many; the coordinates of all of them are the samples.
        dropouts: who vanishes, and when.
        colluders: survivors whose noise the adversary subtracts, as many as are tolerated; nobody
            for an outsider.
        alpha: level.
    """
    noise: list[Floats] = []
    survivors = path.settings.cohort
    for number in range(rounds):
        one, survivors = path.noise_of(number, dropouts, colluders)
        noise.append(one)
    claimed = path.claimed_release(survivors, bool(colluders))
    return noise_test(np.concatenate(noise), claimed, alpha).figures()


def _law(
    name: str,
    title: str,
    path: WholePath,
    mistake: Mistake,
    rounds: int,
    dropouts: Dropouts,
    colluders: Sequence[int] = (),
) -> Check:
    """Run the law test on a path and on its twin."""
    return Check.of(
        f"privacy-noise-{name}",
        f"{title} (twin: {mistake.value})",
        noise_figures(path, rounds, dropouts, colluders),
        noise_figures(replace(path, mistake=mistake), rounds, dropouts, colluders),
    )


def check_law(length: int, rounds: int, seed: int) -> Check:
    """The sum has the noise of all survivors, dropouts or not."""
    path = WholePath(noise_settings(length), seed)
    title = "After dropouts the sum has the noise accounted for"
    return _law("law", title, path, Mistake.HALF_NOISE, rounds, LOST_EARLY_AND_LATE)


def check_law_of_real_rounds(
    length: int, rounds: int, seed: int, mechanism: MechanismName = "binomial"
) -> Check:
    """The same through the whole protocol: a client lost early, another after its update."""
    path = WholePath(noise_settings(length, mechanism=mechanism), seed, real=True)
    name, title = "law-real", "With real cryptography and dropouts the sum has the"
    if mechanism != "binomial":
        name, title = f"{mechanism}-real", f"{title} {mechanism}"
    title = f"{title} noise accounted for"
    return _law(name, title, path, Mistake.HALF_NOISE, rounds, LOST_EARLY_AND_LATE)


def check_removal(length: int, rounds: int, seed: int) -> Check:
    """Surplus batches are taken off in full; real cryptography opens their seeds."""
    path = WholePath(noise_settings(length), seed, real=True)
    title = "Without dropouts all surplus noise is removed"
    return _law("removal", title, path, Mistake.BATCH_STAYS, rounds, NOBODY)


def check_colluders(length: int, rounds: int, seed: int) -> Check:
    """A server that subtracts the noise of its colluder is left with what it is charged for."""
    path = WholePath(noise_settings(length), seed)
    title = "Less the noise of colluders, after dropouts, the noise is that of the server's event"
    return _law("colluders", title, path, Mistake.NO_MARGIN, rounds, LOST_EARLY_AND_LATE, COLLUDER)


def check_colluders_of_real_rounds(length: int, rounds: int, seed: int) -> Check:
    """The same with real cryptography, where noise is not removable."""
    path = WholePath(noise_settings(length, exact_noise=False), seed, real=True)
    title = "With real cryptography, less the noise of colluders, the noise is as accounted"
    return _law(
        "colluders-real", title, path, Mistake.NO_MARGIN, rounds, LOST_EARLY_AND_LATE, COLLUDER
    )


def check_clients(length: int, rounds: int, seed: int) -> Check:
    """Clients draw independent noise."""
    path = WholePath(noise_settings(length), seed)
    title = "The noise of clients is independent"
    return _law("clients", title, path, Mistake.SHARED_SEED, rounds, NOBODY)


def round_figures(path: WholePath, alpha: float = ALPHA) -> Figures:
    """Correlate the noise of two rounds."""
    first, second = (path.noise_of(number)[0] for number in (0, 1))
    return independence_test(first, second, alpha)


def check_rounds(length: int, seed: int) -> Check:
    """Rounds draw independent noise."""
    path = WholePath(noise_settings(length), seed)
    return Check.of(
        "privacy-noise-rounds",
        f"The noise of two rounds is independent (twin: {Mistake.SEED_AGAIN.value})",
        round_figures(path),
        round_figures(replace(path, mistake=Mistake.SEED_AGAIN)),
    )
