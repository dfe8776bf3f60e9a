"""What the runs say: differences seed by seed, and noise in the model beside what was planned.

Runs of one seed share clients, data, first model, cohorts and batches, so arms are compared in
pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.campaigns.claims import OURS, Claim, Interval, compared, gains
from simulations.campaigns.rows import Figures, Row, distinct, first
from simulations.learning.configuration import RunConfig
from simulations.learning.noise_schedule import (
    banded_plan,
    noise_weights,
    returned_plan,
    schedule_of,
)
from simulations.studies.correlated.plan import SCHEDULES, TASKS

NEGLIGIBLE: Final = 0.005  # a gain in accuracy that is surely below half a point is none

# What is compared: the one, the other, and what is claimed
PAIRS: Final = (
    ("returned", "independent", "noise that comes back beats independent noise, nobody trusted"),
    (
        "trusted-returned",
        "trusted-independent",
        "noise that comes back beats independent noise, a trusted server",
    ),
    ("banded", "trusted-returned", "a banded matrix beats noise that comes back, a trusted server"),
    (
        "banded",
        "returned",
        "a trusted server's banded matrix beats noise that comes back, untrusted",
    ),
)


def planned_noise(config: RunConfig) -> list[float]:
    """Return the planned root mean square of the noise in the model after every round.

    It is that of Gaussian noise of a trusted server, divided by the whole cohort: integers that
    clients add cost a little more.
    """
    weights = noise_weights(config.server, config.rounds)
    goal = config.privacy.goal(config.participations)
    unit = goal.noise_multiplier * config.privacy.clip_l2 / config.cohort.size
    if config.noise.kind == "banded":
        variances = banded_plan(config).model_variances
    else:
        variances = _variances(config, weights)
    return [float(unit * root) for root in np.sqrt(variances)]


def _variances(config: RunConfig, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    fresh, share = 1.0, 0.0
    if config.noise.kind == "returned":
        plan = returned_plan(config)
        fresh, share = plan.fresh_ratio, plan.returned_share
    stays = (1.0 - share) * (weights**2).sum(axis=1)
    # What comes back leaves the difference of two weights; of the last round, a whole one.
    apart = weights - np.pad(weights[:, 1:], ((0, 0), (0, 1)))
    np.fill_diagonal(apart, np.diagonal(weights))
    return np.asarray(fresh * (stays + share * (apart**2).sum(axis=1)))


def planned(config: RunConfig) -> dict[str, Any]:
    """Return what a private configuration's noise is planned to be."""
    schedule, noise = schedule_of(config), config.noise.kind
    found: dict[str, Any] = {
        "participations": schedule.participations,
        "apart": schedule.apart,
        "gain": 1.0,
        "noise": planned_noise(config),
    }
    if noise == "returned":
        plan = returned_plan(config)
        found |= {"gain": plan.gain, "share": plan.returned_share}
    elif noise == "banded":
        found["gain"] = banded_plan(config).gain
    return found


def comparisons(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return all differences between arms, task by task."""
    found = []
    keys = distinct(rows, lambda row: (row["task"], row["epsilon"], row["schedule"]))
    for one, other, statement in PAIRS:
        for task, epsilon, schedule in keys:
            place = {"task": task, "epsilon": epsilon, "schedule": schedule}
            left, right = (first(rows, arm=arm, **place) for arm in (one, other))
            if left is None or right is None:
                continue
            differences = gains(left["accuracies"], right["accuracies"])
            about = {"one": one, "other": other, "statement": statement}
            seen = {**compared(differences, NEGLIGIBLE), "mean": fmean(differences)}
            against = {"accuracy": left["accuracy"], "against": right["accuracy"]}
            found.append({**place, **about, "differences": differences, **seen, **against})
    return found


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield a claim for each of them."""
    for each in figures["comparisons"]:
        where = f"{TASKS[each['task']].title}, epsilon = {each['epsilon']:g}"
        statement = f"{each['statement']}: {where}, {SCHEDULES[each['schedule']].title}"
        seen = f"{100 * each['accuracy']:.1f} % against {100 * each['against']:.1f} %"
        yield Claim.about(statement, OURS, Interval.of(each["differences"]), each["verdict"], seen)
