"""From a configuration to the algorithm that its clients run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dp.accounting.local import LocalAccountant
from dp.clipping import require_l2_bound
from dp.events import LocalRelease
from dp.local import CrossPolytope, sampled_hybrid, sampled_piecewise
from dp.local.base import shared_epsilon
from dp.local.two_stage import two_stage
from dp.search import bracketed
from protocol.errors import ConfigurationError
from protocol.planning.configuration import Privacy
from simulations.learning.local_dp.base import LocalAlgorithm
from simulations.learning.local_dp.config import LEVELS, SAMPLE_SHARE, LocalDp
from simulations.learning.local_dp.fedsel import FedSel
from simulations.learning.local_dp.sqsgd import SqSgd
from simulations.learning.local_dp.vectors import RandomizedVectors, clip_coordinates, clip_rows

_TOLERANCE = 1e-9


def build_algorithm(
    section: LocalDp, privacy: Privacy, dimension: int, reports: int
) -> LocalAlgorithm:
    """The algorithm of a run."""
    epsilon = epsilon_of_a_report(section, privacy, reports)
    bound = privacy.clip_l2 if section.bound is None else section.bound
    try:
        require_l2_bound(bound)
        return _build(section, dimension, epsilon, bound)
    except ValueError as error:
        raise ConfigurationError("local_dp", str(error), "figures that fit together") from None


def epsilon_of_a_report(section: LocalDp, privacy: Privacy, reports: int) -> float:
    """What one report may spend: as given, or as much as the whole allows."""
    if privacy.epsilon is None:
        raise ConfigurationError(
            "privacy.noise_multiplier", "given", "privacy.epsilon: local noise is not Gaussian"
        )
    given = section.epsilon_report
    if given is None:
        return _largest(privacy.epsilon, privacy.delta, reports)
    spent = composed_epsilon(given, reports, privacy.delta)
    if not spent <= privacy.epsilon * (1.0 + _TOLERANCE):
        raise ConfigurationError(
            "local_dp.epsilon_report",
            f"value {given}: {reports} reports of one client spend {spent:.6g}",
            f"no more than privacy.epsilon = {privacy.epsilon:g} in all",
        )
    return given


def _largest(epsilon: float, delta: float, reports: int) -> float:
    """The largest epsilon of a report that so many may have: never less than an equal share."""
    low, high = shared_epsilon(epsilon, reports), epsilon
    if composed_epsilon(high, reports, delta) <= epsilon:
        return high
    return bracketed(
        lambda each: composed_epsilon(each, reports, delta) > epsilon, low, high, _TOLERANCE
    )[0]


def composed_epsilon(epsilon: float, reports: int, delta: float) -> float:
    """Epsilon at delta of so many reports of one client, each of which has `epsilon`."""
    accountant = LocalAccountant()
    accountant.compose(LocalRelease(epsilon), reports)
    return accountant.epsilon(delta)


def _build(section: LocalDp, dimension: int, epsilon: float, bound: float) -> LocalAlgorithm:
    if section.algorithm == "piecewise":
        return RandomizedVectors(sampled_piecewise(dimension, epsilon), clip_coordinates, bound)
    if section.algorithm == "hybrid":
        return RandomizedVectors(sampled_hybrid(dimension, epsilon), clip_coordinates, bound)
    if section.algorithm == "cross_polytope":
        polytope = CrossPolytope(dimension, epsilon, section.repeats or 1)
        return RandomizedVectors(polytope, clip_rows, bound)
    if section.algorithm == "sqsgd":
        return _sqsgd(section, dimension, epsilon, bound)
    options = _given(section, "selector", "selection_share", "kept_share")
    return FedSel(two_stage(dimension, epsilon, bound=bound, **options), section.momentum or 0.0)


def _sqsgd(section: LocalDp, dimension: int, epsilon: float, bound: float) -> SqSgd:
    share, levels = section.sample_share or SAMPLE_SHARE, section.levels or LEVELS
    algorithm = SqSgd.as_printed(dimension, share, levels, bound, epsilon)
    return replace(algorithm, common=section.through == "secure_sum")


def _given(section: LocalDp, *names: str) -> dict[str, Any]:
    """Those of some keys that were not left out."""
    return {name: getattr(section, name) for name in names if getattr(section, name) is not None}
