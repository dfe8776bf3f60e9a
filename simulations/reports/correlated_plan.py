"""What noise that comes back is worth for a schedule of rounds, and against whom it holds."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

from dp.correlated import Promises, correlated_epsilon, largest_mu
from dp.correlated.planning import Optimiser, Schedule, plan_noise
from dp.report import json_number
from protocol.errors import ConfigurationError

LARGE_PART: Final = 1e9
"""Parts so large that integers cost nothing: a plan does not know its members yet."""


def correlated_figures(
    rounds: int,  # of the whole run
    participations: int | None,  # most rounds of one client
    apart: int | None,  # minimum number of rounds between them
    optimiser: str = "sgd",
    epsilon: float | None = None,  # of the run; None for no goal
    delta: float = 1e-5,  # of the goal
    clients: int | None = None,  # of a round, among whom the noise that stays is divided
) -> dict[str, Any]:
    """The best returned share, its gain and its cost; with a goal, also the noise."""
    for name, value in (("participations", participations), ("apart", apart)):
        if value is None:
            valid = "given with --correlated: gains depend on how often a client comes back"
            raise ConfigurationError(name, "left out", valid)
    try:
        schedule = Schedule(rounds, participations or 0, apart or 0)
    except ValueError as error:
        raise ConfigurationError("schedule", str(error), "one that fits the run") from None
    known = {each.value: each for each in Optimiser}
    if optimiser not in known:
        raise ConfigurationError("optimiser", f"value {optimiser!r}", ", ".join(known))
    plan = plan_noise(schedule, known[optimiser].weights(rounds))
    figures: dict[str, Any] = {
        "rounds": rounds,
        "participations": schedule.participations,
        "apart": schedule.apart,
        "optimiser": optimiser,
        **asdict(plan),
        "pays": plan.pays,
    }
    if epsilon is None:
        return figures
    promises = Promises(
        rounds=rounds,
        dimension=1,
        smallest_part=LARGE_PART,
        most_parts=1,
        kept=LARGE_PART,
        fresh=LARGE_PART,
    )
    mu = largest_mu(epsilon, delta, promises)
    fresh = plan.charge / mu**2
    without = schedule.participations / ((1.0 - plan.returned_share) * fresh)
    against = {"promised": epsilon, "without_members": correlated_epsilon(without, promises, delta)}
    if clients is not None:
        against["made_up"] = correlated_epsilon(without * clients, promises, delta)
    return figures | {
        "noise_multiplier": math.sqrt(fresh),
        "independent_noise_multiplier": math.sqrt(schedule.participations) / mu,
        "against": {name: json_number(value) for name, value in against.items()} | {"delta": delta},
    }
