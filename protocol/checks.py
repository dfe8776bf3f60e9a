"""Ranges of the figures that goals, plans, policies and files share, and checks of arguments.

A wrong type is told before arithmetic meets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from secagg import ParameterError
from secagg.checks import Range, whole
from secagg.oneshot.committee import MAX_MEMBERS
from secagg.oneshot.sortition import CERTAIN
from secagg.pairwise.graph_parameters import SECURITY
from secagg.terms import COHORT, LIFETIME, MAX_COHORT

T = TypeVar("T")

SMALLEST_ERROR_SHARE = 5e-3
"""The part of delta that is set aside alone costs about 0.004."""

FRACTION: Final = Range(0, 1, "()")
POSITIVE: Final = Range(0, ends="()")

RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "epsilon": POSITIVE,
        "delta": FRACTION,
        "rounds": whole(1),
        "moment_order": Range(1, ends="()"),
        "noise_multiplier": POSITIVE,
        "own_noise_multiplier": Range(0),
        "clip_l2": Range(MIN_L2_BOUND, MAX_L2_BOUND),
        "error_share": Range(SMALLEST_ERROR_SHARE, 1),
        "cohort": COHORT,
        "tolerated_dropouts": whole(0, MAX_COHORT),
        "tolerated_colluders": whole(0, MAX_COHORT),
        "lifetime_seconds": LIFETIME,
        "security_bits": SECURITY,
        "dimension": whole(1),
        "apart": whole(1),
        # Of a committee.
        "size": whole(1, MAX_MEMBERS),
        "corrupt": whole(0),
        "away": whole(0),
        "odds": Range(1 / CERTAIN, 1, "[)"),
        "smallest_threshold": whole(2, MAX_MEMBERS),
    }
)
"""By the name that plans, rounds, policies and files give a figure; those that are ranges of one
place only stand there."""


def require(figures: object, *names: str) -> None:
    """Raise `ParameterError` unless these attributes lie in the ranges of their names."""
    for name in names:
        RANGES[name].require(name, getattr(figures, name))


def require_number(name: str, value: object) -> None:
    """Raise `ParameterError` unless `value` is an int or a float, of any size; bools are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(name, value, "a number")


def of_kind(name: str, value: object, kind: type[T]) -> T:
    """The value, which must be of a kind."""
    if not isinstance(value, kind):
        raise ParameterError(name, type(value).__name__, f"a {kind.__name__}")
    return value
