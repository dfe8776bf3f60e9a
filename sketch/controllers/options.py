"""What the options of controllers mean and where they may lie.

The fields of a controller name its options and give their types and defaults; all else that is to
be said of an option, which several controllers may have, stands here once. Configurations take
their keys from both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, get_type_hints

from sketch import _checks
from sketch.hashing import MAX_ROWS

SMALLEST_PROBE = 64
"""Below, the hashes alone make a squared norm uncertain by more than sqrt(2 / 64) = 18 %."""

LARGEST_PROBE = 2048
"""About the largest second sketch of the paper's tables; 0.2 % of a million coordinates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of controllers; a limit that is None is none.

    Args:
        meaning: a few words, for the reference of configurations.
        above: every value is larger than this.
        least: every value is at least this; nothing is negative.
        below: every value is smaller than this.
        most: every value is at most this.
    """

    meaning: str
    above: float | None = None
    least: float = 0.0
    below: float | None = None
    most: float | None = None


OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "rows": Option(meaning="rows of a sketch", least=1, most=MAX_ROWS),
        "gamma": Option(
            meaning="largest squared error of the compression, as a share of the noise's", above=0
        ),
        "window": Option(meaning="rounds averaged", least=1),
        "step_factor": Option(
            meaning="largest change of the size from one round to the next, as a factor", above=1
        ),
        "first_rate": Option(meaning="compression in the first round; 1 for none", least=1),
        "probe_size": Option(
            meaning="size of the second sketch", least=SMALLEST_PROBE, most=LARGEST_PROBE
        ),
        "probe_share": Option(
            meaning="share of the budget for the second sketch", above=0, below=1
        ),
        "horizon": Option(meaning="rounds of the run", least=1),
        "memory": Option(meaning="share of the run for which an error shows", above=0, most=1),
        "warmup": Option(meaning="rounds without compression", least=1),
        "eta": Option(meaning="learning rate of adapt_tail", above=0),
        "update": Option(meaning="how adapt_tail answers to the error"),
        "relative": Option(meaning="adapt_tail: error over target"),
        "kappa": Option(meaning="share of progress that compression may cost", above=0, most=1),
        "gamma_low": Option(meaning="the smallest gamma: never a longer sketch", above=0),
        "gamma_high": Option(meaning="the largest gamma: never a shorter sketch", above=0),
        "caution": Option(meaning="standard deviations added to an estimate", least=0),
        "momentum": Option(meaning="momentum of the server", least=0, below=1),
        "rate": Option(meaning="compression; 1 for none", least=1),
    }
)
"""By the name of the field, in the order in which a reference shows them."""


def options_of(controller: type) -> Mapping[str, type]:
    """The options of a kind of controller with their types."""
    hints = get_type_hints(controller)
    return {field.name: hints[field.name] for field in dataclasses.fields(controller)}


def check_options(controller: object) -> None:
    """Check every option of a controller, each by itself.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.
    """
    for name, kind in options_of(type(controller)).items():
        _check(name, kind, OPTIONS[name], getattr(controller, name))


def _check(name: str, kind: type, option: Option, value: object) -> None:
    if kind not in (int, float):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
        return
    low = float(option.least if option.above is None else option.above)
    most = option.below if option.most is None else option.most
    high = math.inf if most is None else float(most)
    if kind is int:
        _checks.integer(name, value, int(low), None if high == math.inf else int(high))
        return
    number = _checks.real(name, value, low, high, open_low=option.above is not None)
    if option.below is not None and number >= option.below:
        raise ValueError(f"{name} must be below {option.below:g}, not {number}")
