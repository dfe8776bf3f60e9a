"""What a run's records say about the controller of its sketch, and which of its options to change.

Every controller has options of its own, so advice names those that it has. A sketch of size L that
keeps the error of compression at gamma times that of the noise has L proportional to 1 / gamma.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from simulations.common.tables import readable
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Record

SKETCH_ABOVE_NOISE: Final = 1.0
"""Squared error of the sketch over that of the noise: above, bytes are saved at the cost of more
accuracy than privacy takes. Controllers aim at a tenth."""
INTERVAL: Final = ("shortest", "longest")
"""Figures of the controllers that know an interval: the sizes between them are kept."""


def how_to_free(config: RunConfig, decided: Sequence[Record], larger: bool, size: float) -> str:
    """What to change so that a controller gets the larger, or smaller, size that it asks for."""
    rows = option(config, "rows")
    if larger and size >= decided[-1]["dimension"]:
        return f"The model has no more values. {how_to_compress(config, decided)}"
    if not larger and size <= rows:
        return f"Lower sketch.rows (now {rows}): no sketch is shorter than that."
    if option(config, "step_factor") is not None:
        first = "a lower sketch.first_rate, or " if larger else "a higher sketch.first_rate, or "
        if larger and option(config, "first_rate") == 1.0:
            first = ""
        return (
            f"Run more rounds, or get there sooner: by {first}a larger sketch.step_factor, or by "
            'sketch.controller = "adapt_norm", which has no such limit.'
        )
    if option(config, "kappa") is None:
        return "Run more rounds."
    if larger:
        return (
            "Run more rounds: it asks for less when it knows more. Or allow it more, by a lower "
            "sketch.gamma_low, or have it ask for less, by a higher sketch.kappa."
        )
    return "To save more bytes, raise sketch.gamma_high. Accuracy needs no change."


def wished(decided: Sequence[Record]) -> str:
    """What a controller asked for on average, and what it would have kept, if it is on record."""
    wanted, shortest, longest = (_mean_of(decided, n) for n in ("wanted_size", *INTERVAL))
    if wanted is None:
        return ""
    said = f" It asked for {readable(round(wanted))} on average"
    if shortest is None or longest is None:
        return f"{said}."
    kept = f"{readable(round(shortest))} to {readable(round(longest))}"
    return f"{said}, and would have kept any size from {kept}."


def how_to_compress(config: RunConfig, decided: Sequence[Record]) -> str:
    """How to let a controller compress that sends everything."""
    if option(config, "warmup") is not None and _mean_of(decided, "wanted_size") is None:
        now = option(config, "warmup")
        return f"To save bytes, lower sketch.warmup (now {now}): it was not over in this run."
    name, least = _decisive(config, decided)
    now = option(config, name)
    what = f"sketch.{name} (now {readable(now)})"
    if least <= now:
        return f"To save bytes, raise {what}."
    if least <= SKETCH_ABOVE_NOISE:
        return f"To save bytes, raise {what}: up to about {short(least)} that changes nothing."
    cost = "all progress" if name == "kappa" else "more accuracy than the noise"
    return (
        f"Nothing: {what} would have to be above about {short(least)}, where compression "
        f"costs {cost}."
    )


def _decisive(config: RunConfig, decided: Sequence[Record]) -> tuple[str, float]:
    """The option that keeps a controller from compressing, and what it must be above.

    That is 0 if unknown. All of these sizes are inversely proportional to their options.
    """
    wanted, shortest, longest, share = (
        _mean_of(decided, name) or 0.0 for name in ("wanted_size", *INTERVAL, "share")
    )
    dimension = decided[-1]["dimension"]
    high = option(config, "gamma_high")
    if option(config, "kappa") is not None:
        # Between two sizes that the norm sets, curvature decides.
        held = shortest >= dimension
        name, size = ("gamma_high", shortest) if held else ("kappa", wanted)
        return name, option(config, name) * size / dimension
    if share and high is not None and share * longest / dimension > high:
        return "gamma_high", share * longest / dimension
    return "gamma", option(config, "gamma") * (longest or wanted) / dimension


def _mean_of(decided: Sequence[Record], name: str) -> float | None:
    """Mean of a controller's figure over the rounds whose records have it; None if none has."""
    figures = (record.get("figures") or {} for record in decided)
    found = [each[name] for each in figures if name in each]
    return math.fsum(found) / len(found) if found else None


def keys_of(config: RunConfig, names: Iterable[str]) -> list[str]:
    """Those of some options that the controller of a run has, as keys of the configuration."""
    return [f"sketch.{name}" for name in names if option(config, name) is not None]


def option(config: RunConfig, name: str) -> Any:
    """An option of a run's controller; None if it has none, or has it left out."""
    return getattr(config.sketch.build(config.rounds), name, None)


def short(value: float) -> str:
    """Two significant digits: more are not known."""
    return f"{value:.2g}" if value < 100.0 else f"{value:,.0f}"
