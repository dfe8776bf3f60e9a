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
from typing import Any, Final, cast, get_args, get_type_hints

from sketch import _checks
from sketch.hashing import MAX_ROWS

SMALLEST_PROBE = 64
"""Below, the hashes alone make a squared norm uncertain by more than sqrt(2 / 64) = 18 %."""

LARGEST_PROBE = 2048
"""About the largest second sketch of the paper's tables; 0.2 % of a million coordinates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of controllers; a limit that is None is none."""

    meaning: str
    above: float | None = None
    least: float = 0.0
    below: float | None = None
    most: float | None = None


OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "rows": Option(
            meaning="rows of a sketch; every coordinate has a place in each",
            least=1,
            most=MAX_ROWS,
        ),
        "gamma": Option(
            meaning="largest squared error of the compression, as a share of the noise's", above=0
        ),
        "window": Option(meaning="number of last rounds that an estimate averages", least=1),
        "step_factor": Option(
            meaning="largest change of the size from one round to the next, as a factor", above=1
        ),
        "first_rate": Option(
            meaning="how many times shorter the first round is, 1 for no compression; as clip "
            "and noise of the plan ask for if left out",
            least=1,
        ),
        "probe_size": Option(
            meaning="size of the second sketch, which measures the error",
            least=SMALLEST_PROBE,
            most=LARGEST_PROBE,
        ),
        "probe_share": Option(
            meaning="share of the privacy budget for the second sketch", above=0, below=1
        ),
        "horizon": Option(
            meaning="number of rounds planned for; those of the run if left out", least=1
        ),
        "memory": Option(
            meaning="share of the run for which an error still shows in the model", above=0, most=1
        ),
        "warmup": Option(meaning="number of first rounds, which measure the norm", least=1),
        "eta": Option(meaning="learning rate of the size", above=0),
        "update": Option(
            meaning="how the size answers to x, the error less its target: its factor is 1 + eta "
            "sign(x), 2^(eta sign(x)), e^(eta x) or 1 + eta x"
        ),
        "relative": Option(meaning="divide x by the target"),
        "kappa": Option(
            meaning="share of a round's progress that compression may cost", above=0, most=1
        ),
        "gamma_low": Option(meaning="smallest gamma, and so the longest sketch", above=0),
        "gamma_high": Option(meaning="largest gamma, and so the shortest sketch", above=0),
        "caution": Option(
            meaning="standard deviations that are added to an estimate before it is used", least=0
        ),
        "momentum": Option(meaning="momentum of the server, as in its own table", least=0, below=1),
        "rate": Option(meaning="how many times shorter; 1, no compression, if left out", least=1),
    }
)
"""By the name of the field, in the order in which a reference shows them."""


def options_of(controller: type) -> Mapping[str, type]:
    """The options of a kind of controller with their types, not counting None for left out."""
    hints = get_type_hints(controller)
    return {field.name: _kind(hints[field.name]) for field in dataclasses.fields(controller)}


def _kind(hint: Any) -> type:
    """The type of an option that may be left out, too."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return cast("type", kinds[0])


def check_options(controller: object) -> None:
    """Check every option of a controller, each by itself."""
    for name, kind in options_of(type(controller)).items():
        value = getattr(controller, name)
        if value is not None or name not in _left_out(type(controller)):
            _check(name, kind, OPTIONS[name], value)


def _left_out(controller: type) -> frozenset[str]:
    """The options that None leaves out."""
    fields = dataclasses.fields(controller)
    return frozenset(field.name for field in fields if field.default is None)


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
