"""Figures in words: what matters first, numbers that a person can read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import shorten
from typing import Final

from simulations.audits.base import Check, Figures
from simulations.common.tables import readable
from simulations.threats.game.rates import CONFIDENCE

RATE: Final = ("trials", "successes", "lower", "upper", "chance")
BOUNDS: Final = ("epsilon_at_least", "gaussian_epsilon_at_least")
CEILINGS: Final = ("epsilon_ceiling", "gaussian_ceiling")
ALLOWED: Final = "allowed: by guessing, or by epsilon"
SHORT: Final = 72
"""Characters of a headline's refusal; the figures have all of it."""
_SAID_FIRST: Final = {"error", "succeeded", "rejected", "refused_with", *RATE}


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its interval."""

    successes: int  # of `trials`
    trials: int  # >= 1
    lower: float  # bound of Clopper and Pearson
    upper: float  # likewise
    chance: float  # what guessing has, or what the accounted epsilon allows; more is a success

    @property
    def share(self) -> float:
        """Successes over trials."""
        return self.successes / self.trials

    def __str__(self) -> str:
        chance = f", allowed {percent(self.chance)}" if self.chance else ""
        return (
            f"{self.successes:,} of {self.trials:,} "
            f"({percent(self.lower)} to {percent(self.upper)}{chance})"
        )


def number(figures: Figures, name: str) -> float | None:
    """Return a figure as a float; None if there is none, or if it is no number.

    Figures that were written as JSON have "inf" for an infinite one.
    """
    value = figures.get(name)
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def rate_of(figures: Figures) -> Rate | None:
    """Return the success rate among figures; the first, if they have only rates of parts."""
    parts = [name.removesuffix("successes") for name in figures if name.endswith("successes")]
    found = (_rate(figures, part) for part in sorted(parts, key=bool))
    return next((rate for rate in found if rate is not None), None)


def _rate(figures: Figures, part: str) -> Rate | None:
    trials, successes, lower, upper, chance = (number(figures, part + name) for name in RATE)
    if trials is None or successes is None or lower is None or upper is None or trials < 1:
        return None
    return Rate(int(successes), int(trials), lower, upper, chance or 0.0)


def largest(figures: Figures, names: tuple[str, ...]) -> float | None:
    """Return the largest of some figures; None if there is none of them."""
    found = [value for name in names if (value := number(figures, name)) is not None]
    return max(found, default=None)


def outcome(figures: Figures) -> str:
    """Say in a word how one side ended: what was attacked, or what was measured."""
    if "error" in figures:
        return "did not end"
    if "succeeded" in figures:
        return "attack succeeded" if figures["succeeded"] else "attack failed"
    if "rejected" in figures:
        return "claim rejected" if figures["rejected"] else "claim not rejected"
    return "shown below"


def headline(figures: Figures) -> str:
    """Return the outcome and the figure that decides it, on one line."""
    if "error" in figures:
        return str(figures["error"])
    return "; ".join([outcome(figures), *_deciding(figures)])


def _deciding(figures: Figures) -> Iterator[str]:
    if "refused_with" in figures and not figures.get("succeeded"):
        yield f"refused: {shorten(str(figures['refused_with']), SHORT, placeholder=' ...')}"
    rate = rate_of(figures)
    if rate is not None:
        yield str(rate)
    bound, claim = largest(figures, BOUNDS), number(figures, "claimed_epsilon")
    if bound is not None and claim is not None:
        yield f"epsilon at least {readable(bound)}, accounted {readable(claim)}"
    ratio = number(figures, "variance_ratio")
    if ratio is not None:
        yield f"variance {readable(ratio)} of the accounted one"
    yield from _schedules(figures)


def _schedules(figures: Figures) -> Iterator[str]:
    schedules = number(figures, "schedules")
    if "caught" in figures:
        yield f"{figures['caught']} of {figures['mutants']} mutants caught"
    elif schedules is not None:
        yield f"{int(schedules):,} schedules"
        if "broken_schedules" in figures:
            yield f"{figures['broken_schedules']} broken"


def entries(figures: Figures) -> list[tuple[str, str]]:
    """Return names and values for a definition list; what decides the outcome comes first."""
    found: list[tuple[str, str]] = []
    if "error" in figures:
        found.append(("error", str(figures["error"])))
    if "refused_with" in figures:
        found.append(("refused with", str(figures["refused_with"])))
    found += _rate_entries(figures)
    found += [(worded(k), valued(v)) for k, v in figures.items() if k not in _SAID_FIRST]
    return found


def _rate_entries(figures: Figures) -> list[tuple[str, str]]:
    rate = _rate(figures, "")
    if rate is None:
        return [(worded(name), valued(figures[name])) for name in RATE if name in figures]
    found = [
        ("succeeded", f"{rate.successes:,} of {rate.trials:,} ({percent(rate.share)})"),
        (f"interval, {2 * CONFIDENCE - 1:.1%}", f"{percent(rate.lower)} to {percent(rate.upper)}"),
    ]
    return found + ([(ALLOWED, percent(rate.chance))] if rate.chance else [])


def worded(name: str) -> str:
    """Return the name of a figure as words."""
    return name.replace("_", " ")


def valued(value: float | int | str | bool) -> str:
    """Return a figure for reading; what is almost 1 as its distance from it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if value < 1.0 and readable(value) == "1":
            return f"1 - {1.0 - value:.2g}"
    return readable(value)


def percent(share: float) -> str:
    """Return a share in percent, with three digits at most: 0.0069 as "0.69 %", on one line."""
    return f"{100 * share:.3g}\u00a0%"


def control_of(check: Check, defence: str) -> str:
    """Say how the other side of a check differs from the product."""
    if defence:
        return f"The victim lacks: {defence}."
    _, found, twin = check.title.partition("(twin: ")
    return f"The victim: {twin.removesuffix(')')}." if found else ""


def promise_of(check: Check) -> str:
    """Return a check's title without the note about its twin."""
    return check.title.partition(" (twin")[0]
