"""The noise of released sums against the law that they are accounted with.

Updates of zero go through the whole path: clip, sketch, rotation, rounding, noise, field, masks,
opening, removal of surplus batches, decoding. What comes out is noise alone. Its law is known
exactly: that of the round's event, for whoever looks.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Run rounds and hold their noise against the law that the announced round accounts for.

    Args:
        colluders: survivors whose noise the adversary subtracts, as many as are tolerated; nobody
            for an outsider.
    """
    noise: list[Floats] = []
    survivors = path.settings.cohort
    for number in range(rounds):
        one, survivors = path.noise_of(number, dropouts, colluders)
        noise.append(one)
    claimed = path.claimed_release(survivors, bool(colluders))
    return noise_test(np.concatenate(noise), claimed, alpha).figures()


LESS_NOISE: Final = (Mistake.THIRD_MISSING, Mistake.HALF_NOISE)


def _law(
    name: str,
    promise: str,
    path: WholePath,
    rounds: int,
    dropouts: Dropouts,
    colluders: Sequence[int] = (),
    also: Sequence[Mistake] = (),
) -> Audit:
    """The law test of a path, which finds thin noise and what else may be wrong."""

    def figures(path: WholePath) -> Figures:
        return noise_figures(path, rounds, dropouts, colluders)

    mutants = path.mutants(figures, *also, *LESS_NOISE)
    return Audit(f"privacy-noise-{name}", promise, partial(figures, path), mutants)


def audit_law(length: int, rounds: int, seed: int) -> Audit:
    """The sum has the noise of all survivors, dropouts or not."""
    path = WholePath(noise_settings(length), seed)
    promise = "After dropouts the sum has the noise accounted for"
    return _law("law", promise, path, rounds, LOST_EARLY_AND_LATE)


def audit_law_of_real_rounds(
    length: int, rounds: int, seed: int, mechanism: MechanismName = "binomial"
) -> Audit:
    """The same through the whole protocol: a client lost early, another after its update."""
    path = WholePath(noise_settings(length, mechanism=mechanism), seed, real=True)
    name, promise = "law-real", "With real cryptography and dropouts the sum has the"
    if mechanism != "binomial":
        name, promise = f"{mechanism}-real", f"{promise} {mechanism}"
    promise = f"{promise} noise accounted for"
    return _law(name, promise, path, rounds, LOST_EARLY_AND_LATE)


def audit_removal(length: int, rounds: int, seed: int) -> Audit:
    """Surplus batches are taken off in full; real cryptography opens their seeds."""
    path = WholePath(noise_settings(length), seed, real=True)
    promise = "Without dropouts all surplus noise is removed"
    return _law("removal", promise, path, rounds, NOBODY, also=[Mistake.BATCH_STAYS])


def audit_colluders(length: int, rounds: int, seed: int) -> Audit:
    """A server that subtracts the noise of its colluder is left with what it is charged for."""
    path = WholePath(noise_settings(length), seed)
    promise = "Less the noise of colluders, after dropouts, the noise is that of the server's event"
    return _less_colluders("colluders", promise, path, rounds)


def audit_colluders_of_real_rounds(length: int, rounds: int, seed: int) -> Audit:
    """The same with real cryptography, where noise is not removable."""
    path = WholePath(noise_settings(length, exact_noise=False), seed, real=True)
    promise = "With real cryptography, less the noise of colluders, the noise is as accounted"
    return _less_colluders("colluders-real", promise, path, rounds)


def _less_colluders(name: str, promise: str, path: WholePath, rounds: int) -> Audit:
    also = [Mistake.NO_MARGIN]
    return _law(name, promise, path, rounds, LOST_EARLY_AND_LATE, COLLUDER, also)


def audit_clients(length: int, rounds: int, seed: int) -> Audit:
    """Clients draw independent noise."""
    path = WholePath(noise_settings(length), seed)
    promise = "The noise of clients is independent"
    return _law("clients", promise, path, rounds, NOBODY, also=[Mistake.SHARED_SEED])


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
