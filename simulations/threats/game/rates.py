"""Success rates of attacks, with their intervals."""

from __future__ import annotations

from typing import Final

from secagg import ParameterError
from secagg.checks import require_int
from simulations.audits.base import ALPHA, Figures
from simulations.audits.intervals import lower_bound, upper_bound

CONFIDENCE: Final = 0.999
"""Of every interval of a success rate, each side."""


def rate(successes: int, trials: int, chance: float = 0.0) -> Figures:
    """A success rate with its interval."""
    require_int("trials", trials, 1)
    if not 0 <= successes <= trials:
        raise ParameterError("successes", successes, f"an int in 0 .. {trials}")
    return {
        "trials": trials,
        "successes": successes,
        "lower": float(lower_bound(successes, trials, 1.0 - CONFIDENCE)),
        "upper": float(upper_bound(successes, trials, 1.0 - CONFIDENCE)),
        "chance": chance,
        "succeeded": float(lower_bound(successes, trials, ALPHA)) > chance,
    }
