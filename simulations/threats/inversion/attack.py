"""A23: private pictures and labels from what clients send; see docs/attacks-on-updates.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from protocol import PrivacyGoal
from simulations.audits.base import Exhibit, Figures
from simulations.common.threads import one_thread
from simulations.threats.attack import Effort, Findings, rate
from simulations.threats.inversion.experiments import (
    GUESSES,
    InversionSetting,
    attack_by_imprint,
    attack_by_search,
    attack_first_layer,
    pictures_by_epsilon,
)
from simulations.threats.inversion.grid import noise_curve, picture_grid
from simulations.threats.inversion.pictures import Gallery, galleries
from simulations.threats.inversion.results import Labels, Reconstructions
from simulations.threats.inversion.views import ServerView

GOAL: Final = PrivacyGoal(1.0, 1e-5, 1)
"""Of the noised sum: one round at epsilon = 1."""

EPSILONS: Final = (1.0, 4.0, 16.0, 64.0, 128.0, 256.0, math.inf)
"""Of the curve that shows where noise stops protecting."""

BINS: Final = 256

FEWEST: Final = 8
"""Pictures from which on an attack has to succeed by itself, not only in the total: a search may
get stuck, and one that does must not decide."""


def gradient_inversion(effort: Effort, seed: int) -> Findings:
    """Run all attacks on all pictures that are here."""
    names = ("digits",) if effort is Effort.QUICK else ("digits", "mnist", "fashion-mnist")
    settings = [
        InversionSetting(gallery, 10 if _is_large(gallery) else effort.choose(10, 20), GOAL, seed)
        for gallery in galleries(names)
    ]
    pictures: list[Reconstructions] = []
    labels: list[Labels] = []
    exhibits: list[Exhibit] = []
    with one_thread():
        for setting in settings:
            found, leaked = _attacks(setting, effort)
            labels.append(leaked)
            pictures += found
            exhibits.append(picture_grid(found, setting.clients, GOAL.epsilon))
        if effort is Effort.FULL:
            exhibits.append(_curve(settings[0]))
    clients: Figures = {
        f"{each.gallery.data.name.replace('-', '_')}_clients": each.clients for each in settings
    }
    common: Figures = {"epsilon": GOAL.epsilon, "delta": GOAL.delta, **clients}
    middle = _figures([*pictures, *labels], ServerView.SUM)
    middle = {f"sum_{name}": value for name, value in middle.items()}
    noised, plain = (
        _judged(pictures, labels, view) for view in (ServerView.NOISED, ServerView.PLAIN)
    )
    return Findings({**common, **noised, **middle}, {**common, **plain, **middle}, tuple(exhibits))


def _attacks(setting: InversionSetting, effort: Effort) -> tuple[list[Reconstructions], Labels]:
    large = _is_large(setting.gallery)
    first, labels = attack_first_layer(setting, effort.choose(12, 20 if large else 200))
    found = [
        first,
        attack_by_search(setting, effort.choose(2, 5 if large else 10), 1, effort.choose(60, 300)),
    ]
    if effort is Effort.FULL:
        found.append(attack_by_search(setting, 1 if large else 6, 4, 300))
    bins = effort.choose(BINS, 2 * BINS)
    return [*found, attack_by_imprint(setting, effort.choose(1, 3), 8, bins)], labels


def _is_large(gallery: Gallery) -> bool:
    """Whether models of such pictures have so many parameters that every client costs seconds."""
    return gallery.data.features > 64


def _curve(setting: InversionSetting) -> Exhibit:
    points = pictures_by_epsilon(setting, EPSILONS)
    threshold = setting.recognition(GUESSES).threshold
    return noise_curve(points, threshold, setting.gallery.data.name, setting.clients)


def _figures(results: Sequence[Reconstructions | Labels], view: ServerView) -> Figures:
    return {name: value for each in results for name, value in each.figures(view).items()}


def _judged(
    pictures: Sequence[Reconstructions], labels: Sequence[Labels], view: ServerView
) -> Figures:
    """The figures of one view, and whether attackers got anywhere.

    The noised sum has to withstand every attack, and the total of all. The plain update has to
    yield in total, and to every attack that was tried on `FEWEST` pictures or more.
    """
    counts = [each.counts(view) for each in pictures]
    chance = max(each.recognition.chance for each in pictures)
    total = rate(sum(hit for hit, _ in counts), sum(of for _, of in counts), chance)
    results: list[Reconstructions | Labels] = [*pictures, *labels]
    shares = [each.rate(view) for each in results]
    if view is ServerView.PLAIN:
        shares = [share for share in shares if int(share["trials"]) >= FEWEST]
    won = [bool(share["succeeded"]) for share in (total, *shares)]
    succeeded = all(won) if view is ServerView.PLAIN else any(won)
    return {**total, **_figures(results, view), "succeeded": succeeded}
